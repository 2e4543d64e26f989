//! The world of one process: one set of watches, one cache, one book of verdicts, and the judge over them.
//!
//! Pure: changes and times in, decisions out. Every replica keeps one. The webhook answers from
//! [`World::decisions`], and the leader's planner acts on them.

mod audit;
mod by_zone;
pub mod facts;
pub mod read;
mod seen;
pub mod services;
mod signs;
mod take;
mod zones;

pub use seen::{Kind, Seen};
pub use signs::LastSigns;

use crate::planner::incident::recorded;
use audit::Ledgers;
use evenkeel_api::policy::{EndpointsPolicy, ModePolicy};
use evenkeel_api::watch::Key;
use evenkeel_judge::policy::effective;
use evenkeel_judge::{
    Decision, Evidence, Memory, NodeState, Profile, Protection, Recorded, Settings, Sight, Timing, View,
    decide, follow, protection,
};
use evenkeel_zone::Millis;
use evenkeel_zone::keys::Verifier;
use evenkeel_zone::roster::RosterKeys;
use facts::{Cluster, PodRef};
use services::{Last, Services};
use signs::Signs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zones::Zones;

/// The leader counts as at work for this long after its Lease was seen to change.
pub const LEADER_SEEN_MS: u64 = 15_000;

/// Settings of a replica that never change while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// How long things may take.
    pub timing: Timing,
    /// Defaults where no policy speaks.
    pub profile: Profile,
    /// Zone of nodes without a zone label; `None`: they are in no zone.
    pub default_zone: Option<String>,
    /// Seconds that admission adds to pods for unreachable nodes (kube-apiserver's
    /// `--default-unreachable-toleration-seconds`, 300).
    pub default_toleration_seconds: i64,
    /// Evenkeel's namespace.
    pub namespace: String,
    /// Name of this replica in the election; where it runs in a pod, the pod's.
    pub identity: String,
    /// Name of this process, which no other has: of challenges under this name it knows when they were drawn.
    pub life: String,
    /// Mode where no policy names one.
    pub mode: ModePolicy,
}

/// Whether this replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its own decisions count.
    Leads,
    /// The leader's decisions count as long as the leader is seen to work.
    Follows,
}

/// What was decided about one node.
#[derive(Clone, Debug)]
pub struct Judged {
    /// UID of the Node.
    pub uid: String,
    pub decision: Decision,
    /// What it rests on.
    pub evidence: Evidence,
    /// The settings that hold for the node.
    pub settings: Settings,
    /// What is kept from the stock controllers.
    pub protection: Protection,
    /// The same for a write that itself proves the Lease stale: one by the stock node controller.
    pub if_stale: Protection,
    /// Zone of the node; empty for none.
    pub zone: String,
}

impl Judged {
    /// Whether pods of the node that are the last of a Service stay ready: its zone is Dark (hazard 18).
    pub fn keeps_last(&self) -> bool {
        self.decision.state() == NodeState::Dark
            && self.decision.view != View::Lost
            && self.settings.mode == ModePolicy::Act
            && self.settings.endpoints == EndpointsPolicy::Keep
    }
}

/// Decisions about all nodes, by node name, and the sizes of zones.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// By node name.
    pub nodes: BTreeMap<String, Judged>,
    /// Nodes of each zone that count for the storm guard.
    pub zone_size: BTreeMap<String, usize>,
    /// Pods that stay ready where nobody can tell, because they are the last of a Service.
    pub last: Last,
    /// Namespace and name of pods of other replicas whose own Leases were not renewed lately.
    pub silent_replicas: BTreeSet<(String, String)>,
}

impl Decisions {
    /// Whether the pod is another replica of this controller, of which nothing is heard.
    pub fn is_silent_replica(&self, pod: &PodRef) -> bool {
        // There are few, if any, and it is asked of every pod of every node that is kept.
        let is_it = |(namespace, name): &(String, String)| *namespace == pod.namespace && *name == pod.name;
        self.silent_replicas.iter().any(is_it)
    }
}

