//! What a step for one node needs to see.

use super::Known;
use super::action::NodeRef;
use crate::world::facts::{Cluster, NodeFacts, PodFacts};
use crate::world::services::Last;
use crate::world::{Decisions, Judged};
use evenkeel_judge::NodeState;
use evenkeel_zone::Millis;

/// A node that comes back is not told to be Isolated or Disconnected before this long: peers need up to 15 s
/// to vouch for it, and a kubelet that starts renews within 10 s.
const LASTS_MS: u64 = 15_000;

/// What a step for one node needs to see.
pub(super) struct Scene<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) node: &'a NodeFacts,
    pub(super) judged: &'a Judged,
    pub(super) zone_size: usize,
    pub(super) default_toleration_seconds: i64,
    /// A kubelet that writes renews its Lease within this time.
    pub(super) renews_within: u64,
    /// The stock controller marks a node that is silent for this long.
    pub(super) stock_grace: u64,
    pub(super) decisions: &'a Decisions,
    /// When the stock controller last tainted nobody in the node's zone, because too much of it was not
    /// ready; 0 for never.
    pub(super) stock_stood: Millis,
    pub(super) now: Millis,
}

impl Scene<'_> {
    pub(super) fn last(&self) -> &Last {
        &self.decisions.last
    }

    pub(super) fn is_silent_replica(&self, pod: &PodFacts) -> bool {
        self.decisions.is_silent_replica(&pod.pod)
    }

    pub(super) fn node_ref(&self) -> NodeRef {
        NodeRef {
            name: self.node.name.clone(),
            uid: self.node.uid.clone(),
        }
    }

    pub(super) fn zone(&self) -> &str {
        &self.judged.zone
    }

    /// Whether the state has lasted for longer than a node that comes back needs to leave it.
    pub(super) fn lasts(&self) -> bool {
        self.now.since(self.judged.decision.memory.since) >= LASTS_MS
    }

    pub(super) fn state(&self) -> NodeState {
        self.judged.decision.state()
    }

    /// Whether the latch stands in the cluster as it is: it is written before it is acted upon (hazard 50).
    pub(super) fn is_recorded(&self, known: &Known) -> bool {
        known.incident.as_ref().is_some_and(|incident| {
            let stored = self.cluster.incidents.get(&incident.name);
            stored.is_some_and(|stored| {
                stored.status.latch == incident.status.latch && stored.status.state == incident.status.state
            })
        })
    }
}
