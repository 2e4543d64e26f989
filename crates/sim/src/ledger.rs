//! What happened to pods and nodes, and which promises were broken.

mod end;

use crate::api::build::node_number;
use crate::api::objects::{Object, added, is_endpoint, node_condition, node_of, time};
use crate::api::{Change, Store, Writer};
use crate::leftovers::leftovers;
use crate::promise::{BACK_ON, Fate, Promise};
use crate::script::{Group, SECOND, Script};
use crate::sight::{is_vouched_for, may_be_convicted};
use crate::uncarried::Uncarried;
use crate::votes::Votes;
use evenkeel_api::names::taints;
use evenkeel_failover_rules::world::Kind;
use evenkeel_failover_rules::world::facts::TaintRef;
use evenkeel_judge::{Dead, NodeState};
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::fmt;

/// Window of the storm limits.
const WINDOW: u64 = 600 * SECOND;
/// A node's slot is free after this time, whatever became of it.
const SLOT: u64 = 300 * SECOND;
/// After the last fault everything has converged within this time (L1).
const CONVERGED: u64 = 30 * SECOND;
/// So long after the last fault every member of a cell has a vote, and knows who else has one: two versions
/// of a roster with 10 s before each, 20 s for the acknowledgements of each, and a minute where some do not
/// come.
const ROSTERS_SETTLE: u64 = 120 * SECOND;

/// After a power-off endpoints are out within this time. The goal is 6 s in 99 of 100 cases; the rest is for
/// a LAN that loses and for watches that are late.
const ENDPOINTS_OUT: u64 = 10 * SECOND;
/// And pods are evicted, by the profile: goals of 25 s and 47 s, and as much again as a missed round costs.
const EVICTED_EDGE: u64 = 35 * SECOND;
const EVICTED_BUILT_IN: u64 = 65 * SECOND;

pub(crate) const MINORITY: &str = "S4: a node that no majority can have missed is voted dead";

pub(crate) const UNFOUND: &str = "goal: a death is found";

const SPLIT: &str = "42: a death is confirmed in a split";

/// Whether a pod is of a StatefulSet, by its name.
fn is_stateful(name: &str) -> bool {
    name.starts_with("db")
}

/// Whether a pod is one that we move: of a ReplicaSet, and of no DaemonSet and no StatefulSet.
fn is_movable(name: &str) -> bool {
    !name.starts_with("log") && !is_stateful(name)
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub at: u64,
    /// Which promise: the name of the safety property, and what of it.
    pub promise: &'static str,
    pub text: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at {:.3} s: {}: {}",
            self.at as f64 / 1000.0,
            self.promise,
            self.text
        )
    }
}

#[derive(Clone, Debug, Default)]
pub struct PodTrack {
    pub node: usize,
    /// A ready endpoint now.
    pub ready: bool,
    /// When it was lost, and by whose write.
    pub lost: Vec<(u64, Writer)>,
    /// When it came back.
    pub back: Vec<u64>,
    /// When it was deleted, and by whom.
    pub evicted: Option<(u64, Writer)>,
}

/// Numbers of a run.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pub evicted: usize,
    /// Longest time for which a living node's endpoint was out.
    pub worst_back: u64,
    /// Longest time from a power-off to its last endpoint out.
    pub worst_out: u64,
    /// Most changes of state of one node.
    pub changes: usize,
    /// Most writes of ours about one node, per hour. A shorter run counts as an hour: what is written at a
    /// fault is not written again and again.
    pub writes_per_hour: f64,
    /// Time after the last fault until nothing of ours was left.
    pub converged: u64,
    /// Rounds of votes that were published.
    pub rounds: usize,
    /// Cells of which no member that was only cut off lost an endpoint, and all.
    pub spoken_for: (usize, usize),
}

/// Everything that was noted.
#[derive(Debug)]
pub struct Ledger {
    script: Script,
    fates: Vec<Fate>,
    promise: Promise,
    /// By namespace and name.
    pub pods: BTreeMap<(String, String), PodTrack>,
    states: BTreeMap<String, Vec<(u64, NodeState)>>,
    writes: BTreeMap<usize, u64>,
    begun: BTreeMap<usize, u64>,
    votes: Votes,
    uncarried: Uncarried,
    clean_since: Option<u64>,
    /// Since when at least one replica could answer admission.
    guarded_since: Option<u64>,
    /// Promises that were broken.
    pub broken: Vec<Broken>,
    end: u64,
    silent: bool,
}

/// The first look of the stock controller after its mark, and a turn of its queue.
const STOCK_TURN: u64 = 15 * SECOND;

impl Ledger {
    /// Of a run of a script.
    pub fn new(script: &Script) -> Self {
        let fates = (1..=script.nodes()).map(|node| Fate::of(script, node)).collect();
        Self {
            promise: Promise::of(script),
            fates,
            script: script.clone(),
            pods: BTreeMap::new(),
            states: BTreeMap::new(),
            writes: BTreeMap::new(),
            begun: BTreeMap::new(),
            votes: Votes::default(),
            uncarried: Uncarried::default(),
            clean_since: None,
            guarded_since: None,
            broken: Vec::new(),
            end: 0,
            silent: false,
        }
    }

