//! The node lifecycle controller: node conditions, zones, and the queue for NoExecute taints.
//!
//! A pass is [`NodeLifecycle::classify`], then for each node [`NodeLifecycle::check`], the write it asks for,
//! [`NodeLifecycle::react`] and what that asks for, then [`NodeLifecycle::disrupt`]. Every 100 ms the queues
//! are served ([`NodeLifecycle::next_taint`]).

use super::health::{self, Check, Grace, Health};
use super::queue::{Entry, TimedQueue};
use super::taints::{evicts_by, reachable};
use super::zones::{Rates, ZoneState, zone_key};
use evenkeel_api::names::EXCLUDE_DISRUPTION_LABEL;
use evenkeel_api::names::taints::{NOT_READY, UNREACHABLE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node in the queue that has no Ready condition is looked at again after this.
const NO_CONDITION_RETRY: SignedDuration = SignedDuration::from_millis(50);

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Emit an Event on a node.
    Event {
        node: String,
        uid: String,
        reason: &'static str,
        message: String,
    },
    /// Take both NoExecute taints off a node.
    MarkReachable { node: String },
    /// Put one NoExecute taint on a node and take the other off.
    Swap {
        node: String,
        /// Key of the taint to put on.
        add: &'static str,
        /// Key of the taint to take off.
        remove: &'static str,
    },
    /// Mark every pod of a node not ready; [`NodeLifecycle::pods_marked`] takes the outcome.
    MarkPods { node: String },
}

/// A taint that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTaint {
    pub zone: String,
    pub node: String,
    /// Key to put on.
    pub add: &'static str,
    /// Key to take off.
    pub remove: &'static str,
    entry: Entry,
}

/// Numbers of a zone after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFigures {
    /// Nodes that count.
    pub size: usize,
    /// Those not ready.
    pub unhealthy: usize,
}

/// What the controller remembers.
#[derive(Debug, Default)]
pub struct NodeLifecycle {
    grace: Grace,
    rates: Rates,
    known: BTreeMap<String, Known>,
    health: BTreeMap<String, Option<Health>>,
    states: BTreeMap<String, ZoneState>,
    queues: BTreeMap<String, TimedQueue>,
    /// Nodes whose pods could not be marked.
    retry: BTreeSet<String>,
}

#[derive(Debug)]
struct Known {
    uid: String,
    zone: String,
}

impl NodeLifecycle {
    /// Knows nothing: every zone begins in its initial state, and every grace period now.
    pub fn new(grace: Grace, rates: Rates) -> Self {
        Self {
            grace,
            rates,
            ..Self::default()
        }
    }

    /// State of a zone, if it has nodes.
    pub fn zone_state(&self, zone: &str) -> Option<ZoneState> {
        self.states.get(zone).copied()
    }

    /// Nodes of a zone that wait for their taint.
    pub fn waiting(&self, zone: &str) -> Vec<&str> {
        self.queues.get(zone).map(TimedQueue::waiting).unwrap_or_default()
    }

    /// First step of a pass: which nodes came, which went, which zones are new.
    pub fn classify(&mut self, nodes: &[Arc<Node>], now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        let present: BTreeSet<&str> = nodes.iter().map(|node| name(node)).collect();
        for node in nodes {
            let zone = zone_of(node);
            if !self.states.contains_key(&zone) {
                self.states.insert(zone.clone(), ZoneState::Initial);
                self.queues
                    .insert(zone.clone(), TimedQueue::new(self.rates.eviction, now));
            }
            let uid = uid(node).to_owned();
            if let Some(known) = self.known.get_mut(name(node)) {
                *known = Known { uid, zone };
                continue;
            }
            actions.push(Action::Event {
                node: name(node).to_owned(),
                uid: uid.clone(),
                reason: "RegisteredNode",
                message: format!("Node {0} event: Registered Node {0} in Controller", name(node)),
            });
            self.known.insert(name(node).to_owned(), Known { uid, zone });
            actions.extend(self.mark_reachable(node));
        }
        let gone: Vec<String> = self
            .known
            .keys()
            .filter(|known| !present.contains(known.as_str()))
            .cloned()
            .collect();
        for node in gone {
            self.health.remove(&node);
            self.retry.remove(&node);
            let Some(known) = self.known.remove(&node) else {
                continue;
            };
            // Its name is free for a node to come.
            if let Some(queue) = self.queues.get_mut(&known.zone) {
                queue.remove(&node);
            }
            actions.push(Action::Event {
                uid: known.uid,
                reason: "RemovingNode",
                message: format!("Node {node} event: Removing Node {node} from Controller"),
                node,
            });
        }
        actions
    }

