//! Where certificate and key outlive the process: a file, or a Secret with an entry for each address.

use evenkeel_net::file::write_secret;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where certificate and key outlive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// In this file, which only its owner may read.
    File(PathBuf),
    /// In this Secret. Replicas on other addresses have entries of their own in it.
    Secret {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Secret { namespace, name } => write!(f, "the Secret {namespace}/{name}"),
        }
    }
}

/// What is kept cannot be read, or nothing can be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error("cannot read {keep}")]
    Read {
        keep: Keep,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Write(#[from] evenkeel_net::file::WriteError),
    #[error("the write did not end")]
    Lost(#[from] tokio::task::JoinError),
    #[error("cannot {what} {keep}")]
    Request {
        what: &'static str,
        keep: Keep,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{keep} gives no answer within {REQUEST:?}")]
    Silent { keep: Keep },
}

/// A request that takes longer is given up.
const REQUEST: Duration = Duration::from_secs(30);

impl KeepError {
    /// Whether it may help to try again: the API server may be away for a while, and somebody may write at
    /// the same time. A refusal stays one.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Write(_) | Self::Lost(_) => false,
            Self::Request { source, .. } => match &**source {
                kube::Error::Api(status) => status.code >= 500 || matches!(status.code, 409 | 429),
                _ => true,
            },
            Self::Silent { .. } => true,
        }
    }
}

/// Key of the entry in a Secret for these addresses.
fn entry(addresses: &BTreeSet<IpAddr>) -> String {
    let names: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    // A key has letters, digits, `-`, `_` and `.`.
    format!("{}{SUFFIX}", names.join("_").replace(':', "-"))
}

const SUFFIX: &str = ".pem";

impl Keep {
    /// Texts that are kept, the most fitting one first: certificate and key, PEM. Of a Secret those of other
    /// addresses follow, which serve an API server that does not verify names.
    pub(super) async fn read(
        &self,
        client: &Client,
        addresses: &BTreeSet<IpAddr>,
    ) -> Result<Vec<String>, KeepError> {
        match self {
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(vec![text]),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
                Err(source) => Err(KeepError::Read {
                    keep: self.clone(),
                    source,
                }),
            },
            Self::Secret { namespace, name } => {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
                let secret = self.bounded("read", secrets.get_opt(name)).await?;
                let mut entries = secret.map(entries).unwrap_or_default();
                let own = entries.remove(&entry(addresses));
                Ok(own.into_iter().chain(entries.into_values()).collect())
            }
        }
    }

    /// Keeps certificate and key. In a Secret entries whose certificates are over go with it.
    pub(super) async fn write(
        &self,
        client: &Client,
        addresses: &BTreeSet<IpAddr>,
        text: String,
    ) -> Result<(), KeepError> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let written = tokio::task::spawn_blocking(move || write_secret(&path, text.as_bytes()));
                Ok(written.await??)
            }
            Self::Secret { namespace, name } => {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
                self.write_secret(&secrets, name, entry(addresses), text).await
            }
        }
    }

    async fn write_secret(
        &self,
        secrets: &Api<Secret>,
        name: &str,
        entry: String,
        text: String,
    ) -> Result<(), KeepError> {
        let text = ByteString(text.into_bytes());
        let Some(current) = self.bounded("read", secrets.get_opt(name)).await? else {
            let mut secret = Secret {
                data: Some([(entry, text)].into()),
                ..Secret::default()
            };
            secret.metadata.name = Some(name.to_owned());
            let params = PostParams::default();
            let created = secrets.create(&params, &secret);
            return self.bounded("create", created).await.map(drop);
        };
        let version = current.metadata.resource_version.clone();
        let now = Timestamp::now();
        let mut data: BTreeMap<String, Value> = entries(current)
            .into_iter()
            .filter(|(_, text)| super::held::end(text).is_ok_and(|end| end <= now))
            .map(|(key, _)| (key, Value::Null))
            .collect();
        data.insert(entry, json!(text));
        // With the version, because an entry that is over may just have been written anew by another replica.
        let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = secrets.patch(name, &params, &patch);
        self.bounded("write", patched).await.map(drop)
    }

    async fn bounded<T>(
        &self,
        what: &'static str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, KeepError> {
        match tokio::time::timeout(REQUEST, request).await {
            Ok(answer) => answer.map_err(|source| KeepError::Request {
                what,
                keep: self.clone(),
                source: Box::new(source),
            }),
            Err(_) => Err(KeepError::Silent { keep: self.clone() }),
        }
    }
}

/// Entries of a Secret that may be certificates of ours.
fn entries(secret: Secret) -> BTreeMap<String, String> {
    let data = secret.data.unwrap_or_default().into_iter();
    data.filter(|(key, _)| key.ends_with(SUFFIX))
        .filter_map(|(key, ByteString(text))| Some((key, String::from_utf8(text).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_key_that_a_secret_takes() {
        let of = |addresses: &[&str]| entry(&addresses.iter().map(|text| text.parse().unwrap()).collect());
        assert_eq!(of(&["10.0.0.5"]), "10.0.0.5.pem");
        assert_eq!(of(&["fd00::1", "10.0.0.5"]), "10.0.0.5_fd00--1.pem");
    }
}
