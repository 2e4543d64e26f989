//! What a process needs to serve the API, put together: listeners, certificate, authority of clients,
//! authorization.

use crate::auth::{Auth, Memory, Rules};
use crate::listeners::{self, Listeners};
use crate::tls::{AGAIN, clients, files, signed};
use crate::{Backend, NodeListeners, Serve, Settings, router};
use evenkeel_net::pki::PkiError;
use evenkeel_net::serve::ServerTls;
use kube::Client;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Settings of a kubelet API, for the nodes of one process.
#[derive(Clone, Debug)]
pub struct KubeletApi {
    /// Addresses of the nodes' listeners.
    pub listeners: listeners::Settings,
    /// The serving certificate.
    pub certificate: Certificate,
    /// The authority whose client certificates are accepted.
    pub clients: Clients,
    /// Authentication and authorization.
    pub rules: Rules,
}

/// Where the serving certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// From files, which are read again every minute.
    Files(files::Files),
    /// From the cluster's signer by a CertificateSigningRequest, for these addresses of nodes.
    Signed(signed::Settings, BTreeSet<IpAddr>),
    /// From the caller, who replaces it when it is due.
    Given(ServerTls),
}

/// Where the authority of client certificates comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// From a file, which is read again every minute.
    File(PathBuf),
    /// From the ConfigMap in which the API server publishes it.
    Published,
    /// From the caller, in the TLS settings; or there is none, and clients use tokens.
    AsGiven,
}

/// The API cannot be served. Not worth a retry before somebody has changed something.
#[derive(Debug, thiserror::Error)]
pub enum KubeletApiError {
    /// TLS cannot be set up.
    #[error("cannot prepare TLS for the kubelet API")]
    Tls(#[from] PkiError),
    /// The files of the serving certificate cannot be used.
    #[error(transparent)]
    Files(#[from] files::FilesError),
    /// The file of the authority cannot be used.
    #[error(transparent)]
    Clients(#[from] clients::ClientCaError),
}

/// Settings whose files have been read and found good.
pub struct Prepared {
    tls: ServerTls,
    listeners: listeners::Settings,
    rules: Rules,
    tasks: Vec<Task>,
}

/// A source that is watched for changes.
enum Task {
    Files(files::Files, evenkeel_net::pki::Identity),
    Signed(signed::Settings, BTreeSet<IpAddr>),
    ClientFile(PathBuf, String),
    Published,
}

impl KubeletApi {
    /// Reads the files, so that a mistake in them is reported before anything begins.
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
            listeners: self.listeners,
            rules: self.rules,
            tasks,
        })
    }
}

impl Prepared {
    /// Watches files and cluster for changes until `shutdown`. `client` requests certificates, TokenReviews
    /// and SubjectAccessReviews.
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
            listeners: self.listeners,
            tls: self.tls,
            auth: Auth::new(client.clone(), Memory::default()).by(self.rules),
        }
    }
}

/// A kubelet API that is ready to serve the nodes of a process.
#[derive(Clone)]
pub struct Kubelet {
    /// Deadlines of requests and streams.
    pub settings: Settings,
    /// Addresses of the nodes' listeners.
    pub listeners: listeners::Settings,
    /// TLS with the serving certificate.
    pub tls: ServerTls,
    /// Authentication and authorization.
    pub auth: Auth,
}

impl std::fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelet")
            .field("settings", &self.settings)
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}

impl Kubelet {
    /// Makes the listeners of the nodes, none of which is open yet. All of them serve `backend` until
    /// `shutdown`.
    pub fn serve(self, backend: Arc<dyn Backend>, shutdown: CancellationToken) -> Listeners {
        let app = router(backend, self.settings, self.auth);
        Listeners::new(self.listeners, self.tls, app, shutdown)
    }
}

impl Serve for Kubelet {
    fn serve(&self, backend: Arc<dyn Backend>, shutdown: CancellationToken) -> Arc<dyn NodeListeners> {
        Arc::new(self.clone().serve(backend, shutdown))
    }
}
