//! The authority of client certificates: a file's, or the one that the API server publishes.

use super::{Unreadable, read};
use evenkeel_api::names::vnode::CLIENT_CA;
use evenkeel_net::log::causes;
use evenkeel_net::pki::PkiError;
use evenkeel_net::serve::ServerTls;
use evenkeel_net::watch::{Delta, Unreadable as Object, deltas};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Where every API server publishes the authority of its clients.
const NAMESPACE: &str = CLIENT_CA.0;
const CONFIG_MAP: &str = CLIENT_CA.1;
const KEY: &str = CLIENT_CA.2;

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] Unreadable),
    /// It holds no authority.
    #[error("{} holds no authority of client certificates: {source}", path.display())]
    Unusable {
        /// The file that was read.
        path: PathBuf,
        /// What is wrong with its contents.
        #[source]
        source: PkiError,
    },
}

/// Trusts what the file holds now; returns what that is, for [`follow_file`].
pub async fn load_file(path: &Path, tls: &ServerTls) -> Result<String, ClientCaError> {
    let pem = read("the client CA", path).await?;
    install(path, &pem, tls)?;
    Ok(pem)
}

/// Reads the file again and again, `every` so often, until `shutdown`. While it is unusable, what was trusted
/// before is.
pub async fn follow_file(
    path: PathBuf,
    tls: ServerTls,
    mut trusted: String,
    every: Duration,
    shutdown: CancellationToken,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        let renewed = async {
            let pem = read("the client CA", &path).await?;
            if pem == trusted {
                return Ok(None);
            }
            install(&path, &pem, &tls)?;
            Ok::<_, ClientCaError>(Some(pem))
        };
        match renewed.await {
            Ok(None) => {}
            Ok(Some(pem)) => {
                tracing::info!(file = %path.display(), "trusting a new authority of client certificates");
                trusted = pem;
            }
            Err(error) => {
                let error = causes(&error);
                tracing::warn!(
                    error,
                    "the authority of client certificates stays as it was; trying again"
                );
            }
        }
    }
}

fn install(path: &Path, pem: &str, tls: &ServerTls) -> Result<(), ClientCaError> {
    tls.trust(Some(pem)).map_err(|source| ClientCaError::Unusable {
        path: path.to_owned(),
        source,
    })
}

/// Trusts what the API server publishes in ConfigMap `kube-system/extension-apiserver-authentication`, as it
/// changes, until `shutdown`. Until it is there, nobody is known by a certificate. Once trusted, an authority
/// is until another takes its place: a ConfigMap that is gone or unusable is a defect, no order.
pub async fn follow_config_map(client: Client, tls: ServerTls, shutdown: CancellationToken) {
    let api = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let changes = deltas::<ConfigMap>(
        "the authority of client certificates",
        api,
        config,
        Object::StaysAsKnown,
    );
    let mut changes = std::pin::pin!(changes);
    let mut trusted = String::new();
    while let Some(Some(change)) = shutdown.run_until_cancelled(changes.next()).await {
        let problem = match change {
            Delta::Put(map) => match map.data.as_ref().and_then(|data| data.get(KEY)) {
                Some(pem) if *pem == trusted => continue,
                Some(pem) => match tls.trust(Some(pem)) {
                    Ok(()) => {
                        tracing::info!(
                            config_map = CONFIG_MAP,
                            "trusting the API server's authority of client certificates"
                        );
                        trusted.clone_from(pem);
                        continue;
                    }
                    Err(error) => causes(&error),
                },
                None => format!("it has no {KEY}"),
            },
            Delta::Gone(_) => "it is gone".to_owned(),
            Delta::Listed(found) if found.is_empty() => "there is none".to_owned(),
            Delta::Listed(_) | Delta::Broken => continue,
        };
        tracing::warn!(
            namespace = NAMESPACE,
            config_map = CONFIG_MAP,
            problem,
            "no new authority of client certificates is found; bearer tokens work without"
        );
    }
}