/// What a look asks for, beside its decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Collections to be read consistently now, metadata only; [`World::audited`] takes the answer.
    pub audits: Vec<Kind>,
    /// Watches that do not deliver and have to be begun anew.
    pub restart: Vec<Kind>,
    /// Namespaces of which the endpoints of all Services are to be read; [`World::take_services`] takes them.
    pub services: BTreeSet<String>,
}

pub struct World {
    config: Config,
    cluster: Cluster,
    zones: Zones,
    roster_keys: RosterKeys,
    sight: Sight,
    ledgers: Ledgers,
    /// Signs of life by node name; a Lease may come before its Node.
    signs: BTreeMap<String, Signs>,
    /// Node and UID of the pod of a key.
    pods: BTreeMap<Key, (String, String)>,
    /// The leader's Lease: holder, and when it was last seen to change.
    leader: Option<(String, Option<jiff::Timestamp>, Millis)>,
    /// By name of a replica's Lease: who it is, and when the Lease was last seen to change.
    replicas: BTreeMap<String, (String, Option<jiff::Timestamp>, Millis)>,
    memories: BTreeMap<String, Memory>,
    decisions: Decisions,
    services: services::Reader,
    listed: BTreeSet<Kind>,
}

impl World {
    pub fn new(config: Config, now: Millis) -> Self {
        Self {
            config,
            cluster: Cluster::default(),
            zones: Zones::default(),
            roster_keys: RosterKeys::default(),
            sight: Sight::new(now),
            ledgers: Ledgers::default(),
            signs: BTreeMap::new(),
            pods: BTreeMap::new(),
            leader: None,
            replicas: BTreeMap::new(),
            memories: BTreeMap::new(),
            decisions: Decisions::default(),
            services: services::Reader::default(),
            listed: BTreeSet::new(),
        }
    }

    /// The same where agents sign by another scheme.
    #[must_use]
    pub fn verifying_with(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.zones = Zones::verifying_with(verifier);
        self
    }

    /// The same where controllers sign rosters: others do not count.
    #[must_use]
    pub fn trusting(mut self, keys: RosterKeys) -> Self {
        self.roster_keys = keys;
        self
    }

    /// What every replica is told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The cluster as the watches have shown it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How far this replica can see.
    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    /// From now on this replica protects nothing and begins nothing. What it kept from stock Kubernetes is
    /// settled before the process ends.
    pub fn stand_down(&mut self) {
        self.config.mode = ModePolicy::Observe;
    }