    /// Looks at a node. What [`Check::write`] asks for has to be written before [`Self::react`]; after a
    /// failure the check is repeated with the node as it is then.
    pub fn check(&mut self, node: &Node, lease: Option<Timestamp>, now: Timestamp) -> Check {
        let memory = self.health.entry(name(node).to_owned()).or_default();
        health::check(memory, node, lease, self.grace, now)
    }

    /// The conditions of a check were written.
    pub fn written(&mut self, node: &str, check: &Check, now: Timestamp) {
        if let Some(memory) = self.health.get_mut(node) {
            health::written(memory, check, now);
        }
    }

    /// What follows from a check whose conditions are written.
    pub fn react(&mut self, node: &Node, check: &Check, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(status) = check.current_status() else {
            self.retry.remove(name(node));
            return actions;
        };
        match status {
            "False" => actions.extend(self.taint(node, NOT_READY, UNREACHABLE, now)),
            "Unknown" => actions.extend(self.taint(node, UNREACHABLE, NOT_READY, now)),
            _ => actions.extend(self.mark_reachable(node)),
        }
        // Only a transition inside this pass, that is one that we wrote, is seen: what a kubelet or an
        // external detector wrote is not.
        let transition = check.observed == "True" && status != "True";
        if transition {
            actions.push(Action::Event {
                node: name(node).to_owned(),
                uid: uid(node).to_owned(),
                reason: "NodeNotReady",
                message: format!("Node {} status is now: NodeNotReady", name(node)),
            });
        }
        if transition || check.observed != "True" && self.retry.contains(name(node)) {
            actions.push(Action::MarkPods {
                node: name(node).to_owned(),
            });
        } else {
            self.retry.remove(name(node));
        }
        actions
    }

    /// Outcome of [`Action::MarkPods`]; a failure is tried again in the next pass while the node is not
    /// ready.
    pub fn pods_marked(&mut self, node: &str, all: bool) {
        if all {
            self.retry.remove(node);
        } else {
            self.retry.insert(node.to_owned());
        }
    }

    /// Whether a pod that was just bound to a node must be marked not ready: the node is known not to be
    /// ready.
    pub fn marks_bound_pod(&self, node: &str) -> bool {
        let health = self.health.get(node).and_then(Option::as_ref);
        health
            .and_then(|health| health.ready.as_ref())
            .is_some_and(|ready| ready.status != "True")
    }

    /// Last step of a pass: the state of every zone, from the Ready conditions that the checks found, by node
    /// name.
    pub fn disrupt(
        &mut self,
        nodes: &[Arc<Node>],
        found: &BTreeMap<String, Option<String>>,
        now: Timestamp,
    ) -> (Vec<Action>, BTreeMap<String, ZoneFigures>) {
        let figures = figures(nodes, found);
        let next: BTreeMap<String, ZoneState> = figures
            .iter()
            .map(|(zone, figures)| {
                let ready = figures.size - figures.unhealthy;
                (zone.clone(), self.rates.state(ready, figures.unhealthy))
            })
            .collect();
        for zone in next.keys() {
            self.states.entry(zone.clone()).or_insert(ZoneState::Initial);
        }
        self.states.retain(|zone, _| next.contains_key(zone));
        let all_full = next.values().all(|state| *state == ZoneState::Full);
        let all_were_full = self.states.values().all(|state| *state == ZoneState::Full);
        let mut actions = Vec::new();
        match (all_were_full, all_full) {
            (true, true) => {}
            (false, true) => {
                // Everything is silent at once: the fault is more likely here. All evictions stop.
                for node in nodes {
                    actions.extend(self.mark_reachable(node));
                }
                self.set_states(&next, now, |_, _| 0.0);
            }
            (true, false) => {
                for health in self.health.values_mut().flatten() {
                    health.restart(now);
                }
                self.states
                    .values_mut()
                    .for_each(|state| *state = ZoneState::Initial);
                let rates = self.rates;
                self.set_states(&next, now, |zone, state| {
                    rates.rate(state, size_of(&figures, zone))
                });
            }
            (false, false) => {
                let rates = self.rates;
                self.set_states(&next, now, |zone, state| {
                    rates.rate(state, size_of(&figures, zone))
                });
            }
        }
        (actions, figures)
    }

