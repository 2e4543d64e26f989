//! What sources observe.

use crate::core::{Base, Endpoint, Identity, PodRef};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What a base announces of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// Identity of the base.
    pub identity: Identity,
    /// Name of its application.
    pub name: Option<String>,
    /// Version of its application.
    pub version: Option<String>,
    /// The cluster of bases that it belongs to.
    pub cluster: Option<String>,
    /// The host it runs on.
    pub host_name: Option<String>,
    /// The address it believes to have.
    pub address: Option<IpAddr>,
    /// Whether it announces that it serves; otherwise it is deactivated.
    pub active: bool,
}

/// What a source has observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    /// A base sent a heartbeat over HTTP, from the address `peer`; its own HTTP server is at `port`, 0: it
    /// did not say.
    HttpHeartbeat {
        /// What the base announced of itself.
        announcement: Announcement,
        /// Port of its HTTP server; 0: it did not say.
        port: u16,
        /// Address that the message came from.
        peer: IpAddr,
    },
    /// A base sent a heartbeat by way of the MQTT broker.
    MqttHeartbeat(Announcement),
    /// A Node is there for a base, by this process or another.
    Node {
        /// Name of the Node.
        node: Arc<str>,
        /// What it records of the base.
        record: Base,
    },
    /// The Node of this name is there no more.
    NodeGone(Arc<str>),
    /// A base pod is there.
    Pod(PodSeen),
    /// The pod with this UID does not exist any more.
    PodDeleted(Arc<str>),
    /// The pod with this UID is none of the base pods any more; it may exist.
    PodForgotten(Arc<str>),
    /// A base answered a poll, with its identity if the answer has one.
    Answered {
        /// The base that was polled.
        identity: Identity,
        /// Where it was polled.
        endpoint: Endpoint,
        /// The identity that the answer names.
        says: Option<Identity>,
    },
    /// A connection there was refused: nobody listens.
    PortRefused {
        /// The base that was to be reached.
        identity: Identity,
        /// The address and port that refused.
        socket: SocketAddr,
    },
    /// Whether this process serves a node.
    Served {
        /// Name of the Node.
        node: Arc<str>,
        /// Whether this process serves it now.
        here: bool,
    },
    /// Whether the link to the MQTT broker stands.
    Broker {
        /// It stands now, and all that is subscribed to is heard.
        stands: bool,
    },
    /// How many pods are on a node.
    Pods {
        /// Name of the Node.
        node: Arc<str>,
        /// Number of pods, those that are being deleted included.
        count: usize,
    },
}

/// A base pod as Kubernetes has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// Names and UID of the pod.
    pub pod: PodRef,
    /// Its address, once it has one.
    pub address: Option<IpAddr>,
    /// The identity of its base, where the pod declares it; else what the base announces counts, and last its
    /// address.
    pub identity: Option<Identity>,
    /// Name of the base, where declared.
    pub name: Option<String>,
    /// Version of the base, where declared.
    pub version: Option<String>,
    /// Cluster of the base, where declared.
    pub cluster: Option<String>,
    /// Port of arklet, where declared.
    pub port: Option<u16>,
    /// State of the pod.
    pub state: PodState,
}

/// State of a base pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// It runs, and its kubelet reports it Ready.
    Ready,
    /// It does not run yet, is not ready, or is being deleted.
    NotReady,
    /// It has ended for good: Succeeded or Failed.
    Ended,
}
