//! One attempt to probe: what is asked, of whom, and what is told about it.

use super::{Compat, Container, Kind, Outcome, Pod, Probe, Role, Target, Verdict, runs_again_when_killed};
use evenkeel_api::names::events::{KILLING, PROBE_WARNING, UNHEALTHY};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Name of a worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// UID of the pod.
    pub pod: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
    /// Which of its probes.
    pub kind: Kind,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of pod {}", self.container, self.kind.field(), self.pod)
    }
}

/// What a handler is asked to do.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// To be handed back with the outcome.
    pub ticket: u64,
    /// The worker that makes the attempt.
    pub key: Key,
    /// The container that is probed.
    pub target: Target,
    /// The probe that is made.
    pub probe: Arc<Probe>,
    /// Whose rules apply.
    pub compat: Compat,
    /// How late it starts.
    pub lag: Duration,
}

impl Attempt {
    /// How often the whole is tried, back to back, as long as it ends in an error (upstream's
    /// `maxProbeRetries`). In strict mode errors have a threshold instead.
    pub fn tries(&self) -> u32 {
        match self.compat {
            Compat::Kubelet => 3,
            Compat::Strict => 1,
        }
    }
}

/// An event to be recorded about a container. Texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it is a `Warning`, else `Normal`.
    pub warning: bool,
    /// `Unhealthy`, `ProbeWarning`, `Killing`.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
}

impl Event {
    /// What upstream records at the end of an attempt, if anything. A success is worth no event, and neither
    /// is an `Unknown` without an error.
    pub fn of(kind: Kind, outcome: &Outcome) -> Option<Self> {
        let (reason, message) = match (&outcome.error, outcome.verdict) {
            (Some(error), verdict) => {
                let state = match verdict {
                    Verdict::Success => "success",
                    Verdict::Warning => "warning",
                    Verdict::Failure => "failure",
                    Verdict::Unknown => "unknown",
                };
                (
                    UNHEALTHY,
                    format!("{kind} probe errored and resulted in {state} state: {error}"),
                )
            }
            (None, Verdict::Warning) => (PROBE_WARNING, format!("{kind} probe warning: {}", outcome.output)),
            (None, Verdict::Failure) => (UNHEALTHY, format!("{kind} probe failed: {}", outcome.output)),
            (None, Verdict::Success | Verdict::Unknown) => return None,
        };
        Some(Self {
            warning: true,
            reason,
            message,
        })
    }

    /// What upstream records when it kills a container for a failed probe: the texts for regular containers
    /// and sidecars differ, and the restart is told where the policy allows one.
    pub fn killing(kind: Kind, pod: &Pod, container: &Container) -> Self {
        let Container { name, role, .. } = container;
        let probe = kind.name().to_lowercase();
        let message = match role {
            Role::Init | Role::Sidecar => format!("Init container {name} failed {probe} probe"),
            Role::Regular if runs_again_when_killed(pod, container) => {
                format!("Container {name} failed {probe} probe, will be restarted")
            }
            Role::Regular => format!("Container {name} failed {probe} probe"),
        };
        Self {
            warning: false,
            reason: KILLING,
            message,
        }
    }
}

#[cfg(test)]
mod tests;
