//! Whom a handler asks: a container of a pod, as its specification describes it.

use crate::{Kind, Probe};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;

/// Whom a handler asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The pod's address; `None` before it has one.
    pub address: Option<IpAddr>,
    /// The address to ask from, where it matters which of several the other side sees.
    pub source: Option<IpAddr>,
    /// The container's specification: named ports, environment.
    pub container: Arc<Container>,
    /// The container's ID, with its scheme (`containerd://…`).
    pub container_id: Arc<str>,
}

/// When a container that has ended runs again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Whatever its exit code.
    #[default]
    Always,
    /// Unless its exit code is 0.
    OnFailure,
    /// Whatever its exit code, it does not run again.
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
    /// The container's ports that have a name.
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
    /// The exit codes that the rule speaks of.
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
