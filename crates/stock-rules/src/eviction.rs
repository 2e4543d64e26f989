//! The taint eviction controller: which pods leave a node with NoExecute taints, and when.
//!
//! Timers start when the taint is *observed*, live in memory only, and are not moved by a changed toleration:
//! that is how stock Kubernetes does it, and what the planner does better.

use super::tolerations::{Stay, stay};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::collections::{BTreeMap, HashMap};

/// Namespace and name of a pod. As upstream, no UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
}

/// What counts of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    pub key: PodKey,
    /// Node it is bound to; empty before.
    pub node: String,
    pub tolerations: Vec<Toleration>,
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete a pod; [`TaintEviction::deleted`] takes the outcome.
    Delete(PodKey),
    /// Say that a deletion was called off.
    Cancelled(PodKey),
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Scheduled {
        created: Timestamp,
        fire: Timestamp,
    },
    /// Being deleted, or deleted and not yet seen to be gone: not deleted twice.
    Done,
}

/// What the controller remembers.
#[derive(Debug, Default)]
pub struct TaintEviction {
    tainted: HashMap<String, Vec<Taint>>,
    work: BTreeMap<PodKey, Work>,
    /// Pods as last seen, for telling changes that matter from those that do not.
    pods: HashMap<PodKey, PodFacts>,
}

impl TaintEviction {
    pub fn new() -> Self {
        Self::default()
    }

    /// A node as it is, with its NoExecute taints and the pods bound to it. Does nothing if the taints are as
    /// before.
    pub fn node_changed(
        &mut self,
        node: &str,
        taints: Vec<Taint>,
        pods: &[PodFacts],
        now: Timestamp,
    ) -> Vec<Action> {
        let before = self.tainted.get(node).map(Vec::as_slice).unwrap_or_default();
        if before == taints.as_slice() {
            return Vec::new();
        }
        if taints.is_empty() {
            self.tainted.remove(node);
            return pods.iter().filter_map(|pod| self.cancel(&pod.key)).collect();
        }
        self.tainted.insert(node.to_owned(), taints.clone());
        pods.iter()
            .flat_map(|pod| self.process(&pod.key, &pod.tolerations, &taints, now))
            .collect()
    }

    /// A node is gone. The timers of its pods go on.
    pub fn node_gone(&mut self, node: &str) {
        self.tainted.remove(node);
    }

    /// A pod as it is. Only a change of its node or its tolerations matters.
    pub fn pod_changed(&mut self, pod: &PodFacts, now: Timestamp) -> Vec<Action> {
        if self.pods.get(&pod.key) == Some(pod) {
            return Vec::new();
        }
        self.pods.insert(pod.key.clone(), pod.clone());
        let Some(taints) = self.tainted.get(&pod.node).cloned() else {
            return Vec::new();
        };
        self.process(&pod.key, &pod.tolerations, &taints, now)
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, key: &PodKey) -> Option<Action> {
        self.pods.remove(key);
        self.cancel(key)
    }

    /// Pods whose time has come at `now`.
    pub fn due(&mut self, now: Timestamp) -> Vec<Action> {
        let due: Vec<PodKey> = self
            .work
            .iter()
            .filter(|(_, work)| matches!(work, Work::Scheduled { fire, .. } if *fire <= now))
            .map(|(key, _)| key.clone())
            .collect();
        due.into_iter()
            .map(|key| {
                self.work.insert(key.clone(), Work::Done);
                Action::Delete(key)
            })
            .collect()
    }

    /// When [`Self::due`] has something next.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.work
            .values()
            .filter_map(|work| match work {
                Work::Scheduled { fire, .. } => Some(*fire),
                Work::Done => None,
            })
            .min()
    }

    /// Outcome of a deletion. After the last failed attempt the pod is forgotten, until its next event.
    pub fn deleted(&mut self, key: &PodKey, ok: bool) {
        if !ok && matches!(self.work.get(key), Some(Work::Done)) {
            self.work.remove(key);
        }
    }

    /// Must not be called without taints. Without any taint a pod may stay for ever, and callers cancel its
    /// timer instead.
    fn process(
        &mut self,
        key: &PodKey,
        tolerations: &[Toleration],
        taints: &[Taint],
        now: Timestamp,
    ) -> Vec<Action> {
        let wait = match stay(tolerations, taints) {
            Stay::Forever => return self.cancel(key).into_iter().collect(),
            Stay::NotTolerated => {
                let cancelled = self.cancel(key);
                return cancelled
                    .into_iter()
                    .chain(self.schedule(key, now, now))
                    .collect();
            }
            Stay::Seconds(seconds) => SignedDuration::from_secs(seconds),
        };
        let mut actions = Vec::new();
        if let Some(Work::Scheduled { created, .. }) = self.work.get(key).copied() {
            // A timer that runs is kept, whatever became of the tolerations since.
            if created < now {
                return actions;
            }
            actions.extend(self.cancel(key));
        }
        // A time beyond the calendar never comes.
        if let Ok(fire) = now.checked_add(wait) {
            actions.extend(self.schedule(key, now, fire));
        }
        actions
    }

    fn schedule(&mut self, key: &PodKey, created: Timestamp, fire: Timestamp) -> Option<Action> {
        if self.work.contains_key(key) {
            return None;
        }
        if fire <= created {
            self.work.insert(key.clone(), Work::Done);
            return Some(Action::Delete(key.clone()));
        }
        self.work.insert(key.clone(), Work::Scheduled { created, fire });
        None
    }

    fn cancel(&mut self, key: &PodKey) -> Option<Action> {
        match self.work.remove(key) {
            Some(Work::Scheduled { .. }) => Some(Action::Cancelled(key.clone())),
            Some(Work::Done) | None => None,
        }
    }
}

#[cfg(test)]
#[path = "eviction_tests.rs"]
mod tests;
