//! The world of one process: one set of watches, one cache, one book of verdicts, and the judge over them.
//!
//! Pure: changes and times in, decisions out. Every replica keeps one. The webhook answers from
//! [`World::decisions`], and the leader's planner acts on them.

mod audit;
pub mod facts;
pub(crate) mod read;
mod seen;
pub mod services;
mod signs;
mod zones;

pub use seen::{Kind, Seen};
pub use signs::LastSigns;

use crate::planner::incident::recorded;
use crate::planner::roster::eligible;
use audit::{Ledger, Proof};
use evenkeel_api::crd::{AgentStatus, FailoverPolicy, NodeIncident, ZoneHealth};
use evenkeel_api::names::{self, annotations, zone_of};
use evenkeel_api::policy::{EndpointsPolicy, ModePolicy};
use evenkeel_judge::evidence::{Lease as LeaseAge, ZoneEvidence};
use evenkeel_judge::policy::effective;
use evenkeel_judge::{
    Decision, Evidence, Memory, NodeState, Profile, Protection, Recorded, Settings, Sight, Timing, View,
    decide, follow, protection,
};
use evenkeel_net::watch::{Delta, Key, key};
use evenkeel_zone::Millis;
use evenkeel_zone::keys::Verifier;
use evenkeel_zone::roster::zone_object_name;
use facts::{Cluster, Status};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use seen::Progress;
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
    /// Name of this replica in the election.
    pub identity: String,
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
}