    /// Whether a promise was broken. The run ends then.
    pub fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// This run is stock Kubernetes alone, for which nothing is promised.
    pub(crate) fn promises_nothing(&mut self) {
        self.silent = true;
    }

    pub(crate) fn breaks(&mut self, at: u64, promise: &'static str, text: String) {
        if !self.silent {
            self.broken.push(Broken { at, promise, text });
        }
    }

    pub(crate) fn wrote(&mut self, change: &Change) {
        if change.writer == Writer::Ours
            && let Some(node) = node_of_change(change)
        {
            *self.writes.entry(node).or_default() += 1;
        }
        match change.kind {
            Kind::Pod => self.pod(change),
            Kind::Node if change.writer == Writer::Ours => self.taint(change),
            Kind::Report => {
                for node in self.votes.report(&self.script, change) {
                    self.breaks(change.at, MINORITY, format!("node {node}"));
                }
            }
            Kind::Zone => self.votes.roster(change),
            _ => {}
        }
    }

    fn pod(&mut self, change: &Change) {
        let any = change.object.as_ref().or(change.before.as_ref());
        let Some(Object::Pod(pod)) = any.map(|object| &**object) else {
            return;
        };
        let node = node_number(node_of(pod)).unwrap_or_default();
        let was = change.before.as_ref().is_none_or(|object| is_endpoint(object));
        let is = change.object.as_ref().is_some_and(|object| is_endpoint(object));
        let track = self.pods.entry(change.key.clone()).or_default();
        (track.node, track.ready) = (node, is);
        if was && !is {
            track.lost.push((change.at, change.writer));
        } else if !was && is {
            track.back.push(change.at);
        }
        let deleted = change
            .object
            .as_ref()
            .is_none_or(|object| object.meta().deletion_timestamp.is_some());
        let evicted = deleted && track.evicted.is_none();
        if evicted {
            track.evicted = Some((change.at, change.writer));
        }
        let Some(fate) = self.fates.get(node.wrapping_sub(1)) else {
            return;
        };
        let name = &change.key.1;
        if evicted {
            if change.writer == Writer::Ours {
                self.begins(change.at, node);
                if is_stateful(&change.key.1) {
                    let text = change.key.1.clone();
                    self.breaks(change.at, "S2: a stateful pod is moved without proof", text);
                }
            }
            let Some(fate) = self.fates.get(node.wrapping_sub(1)) else {
                return;
            };
            let early = self.promise.eviction_is_early(fate, change.at, change.writer);
            if let Some(why) = early.filter(|_| !self.is_lost(node, change.at)) {
                self.breaks(
                    change.at,
                    "S1: a living node's pod is evicted",
                    format!("{name}, by {:?}: {why}", change.writer),
                );
            }
        } else if was
            && !is
            && self
                .promise
                .never_loses(fate, self.guarded_since, change.at, change.writer)
            && !self.uncarried.may_be(&self.script, &self.votes, node)
            && (self.script.group != Group::Random || is_vouched_for(&self.script, node, change.at))
        {
            let text = format!("{name} of node {node}, by {:?}", change.writer);
            self.breaks(
                change.at,
                "S1: a node that is only cut off loses an endpoint",
                text,
            );
        }
    }

    /// A taint in the stock controller's stead is none of ours. That controller has marked the node, and had
    /// the time to taint it.
    fn stands_in(&mut self, at: u64, node: &Node) {
        let marked = node_condition(node, "Ready").filter(|ready| ready.status != "True");
        let since = marked.and_then(|ready| ready.last_transition_time.as_ref());
        let long = time(at.saturating_sub(STOCK_TURN));
        if since.is_none_or(|since| *since > long) {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            self.breaks(at, "S1: a node is tainted sooner than by stock", name.to_owned());
        }
    }

    fn taint(&mut self, change: &Change) {
        let evicts = |object: &Object| match object {
            Object::Node(node) => node
                .spec
                .as_ref()
                .and_then(|spec| spec.taints.as_ref())
                .is_some_and(|list| {
                    list.iter()
                        .any(|taint| taint.key == taints::UNREACHABLE && taint.effect == "NoExecute")
                }),
            _ => false,
        };
        let before = change.before.as_ref().is_some_and(|object| evicts(object));
        let after = change.object.as_ref().is_some_and(|object| evicts(object));
        if before || !after {
            return;
        }
        if let Some(Object::Node(node)) = change.object.as_deref()
            && !added(node).contains(&TaintRef::evicting())
        {
            return self.stands_in(change.at, node);
        }
        if let Some(node) = node_number(&change.key.1) {
            self.begins(change.at, node);
            let fate = self.fates.get(node.wrapping_sub(1));
            if fate.is_some_and(|fate| !fate.seems_dead(change.at)) && !self.is_lost(node, change.at) {
                self.breaks(
                    change.at,
                    "S1: a living node is tainted NoExecute by us",
                    format!("node {node}"),
                );
            }
        }
    }

