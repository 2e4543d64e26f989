//! The steps of a scenario. Pure.

use super::{Span, assertions::Strike, crash::Crash, nowhere};
use crate::switch::links::Way;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::{fmt, time::Duration};

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Step {
    /// Prints a line for people.
    Note(String),
    /// Wait for a condition; the run ends if it is not met in time.
    Wait(Wait),
    /// Break or impair a link.
    Cut(Cut),
    /// Take a node's power.
    Kill(Victim),
    /// Kill a process; it is started again.
    Crash(Crash),
    /// Freeze a whole machine, which goes on after a time.
    Stall(Timed),
    /// Stop a node's agent, and start it again after a time. Kubelet and containers go on.
    #[serde(rename = "restart-agent")]
    RestartAgent(Timed),
    /// Stop a node's kubelet, and start it again after a time. Containers and agent go on.
    #[serde(rename = "restart-kubelet")]
    RestartKubelet(Timed),
    /// Repair links and switch nodes on.
    Heal(Heal),
    /// Let time pass; then judge what happened since the last fault.
    Hold(Hold),
    /// Judge what happened since the last fault, giving it the time it may take.
    Expect(Expect),
}

/// Waits for a condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wait {
    pub until: Condition,
    /// At most so long.
    pub within: Span,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    /// Every node is Ready, every workload has its replicas ready, and each ready pod of a Service is an
    /// endpoint.
    Ready,
    /// Ready, and nothing of an incident is left: no taints, no pod on its way out, no open incident.
    Clean,
}

/// A link and what becomes of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cut {
    pub(super) node: Spanned<String>,
    /// The other end: `cloud`, `peers` (all other nodes), or a node.
    #[serde(default = "default_link")]
    pub(super) link: Spanned<String>,
    /// Which way, seen from the node.
    #[serde(default)]
    pub way: Way,
    /// Delay instead of cutting.
    #[serde(default)]
    pub delay: Option<Span>,
    /// Lose this share of datagrams, in percent, instead of cutting.
    #[serde(default)]
    pub(super) drop_percent: Option<Spanned<u8>>,
}

fn default_link() -> Spanned<String> {
    nowhere("cloud".to_owned())
}

/// A node by its name or by what runs on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Victim {
    #[serde(default)]
    pub(super) node: Option<Spanned<String>>,
    /// Any node on which a pod of each of these workloads is ready, as in `deployment/web`.
    #[serde(default)]
    pub running: Vec<String>,
    /// Nodes that must not be chosen.
    #[serde(default)]
    pub(super) except: Vec<Spanned<String>>,
}

/// A node and for how long something is wrong with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timed {
    pub node: Spanned<String>,
    /// How long. The next step is taken at once.
    pub r#for: Span,
}

/// Repairs one node, or everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heal {
    #[serde(default)]
    pub(super) node: Option<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hold {
    pub r#for: Span,
    /// Only these nodes are looked at; all, if none is named.
    #[serde(default)]
    pub on: Vec<Spanned<String>>,
    /// Most pods that may have been deleted or replaced since the last fault.
    #[serde(default)]
    pub pods_moved: Option<usize>,
    /// Most endpoints that may have been not ready at any moment since the last fault.
    #[serde(default)]
    pub endpoints_lost: Option<usize>,
    /// Most changes of state that any one node may have had since the last fault.
    #[serde(default)]
    pub state_changes: Option<usize>,
}

/// What must have happened, counted from the last fault, on the node it struck.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expect {
    /// Only these nodes are looked at by what follows below, where it is not about the node that was struck.
    #[serde(default)]
    pub on: Vec<Spanned<String>>,
    /// No endpoint on the node is ready.
    #[serde(default)]
    pub endpoints_out: Option<Span>,
    /// Each Deployment that had pods there has as many ready pods elsewhere as it had in all.
    #[serde(default)]
    pub replaced: Option<Span>,
    /// The StatefulSet pods of the node are still the same pods, and nobody else has their name.
    #[serde(default)]
    pub stateful_not_moved: bool,
    /// Every endpoint that was ready before the faults began is ready again, counted from the end of the last
    /// one.
    #[serde(default)]
    pub endpoints_back: Option<Span>,
    /// An incident of the node says this.
    #[serde(default)]
    pub reported: Option<Reported>,
    /// Most pods that may have been deleted or replaced.
    #[serde(default)]
    pub pods_moved: Option<usize>,
    /// Most endpoints that may have been lost.
    #[serde(default)]
    pub endpoints_lost: Option<usize>,
    /// Most changes of state that any one node may have had.
    #[serde(default)]
    pub state_changes: Option<usize>,
}

/// A state that an incident must reach.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reported {
    pub state: Spanned<String>,
    /// In what time after the fault.
    pub within: Span,
}

impl Expect {
    /// The longest time that anything of it may take, counted from the last fault.
    pub fn longest(&self, strike: &Strike) -> Duration {
        let after_its_end = self.endpoints_back.map(|span| span.0 + strike.lasts);
        let spans = [
            self.endpoints_out,
            self.replaced,
            self.reported.as_ref().map(|reported| reported.within),
        ];
        let longest = spans.into_iter().flatten().map(|span| span.0).max();
        longest.max(after_its_end).unwrap_or_default()
    }
}

impl Cut {
    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.node.value
    }

    /// `cloud`, `peers`, or a node.
    pub fn link(&self) -> &str {
        &self.link.value
    }

    /// Whether the API server hears nothing of the node any more.
    pub fn silences(&self) -> bool {
        let cut = self.delay.is_none() && self.drop_percent.is_none();
        cut && self.link() == "cloud" && self.way != Way::To
    }

    /// Datagrams lost, in percent.
    pub fn drop_percent(&self) -> Option<u8> {
        self.drop_percent.as_ref().map(|percent| percent.value)
    }
}

impl Victim {
    /// Name of the node, where the scenario says it.
    pub fn node(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.value.as_str())
    }

    /// Nodes that are spared.
    pub fn except(&self) -> impl Iterator<Item = &str> {
        self.except.iter().map(|node| node.value.as_str())
    }
}

impl Heal {
    /// Name of the node; `None` is everything.
    pub fn node(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.value.as_str())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Clean => "clean",
        })
    }
}
