//! A container's environment and command line, by the kubelet's rules.
//!
//! Order: `envFrom`, then `env`, over the environment variables of Services (`enableServiceLinks`; those of
//! `kubernetes` always). `$(NAME)` expands to what was defined before; `$$` is `$`. Events carry
//! virtual-kubelet's reasons (`MandatoryConfigMapNotFound`, `OptionalSecretKeyNotFound`,
//! `InvalidEnvironmentVariableNames`, …).

pub(crate) mod field;
mod resolve;
pub(crate) mod service;

pub use resolve::resolve;

use crate::core::Event;
use evenkeel_kube_values::names::is_subdomain;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EphemeralContainer, Pod, Secret, Service};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Something that a container or volume refers to, in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A ConfigMap by name.
    ConfigMap(String),
    /// A Secret by name.
    Secret(String),
    /// The Services of the namespace, and `default/kubernetes`.
    Services,
}

/// What was found of the references; `None` where there is no such object.
#[derive(Clone, Default)]
pub struct Found {
    /// ConfigMaps by name.
    pub config_maps: BTreeMap<String, Option<Arc<ConfigMap>>>,
    /// Secrets by name.
    pub secrets: BTreeMap<String, Option<Arc<Secret>>>,
    /// All that count for the pod.
    pub services: Vec<Arc<Service>>,
}

/// Names, and whether they are there: contents stay out of logs.
impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn there<T>(map: &BTreeMap<String, Option<T>>) -> Vec<(&str, bool)> {
            map.iter()
                .map(|(name, found)| (name.as_str(), found.is_some()))
                .collect()
        }
        f.debug_struct("Found")
            .field("config_maps", &there(&self.config_maps))
            .field("secrets", &there(&self.secrets))
            .field("services", &self.services.len())
            .finish()
    }
}

impl Found {
    /// A ConfigMap that exists.
    pub(crate) fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        self.config_maps.get(name)?.as_deref()
    }

    /// A Secret that exists.
    pub(crate) fn secret(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name)?.as_deref()
    }
}

/// Where a pod runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// `status.hostIP`, `status.hostIPs`.
    pub host_addresses: Vec<IpAddr>,
    /// `status.podIP`, `status.podIPs`.
    pub pod_addresses: Vec<IpAddr>,
    /// The node's allocatable, which stands for limits that a container does not have.
    pub allocatable: Arc<BTreeMap<String, String>>,
}

/// A container ready to start, or the message of its `CreateContainerConfigError`; and what is to be
/// recorded.
pub struct Resolved {
    /// `env` literal, `envFrom` empty, `command` and `args` expanded.
    pub container: Result<Container, String>,
    /// In their order, about the pod.
    pub events: Vec<Event>,
}

/// Without the environment, in which there may be contents of Secrets.
impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let container = self.container.as_ref().map(|container| &container.name);
        f.debug_struct("Resolved")
            .field("container", &container)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// What a container's environment refers to. A name that no object can have is left out: nothing is asked for
/// it.
pub fn references(container: &Container) -> BTreeSet<Reference> {
    let mut references = BTreeSet::from([Reference::Services]);
    let mut refer = |config_map: Option<&String>, secret: Option<&String>| {
        references.extend(config_map.and_then(|name| Reference::config_map(name)));
        references.extend(secret.and_then(|name| Reference::secret(name)));
    };
    for from in container.env_from.iter().flatten() {
        refer(
            from.config_map_ref.as_ref().map(|source| &source.name),
            from.secret_ref.as_ref().map(|source| &source.name),
        );
    }
    for variable in container
        .env
        .iter()
        .flatten()
        .filter(|variable| !is_literal(variable))
    {
        if let Some(source) = &variable.value_from {
            refer(
                source.config_map_key_ref.as_ref().map(|key| &key.name),
                source.secret_key_ref.as_ref().map(|key| &key.name),
            );
        }
    }
    references
}

impl Reference {
    /// To a ConfigMap, if one can have this name.
    pub(crate) fn config_map(name: &str) -> Option<Self> {
        is_subdomain(name).then(|| Self::ConfigMap(name.to_owned()))
    }

    /// To a Secret, if one can have this name.
    pub(crate) fn secret(name: &str) -> Option<Self> {
        is_subdomain(name).then(|| Self::Secret(name.to_owned()))
    }
}

/// A container of any list of the pod by name, an ephemeral one as a container.
pub fn container_of(pod: &Pod, name: &str) -> Option<Container> {
    find(pod, name).cloned().or_else(|| {
        let ephemeral = pod.spec.as_ref()?.ephemeral_containers.as_ref()?;
        ephemeral
            .iter()
            .find(|container| container.name == name)
            .and_then(as_container)
    })
}

/// A container, or else an init container.
pub(crate) fn find<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .find(|container| container.name == name)
}

/// All of its fields but the name of its target are a container's, by the same names.
fn as_container(container: &EphemeralContainer) -> Option<Container> {
    let fields = serde_json::to_value(container).ok()?;
    serde_json::from_value(fields).ok()
}

/// Whether a variable has a value, which is preferred to a source.
fn is_literal(variable: &k8s_openapi::api::core::v1::EnvVar) -> bool {
    variable.value.as_ref().is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;
