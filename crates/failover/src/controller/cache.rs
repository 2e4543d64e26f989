//! What the watches have shown, with the times at which we saw it: the world as the planner gets it.

use super::read;
use super::watch::{Seen, WATCHED};
use crate::core::evidence::{Life, Reporting};
use crate::core::facts::World;
use evenkeel_admission::evidence::Evidence;
use evenkeel_api::crd::{AgentStatus, FailoverPolicy, NodeIncident, ZoneHealth};
use evenkeel_api::names;
use evenkeel_net::watch::{Delta, Key, key};
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::Verdict;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use std::collections::{BTreeMap, BTreeSet};

/// The world, its verdicts, and what is needed to keep them.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) world: World,
    evidence: Evidence,
    /// Signs of life by node name; a Lease may come before its Node.
    lives: BTreeMap<String, Signs>,
    /// Node and UID of the pod of a key.
    pods: BTreeMap<Key, (String, String)>,
    /// Zone of a ZoneHealth by object name, and the sequence of its report; 0: none was ever made.
    zones: BTreeMap<String, (String, i64)>,
    /// Holder and time of zone Leases, to see them renewed.
    holders: BTreeMap<String, (Option<String>, Option<Timestamp>)>,
    listed: [bool; WATCHED.len()],
}

/// Signs of life as they stand in the objects, with ours on when they changed.
#[derive(Clone, Debug, Default)]
struct Signs {
    node_uid: String,
    lease: Option<Timestamp>,
    heartbeat: Option<Timestamp>,
    life: Life,
    agent_write: Option<Millis>,
}

/// What was last seen of a node's own writes: an irreversible step makes sure that nothing newer exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LastSigns {
    /// `renewTime` of its Lease, if it has one.
    pub(super) lease: Option<Timestamp>,
    /// Heartbeat in its status.
    pub(super) heartbeat: Option<Timestamp>,
}

impl Cache {
    /// Takes in a change. `true` if somebody may be in trouble: look at once.
    pub(super) fn take(&mut self, now: Millis, seen: Seen) -> bool {
        if let Some(place) = seen.listed() {
            self.listed[place] = true;
        }
        let urgent = matches!(seen, Seen::Zone(_));
        match seen {
            Seen::Node(delta) => self.node(now, delta),
            Seen::NodeLease(delta) => self.node_lease(now, delta),
            Seen::Pod(delta) => self.pod(delta),
            Seen::Claim(delta) => self.claim(delta),
            Seen::Zone(delta) => self.zone(now, delta),
            Seen::OwnLease(delta) => self.own_lease(now, delta),
            Seen::Agent(delta) => self.agent(now, delta),
            Seen::Policy(delta) => self.policy(delta),
            Seen::Incident(delta) => self.incident(delta),
        }
        urgent
    }

