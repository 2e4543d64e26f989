//! What a provider is asked, and what it tells.
//!
//! A provider runs containers; it decides nothing. Order of init containers, restarts and their back-off, probes, grace
//! periods, status and events are the framework's, so that they are right once for all providers.
//!
//! Every call has a deadline set by the framework and runs in a task of its own, one at a time per pod (stops alone run
//! alongside each other, lest grace periods add up): a provider that hangs, errs or panics harms the pod that it was asked
//! about, and nothing else.

pub use evenkeel_kubelet_api::{
    ContainerId, ContainerStats, Duplex, ExecIo, Fault, FaultKind, LogOptions, LogStream, NodeStats, PodId,
    PodStats, Streams, TerminalSize,
};

use crate::core::volume::{TokenSource, Volumes};
use evenkeel_kubelet_api::Term;
use evenkeel_probe::core::{Attempt, Outcome};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, NodeCondition, Pod};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Runs containers somewhere.
pub trait Provider: Send + Sync + 'static {
    /// Name and version, as in `nodeInfo.containerRuntimeVersion`; the name is the scheme of container IDs too.
    fn runtime(&self) -> Runtime;

    /// Called once, before everything else.
    fn connect(&self, host: Arc<dyn Host>);

    /// What is published of a node.
    fn node(&self, name: &str) -> NodeTemplate;

    /// Whether a node is well. An error or silence makes it NotReady; its Lease goes on.
    fn ping<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<NodeHealth, Fault>>;

    /// Refuses a pod that cannot work here, with a reason. Called before anything else about the pod.
    fn admit(&self, pod: &Pod) -> Result<(), Refusal>;

    /// All pods that exist on a node, known to the API server or not.
    fn list<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Vec<PodId>, Fault>>;

    /// What has become of a pod that an earlier process ran: [`Pod::status`](Pod) holds what was last reported of it.
    /// `None`: there is no such pod here, it is created like a new one.
    fn status<'a>(&'a self, pod: &'a PodRequest) -> BoxFuture<'a, Result<Option<PodState>, Fault>>;

    /// Makes the place in which the pod's containers run. Repeating it is no error.
    fn create<'a>(&'a self, pod: &'a PodRequest) -> BoxFuture<'a, Result<Sandbox, Fault>>;

    /// Labels, annotations or what else may change of a pod that runs have changed.
    fn update<'a>(&'a self, pod: &'a PodRequest) -> BoxFuture<'a, Result<(), Fault>>;

    /// Starts a container; returns when it runs.
    fn start<'a>(&'a self, request: &'a StartRequest) -> BoxFuture<'a, Result<Started, Fault>>;

    /// Ends a container, by force once `grace` is over; returns when it has ended. One that has ended is no error.
    fn stop<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        grace: Duration,
    ) -> BoxFuture<'a, Result<Exit, Fault>>;

    /// This process serves the node no more, another may: forget it without ending anything.
    fn release(&self, node: &str);

    /// Removes the pod and whatever is left of its containers. An unknown pod is no error.
    fn delete<'a>(&'a self, pod: &'a PodId) -> BoxFuture<'a, Result<(), Fault>>;

    /// Output of a container.
    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> BoxFuture<'a, Result<LogStream, Fault>>;

    /// Runs a command in a container until it ends; dropping the future ends it.
    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> BoxFuture<'a, Result<i32, Fault>>;

    /// Joins streams with a container's main process until it ends; dropping the future detaches.
    fn attach<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        io: ExecIo,
    ) -> BoxFuture<'a, Result<i32, Fault>>;

    /// Opens a connection to a port of the pod.
    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16)
    -> BoxFuture<'a, Result<Box<dyn Duplex>, Fault>>;

    /// What a node and its pods use.
    fn stats<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<NodeStats, Fault>>;

    /// Makes a probe's attempt itself; `None` leaves it to the kubelet's own handlers, which dial the pod's address.
    /// Commands never come here but to [`Provider::exec`].
    fn probe<'a>(&'a self, pod: &'a PodId, attempt: &'a Attempt) -> Option<BoxFuture<'a, Outcome>> {
        let _ = (pod, attempt);
        None
    }
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
    /// Its specification: references in `env` resolved, `envFrom` merged into `env`, `$(NAME)` expanded in `env`,
    /// `command` and `args`.
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

