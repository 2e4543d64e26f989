//! What the API asks of who runs the pods.

use crate::{ContainerId, Duplex, ExecIo, Fault, LogOptions, LogStream, NodeStats, PodId};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// A call to who runs the pods: it ends with the result, or with why there is none.
pub type Served<'a, T> = BoxFuture<'a, Result<T, Fault>>;

/// Whoever runs the pods of one node or of many. A call that fails, hangs or panics is an answer to its
/// client, and harms nobody else; calls end with the [`Term`](crate::Term) of the node.
pub trait Backend: Send + Sync + 'static {
    /// The pods of a node, as they are now.
    fn pods<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Vec<Arc<Pod>>>;

    /// A container's newest instance, or the one before it.
    fn container<'a>(&'a self, wanted: &'a Wanted) -> Served<'a, (PodId, ContainerId)>;

    /// A pod by name, and by UID where the request names one.
    fn pod<'a>(
        &'a self,
        node: &'a str,
        namespace: &'a str,
        name: &'a str,
        uid: Option<&'a str>,
    ) -> Served<'a, (PodId, Arc<Pod>)>;

    /// Why a node is not healthy; `None` if it is.
    fn ill(&self, node: &str) -> Option<String>;

    /// All pods that exist on a node, known to the API server or not.
    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>>;

    /// Output of a container.
    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream>;

    /// Runs a command in a container until it ends, and returns its exit code; dropping the future ends it.
    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> Served<'a, i32>;

    /// Joins streams with a container's main process until it ends; dropping the future detaches.
    fn attach<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, io: ExecIo) -> Served<'a, i32>;

    /// Opens a connection to a port of the pod.
    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16) -> Served<'a, Box<dyn Duplex>>;

    /// What a node and its pods use.
    fn stats<'a>(&'a self, node: &'a str) -> Served<'a, NodeStats>;
}

/// A container that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node that was addressed.
    pub node: Arc<str>,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// UID of its pod, where the request names it.
    pub uid: Option<String>,
    /// The container's name.
    pub container: String,
    /// Whether the instance before the newest is meant.
    pub previous: bool,
}
