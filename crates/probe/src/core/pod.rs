//! What the prober knows of a pod: its specification, and its status as last reported.

use super::{Container, RestartPolicy};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Another prober had it before, however long this one runs: `started` and `ready` are what that one
    /// found, and stay until this one has a result.
    pub taken_over: bool,
}

/// What a container does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerState {
    /// Not running yet, or not again yet.
    #[default]
    Waiting,
    /// The container runs.
    Running {
        /// Wall time since the Unix epoch.
        started_at: Duration,
    },
    /// The container has ended.
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