/// A pod's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// The pod's addresses, one per family, the first being `status.podIP`.
    pub addresses: Vec<IpAddr>,
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its new ID.
    pub id: ContainerId,
    /// `imageID`; empty where there is none.
    pub image_id: String,
    /// When it started.
    pub at: Timestamp,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 128 and the number of the signal that ended it.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, or the provider's own; empty: by the exit code.
    pub reason: String,
    /// For people; what `terminationMessagePath` holds.
    pub message: String,
    /// When it started, where known.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub at: Timestamp,
}

/// What is there of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodState {
    /// Addresses of the pod's sandbox.
    pub sandbox: Sandbox,
    /// Its containers by name: of each the newest.
    pub containers: BTreeMap<String, Observed>,
}

/// What is known of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Names this run of the container.
    pub id: ContainerId,
    /// What it does.
    pub doing: Doing,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The container runs.
    Running {
        /// When the container started.
        since: Timestamp,
    },
    /// It runs but is held to be unready whatever its probes say (a module that is deactivated).
    Stalled {
        /// Since when it runs.
        since: Timestamp,
        /// Why, in CamelCase.
        reason: String,
        /// Why, for people.
        message: String,
    },
    /// It has ended.
    Ended(Exit),
}

impl Doing {
    /// Since when it runs; `None` once it has ended.
    pub fn since(&self) -> Option<Timestamp> {
        match self {
            Self::Running { since } | Self::Stalled { since, .. } => Some(*since),
            Self::Ended(_) => None,
        }
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

    /// A client of the API server for what concerns a node. Its writes are refused once the node is not served here any
    /// more. `None`: it is not.
    fn client(&self, node: &str) -> Option<kube::Client>;

    /// For how long this replica serves a node: what the provider does for the node of itself, it does in it. `None`: the
    /// node is not served here.
    fn term(&self, node: &str) -> Option<Term>;

    /// Contents of a pod's volumes as they are now. Nobody keeps them: ask when they are read.
    fn volumes<'a>(&'a self, pod: &'a PodId) -> BoxFuture<'a, Result<Arc<Volumes>, Fault>>;

    /// A ServiceAccount token for a pod ([`Contents::Token`](crate::core::volume::Contents)), bound to it, renewed in time.
    fn token<'a>(&'a self, pod: &'a PodId, of: &'a TokenSource) -> BoxFuture<'a, Result<Arc<str>, Fault>>;
}

/// What is published of a node beside what every kubelet says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTemplate {
    /// Labels beside the standard ones.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Node.
    pub annotations: BTreeMap<String, String>,
    /// Taints, set at registration alone: later they are the administrators'. `key`, `value`, `effect`.
    pub taints: Vec<(String, String, String)>,
    /// Capacity by resource name, as quantities.
    pub capacity: BTreeMap<String, String>,
    /// Allocatable; the capacity where empty.
    pub allocatable: BTreeMap<String, String>,
    /// Addresses by type (`InternalIP`, `Hostname`); the fleet's own where empty.
    pub addresses: Vec<(String, String)>,
    /// `spec.podCIDR`; none where empty.
    pub pod_cidr: String,
    /// `spec.providerID`; none where empty.
    pub provider_id: String,
    /// `nodeInfo.operatingSystem`; `linux` where empty.
    pub operating_system: String,
    /// `nodeInfo.osImage`, for people; none where empty.
    pub os_image: String,
    /// `nodeInfo.kernelVersion`, for people; none where empty.
    pub kernel_version: String,
    /// `nodeInfo.architecture`; this process' own where empty.
    pub architecture: String,
    /// `nodeInfo.bootID`; derived from the name where empty. A new one says that all containers are gone.
    pub boot_id: String,
}

/// A node's health as its provider sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHealth {
    /// Conditions that differ from a healthy kubelet's, or are the provider's own. `Ready` may be among them.
    pub conditions: Vec<NodeCondition>,
    /// Capacity, where it changes at run time.
    pub capacity: Option<BTreeMap<String, String>>,
    /// Allocatable, where it changes at run time.
    pub allocatable: Option<BTreeMap<String, String>>,
}

/// Why a pod cannot run here as it is. It waits with this reason and message, and is looked at again every few seconds;
/// or it becomes Failed ([`fail_refused`](crate::core::pod::Settings::fail_refused)).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Refusal {
    /// In CamelCase: `UnsupportedPodSpec`.
    pub reason: String,
    /// For people, naming the field.
    pub message: String,
}