    /// The next node of any zone that is due for its NoExecute taint, if any. [`Self::tainted`] takes the
    /// outcome.
    pub fn next_taint(
        &mut self,
        now: Timestamp,
        find: impl Fn(&str) -> Option<Arc<Node>>,
    ) -> Option<DueTaint> {
        for (zone, queue) in &mut self.queues {
            while let Some(entry) = queue.next(now) {
                // Gone, or healthy again: nothing to do, and its name stays blocked until it is marked
                // reachable.
                let Some(node) = find(&entry.name) else { continue };
                let (add, remove) = match health::condition(&node, "Ready").map(|ready| ready.status.as_str())
                {
                    None => {
                        queue.retry(entry, now + NO_CONDITION_RETRY);
                        continue;
                    }
                    Some("False") => (NOT_READY, UNREACHABLE),
                    Some("Unknown") => (UNREACHABLE, NOT_READY),
                    Some(_) => continue,
                };
                return Some(DueTaint {
                    zone: zone.clone(),
                    node: entry.name.clone(),
                    add,
                    remove,
                    entry,
                });
            }
        }
        None
    }

    /// Outcome of a due taint; after a failure it is due again at once.
    pub fn tainted(&mut self, due: DueTaint, ok: bool, now: Timestamp) {
        if ok {
            return;
        }
        if let Some(queue) = self.queues.get_mut(&due.zone) {
            queue.retry(due.entry, now + SignedDuration::from_nanos(1));
        }
    }

    /// A node that is not ready: swap at once if the other taint is on it, else wait for a turn.
    fn taint(
        &mut self,
        node: &Node,
        add: &'static str,
        remove: &'static str,
        now: Timestamp,
    ) -> Option<Action> {
        if evicts_by(node, remove) {
            return Some(Action::Swap {
                node: name(node).to_owned(),
                add,
                remove,
            });
        }
        let queue = self.queues.get_mut(&zone_of(node))?;
        if !evicts_by(node, add) {
            // Tainted before, and somebody took the taint off: it may queue again.
            queue.remove(name(node));
        }
        queue.add(name(node), uid(node), now);
        None
    }

    fn mark_reachable(&mut self, node: &Node) -> Option<Action> {
        if let Some(queue) = self.queues.get_mut(&zone_of(node)) {
            queue.remove(name(node));
        }
        reachable(node).map(|_| Action::MarkReachable {
            node: name(node).to_owned(),
        })
    }

    fn set_states(
        &mut self,
        next: &BTreeMap<String, ZoneState>,
        now: Timestamp,
        rate: impl Fn(&str, ZoneState) -> f64,
    ) {
        for (zone, state) in next {
            if self.states.insert(zone.clone(), *state) == Some(*state) && *state != ZoneState::Full {
                continue;
            }
            if let Some(queue) = self.queues.get_mut(zone) {
                queue.swap_limiter(rate(zone, *state), now);
            }
        }
    }
}

fn figures(nodes: &[Arc<Node>], found: &BTreeMap<String, Option<String>>) -> BTreeMap<String, ZoneFigures> {
    let mut figures: BTreeMap<String, ZoneFigures> = BTreeMap::new();
    for node in nodes {
        let Some(ready) = found.get(name(node)) else {
            continue;
        };
        let labels = node.metadata.labels.as_ref();
        if labels.is_some_and(|labels| labels.contains_key(EXCLUDE_DISRUPTION_LABEL)) {
            continue;
        }
        let figures = figures.entry(zone_of(node)).or_insert(ZoneFigures {
            size: 0,
            unhealthy: 0,
        });
        figures.size += 1;
        if ready.as_deref() != Some("True") {
            figures.unhealthy += 1;
        }
    }
    figures
}

fn size_of(figures: &BTreeMap<String, ZoneFigures>, zone: &str) -> usize {
    figures.get(zone).map_or(0, |figures| figures.size)
}

/// Name of a node; objects from the API server have one.
pub fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn uid(node: &Node) -> &str {
    node.metadata.uid.as_deref().unwrap_or_default()
}

fn zone_of(node: &Node) -> String {
    zone_key(node.metadata.labels.as_ref())
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
