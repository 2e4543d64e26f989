//! Opens the listener for heartbeats: its socket, and tokens and certificates from files that somebody else
//! renews.

use super::heartbeat::{Auth, Listener};
use super::token::{TokenError, Tokens};
use crate::baseline::Baseline;
use evenkeel_kubelet_api::tls::clients::{self, ClientCaError};
use evenkeel_kubelet_api::tls::files::{Files, FilesError};
use evenkeel_net::pki::PkiError;
use evenkeel_net::serve::ServerTls;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How heartbeats are taken over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeats {
    pub address: SocketAddr,
    /// File with bearer tokens, one of which a base needs then.
    pub tokens: Option<PathBuf>,
    /// Files for TLS; without them heartbeats come over plain HTTP.
    pub tls: Option<HeartbeatTls>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatTls {
    /// Serving certificate and its key.
    pub files: Files,
    /// Authorities of client certificates, one of which a base needs then; beside tokens either will do.
    pub clients: Option<PathBuf>,
}

/// Why heartbeats cannot be taken. Not worth a retry with the same files.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The tokens cannot be read.
    #[error("--heartbeat-token-file")]
    Tokens(#[from] TokenError),
    /// The library does not work.
    #[error("--heartbeat-tls-cert-file")]
    Library(#[from] PkiError),
    /// Certificate or key are of no use.
    #[error("--heartbeat-tls-cert-file, --heartbeat-tls-key-file")]
    Files(#[from] FilesError),
    /// Authorities of clients are of no use.
    #[error("--heartbeat-client-ca-file")]
    Clients(#[from] ClientCaError),
    /// The address cannot be listened on.
    #[error("--heartbeat {address}: cannot listen there")]
    Listen {
        /// The address of the flag.
        address: SocketAddr,
        /// The error of binding it.
        #[source]
        source: std::io::Error,
    },
}

impl Heartbeats {
    /// Reads the files and binds. Certificates and authorities are read again at this interval until `stop`.
    /// While they are unusable, those that were read before stay in force.
    pub async fn open(
        &self,
        baseline: Option<Arc<dyn Baseline>>,
        every: Duration,
        stop: &CancellationToken,
    ) -> Result<Listener, ListenerError> {
        let tokens = self.tokens.as_deref().map(Tokens::read).transpose()?;
        let tls = match &self.tls {
            Some(tls) => Some(tls.serve(every, stop).await?),
            None => None,
        };
        let address = self.address;
        let socket = TcpListener::bind(address)
            .await
            .map_err(|source| ListenerError::Listen { address, source })?;
        Ok(Listener {
            socket,
            tls,
            auth: Auth {
                tokens,
                certificate: self.tls.as_ref().is_some_and(|tls| tls.clients.is_some()),
            },
            baseline,
        })
    }
}

impl HeartbeatTls {
    async fn serve(&self, every: Duration, stop: &CancellationToken) -> Result<ServerTls, ListenerError> {
        let tls = ServerTls::without_certificate()?;
        let identity = self.files.load(&tls).await?;
        if let Some(path) = self.clients.clone() {
            let trusted = clients::load_file(&path, &tls).await?;
            tokio::spawn(clients::follow_file(
                path,
                tls.clone(),
                trusted,
                every,
                stop.clone(),
            ));
        }
        let following = self
            .files
            .clone()
            .follow(tls.clone(), identity, every, stop.clone());
        tokio::spawn(following);
        Ok(tls)
    }
}
