//! ConfigMaps, Secrets, Services and tokens that pods refer to.
//!
//! What is asked for once serves all pods that ask for it in a while, so that requests count objects and not
//! pods. What was read before a pod was created does not serve that pod: who changes a ConfigMap and then
//! rolls a Deployment out means the new contents.

mod cache;
mod read;
mod token;

use crate::core::env::{self, Found, Location, Reference, service};
use crate::core::pod::Trouble;
use crate::core::volume::{self, TokenSource, Volumes};
use crate::core::{Event, env::container_of};
use crate::provider::{Fault, PodId};
use cache::{Answer, Cache, Need};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Service};
use kube::Client;
use read::Reader;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Requests that one pod may have under way.
const AT_ONCE: usize = 8;
/// Bytes of each kind that are kept.
const KEPT: usize = 16 << 20;
/// How old the Services may be that a new pod is told of. Lists are large, and a Service that is created in
/// the same second as a pod is a race in Kubernetes, too.
const SERVICES_BEFORE: Duration = Duration::from_secs(1);

/// Reads what pods refer to. Cheap to clone; answers are shared and kept for a moment.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    reader: Reader,
    config_maps: Cache<ConfigMap>,
    secrets: Cache<Secret>,
    services: Cache<Vec<Arc<Service>>>,
    tokens: token::Tokens,
}

/// What could not be read.
struct Unread {
    reason: &'static str,
    event: String,
    message: Arc<str>,
}

