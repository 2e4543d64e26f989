//! What the prober knows of a pod: its specification, and its status as last reported.

use super::{Kind, Probe};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A pod's specification, as far as probes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// `spec.restartPolicy`.
    pub restart_policy: RestartPolicy,
    /// Regular containers in their order, then init containers in theirs.
    pub containers: Vec<Arc<Container>>,
}

impl Pod {
    /// The container of this name.
    pub fn container(&self, name: &str) -> Option<&Arc<Container>> {
        self.containers.iter().find(|container| &*container.name == name)
    }
}

/// When a container that has ended runs again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Whatever its exit code.
    #[default]
    Always,
    /// Unless its exit code is 0.
    OnFailure,
    /// Never.
    Never,
}

/// A container's specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Unique in its pod.
    pub name: Arc<str>,
    /// Regular, init or sidecar.
    pub role: Role,
    /// The container's own restart policy, which overrides the pod's; `Always` for a sidecar.
    pub restart_policy: Option<RestartPolicy>,
    /// `restartPolicyRules`, first match wins.
    pub restart_rules: Vec<RestartRule>,
    /// Named ports.
    pub ports: Vec<(String, u16)>,
    /// Environment variables with literal values, in their order.
    pub env: Vec<(String, String)>,
    /// `startupProbe`.
    pub startup: Option<Arc<Probe>>,
    /// `readinessProbe`.
    pub readiness: Option<Arc<Probe>>,
    /// `livenessProbe`.
    pub liveness: Option<Arc<Probe>>,
}

impl Container {
    /// Its probe of a kind.
    pub fn probe(&self, kind: Kind) -> Option<&Arc<Probe>> {
        match kind {
            Kind::Startup => self.startup.as_ref(),
            Kind::Readiness => self.readiness.as_ref(),
            Kind::Liveness => self.liveness.as_ref(),
        }
    }
}

/// A container's part in its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Under `containers`.
    #[default]
    Regular,
    /// Under `initContainers`, runs to its end. Has no probes.
    Init,
    /// Under `initContainers` with `restartPolicy: Always`.
    Sidecar,
}

/// One of a container's `restartPolicyRules` (KEP-5307).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRule {
    /// What happens on a match.
    pub action: RestartAction,
    /// Whether the exit code must be one of `values` (`In`) or none of them (`NotIn`).
    pub among: bool,
    /// Exit codes.
    pub values: Vec<i32>,
}

impl RestartRule {
    /// Whether the rule speaks of this exit code.
    pub fn matches(&self, exit_code: i32) -> bool {
        self.values.contains(&exit_code) == self.among
    }
}

/// What a [`RestartRule`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartAction {
    /// The container runs again.
    Restart,
    /// All containers of the pod run again.
    RestartAllContainers,
}

/// A pod's status, as last reported by whoever runs its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodStatus {
    /// `status.phase`.
    pub phase: Phase,
    /// `status.podIP`.
    pub address: Option<IpAddr>,
    /// Whether the last known `Ready` condition is `True`. For the restart of a prober.
    pub ready: bool,
    /// Whether the condition `AllContainersRestarting` is `True`.
    pub restarting_all: bool,
    /// Of regular and init containers alike.
    pub containers: Vec<ContainerStatus>,
}

impl PodStatus {
    /// The container of this name.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|container| &*container.name == name)
    }
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have started yet.
    #[default]
    Pending,
    /// At least one container runs, starts or restarts.
    Running,
    /// All ended well, and for good.
    Succeeded,
    /// All ended, at least one badly, and for good.
    Failed,
    /// The node is silent.
    Unknown,
}

/// A container's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// As in the specification.
    pub name: Arc<str>,
    /// `containerd://…`; empty before the first start.
    pub id: Arc<str>,
    /// What it does.
    pub state: ContainerState,
    /// `started`, where known.
    pub started: Option<bool>,
    /// `ready`.
    pub ready: bool,
}

/// What a container does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerState {
    /// Not running yet, or not again yet.
    #[default]
    Waiting,
    /// Running.
    Running {
        /// Wall time since the Unix epoch.
        started_at: Duration,
    },
    /// Ended.
    Terminated {
        /// Its exit code.
        exit_code: i32,
    },
}

impl ContainerState {
    /// Whether it runs.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running { .. })
    }
}
