//! What the watches deliver, taken into the world: one function for each kind.

use super::facts::{self, Shown, Status};
use super::{Kind, Seen, World, read};
use crate::planner::incident::recorded;
use evenkeel_api::crd::{AgentStatus, FailoverPolicy, NodeIncident, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_api::names::{self, annotations};
use evenkeel_api::watch::{Delta, Key, Progress, key};
use evenkeel_api::zone::RosterSpec;
use evenkeel_zone::Millis;
use evenkeel_zone::roster::{CellRef, Roster, cell_object_name, report_object_name};
use evenkeel_zone::verdict::Refusal;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use std::collections::BTreeSet;

/// One line for each object: whoever may write a report may write anything into it.
fn warn_of_refused(object: &str, refusals: &[Refusal]) {
    if let Some(refusal) = refusals.first() {
        tracing::warn!(object, %refusal, parts = refusals.len(), "evidence refused");
    }
}

impl World {
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
            Seen::Challenge(delta) => self.challenge(now, delta),
            Seen::Report(delta) => self.report(now, delta),
            Seen::OwnLease(delta) => self.own_lease(now, delta),
            Seen::Agent(delta) => self.agent(now, delta),
            Seen::Policy(delta) => self.policy(delta),
            Seen::Incident(delta) => self.incident(now, delta),
            Seen::Home(delta) => self.home(delta),
        }
        kind == Kind::Report
    }

    /// What a change proves of its watch.
    fn proves(&mut self, now: Millis, kind: Kind, progress: &Progress<'_>) {
        self.ledgers.take(now, kind, progress);
        if let Progress::Listed(_) = progress {
            self.listed.insert(kind);
        }
        let proof = match kind {
            Kind::NodeLease => &mut self.sight.leases,
            Kind::Report => &mut self.sight.reports,
            _ => return,
        };
        match progress {
            Progress::Broken => proof.broken(),
            _ if self.listed.contains(&kind) => proof.progress(now),
            _ => {}
        }
    }

    fn node(&mut self, now: Millis, delta: Delta<Node>) {
        match delta {
            Delta::Put(node) => {
                let mut facts = read::node(&node);
                let signs = self.signs.entry(facts.name.clone()).or_default();
                signs.node(now, &facts.uid, read::heartbeat(&node), read::stock_marked(&node));
                match facts.ready {
                    Status::True => signs.says_not_ready = Some(false),
                    Status::False => signs.says_not_ready = Some(true),
                    Status::Unknown | Status::Missing => {}
                }
                facts.life = signs.life;
                self.zones.renewed(&facts.uid, facts.life.written());
                facts.says_not_ready = signs.says_not_ready.or_else(|| {
                    let mut incidents = self.cluster.incidents.values();
                    let recalls = incidents.any(|incident| incident.recalls_not_ready(&facts.uid));
                    recalls.then_some(true)
                });
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
        if let Some(node) = self.cluster.nodes.remove(name) {
            self.zones.renewed(&node.uid, None);
        }
        if let Some(signs) = self.signs.get_mut(name) {
            signs.node_gone();
        }
        self.forget_signs(name);
    }

    /// Names of nodes come and go for ever.
    fn forget_signs(&mut self, name: &str) {
        if self.signs.get(name).is_some_and(super::Signs::is_empty) {
            self.signs.remove(name);
        }
    }

    fn node_lease(&mut self, now: Millis, delta: Delta<Lease>) {
        match delta {
            Delta::Put(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                // A Lease that was never renewed says as much as none.
                if let Some(renew_time) = read::renew_time(&lease) {
                    let signs = self.signs.entry(name.clone()).or_default();
                    if signs.lease(now, renew_time, read::renewal(&lease)) {
                        self.publish_life(&name);
                    }
                }
            }
            Delta::Gone(key) => self.forget_lease(&key.1),
            Delta::Listed(keys) => {
                let present: BTreeSet<&str> = keys.iter().map(|(_, name)| name.as_str()).collect();
                let known: Vec<String> = self.signs.keys().cloned().collect();
                for name in known.iter().filter(|name| !present.contains(name.as_str())) {
                    self.forget_lease(name);
                }
            }
            Delta::Broken => {}
        }
    }

    fn forget_lease(&mut self, name: &str) {
        if let Some(signs) = self.signs.get_mut(name) {
            signs.lease_gone();
            self.publish_life(name);
        }
        self.forget_signs(name);
    }

    fn publish_life(&mut self, name: &str) {
        if let (Some(signs), Some(node)) = (self.signs.get(name), self.cluster.nodes.get_mut(name)) {
            node.life = signs.life;
            self.zones.renewed(&node.uid, node.life.written());
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
                    let is_ready = facts.ready == Status::True;
                    let was_ready = |before: &&facts::PodFacts| before.ready == Status::True;
                    facts.seen = before.as_ref().map_or(now, |before| before.seen);
                    facts.became_ready = match &before {
                        Some(before) if is_ready && before.ready != Status::True => Some(now),
                        Some(before) if is_ready => before.became_ready,
                        _ => None,
                    };
                    let same = before
                        .as_ref()
                        .filter(was_ready)
                        .filter(|before| before.ready_time == facts.ready_time);
                    facts.ready_seen = is_ready.then(|| same.and_then(|same| same.ready_seen).unwrap_or(now));
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
                let name = object.metadata.name.clone().unwrap_or_default();
                // Whoever else claims the cell would replace its roster.
                if name != cell_object_name(&object.spec.zone, object.spec.cell) {
                    let (zone, cell) = (object.spec.zone, object.spec.cell);
                    return tracing::warn!(
                        "ZoneHealth {name} is not named after its zone {zone:?} and its cell {cell}: passed over"
                    );
                }
                let uid = object.metadata.uid.clone().unwrap_or_default();
                let (roster, shown) = self.roster(now, (&name, &uid), &object);
                let facts = facts::CellFacts {
                    uid,
                    zone: object.spec.zone,
                    number: object.spec.cell,
                    roster,
                    shown,
                };
                self.cluster.cells.insert(name, facts);
            }
            Delta::Gone(key) => self.forget_zone(now, &key.1),
            Delta::Listed(keys) => {
                let mut names = self.zones.names();
                names.extend(self.cluster.cells.keys().cloned());
                for name in names.iter().filter(|name| !keys.contains(&cluster_key(name))) {
                    self.forget_zone(now, name);
                }
            }
            Delta::Broken => {}
        }
    }

    /// The roster from which the next one is made, and what the object shows.
    ///
    /// A roster that does not count is no reason to forget the last one that did: whoever may write the
    /// object without having the key changes neither who votes nor the version.
    fn roster(&mut self, now: Millis, (name, uid): (&str, &str), object: &ZoneHealth) -> (RosterSpec, Shown) {
        let cell = (object.spec.zone.clone(), object.spec.cell);
        let last = self.cluster.last_rosters.get(&cell).cloned();
        // Between the making of the object and its first roster, which names the object's UID.
        let Some(published) = object.spec.published() else {
            return (last.unwrap_or_default(), Shown::Other);
        };
        let opened = Roster::open(&published, CellRef { name, uid }, &self.roster_keys);
        let signed = object.spec.signed_roster.as_ref();
        let present = signed.is_some_and(|signed| self.roster_keys.is_of_present_key(signed));
        let shown = object.spec.read_roster().filter(RosterSpec::has_version);
        let known = last.as_ref().map_or(0, |last| last.version);
        let why = match (opened, shown) {
            (Ok(roster), Some(shown)) if shown.version >= known => {
                self.cluster.published.insert(name.to_owned(), roster.reference());
                for refusal in self.zones.zone_health(now, object, roster) {
                    tracing::warn!(cell = name, %refusal, "roster or evidence refused");
                }
                self.cluster.last_rosters.insert(cell, shown.clone());
                return (shown, if present { Shown::Roster } else { Shown::Other });
            }
            // Of an object that was made anew since, or restored, with the same key.
            (Err(error), Some(shown))
                if last.is_none() && Roster::reopen(&published, &self.roster_keys).is_ok() =>
            {
                tracing::warn!(cell = name, %error, "roster of a former object: it is published anew");
                return (shown, Shown::Other);
            }
            (Err(error), _) => error.to_string(),
            (Ok(_), _) => format!("version {known} is known"),
        };
        if let Some(last) = last {
            tracing::warn!(cell = name, why, "roster refused: the last one is published anew");
            return (last, Shown::Other);
        }
        tracing::warn!(
            cell = name,
            why,
            "roster refused, and no other one is known: the cell is made anew"
        );
        (RosterSpec::default(), Shown::Foreign)
    }

    fn challenge(&mut self, now: Millis, delta: Delta<ZoneChallenge>) {
        match delta {
            Delta::Put(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                let spec = &object.spec;
                if name != cell_object_name(&spec.zone, spec.cell) {
                    return tracing::warn!(
                        "ZoneChallenge {name} is not named after its zone {:?} and its cell {}: passed over",
                        spec.zone,
                        spec.cell
                    );
                }
                let (mut current, issued) = read::challenges(spec, &self.config.life);
                let before = self.cluster.challenges.get(&name).map(|known| &known.current);
                let same = before.filter(|before| before.value == current.value);
                current.seen = same.map_or(now, |same| same.seen);
                warn_of_refused(&name, &self.zones.challenges(now, &name, &issued));
                let facts = facts::ChallengeFacts {
                    current,
                    wanted: object.spec.wanted,
                };
                self.cluster.challenges.insert(name, facts);
            }
            // What was signed stands, until the planner has written another one.
            Delta::Gone((_, name)) => {
                self.cluster.challenges.remove(&name);
            }
            Delta::Listed(keys) => {
                let challenges = &mut self.cluster.challenges;
                challenges.retain(|name, _| keys.contains(&cluster_key(name)));
            }
            Delta::Broken => {}
        }
    }

    fn report(&mut self, now: Millis, delta: Delta<ZoneReport>) {
        match delta {
            Delta::Put(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                let spec = &object.spec;
                // Whoever else writes in a reporter's name must not have its report passed over.
                if name != report_object_name(&spec.zone, spec.cell, &spec.reporter) {
                    return tracing::warn!(
                        "ZoneReport {name} is not named after its zone {:?}, its cell {} and its reporter {:?}: passed over",
                        spec.zone,
                        spec.cell,
                        spec.reporter
                    );
                }
                // Of members alone: others may name any cell.
                let cell = cell_object_name(&spec.zone, spec.cell);
                let known = self.cluster.cells.get(&cell);
                let mut members = known.into_iter().flat_map(|facts| &facts.roster.members);
                if members.any(|member| member.name == spec.reporter)
                    && let Some(roster) = read::newest_roster(&spec.report)
                {
                    let reported = self.cluster.reported.entry(cell).or_default();
                    reported.insert(spec.reporter.clone(), roster);
                }
                warn_of_refused(&name, &self.zones.report(now, &name, spec));
            }
            Delta::Gone(key) => self.zones.report_gone(&key.1),
            Delta::Listed(keys) => {
                self.zones
                    .reports_listed(|name| keys.contains(&cluster_key(name)));
            }
            Delta::Broken => {}
        }
    }

    fn forget_zone(&mut self, now: Millis, name: &str) {
        self.zones.gone(now, name);
        self.cluster.published.remove(name);
        self.cluster.reported.remove(name);
        if let Some(facts) = self.cluster.cells.remove(name)
            && facts.roster.members.is_empty()
        {
            self.cluster.last_rosters.remove(&(facts.zone, facts.number));
        }
    }

    fn own_lease(&mut self, now: Millis, delta: Delta<Lease>) {
        let lease = match delta {
            Delta::Put(lease) => lease,
            Delta::Gone((_, name)) => {
                self.replicas.remove(&name);
                return;
            }
            Delta::Listed(keys) => {
                let is_there = |name: &String| keys.iter().any(|(_, there)| there == name);
                self.replicas.retain(|name, _| is_there(name));
                return;
            }
            Delta::Broken => return,
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
                let cell = agent.status.map(|status| status.cell).unwrap_or_default();
                self.cluster.told_cells.insert(name.clone(), cell);
                // What the controller tells an agent is no sign of life of the agent: only its own part is.
                let before = self.cluster.agents.insert(name.clone(), agent.spec.clone());
                // Only the agent of the node may write it, see `deploy/policies.yaml`.
                if before.is_some_and(|before| before != agent.spec)
                    && let Some(signs) = self.signs.get_mut(&name)
                {
                    signs.agent.seen(now);
                }
            }
            Delta::Gone((_, name)) => {
                self.cluster.agents.remove(&name);
                self.cluster.told_cells.remove(&name);
            }
            Delta::Listed(keys) => {
                let listed = |name: &String| keys.contains(&cluster_key(name));
                self.cluster.agents.retain(|name, _| listed(name));
                self.cluster.told_cells.retain(|name, _| listed(name));
            }
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
                let mut facts = read::incident(&incident);
                let before = self.cluster.incidents.get(&name);
                let same = before.filter(|before| before.status == facts.status);
                facts.received = same.map_or(now, |before| before.received);
                self.learn(now, &name, &facts);
                if let Some(node) = self.cluster.nodes.get_mut(&facts.spec.node_name)
                    && facts.recalls_not_ready(&node.uid)
                {
                    node.says_not_ready.get_or_insert(true);
                }
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

pub(super) fn cluster_key(name: &str) -> Key {
    (String::new(), name.to_owned())
}