impl Objects {
    /// Reads by way of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            inner: Arc::new(Inner {
                reader: Reader::new(client),
                config_maps: Cache::new(KEPT),
                secrets: Cache::new(KEPT),
                services: Cache::new(KEPT),
                tokens: token::Tokens::default(),
            }),
        }
    }

    /// A container ready to start, and what is to be recorded about its pod.
    pub async fn container(
        &self,
        pod: &Pod,
        name: &str,
        location: &Location,
    ) -> (Result<Container, Trouble>, Vec<Event>) {
        let Some(container) = container_of(pod, name) else {
            let message = format!("the pod has no container {name:?}");
            return (Err(Trouble::Config(message)), Vec::new());
        };
        match self.find(pod, env::references(&container)).await {
            Ok(found) => {
                let resolved = env::resolve(pod, &container, &found, location);
                (resolved.container.map_err(Trouble::Config), resolved.events)
            }
            Err(unread) => {
                let events = unread
                    .iter()
                    .map(|unread| warning(unread.reason, unread.event.clone()));
                let events = events.collect();
                (Err(Trouble::Config(said(&unread))), events)
            }
        }
    }

    /// The pod's volumes, and what is to be recorded.
    pub async fn volumes(&self, pod: &Pod, location: &Location) -> (Result<Volumes, Trouble>, Vec<Event>) {
        let volumes = match self.find(pod, volume::references(pod)).await {
            Ok(found) => volume::resolve(pod, &found, location),
            Err(unread) => Err(format!("MountVolume.SetUp failed: {}", said(&unread))),
        };
        match volumes {
            Ok(volumes) => (Ok(volumes), Vec::new()),
            Err(message) => {
                let event = warning("FailedMount", message.clone());
                (Err(Trouble::Volume(message)), vec![event])
            }
        }
    }

    /// A token bound to the pod, by TokenRequest; asked for again when 80 % of its life or 24 h are over.
    /// While that fails, the old one serves to its end.
    pub async fn token(&self, pod: &PodId, account: &str, of: &TokenSource) -> Result<Arc<str>, Fault> {
        self.inner.tokens.get(&self.inner.reader, pod, account, of).await
    }

    /// Forgets what was kept for a pod.
    pub fn forget(&self, pod: &PodId) {
        self.inner.tokens.forget(pod);
    }

    /// Everything that is referred to, or all that could not be read.
    async fn find(&self, pod: &Pod, references: BTreeSet<Reference>) -> Result<Found, Vec<Unread>> {
        let mut found = Found::default();
        let mut unread = Vec::new();
        let read = references.into_iter().map(|reference| self.read(pod, reference));
        let mut read = futures::stream::iter(read).buffered(AT_ONCE);
        while let Some(piece) = read.next().await {
            match piece {
                Ok(Piece::ConfigMap(name, object)) => {
                    found.config_maps.insert(name, object);
                }
                Ok(Piece::Secret(name, object)) => {
                    found.secrets.insert(name, object);
                }
                Ok(Piece::Services(services)) => found.services.extend(services),
                Err(error) => unread.push(error),
            }
        }
        if unread.is_empty() { Ok(found) } else { Err(unread) }
    }

    async fn read(&self, pod: &Pod, reference: Reference) -> Result<Piece, Unread> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        match reference {
            Reference::ConfigMap(name) => match self.config_map(namespace, &name, created).await {
                Ok(object) => Ok(Piece::ConfigMap(name, object)),
                Err(message) => Err(Unread {
                    reason: "FailedToReadMandatoryConfigMap",
                    event: format!("failed to read configmap {name:?}: {message}"),
                    message,
                }),
            },
            Reference::Secret(name) => match self.secret(namespace, &name, created).await {
                Ok(object) => Ok(Piece::Secret(name, object)),
                Err(message) => Err(Unread {
                    reason: "FailedToReadMandatorySecret",
                    event: format!("failed to read secret {name:?}: {message}"),
                    message,
                }),
            },
            Reference::Services => match self.services(pod, namespace, created).await {
                Ok(services) => Ok(Piece::Services(services)),
                Err(message) => Err(Unread {
                    reason: "FailedToReadServices",
                    event: format!("failed to read services: {message}"),
                    message,
                }),
            },
        }
    }

    async fn config_map(&self, namespace: &str, name: &str, created: Option<Timestamp>) -> Answer<ConfigMap> {
        let need = Need {
            created,
            before: Duration::ZERO,
        };
        let fetch = || self.inner.reader.config_map(namespace, name);
        self.inner.config_maps.get(namespace, name, need, fetch).await
    }

    async fn secret(&self, namespace: &str, name: &str, created: Option<Timestamp>) -> Answer<Secret> {
        let need = Need {
            created,
            before: Duration::ZERO,
        };
        let fetch = || self.inner.reader.secret(namespace, name);
        self.inner.secrets.get(namespace, name, need, fetch).await
    }

    /// Those of the namespace if the pod wants them, and `kubernetes`.
    async fn services(
        &self,
        pod: &Pod,
        namespace: &str,
        created: Option<Timestamp>,
    ) -> Result<Vec<Arc<Service>>, Arc<str>> {
        let need = Need {
            created,
            before: SERVICES_BEFORE,
        };
        let (home, kubernetes) = service::KUBERNETES;
        let all = service::wants_links(pod);
        let mut services = Vec::new();
        if all {
            let fetch = || self.inner.reader.services(namespace);
            let own = self.inner.services.get(namespace, "", need, fetch).await?;
            services.extend(own.iter().flat_map(|own| own.iter().cloned()));
        }
        if !all || namespace != home {
            let fetch = || self.inner.reader.service(home, kubernetes);
            let one = self.inner.services.get(home, kubernetes, need, fetch).await?;
            services.extend(one.iter().flat_map(|one| one.iter().cloned()));
        }
        Ok(services)
    }
}

/// What was found of one reference.
enum Piece {
    ConfigMap(String, Option<Arc<ConfigMap>>),
    Secret(String, Option<Arc<Secret>>),
    Services(Vec<Arc<Service>>),
}

fn said(unread: &[Unread]) -> String {
    let messages: Vec<&str> = unread.iter().map(|unread| &*unread.message).collect();
    messages.join("; ")
}

fn warning(reason: &'static str, message: String) -> Event {
    Event {
        warning: true,
        reason,
        message,
    }
}

#[cfg(test)]
mod tests;
