//! What is known of a base.

use super::Identity;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A base: a JVM with arklet in it, into which modules are installed.
///
/// What several sources say of one base is merged by its identity; what none has said is `None`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Base {
    /// What it calls itself: by default its address.
    pub identity: Identity,
    /// Name of the application; arklet's stock hook says `TO_BE_IMPLEMENTED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The cluster of bases that it belongs to: peers run the same modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Name of the host, or pod, that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// How it is reached.
    pub endpoint: Endpoint,
    /// The pod that it runs in, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}

/// How a base is reached.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Endpoint {
    /// Its address: the one of pods on it.
    pub address: IpAddr,
    /// The protocol of its commands.
    pub by: Connection,
}

/// The protocol by which commands reach a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Connection {
    /// HTTP, to its own server at this port.
    Http(u16),
    /// MQTT, through a broker.
    Mqtt,
}

/// A pod in which a base runs. It may be in another cluster than the virtual nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
pub struct PodRef {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Name of the pod.
    pub name: Arc<str>,
    /// UID of the pod: another pod of this name has another one.
    pub uid: Arc<str>,
    /// The container with the JVM.
    pub container: Arc<str>,
}

impl Base {
    /// The port of its HTTP server, if that is how it is reached.
    pub fn port(&self) -> Option<u16> {
        match self.endpoint.by {
            Connection::Http(port) => Some(port),
            Connection::Mqtt => None,
        }
    }

    /// Where its HTTP server listens.
    pub fn socket(&self) -> Option<SocketAddr> {
        self.endpoint.socket()
    }
}

impl Endpoint {
    /// Where its HTTP server listens, if that is how it is reached.
    pub fn socket(&self) -> Option<SocketAddr> {
        match self.by {
            Connection::Http(port) => Some(SocketAddr::new(self.address, port)),
            Connection::Mqtt => None,
        }
    }
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.socket() {
            Some(socket) => write!(f, "base {} ({socket})", self.identity),
            None => write!(f, "base {} (MQTT)", self.identity),
        }
    }
}