/// The watches whose liveness decisions rest on, and what their audits need.
#[derive(Default)]
struct Ledgers {
    leases: Ledger,
    reports: Ledger,
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
        let others = self.replicas.iter();
        others
            .filter(|(_, (identity, _, at))| {
                *identity != self.config.identity && now.since(*at) < LEADER_SEEN_MS
            })
            .count()
    }

    /// Takes in a change. Returns `true` if a node may be in trouble, so that the caller should look at once.
    pub fn take(&mut self, now: Millis, seen: Seen) -> bool {
        let (kind, progress) = seen.parts();
        self.proves(now, kind, &progress);
        match seen {
            Seen::Node(delta) => self.node(now, delta),
            Seen::NodeLease(delta) => self.node_lease(now, delta),
            Seen::Pod(delta) => self.pod(now, delta),
            Seen::Claim(delta) => self.claim(delta),
            Seen::Zone(delta) => self.zone(now, delta),
            Seen::OwnLease(delta) => self.own_lease(now, delta),
            Seen::Agent(delta) => self.agent(now, delta),
            Seen::Policy(delta) => self.policy(delta),
            Seen::Incident(delta) => self.incident(now, delta),
            Seen::Home(delta) => self.home(delta),
        }
        kind == Kind::Zone
    }

    /// What a change proves of its watch.
    fn proves(&mut self, now: Millis, kind: Kind, progress: &Progress) {
        let proof = match kind {
            Kind::NodeLease => Some(&mut self.sight.leases),
            Kind::Zone => Some(&mut self.sight.reports),
            _ => None,
        };
        match progress {
            Progress::Event if self.listed.contains(&kind) => {
                if let Some(proof) = proof {
                    proof.progress(now);
                }
            }
            Progress::Event => {}
            Progress::Listed => {
                self.listed.insert(kind);
                if let Some(proof) = proof {
                    proof.progress(now);
                }
            }
            Progress::Broken => {
                if let Some(proof) = proof {
                    proof.broken();
                }
            }
        }
    }

    /// A collection that [`Wants::audits`] named was read, or not: resourceVersions by key.
    pub fn audited(&mut self, now: Millis, kind: Kind, found: Option<&BTreeMap<Key, String>>) {
        let Some(ledger) = self.ledgers.of(kind) else {
            return;
        };
        match found {
            Some(found) => ledger.answered(now, found),
            None => ledger.failed(),
        }
    }

    /// Looks at everything at `now`: how far we can see, and what is the matter with each node. Decides
    /// nothing before every watch has delivered a complete list.
    pub fn look(&mut self, now: Millis, role: Role) -> Wants {
        let mut wants = self.look_at_watches(now);
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

    fn look_at_watches(&mut self, now: Millis) -> Wants {
        let mut wants = Wants::default();
        let Self {
            ledgers,
            sight,
            listed,
            ..
        } = self;
        for (kind, ledger, proof) in [
            (Kind::NodeLease, &mut ledgers.leases, &mut sight.leases),
            (Kind::Zone, &mut ledgers.reports, &mut sight.reports),
        ] {
            match ledger.look(now) {
                Proof::None => {}
                Proof::Live(at) => proof.progress(at),
                Proof::Broken => {
                    proof.broken();
                    wants.restart.push(kind);
                }
            }
            if listed.contains(&kind) && ledger.wants_read(now, proof.last()) {
                wants.audits.push(kind);
            }
        }
        sight.look(now);
        wants
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
            self.leaders_words(now)
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
                zone: zones.evidence.get(&zone).copied().unwrap_or_default(),
                agent: self.signs.get(name).map(|signs| signs.agent).unwrap_or_default(),
            };
            let mut settings = effective(self.cluster.policies(), &node.labels, self.config.profile).0;
            settings.mode = settings.mode.max(self.config.mode);
            if self.cluster.paused.is_some() {
                settings.mode = ModePolicy::Observe;
            }
            let memory = self.memories.entry(node.uid.clone()).or_default();
            let own = decide(&evidence, memory, &timing, now);
            let decision = follow(&own, words.get(&node.uid));
            let kept = protection(&decision, &settings, &timing, now);
            let if_stale = if evidence.life.is_marked(timing.patience) {
                kept
            } else {
                // What the stock controller's mark, which is on its way, would make of it.
                let mut marked = evidence;
                marked.life = evidence.life.marked(timing.patience, now);
                let then = follow(&decide(&marked, memory, &timing, now), words.get(&node.uid));
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
        };
    }

    /// What the leader recorded of nodes, by UID: its open incidents.
    fn leaders_words(&self, now: Millis) -> BTreeMap<String, Recorded> {
        let open = self.cluster.incidents.values();
        open.filter(|facts| facts.status.closed_at.is_none())
            .filter_map(|facts| Some((facts.spec.node_uid.clone(), recorded(&facts.status, now)?)))
            .collect()
    }

    fn zones_of_nodes(&self, timing: &Timing, now: Millis) -> ZonesOfNodes {
        let mut zones = ZonesOfNodes::default();
        let members = self.zones.members();
        for (name, node) in &self.cluster.nodes {
            // Nodes of no zone share one ledger: they have no neighbours, but they can fail together too.
            let zone = zone_of(&node.labels, self.config.default_zone.as_deref()).unwrap_or_default();
            if eligible(&node.labels) {
                *zones.size.entry(zone.clone()).or_default() += 1;
            }
            let evidence = zones
                .evidence
                .entry(zone.clone())
                .or_insert_with(|| ZoneEvidence {
                    reported: self.zones.reported(&zone),
                    advanced: self.zones.book().advanced(&zone),
                    some_member_fresh: false,
                    some_member_renews: false,
                    storm: self.zones.book().storm(&zone, now),
                });
            let lease = node.life.lease(&self.sight.leases, timing, now);
            let is_member = members.contains(node.uid.as_str());
            evidence.some_member_fresh |= is_member && lease != LeaseAge::Stale;
            evidence.some_member_renews |= is_member && lease == LeaseAge::Fresh;
            zones.of_node.insert(name.clone(), zone);
        }
        zones
    }

    fn node(&mut self, now: Millis, delta: Delta<Node>) {
        match delta {
            Delta::Put(node) => {
                let mut facts = read::node(&node);
                let signs = self.signs.entry(facts.name.clone()).or_default();
                signs.node(now, &facts.uid, read::heartbeat(&node), read::stock_marked(&node));
                match facts.ready {
                    Status::True => signs.says_not_ready = false,
                    Status::False => signs.says_not_ready = true,
                    Status::Unknown | Status::Missing => {}
                }
                facts.life = signs.life;
                facts.says_not_ready = signs.says_not_ready;
                self.cluster.nodes.insert(facts.name.clone(), facts);
            }
            Delta::Gone((_, name)) => self.forget_node(&name),
            Delta::Listed(keys) => {
                let names: Vec<String> = self.cluster.nodes.keys().cloned().collect();
                for name in names.iter().filter(|name| !keys.contains(&cluster_key(name))) {
                    self.forget_node(name);
                }
            }
            Delta::Broken => {}
        }
    }

    fn forget_node(&mut self, name: &str) {
        self.cluster.nodes.remove(name);
        if let Some(signs) = self.signs.get_mut(name) {
            signs.node_gone();
        }
    }

    fn node_lease(&mut self, now: Millis, delta: Delta<Lease>) {
        match delta {
            Delta::Put(lease) => {
                self.ledgers
                    .leases
                    .put(now, key(&*lease), version_of(&lease.metadata));
                let name = lease.metadata.name.clone().unwrap_or_default();
                // A Lease that was never renewed says as much as none.
                if let Some(renew_time) = read::renew_time(&lease) {
                    let signs = self.signs.entry(name.clone()).or_default();
                    if signs.lease(now, renew_time) {
                        self.publish_life(&name);
                    }
                }
            }
            Delta::Gone(key) => {
                self.ledgers.leases.gone(&key);
                self.forget_lease(&key.1);
            }
            Delta::Listed(keys) => {
                self.ledgers.leases.listed(&keys);
                let present: BTreeSet<&str> = keys.iter().map(|(_, name)| name.as_str()).collect();
                let known: Vec<String> = self.signs.keys().cloned().collect();
                for name in known.iter().filter(|name| !present.contains(name.as_str())) {
                    self.forget_lease(name);
                }
            }
            Delta::Broken => self.ledgers.leases.begins(now),
        }
    }

    fn forget_lease(&mut self, name: &str) {
        if let Some(signs) = self.signs.get_mut(name) {
            signs.lease_gone();
            self.publish_life(name);
        }
    }

    fn publish_life(&mut self, name: &str) {
        if let (Some(signs), Some(node)) = (self.signs.get(name), self.cluster.nodes.get_mut(name)) {
            node.life = signs.life;
        }
    }

    fn pod(&mut self, now: Millis, delta: Delta<Pod>) {
        match delta {
            Delta::Put(pod) => {
                let key = key(&*pod);
                let before = self.forget_pod(&key);
                if let Some((node, mut facts)) = read::pod(&pod) {
                    let uid = facts.pod.uid.clone();
                    let before = before.filter(|before| before.pod.uid == uid);
                    facts.became_ready = match before {
                        Some(before) if facts.ready == Status::True && before.ready != Status::True => {
                            Some(now)
                        }
                        Some(before) if facts.ready == Status::True => before.became_ready,
                        _ => None,
                    };
                    self.pods.insert(key, (node.clone(), uid.clone()));
                    self.cluster.pods.entry(node).or_default().insert(uid, facts);
                }
            }
            Delta::Gone(key) => {
                self.forget_pod(&key);
            }
            Delta::Listed(keys) => {
                let known: Vec<Key> = self.pods.keys().cloned().collect();
                for key in known.iter().filter(|key| !keys.contains(*key)) {
                    self.forget_pod(key);
                }
            }
            Delta::Broken => {}
        }
    }

    fn forget_pod(&mut self, key: &Key) -> Option<facts::PodFacts> {
        let (node, uid) = self.pods.remove(key)?;
        let pods = self.cluster.pods.get_mut(&node)?;
        let pod = pods.remove(&uid);
        if pods.is_empty() {
            self.cluster.pods.remove(&node);
        }
        pod
    }

    fn claim(&mut self, delta: Delta<PersistentVolumeClaim>) {
        match delta {
            Delta::Put(claim) => {
                self.cluster.claims.insert(key(&*claim), read::claim(&claim));
            }
            Delta::Gone(key) => {
                self.cluster.claims.remove(&key);
            }
            Delta::Listed(keys) => self.cluster.claims.retain(|key, _| keys.contains(key)),
            Delta::Broken => {}
        }
    }

    fn zone(&mut self, now: Millis, delta: Delta<ZoneHealth>) {
        match delta {
            Delta::Put(object) => {
                self.ledgers
                    .reports
                    .put(now, key(&*object), version_of(&object.metadata));
                let name = object.metadata.name.clone().unwrap_or_default();
                // Whoever else claims the zone would replace its roster.
                if name != zone_object_name(&object.spec.zone) {
                    let zone = object.spec.zone;
                    return tracing::warn!(
                        "ZoneHealth {name} is not named after its zone {zone:?}: passed over"
                    );
                }
                for (node, refusal) in self.zones.zone_health(now, &object) {
                    tracing::warn!(zone = name, node, %refusal, "verdict refused");
                }
                let roster = object.spec.roster;
                if roster.has_version() {
                    let floors = &mut self.cluster.roster_floors;
                    let floor = floors.entry(object.spec.zone.clone()).or_default();
                    *floor = roster.version.max(*floor);
                }
                let facts = facts::ZoneFacts {
                    object: name,
                    roster,
                    wanted: object.spec.wanted,
                };
                self.cluster.zones.insert(object.spec.zone, facts);
            }
            Delta::Gone(key) => {
                self.ledgers.reports.gone(&key);
                self.forget_zone(now, &key.1);
            }
            Delta::Listed(keys) => {
                self.ledgers.reports.listed(&keys);
                let names = self.zones.names();
                for name in names.iter().filter(|name| !keys.contains(&cluster_key(name))) {
                    self.forget_zone(now, name);
                }
            }
            Delta::Broken => self.ledgers.reports.begins(now),
        }
    }

    fn forget_zone(&mut self, now: Millis, name: &str) {
        if let Some(zone) = self.zones.gone(now, name) {
            self.cluster.zones.remove(&zone);
        }
    }

    fn own_lease(&mut self, now: Millis, delta: Delta<Lease>) {
        let lease = match delta {
            Delta::Put(lease) => lease,
            Delta::Gone((_, name)) => {
                self.replicas.remove(&name);
                return;
            }
            Delta::Listed(_) | Delta::Broken => return,
        };
        self.zones.lease(now, &lease);
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let renewed = read::renew_time(&lease);
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let holder = holder.unwrap_or_default();
        if name == names::CONTROLLER_LEASE {
            let same =
                |known: &(String, Option<jiff::Timestamp>, Millis)| known.0 == holder && known.1 == renewed;
            if !self.leader.as_ref().is_some_and(same) {
                self.leader = Some((holder, renewed, now));
            }
        } else if name.starts_with(names::REPLICA_LEASE_PREFIX) {
            let known = self.replicas.get(name);
            if known.is_none_or(|(_, before, _)| *before != renewed) {
                self.replicas.insert(name.to_owned(), (holder, renewed, now));
            }
        }
    }

    fn agent(&mut self, now: Millis, delta: Delta<AgentStatus>) {
        match delta {
            Delta::Put(agent) => {
                let name = agent.metadata.name.clone().unwrap_or_default();
                let before = self.cluster.agents.insert(name.clone(), agent.spec.clone());
                // Every agent may write every AgentStatus: the right to one's own alone comes with an
                // admission policy.
                if before.is_some_and(|before| before != agent.spec)
                    && let Some(signs) = self.signs.get_mut(&name)
                {
                    signs.agent.seen(now);
                }
            }
            Delta::Gone((_, name)) => {
                self.cluster.agents.remove(&name);
            }
            Delta::Listed(keys) => self
                .cluster
                .agents
                .retain(|name, _| keys.contains(&cluster_key(name))),
            Delta::Broken => {}
        }
    }

    fn policy(&mut self, delta: Delta<FailoverPolicy>) {
        match delta {
            Delta::Put(policy) => {
                let facts = read::policy(&policy);
                self.cluster.policies.insert(facts.policy.name.clone(), facts);
            }
            Delta::Gone((_, name)) => {
                self.cluster.policies.remove(&name);
            }
            Delta::Listed(keys) => self
                .cluster
                .policies
                .retain(|name, _| keys.contains(&cluster_key(name))),
            Delta::Broken => {}
        }
    }

    fn incident(&mut self, now: Millis, delta: Delta<NodeIncident>) {
        match delta {
            Delta::Put(incident) => {
                let name = incident.metadata.name.clone().unwrap_or_default();
                let facts = read::incident(&incident);
                self.learn(now, &name, &facts);
                self.cluster.incidents.insert(name, facts);
            }
            Delta::Gone((_, name)) => {
                self.cluster.incidents.remove(&name);
            }
            Delta::Listed(keys) => self
                .cluster
                .incidents
                .retain(|name, _| keys.contains(&cluster_key(name))),
            Delta::Broken => {}
        }
    }

    /// Starts from what is recorded, and follows the leader's latches and their end (hazard 50).
    fn learn(&mut self, now: Millis, name: &str, facts: &facts::IncidentFacts) {
        let memory = self.memories.entry(facts.spec.node_uid.clone()).or_default();
        let own = facts.status.decision.by == self.config.identity;
        if own && memory.since != Millis(0) {
            return;
        }
        if facts.status.closed_at.is_some() {
            // A list shows incidents that ended long ago, too.
            let is_open = |known: &facts::IncidentFacts| known.status.closed_at.is_none();
            let ends = self.cluster.incidents.get(name).is_some_and(is_open);
            let goes_on = |(other, known): (&String, &facts::IncidentFacts)| {
                other != name && known.spec.node_uid == facts.spec.node_uid && is_open(known)
            };
            if memory.since != Millis(0) && ends && !self.cluster.incidents.iter().any(goes_on) {
                memory.close();
            }
        } else if let Some(recorded) = recorded(&facts.status, now) {
            memory.adopt(&recorded);
        }
    }

    fn home(&mut self, delta: Delta<Namespace>) {
        match delta {
            Delta::Put(namespace) => {
                let annotations = namespace.metadata.annotations.unwrap_or_default();
                self.cluster.paused = annotations.get(annotations::PAUSE).cloned();
            }
            Delta::Gone(_) => self.cluster.paused = None,
            Delta::Listed(keys) if keys.is_empty() => self.cluster.paused = None,
            Delta::Listed(_) | Delta::Broken => {}
        }
    }
}

impl Ledgers {
    fn of(&mut self, kind: Kind) -> Option<&mut Ledger> {
        match kind {
            Kind::NodeLease => Some(&mut self.leases),
            Kind::Zone => Some(&mut self.reports),
            _ => None,
        }
    }
}

/// What the nodes of a zone have in common, gathered once per look.
#[derive(Default)]
struct ZonesOfNodes {
    of_node: BTreeMap<String, String>,
    size: BTreeMap<String, usize>,
    evidence: BTreeMap<String, ZoneEvidence>,
}

fn cluster_key(name: &str) -> Key {
    (String::new(), name.to_owned())
}

fn version_of(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> String {
    metadata.resource_version.clone().unwrap_or_default()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
