//! What sources see.

use crate::core::{Base, Endpoint, Identity, PodRef};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What a base says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Who it is.
    pub identity: Identity,
    /// Its name.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The cluster of bases that it belongs to.
    pub cluster: Option<String>,
    /// The host it runs on.
    pub host_name: Option<String>,
    /// The address it believes to have.
    pub address: Option<IpAddr>,
    /// Whether it says that it serves; otherwise it is deactivated.
    pub active: bool,
}

/// What a source has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// A base spoke over HTTP, from the address `peer`; its own HTTP server is at `port`, 0: it did not say.
    Heartbeat {
        /// What it said.
        word: Word,
        /// Its port.
        port: u16,
        /// Who sent it.
        peer: IpAddr,
    },
    /// A base spoke by way of the MQTT broker.
    Heart(Word),
    /// A Node is there for a base, by this process or another.
    Node {
        /// Its name.
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
    /// A base answered there, by its own name if it told it.
    Answered {
        /// Who was asked.
        identity: Identity,
        /// Where.
        endpoint: Endpoint,
        /// Who it says it is.
        says: Option<Identity>,
    },
    /// A connection there was refused: nobody listens.
    PortRefused {
        /// Who was looked for.
        identity: Identity,
        /// Where.
        socket: SocketAddr,
    },
    /// Whether this process serves a node.
    Served {
        /// Which.
        node: Arc<str>,
        /// Whether it does.
        here: bool,
    },
    /// How many pods are on a node.
    Pods {
        /// Which.
        node: Arc<str>,
        /// How many, those that end included.
        count: usize,
    },
}

/// A base pod as Kubernetes has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// Which.
    pub pod: PodRef,
    /// Its address, once it has one.
    pub address: Option<IpAddr>,
    /// The identity of its base, where the pod declares it; else the base's own word counts, and last its address.
    pub identity: Option<Identity>,
    /// Name of the base, where declared.
    pub name: Option<String>,
    /// Its version, likewise.
    pub version: Option<String>,
    /// Its cluster, likewise.
    pub cluster: Option<String>,
    /// Port of arklet, likewise.
    pub port: Option<u16>,
    /// What it does.
    pub state: PodState,
}

/// What a base pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// It runs, and its kubelet reports it Ready.
    Ready,
    /// It does not run yet, is not ready, or is being deleted.
    NotReady,
    /// It has ended for good: Succeeded or Failed.
    Ended,
}
