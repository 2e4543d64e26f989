//! What is reported of pods, containers and nodes: what the rules conclude from, whoever runs the containers.

pub use evenkeel_kubelet_api::{ContainerId, Fault, FaultKind};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use std::collections::BTreeMap;
use std::net::IpAddr;

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

/// Why a pod cannot run here as it is. It waits with this reason and message, and is looked at again every
/// few seconds; or it becomes Failed ([`fail_refused`](crate::core::pod::Settings::fail_refused)).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Refusal {
    /// In CamelCase: `UnsupportedPodSpec`.
    pub reason: String,
    /// For people, naming the field.
    pub message: String,
}
