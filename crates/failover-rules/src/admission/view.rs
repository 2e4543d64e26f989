//! What the webhook answers from: the judge's decisions, projected. It decides nothing itself.

use super::PassReason;
use crate::world::Decisions;
use crate::world::facts::{Cluster, PodFacts};
use evenkeel_judge::Protection;
use evenkeel_zone::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// A view that is older than this is not acted upon (hazard 20), because the loop that makes a new one twice
/// a second must have stopped.
pub const VIEW_TTL_MS: u64 = 2_000;

/// The protected nodes at one instant. The default knows nothing and lets everything pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// When this was made; `None` before the first complete look at the cluster.
    pub made_at: Option<Millis>,
    /// By node name. Writes to nodes that are not here pass unchanged.
    pub nodes: BTreeMap<String, Guarded>,
    /// Namespace and UID of pods that are the last of a Service.
    pub last: BTreeSet<(String, String)>,
}

/// A node of which something is kept from the stock controllers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guarded {
    /// UID of the Node: a machine that was registered again is another node.
    pub uid: String,
    /// What is kept as the evidence stands.
    pub now: Protection,
    /// What is kept against a write that itself proves the Lease stale: the stock node controller acts only
    /// after its grace period (hazard 20).
    pub if_stale: Protection,
    /// Before it fell silent, its own kubelet wrote Ready=False. Pods that are marked then are marked
    /// rightly.
    pub says_not_ready: bool,
    /// Its zone is Dark: pods that are the last of a Service keep their readiness (hazard 18).
    pub keeps_last: bool,
    /// UIDs of its pods that carry the stock controller's mark: they are not ready, and their containers and
    /// readiness gates say that they are.
    pub marked: BTreeSet<String>,
    /// UIDs of pods of it whose readiness is never kept: other replicas of this controller of which nothing
    /// is heard, see `planner::kept`.
    pub replicas: BTreeSet<String>,
}

impl View {
    /// The decisions as they stand at `now`.
    pub fn of(decisions: &Decisions, cluster: &Cluster, now: Millis) -> Self {
        let nothing = Protection::default();
        let guarded = decisions
            .nodes
            .iter()
            .filter(|(_, judged)| {
                judged.protection != nothing || judged.if_stale != nothing || judged.keeps_last()
            })
            .map(|(name, judged)| {
                let node = cluster.nodes.get(name);
                let uids = |which: &dyn Fn(&PodFacts) -> bool| {
                    let pods = cluster.pods_of(name).filter(|pod| which(pod));
                    pods.map(|pod| pod.pod.uid.clone()).collect()
                };
                let guarded = Guarded {
                    uid: judged.uid.clone(),
                    now: judged.protection,
                    if_stale: judged.if_stale,
                    says_not_ready: node.is_some_and(|node| node.says_not_ready == Some(true)),
                    keeps_last: judged.keeps_last(),
                    marked: uids(&PodFacts::is_marked_by_stock),
                    replicas: uids(&|pod| decisions.is_silent_replica(&pod.pod)),
                };
                (name.clone(), guarded)
            });
        Self {
            made_at: Some(now),
            nodes: guarded.collect(),
            last: decisions.last.pods.clone(),
        }
    }

    /// Whether the view may be acted upon at `now`.
    pub fn is_live(&self, now: Millis) -> bool {
        self.made_at
            .is_some_and(|made_at| now.since(made_at) <= VIEW_TTL_MS)
    }

    /// The node of that name, if anything is kept on it.
    pub(super) fn guarded(&self, node: &str) -> Result<&Guarded, PassReason> {
        self.nodes.get(node).ok_or(PassReason::NotProtected)
    }
}

impl Guarded {
    /// Whether readiness of the pod of that UID is kept under a protection, or because it is the last of a
    /// Service.
    pub(super) fn keeps_readiness(
        &self,
        protection: Protection,
        pod: &str,
        is_last: bool,
    ) -> Result<(), PassReason> {
        let is_kept = protection.readiness || is_last && self.keeps_last;
        if is_kept && !self.says_not_ready && !self.replicas.contains(pod) {
            Ok(())
        } else {
            Err(PassReason::NotProtected)
        }
    }
}
