//! What goes into a pod's machine, and what comes out.

use crate::core::Event;
use crate::core::reported::{Exit, Fault, Observed, PodState, Refusal, Sandbox, Started};
use evenkeel_probe::core::{Kind, PodStatus as ProbedStatus, Reading};
use k8s_openapi::api::core::v1::PodStatus;
use std::sync::Arc;
use std::time::Duration;

/// What happened to a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The object came or changed; it is the pod that [`Machine::step`](super::Machine::step) is given.
    Seen,
    /// The object is gone from the API server: everything ends, nothing is written.
    Gone,
    /// Answer to [`Action::Adopt`]. `None`: the provider does not know the pod.
    Adopted(Result<Option<PodState>, Fault>),
    /// Answer to [`Action::Create`].
    Created(Result<Sandbox, Trouble>),
    /// Answer to [`Action::Start`].
    Started {
        /// Name of the container.
        container: Arc<str>,
        /// How it went.
        result: Result<Started, Trouble>,
    },
    /// Answer to [`Action::Update`].
    Updated(Result<(), Fault>),
    /// Answer to [`Action::Stop`].
    Stopped {
        /// Name of the container.
        container: Arc<str>,
        /// How it ended.
        result: Result<Exit, Fault>,
    },
    /// Answer to [`Action::Delete`].
    Deleted(Result<(), Fault>),
    /// Answer to [`Action::Post`].
    Posted(Posted),
    /// Answer to [`Action::Remove`]: whether the object is gone, or has another UID.
    Removed(bool),
    /// The provider says what became of a container.
    Observed {
        /// Name of the container.
        container: Arc<str>,
        /// What is known of it.
        observed: Observed,
    },
    /// What the prober publishes about a container.
    Probed {
        /// Name of the container.
        container: Arc<str>,
        /// Which instance of it.
        id: Arc<str>,
        /// Kind of the probe.
        kind: Kind,
        /// What is published.
        reading: Reading,
    },
    /// The time asked for by [`Action::Wake`] has come.
    Tick,
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The provider's fault.
    Fault(Fault),
    /// A ConfigMap, Secret or key that the container's environment needs does not exist (or a value is
    /// wrong); the kubelet's `CreateContainerConfigError`, with its message. Events were recorded by who
    /// resolved it.
    Config(String),
    /// A volume that the pod needs cannot be made; the pod waits in `ContainerCreating`. Events likewise.
    Volume(String),
    /// The pod cannot run here as it is. The provider was not asked to create it.
    Refused(Refusal),
}

/// How a write of the status went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is written; the object's new resourceVersion. Older objects that come later say nothing of the
    /// status.
    Done(String),
    /// The object is gone or another; what is true comes with the watch.
    Overtaken,
    /// The API server refused it for good, with its message (said in the log).
    Refused(String),
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask the provider for the pod.
    Adopt,
    /// See that what the volumes need is there, and create the pod.
    Create,
    /// Tell the provider of new labels, annotations, tolerations.
    Update,
    /// Resolve the environment and start a container.
    Start {
        /// Name of the container.
        container: Arc<str>,
        /// Its restart count.
        attempt: u32,
    },
    /// End a container. Asked for again with less `grace` while it is under way when somebody is in a hurry;
    /// either answer, or both, will do.
    Stop {
        /// Name of the container.
        container: Arc<str>,
        /// ID of its instance.
        id: Arc<str>,
        /// Time between TERM and KILL.
        grace: Duration,
    },
    /// Remove the pod from the provider.
    Delete,
    /// Write the status. Replaces an earlier one that is not written yet.
    Post(Box<PodStatus>),
    /// Delete the object: grace period 0, with its UID as precondition.
    Remove,
    /// Record an event.
    Record {
        /// About this container; none: about the pod.
        container: Option<Arc<str>>,
        /// The event to record.
        event: Event,
    },
    /// Tell the prober.
    Probe(ProbeOrder),
    /// Come back with [`Input::Tick`] after this long at the latest. Replaces an earlier time.
    Wake(Duration),
    /// The pod is over: forget it, and this machine.
    Forget,
}

/// What the prober is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOrder {
    /// The pod has probes; or they have changed.
    Watch,
    /// The status for the prober has changed.
    Status(ProbedStatus),
    /// Liveness and startup are over: the pod terminates.
    Terminating,
    /// The pod is over.
    Forget,
}