    /// The decisions of the last look.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Kinds of which no complete list was delivered yet.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = Kind::ALL.iter().filter(|kind| !self.listed.contains(kind));
        missing.map(|kind| kind.name()).collect()
    }

    /// What was last seen of a node's own writes.
    pub fn last_signs(&self, node: &str) -> LastSigns {
        let agent = self.cluster.agents.get(node);
        let signs = self.signs.get(node);
        signs
            .map(|signs| signs.last(agent.map(|agent| agent.link_proofs)))
            .unwrap_or_default()
    }

    /// Other replicas whose Leases were seen to change lately.
    pub fn other_replicas(&self, now: Millis) -> usize {
        self.others(now).filter(|(_, is_heard)| *is_heard).count()
    }

    /// Whether another replica is known, heard of lately or not: whoever is blind hears nobody.
    pub fn knows_other_replicas(&self, now: Millis) -> bool {
        self.others(now).next().is_some()
    }

    fn silent_replicas(&self, now: Millis) -> BTreeSet<(String, String)> {
        let silent = self.others(now).filter(|(_, is_heard)| !is_heard);
        let pod = |(identity, _): (&str, bool)| (self.config.namespace.clone(), identity.to_owned());
        silent.map(pod).collect()
    }

    /// Other replicas, and whether their Leases were seen to change lately.
    fn others(&self, now: Millis) -> impl Iterator<Item = (&str, bool)> {
        let others = self.replicas.values();
        let others = others.filter(|(identity, ..)| *identity != self.config.identity);
        others.map(move |(identity, _, at)| (identity.as_str(), now.since(*at) < LEADER_SEEN_MS))
    }

    /// A collection that [`Wants::audits`] named was read, or not: resourceVersions by key.
    pub fn audited(&mut self, now: Millis, kind: Kind, found: Option<&BTreeMap<Key, String>>) {
        self.ledgers.audited(now, kind, found);
    }

    /// No read that is under way will be answered.
    pub fn audits_lost(&mut self, now: Millis) {
        self.ledgers.lost(now);
    }

    /// Looks at everything at `now`: how far we can see, and what is the matter with each node. Decides
    /// nothing before every watch has delivered a complete list.
    pub fn look(&mut self, now: Millis, role: Role) -> Wants {
        let mut wants = self.ledgers.look(now, &self.listed, &mut self.sight);
        self.sight.look(now);
        if self.listed.len() == Kind::ALL.len() {
            self.judge(now, role);
            wants.services = self.services.look(&self.cluster, &mut self.decisions, now);
        }
        wants
    }

    /// Takes the endpoints that were asked for.
    pub fn take_services(&mut self, services: Services, now: Millis) {
        self.services.take(services, now);
    }

    /// Whether the leader is another replica that was seen to work lately.
    fn is_led(&self, now: Millis) -> bool {
        self.leader.as_ref().is_some_and(|(holder, _, at)| {
            !holder.is_empty() && *holder != self.config.identity && now.since(*at) < LEADER_SEEN_MS
        })
    }

    fn judge(&mut self, now: Millis, role: Role) {
        self.zones.forget_gone(now);
        let led = role == Role::Follows && self.is_led(now);
        let timing = if led {
            self.config.timing.following()
        } else {
            self.config.timing
        };
        let zones = self.zones_of_nodes(&timing, now);
        let words = if led {
            self.leaders_words()
        } else {
            BTreeMap::new()
        };
        let mut nodes = BTreeMap::new();
        for (name, node) in &self.cluster.nodes {
            let zone = zones.of_node.get(name).cloned().unwrap_or_default();
            let evidence = Evidence {
                life: node.life,
                sight: self.sight,
                verdict: self.zones.book().verdict(&node.uid),
                zone: zones.evidence(&node.uid, &zone),
                agent: self.signs.get(name).map(|signs| signs.agent).unwrap_or_default(),
            };
            let mut settings = effective(self.cluster.policies(), &node.labels, self.config.profile).0;
            settings.mode = settings.mode.max(self.config.mode);
            if self.cluster.paused.is_some() {
                settings.mode = ModePolicy::Observe;
            }
            let memory = self.memories.entry(node.uid.clone()).or_default();
            let own = decide(&evidence, memory, &timing, now);
            let decision = follow(&own, words.get(&node.uid), now);
            let kept = protection(&decision, &settings, &timing, now);
            let if_stale = if evidence.life.is_marked(timing.patience) {
                kept
            } else {
                // What the stock controller's mark, which is on its way, would make of it.
                let mut marked = evidence;
                marked.life = evidence.life.marked(timing.patience, now);
                let then = decide(&marked, memory, &timing, now);
                let then = follow(&then, words.get(&node.uid), now);
                protection(&then, &settings, &timing, now)
            };
            *memory = own.memory;
            nodes.insert(
                name.clone(),
                Judged {
                    uid: node.uid.clone(),
                    decision,
                    evidence,
                    settings,
                    protection: kept,
                    if_stale,
                    zone,
                },
            );
        }
        let present: BTreeSet<&str> = self
            .cluster
            .nodes
            .values()
            .map(|node| node.uid.as_str())
            .collect();
        self.memories.retain(|uid, _| present.contains(uid.as_str()));
        self.decisions = Decisions {
            nodes,
            zone_size: zones.size,
            last: std::mem::take(&mut self.decisions.last),
            silent_replicas: self.silent_replicas(now),
        };
    }

    /// What the leader recorded of nodes, by UID: its open incidents.
    fn leaders_words(&self) -> BTreeMap<String, Recorded> {
        let open = self.cluster.incidents.values();
        open.filter(|facts| facts.status.closed_at.is_none())
            .filter_map(|facts| {
                Some((
                    facts.spec.node_uid.clone(),
                    recorded(&facts.status, facts.received)?,
                ))
            })
            .collect()
    }
}

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod decoder_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