    /// Whether a living node is one that a majority may have missed, so that nobody can vouch for it: S1 is
    /// promised to the others. In groups with one fault after the other this never excuses anything.
    fn is_lost(&self, node: usize, at: u64) -> bool {
        let cell = self.votes.cell_of(node).map(|(_, members)| members);
        let lost = |at| may_be_convicted(&self.script, cell, node, at);
        match self.script.group {
            Group::Random => lost(at) || lost(at.saturating_sub(BACK_ON)),
            _ => false,
        }
    }

    /// Irreversible action of ours on a node begins (S5).
    fn begins(&mut self, at: u64, node: usize) {
        if self.begun.get(&node).is_some_and(|begun| at - begun < WINDOW) {
            return;
        }
        self.begun.insert(node, at);
        let zone = self.script.zone_of(node);
        let size = self.script.zones.get(zone).copied().unwrap_or_default();
        let under_way = self.begun.iter().filter(|(other, begun)| {
            self.script.zone_of(**other) == zone && at - **begun < SLOT && !self.is_over(**other, at)
        });
        let (under_way, at_once) = (under_way.count(), (size / 10).max(1));
        if under_way > at_once {
            self.breaks(
                at,
                "S5: storm limits",
                format!("{under_way} nodes of a zone of {size} at once, limit {at_once}"),
            );
        }
        let begun = self
            .begun
            .iter()
            .filter(|(other, begun)| self.script.zone_of(**other) == zone && at - **begun < WINDOW);
        let count = begun.count();
        let limit = (size / 4).max(2);
        if count > limit {
            self.breaks(
                at,
                "S5: storm limits",
                format!("{count} nodes of a zone of {size} within 10 minutes, limit {limit}"),
            );
        }
    }

    /// Whether nothing is left to evict on a node, or it lives again.
    fn is_over(&self, node: usize, at: u64) -> bool {
        let lives = self
            .fates
            .get(node.wrapping_sub(1))
            .is_none_or(|fate| !fate.is_dead(at));
        let mut pods = self
            .pods
            .iter()
            .filter(|((_, name), track)| track.node == node && is_movable(name));
        lives || pods.all(|(_, track)| track.evicted.is_some())
    }

    /// The leader's state of a node; `true` if it changed.
    pub(crate) fn is_state(&mut self, at: u64, node: &str, state: NodeState, held: bool) -> bool {
        let list = self.states.entry(node.to_owned()).or_default();
        let last = list.last().map(|(_, state)| *state);
        if last == Some(state) || held || last.is_none() && state == NodeState::Healthy {
            return false;
        }
        list.push((at, state));
        let number = node_number(node).unwrap_or_default();
        if self.script.group.is_hostile()
            && matches!(state, NodeState::Dead(_))
            && !may_be_convicted(&self.script, None, number, at)
        {
            self.breaks(at, MINORITY, format!("{node} is {state:?}"));
        }
        // Nobody dies in these scripts, and both sides may hold the majority of some cell (42).
        if self.script.group == Group::Splits && state == NodeState::Dead(Dead::Confirmed) {
            self.breaks(at, SPLIT, node.to_owned());
        }
        true
    }

    /// How many replicas admission can ask.
    pub(crate) fn guarded(&mut self, now: u64, ready: usize) {
        match (ready > 0, self.guarded_since) {
            (true, None) => self.guarded_since = Some(now),
            (false, Some(_)) => self.guarded_since = None,
            _ => {}
        }
    }

    /// Looks at the whole.
    pub(crate) fn look(&mut self, now: u64, store: &Store) {
        if now >= self.script.last_fault_ends() {
            let clean = leftovers(store).is_empty();
            self.clean_since = if clean {
                self.clean_since.or(Some(now))
            } else {
                None
            };
        }
        let mut late = Vec::new();
        for ((_, name), track) in &self.pods {
            let (Some((lost, by)), Some(fate)) =
                (track.lost.last(), self.fates.get(track.node.wrapping_sub(1)))
            else {
                continue;
            };
            if track.ready || track.evicted.is_some() {
                continue;
            }
            if let Some(due) = self.promise.back_by(fate, *lost, self.guarded_since)
                && now > due
            {
                let text = format!(
                    "{name} of node {}, lost at {:.1} s by {by:?}",
                    track.node,
                    *lost as f64 / 1000.0
                );
                late.push(text);
            }
        }
        if let Some(text) = late.into_iter().next() {
            self.breaks(now, "S1: an endpoint of a living node is not back in time", text);
        }
    }
}

fn node_of_change(change: &Change) -> Option<usize> {
    match change
        .object
        .as_ref()
        .or(change.before.as_ref())
        .map(|object| &**object)?
    {
        Object::Node(_) => node_number(&change.key.1),
        Object::Pod(pod) => node_number(node_of(pod)),
        Object::Incident(incident) => node_number(&incident.spec.node_name),
        _ => None,
    }
}
