//! What is requested of a provider, and what it reports.
//!
//! A provider runs containers; it decides nothing. Order of init containers, restarts and their back-off,
//! probes, grace periods, status and events are the framework's, so that they are right once for all
//! providers.
//!
//! Every call has a deadline set by the framework and runs in a task of its own, one at a time per pod (stops
//! alone run alongside each other, lest grace periods add up): a provider that hangs, errs or panics harms
//! the pod that it was asked about, and nothing else.

pub use crate::core::reported::{
    Doing, Exit, NodeHealth, NodeTemplate, Observed, PodState, Refusal, Sandbox, Started,
};
pub use evenkeel_kubelet_api::{
    ContainerId, ContainerStats, Duplex, ExecIo, Fault, FaultKind, LogOptions, LogStream, NodeStats, PodId,
    PodStats, Served, Streams, TerminalSize,
};

use crate::core::volume::{TokenSource, Volumes};
use evenkeel_kubelet_api::Term;
use evenkeel_probe::core::{Attempt, Outcome};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

/// Runs containers somewhere.
///
/// Seven methods have to be written: [`runtime`](Self::runtime), [`list`](Self::list),
/// [`status`](Self::status), [`create`](Self::create), [`start`](Self::start), [`stop`](Self::stop) and
/// [`delete`](Self::delete). The others have an answer that suits a provider without the ability in
/// question: its nodes are well and say nothing special of themselves, every pod is admitted, and requests
/// for logs, commands, ports and statistics are answered with [`FaultKind::Unsupported`].
pub trait Provider: Send + Sync + 'static {
    /// Name and version, as in `nodeInfo.containerRuntimeVersion`; the name is the scheme of container IDs
    /// too.
    fn runtime(&self) -> Runtime;

    /// Called once, before everything else. A provider whose containers end or change by themselves keeps
    /// `host`, to report that.
    fn connect(&self, host: Arc<dyn Host>) {
        drop(host);
    }

    /// What is published of a node. Without capacity, as by default, schedulers give it no pods: name at
    /// least `pods`, `cpu` and `memory`. Pods that are bound to it by name run in any case.
    fn node(&self, name: &str) -> NodeTemplate {
        let _ = name;
        NodeTemplate::default()
    }

    /// Whether a node is well. An error or silence makes it NotReady; its Lease goes on.
    fn ping<'a>(&'a self, node: &'a str) -> Served<'a, NodeHealth> {
        let _ = node;
        Box::pin(ready(Ok(NodeHealth::default())))
    }

    /// Refuses a pod that cannot work here, with a reason. Called before anything else about the pod.
    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let _ = pod;
        Ok(())
    }

    /// All pods that exist on a node, known to the API server or not.
    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>>;

    /// What has become of a pod that an earlier process ran: [`Pod::status`](Pod) holds what was last
    /// reported of it. `None`: there is no such pod here, it is created like a new one.
    fn status<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Option<PodState>>;

    /// Makes the place in which the pod's containers run. Repeating it is no error.
    fn create<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Sandbox>;

    /// Labels, annotations or what else may change of a pod that runs have changed.
    fn update<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, ()> {
        let _ = pod;
        Box::pin(ready(Ok(())))
    }

    /// Starts a container; returns when it runs.
    fn start<'a>(&'a self, request: &'a StartRequest) -> Served<'a, Started>;

    /// Ends a container, by force once `grace` is over; returns when it has ended. One that has ended is no
    /// error.
    fn stop<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, grace: Duration) -> Served<'a, Exit>;

    /// This process serves the node no more, another may: forget it without ending anything.
    fn release(&self, node: &str) {
        let _ = node;
    }

    /// Removes the pod and whatever is left of its containers. An unknown pod is no error.
    fn delete<'a>(&'a self, pod: &'a PodId) -> Served<'a, ()>;

    /// Output of a container.
    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream> {
        let _ = (pod, container, options);
        unsupported("logs")
    }

    /// Runs a command in a container until it ends; dropping the future ends it.
    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> Served<'a, i32> {
        let _ = (pod, container, command, io);
        unsupported("exec")
    }

    /// Joins streams with a container's main process until it ends; dropping the future detaches.
    fn attach<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, io: ExecIo) -> Served<'a, i32> {
        let _ = (pod, container, io);
        unsupported("attach")
    }

    /// Opens a connection to a port of the pod.
    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16) -> Served<'a, Box<dyn Duplex>> {
        let _ = (pod, port);
        unsupported("port-forward")
    }

    /// What a node and its pods use.
    fn stats<'a>(&'a self, node: &'a str) -> Served<'a, NodeStats> {
        let _ = node;
        unsupported("statistics")
    }

    /// Makes a probe's attempt itself; `None` leaves it to the kubelet's own handlers, which dial the pod's
    /// address. Commands never come here but to [`Provider::exec`].
    fn probe<'a>(&'a self, pod: &'a PodId, attempt: &'a Attempt) -> Option<BoxFuture<'a, Outcome>> {
        let _ = (pod, attempt);
        None
    }
}

/// The answer of a provider without an ability.
fn unsupported<'a, T: Send + 'a>(ability: &str) -> Served<'a, T> {
    let message = format!("this node's provider has no {ability}");
    Box::pin(ready(Err(Fault::new(
        FaultKind::Unsupported,
        "Unsupported",
        message,
    ))))
}

/// A runtime's name and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Lower-case letters, digits, `-`: `simulated`.
    pub name: String,
    /// The runtime's version.
    pub version: String,
}

/// A pod, complete.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// Names the pod.
    pub id: PodId,
    /// As the API server has it, status included.
    pub pod: Arc<Pod>,
}

/// A container to be started.
#[derive(Clone)]
pub struct StartRequest {
    /// The pod that it is part of.
    pub pod: PodRequest,
    /// Its specification: references in `env` resolved, `envFrom` merged into `env`, `$(NAME)` expanded in
    /// `env`, `command` and `args`.
    pub container: Arc<Container>,
    /// Its restart count.
    pub attempt: u32,
    /// Addresses of the sandbox.
    pub sandbox: Sandbox,
}

/// Without the specification: its environment may hold contents of Secrets.
impl std::fmt::Debug for StartRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartRequest")
            .field("pod", &self.pod.id)
            .field("container", &self.container.name)
            .field("attempt", &self.attempt)
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}

/// A change that nobody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A container's state.
    Container {
        /// The container's pod.
        pod: PodId,
        /// The container's name.
        name: Arc<str>,
        /// What is known of it.
        observed: Observed,
    },
    /// A node's health may have changed: it is pinged at once.
    Node {
        /// The node's name.
        name: Arc<str>,
    },
}

/// What the framework does for its provider.
pub trait Host: Send + Sync + 'static {
    /// Takes note of a change. Returns at once; may be called from anywhere.
    fn report(&self, report: Report);

    /// A client of the API server for what concerns a node. Its writes are refused once the node is not
    /// served here any more. `None`: it is not.
    fn client(&self, node: &str) -> Option<kube::Client>;

    /// For how long this replica serves a node: what the provider does for the node of itself, it does in it.
    /// `None`: the node is not served here.
    fn term(&self, node: &str) -> Option<Term>;

    /// Contents of a pod's volumes as they are now. Nobody keeps them: ask when they are read.
    fn volumes<'a>(&'a self, pod: &'a PodId) -> Served<'a, Arc<Volumes>>;

    /// A ServiceAccount token for a pod ([`Contents::Token`](crate::core::volume::Contents)), bound to it,
    /// renewed in time.
    fn token<'a>(&'a self, pod: &'a PodId, of: &'a TokenSource) -> Served<'a, Arc<str>>;
}