    /// Kinds of which no complete list was delivered yet.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        WATCHED
            .iter()
            .zip(self.listed)
            .filter(|(_, listed)| !listed)
            .map(|(what, _)| *what)
            .collect()
    }

    /// Brings up to date what changes with time alone.
    pub(super) fn refresh(&mut self, now: Millis) {
        for (zone, sequence) in self.zones.values() {
            if let Some(facts) = self.world.zones.get_mut(zone) {
                facts.storm = self.evidence.book().storm(zone);
                facts.reporting = match (self.evidence.book().reports(zone, now), *sequence > 0) {
                    (true, _) => Reporting::Talking,
                    (false, true) => Reporting::Silent,
                    (false, false) => Reporting::Never,
                };
            }
        }
    }

    /// The verdict on a node, by UID.
    pub(super) fn verdict(&self, node_uid: &str, now: Millis) -> Verdict {
        self.evidence.verdict(node_uid, now)
    }

    /// What was last seen of a node's own writes.
    pub(super) fn last_signs(&self, node: &str) -> LastSigns {
        let signs = self.lives.get(node);
        signs.map_or_else(LastSigns::default, |signs| LastSigns {
            lease: signs.lease,
            heartbeat: signs.heartbeat,
        })
    }

    /// A consistent list of all node Leases whose request was sent at `sent`: everything that happened before is
    /// known now, whether the watch delivered it or not.
    pub(super) fn audited(&mut self, sent: Millis, now: Millis, leases: Vec<Lease>) {
        for lease in leases {
            // What the watch showed meanwhile is newer than the list.
            let name = lease.metadata.name.as_deref().unwrap_or_default();
            let overtaken = self
                .lives
                .get(name)
                .and_then(|signs| signs.life.renewed)
                .is_some_and(|renewed| renewed >= sent);
            if !overtaken {
                self.renewal(now, &lease);
            }
        }
        self.world.watch.progress(sent);
    }

    fn node(&mut self, now: Millis, delta: Delta<Node>) {
        match delta {
            Delta::Put(node) => {
                let mut facts = read::node(&node);
                let heartbeat = read::heartbeat(&node);
                let signs = self.lives.entry(facts.name.clone()).or_default();
                if signs.node_uid != facts.uid {
                    // Another machine by that name: what its Lease showed before says nothing about it.
                    let lease = signs.lease;
                    let first_seen = lease.map(|_| now);
                    let life = Life {
                        first_seen,
                        ..Life::default()
                    };
                    *signs = Signs {
                        node_uid: facts.uid.clone(),
                        lease,
                        life,
                        ..Signs::default()
                    };
                } else if heartbeat > signs.heartbeat {
                    signs.life.renewed = Some(now);
                }
                signs.heartbeat = heartbeat.max(signs.heartbeat);
                let mark = signs.life.stock_mark;
                signs.life.stock_mark = read::stock_marked(&node).then(|| mark.unwrap_or(now));
                facts.life = signs.life;
                facts.agent_write = signs.agent_write;
                self.world.nodes.insert(facts.name.clone(), facts);
            }
            Delta::Gone((_, name)) => self.forget_node(&name),
            Delta::Listed(keys) => {
                let gone = self
                    .world
                    .nodes
                    .keys()
                    .filter(|name| !keys.contains(&cluster_key(name)));
                for name in gone.cloned().collect::<Vec<_>>() {
                    self.forget_node(&name);
                }
            }
        }
    }

    fn forget_node(&mut self, name: &str) {
        self.world.nodes.remove(name);
        if let Some(signs) = self.lives.get_mut(name) {
            *signs = Signs {
                lease: signs.lease,
                ..Signs::default()
            };
        }
    }

    fn node_lease(&mut self, now: Millis, delta: Delta<Lease>) {
        match delta {
            Delta::Put(lease) => {
                self.renewal(now, &lease);
                if self.listed[1] {
                    self.world.watch.progress(now);
                }
            }
            Delta::Gone((_, name)) => self.forget_lease(&name),
            Delta::Listed(keys) => {
                let known: Vec<String> = self.lives.keys().cloned().collect();
                let present: BTreeSet<&str> = keys.iter().map(|(_, name)| name.as_str()).collect();
                for name in known.iter().filter(|name| !present.contains(name.as_str())) {
                    self.forget_lease(name);
                }
                self.world.watch.progress(now);
            }
        }
    }

    fn renewal(&mut self, now: Millis, lease: &Lease) {
        let name = lease.metadata.name.clone().unwrap_or_default();
        // A Lease that was never renewed says as much as none.
        let Some(renew_time) = read::renew_time(lease) else {
            return;
        };
        let signs = self.lives.entry(name.clone()).or_default();
        match signs.lease.replace(renew_time) {
            None => signs.life.first_seen = signs.life.first_seen.or(Some(now)),
            Some(before) if before != renew_time => signs.life.renewed = Some(now),
            Some(_) => return,
        }
        let life = signs.life;
        if let Some(node) = self.world.nodes.get_mut(&name) {
            node.life = life;
        }
    }

    fn forget_lease(&mut self, name: &str) {
        let Some(signs) = self.lives.get_mut(name) else {
            return;
        };
        signs.lease = None;
        signs.life.first_seen = None;
        signs.life.renewed = None;
        let life = signs.life;
        if let Some(node) = self.world.nodes.get_mut(name) {
            node.life = life;
        }
    }

    fn agent_wrote(&mut self, now: Millis, node: &str) {
        if let (Some(signs), Some(facts)) = (self.lives.get_mut(node), self.world.nodes.get_mut(node)) {
            signs.agent_write = Some(now);
            facts.agent_write = Some(now);
        }
    }

    fn pod(&mut self, delta: Delta<Pod>) {
        match delta {
            Delta::Put(pod) => {
                let key = key(&*pod);
                self.forget_pod(&key);
                if let Some((node, facts)) = read::pod(&pod) {
                    let uid = facts.pod.uid.clone();
                    self.pods.insert(key, (node.clone(), uid.clone()));
                    self.world.pods.entry(node).or_default().insert(uid, facts);
                }
            }
            Delta::Gone(key) => self.forget_pod(&key),
            Delta::Listed(keys) => {
                let gone: Vec<Key> = self
                    .pods
                    .keys()
                    .filter(|key| !keys.contains(*key))
                    .cloned()
                    .collect();
                for key in gone {
                    self.forget_pod(&key);
                }
            }
        }
    }

    fn forget_pod(&mut self, key: &Key) {
        let Some((node, uid)) = self.pods.remove(key) else {
            return;
        };
        if let Some(pods) = self.world.pods.get_mut(&node) {
            pods.remove(&uid);
            if pods.is_empty() {
                self.world.pods.remove(&node);
            }
        }
    }

    fn claim(&mut self, delta: Delta<PersistentVolumeClaim>) {
        match delta {
            Delta::Put(claim) => {
                self.world.claims.insert(key(&*claim), read::claim(&claim));
            }
            Delta::Gone(key) => {
                self.world.claims.remove(&key);
            }
            Delta::Listed(keys) => self.world.claims.retain(|key, _| keys.contains(key)),
        }
    }

    fn zone(&mut self, now: Millis, delta: Delta<ZoneHealth>) {
        match delta {
            Delta::Put(object) => {
                self.evidence.zone_health(now, &object);
                let name = object.metadata.name.clone().unwrap_or_default();
                let zone = object.spec.zone.clone();
                let status = object.status.unwrap_or_default();
                let known = self.world.zones.entry(zone.clone()).or_default();
                known.roster = object.spec.roster;
                let before = self.zones.insert(name, (zone, status.sequence));
                // The controller writes here too (the roster), and a new list shows old reports again.
                if before.is_some_and(|(_, sequence)| sequence < status.sequence) {
                    self.agent_wrote(now, &status.reporter);
                }
            }
            Delta::Gone((_, name)) => self.forget_zone(&name),
            Delta::Listed(keys) => {
                let gone = self
                    .zones
                    .keys()
                    .filter(|name| !keys.contains(&cluster_key(name)));
                for name in gone.cloned().collect::<Vec<_>>() {
                    self.forget_zone(&name);
                }
            }
        }
    }

    fn forget_zone(&mut self, name: &str) {
        self.evidence.zone_health_gone(name);
        if let Some((zone, _)) = self.zones.remove(name) {
            self.world.zones.remove(&zone);
        }
    }

    fn own_lease(&mut self, now: Millis, delta: Delta<Lease>) {
        let Delta::Put(lease) = delta else {
            return;
        };
        self.evidence.lease(now, &lease);
        let name = lease.metadata.name.clone().unwrap_or_default();
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let seen = (holder.clone(), read::renew_time(&lease));
        // Other holders may be called like a node: the controller's replicas, say.
        let zones = name.starts_with(names::ZONE_LEASE_PREFIX);
        let before = self.holders.insert(name, seen.clone());
        if let Some(holder) = holder.filter(|_| zones && before.is_some_and(|before| before != seen)) {
            // A zone's Lease is held by the node name of its reporter.
            self.agent_wrote(now, &holder);
        }
    }

    fn agent(&mut self, now: Millis, delta: Delta<AgentStatus>) {
        match delta {
            Delta::Put(agent) => {
                let name = agent.metadata.name.clone().unwrap_or_default();
                let before = self.world.agents.insert(name.clone(), agent.spec.clone());
                if before.is_some_and(|before| before != agent.spec) {
                    self.agent_wrote(now, &name);
                }
            }
            Delta::Gone((_, name)) => {
                self.world.agents.remove(&name);
            }
            Delta::Listed(keys) => self
                .world
                .agents
                .retain(|name, _| keys.contains(&cluster_key(name))),
        }
    }

    fn policy(&mut self, delta: Delta<FailoverPolicy>) {
        match delta {
            Delta::Put(policy) => {
                let facts = read::policy(&policy);
                self.world.policies.insert(facts.policy.name.clone(), facts);
            }
            Delta::Gone((_, name)) => {
                self.world.policies.remove(&name);
            }
            Delta::Listed(keys) => self
                .world
                .policies
                .retain(|name, _| keys.contains(&cluster_key(name))),
        }
    }

    fn incident(&mut self, delta: Delta<NodeIncident>) {
        match delta {
            Delta::Put(incident) => {
                let name = incident.metadata.name.clone().unwrap_or_default();
                self.world.incidents.insert(name, read::incident(&incident));
            }
            Delta::Gone((_, name)) => {
                self.world.incidents.remove(&name);
            }
            Delta::Listed(keys) => self
                .world
                .incidents
                .retain(|name, _| keys.contains(&cluster_key(name))),
        }
    }
}

fn cluster_key(name: &str) -> Key {
    (String::new(), name.to_owned())
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
