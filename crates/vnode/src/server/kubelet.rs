//! What a fleet needs for its kubelet API, put together: doors, certificate, authority of clients, authorization.

use super::Settings;
use super::auth::{Auth, Memory, Rules};
use super::doors;
use super::tls::{AGAIN, clients, files, signed};
use crate::fleet::Kubelet;
use evenkeel_net::pki::PkiError;
use evenkeel_net::serve::ServerTls;
use kube::Client;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How a fleet's kubelet API is served.
#[derive(Clone, Debug)]
pub struct KubeletApi {
    /// Where it listens.
    pub doors: doors::Settings,
    /// With what it proves who it is.
    pub certificate: Certificate,
    /// Whose client certificates it believes.
    pub clients: Clients,
    /// Who may ask, and who decides what.
    pub rules: Rules,
}

/// A serving certificate.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Of files, read again every minute.
    Files(files::Files),
    /// Of the cluster's signer, by a CertificateSigningRequest, for these addresses of nodes.
    Signed(signed::Settings, BTreeSet<IpAddr>),
    /// The caller's, who replaces it.
    Given(ServerTls),
}

/// The authority of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// A file's, read again every minute.
    File(PathBuf),
    /// The one that the API server publishes.
    Published,
    /// The caller's affair, or nobody's: clients come with tokens.
    AsGiven,
}

/// The API cannot be served. Not worth a retry before somebody has changed something.
#[derive(Debug, thiserror::Error)]
pub enum KubeletApiError {
    /// No TLS at all.
    #[error("cannot prepare TLS for the kubelet API")]
    Tls(#[from] PkiError),
    /// The files of the certificate are of no use.
    #[error(transparent)]
    Files(#[from] files::FilesError),
    /// The file of the authority is of no use.
    #[error(transparent)]
    Clients(#[from] clients::ClientCaError),
}

/// What is read from files at the start, and is followed from then on.
pub struct Prepared {
    tls: ServerTls,
    doors: doors::Settings,
    rules: Rules,
    tasks: Vec<Task>,
}

/// Something to be followed.
enum Task {
    Files(files::Files, evenkeel_net::pki::Identity),
    Signed(signed::Settings, BTreeSet<IpAddr>),
    ClientFile(PathBuf, String),
    Published,
}

impl KubeletApi {
    /// Reads the files, so that what is wrong with them is told before anything begins.
    pub async fn prepare(self) -> Result<Prepared, KubeletApiError> {
        let mut tasks = Vec::new();
        let tls = match self.certificate {
            Certificate::Files(files) => {
                let tls = ServerTls::without_certificate()?;
                let identity = files.load(&tls).await?;
                tasks.push(Task::Files(files, identity));
                tls
            }
            Certificate::Signed(settings, addresses) => {
                tasks.push(Task::Signed(settings, addresses));
                ServerTls::without_certificate()?
            }
            Certificate::Given(tls) => tls,
        };
        match self.clients {
            Clients::File(path) => {
                let pem = clients::load_file(&path, &tls).await?;
                tasks.push(Task::ClientFile(path, pem));
            }
            Clients::Published => tasks.push(Task::Published),
            Clients::AsGiven => {}
        }
        Ok(Prepared {
            tls,
            doors: self.doors,
            rules: self.rules,
            tasks,
        })
    }
}

impl Prepared {
    /// Follows what changes until `shutdown`, and tells what a fleet is given. `client` asks for certificates and reviews.
    pub fn begin(self, client: &Client, shutdown: &CancellationToken) -> Kubelet {
        for task in self.tasks {
            let (tls, client, shutdown) = (self.tls.clone(), client.clone(), shutdown.clone());
            match task {
                Task::Files(files, served) => {
                    tokio::spawn(files.follow(tls, served, AGAIN, shutdown));
                }
                Task::Signed(settings, addresses) => {
                    tokio::spawn(async move {
                        // The addresses do not change; the sender lives as long as there is somebody to ask.
                        let (_addresses, of) = watch::channel(addresses);
                        signed::follow(settings, client, tls, of, shutdown).await;
                    });
                }
                Task::ClientFile(path, pem) => {
                    tokio::spawn(clients::follow_file(path, tls, pem, AGAIN, shutdown));
                }
                Task::Published => {
                    tokio::spawn(clients::follow_config_map(client, tls, shutdown));
                }
            }
        }
        Kubelet {
            settings: Settings::default(),
            doors: self.doors,
            tls: self.tls,
            auth: Auth::new(client.clone(), Memory::default()).by(self.rules),
        }
    }
}
