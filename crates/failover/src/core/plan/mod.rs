//! The planner: from the world as it is to what has to be done next.
//!
//! It is level-triggered: every look at the world yields everything that is still wanted, so that an action that
//! failed, or whose success was lost, is simply wanted again. What must survive a restart (timers, decisions) stands
//! in the NodeIncident and in the taints themselves.

mod dead;
mod node;
mod stateful;
mod zones;

use super::action::{Action, Plan};
use super::evidence::{Lease, Timing};
use super::facts::{IncidentFacts, NodeFacts, World};
use super::incident::{Incident, instant};
use super::policy::{Policy, Profile};
use super::roster::{eligible, zone_of};
use super::state::{Memory, NodeState, Reason};
use super::storm::{Ledger, WINDOW_MS};
use evenkeel_api::names::events;
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::Verdict;
use std::collections::{BTreeMap, BTreeSet};

/// A closed incident that never shows up in the cluster as it should is given up after this long.
const CLOSING_MS: u64 = 60_000;
/// Closed incidents that are kept of each node, and of all nodes; nobody else ever deletes one.
const KEPT_OF_A_NODE: usize = 10;
const KEPT_IN_ALL: usize = 1_000;

/// What the planner is told once.
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
}

/// The planner with what it remembers. One per term of leadership: a new leader adopts what its predecessor left in
/// the NodeIncidents.
#[derive(Debug)]
pub struct Planner {
    config: Config,
    adopted: bool,
    nodes: BTreeMap<String, Known>,
    ledger: Ledger,
    closing: BTreeMap<String, (Incident, Millis)>,
    roster_floor: BTreeMap<String, i64>,
    policies_looked_at: Option<Millis>,
}

/// What is remembered of a node.
#[derive(Debug, Default)]
struct Known {
    memory: Memory,
    reason: Reason,
    held: bool,
    incident: Option<Incident>,
    /// The kubelet's last own word was Ready=False.
    says_not_ready: bool,
    /// The pods were seen out of endpoints in this death.
    endpoints_out: bool,
    /// The isolation was reported.
    isolation_reported: bool,
    /// Pods whose withdrawal was asked for in this state, and those that were then seen not ready: a kubelet that
    /// restores one of these is not fought.
    withdrawing: BTreeSet<String>,
    withdrawn: BTreeSet<String>,
    /// Pods of which it was said that they stay, and pods whose eviction was asked for.
    not_moved: BTreeSet<String>,
    evicting: BTreeSet<String>,
    /// The eviction was summed up.
    eviction_summed_up: bool,
}

/// State of a node for people and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// State.
    pub state: NodeState,
    /// Why.
    pub reason: Reason,
    /// Nothing is acted upon now.
    pub held: bool,
}

impl Planner {
    /// Knows nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            adopted: false,
            nodes: BTreeMap::new(),
            ledger: Ledger::default(),
            closing: BTreeMap::new(),
            roster_floor: BTreeMap::new(),
            policies_looked_at: None,
        }
    }

    /// Looks at the world at `now` and says what has to be done. `verdict` answers by node UID.
    ///
    /// The first call adopts the open incidents; call it only when every watch has delivered its first list.
    pub fn tick(&mut self, world: &World, verdict: &dyn Fn(&str) -> Verdict, now: Millis) -> Plan {
        let mut plan = Plan::default();
        if !std::mem::replace(&mut self.adopted, true) {
            self.adopt(world, now);
        }
        let zones = Zones::of(world, &self.config, now);
        let policies: Vec<Policy> = world
            .policies
            .values()
            .map(|facts| facts.policy.clone())
            .collect();
        for node in world.nodes.values() {
            self.node(world, &zones, &policies, node, verdict(&node.uid), now, &mut plan);
        }
        self.forget_gone(world, now);
        self.close_strays(world, now);
        self.save_incidents(world, now, &mut plan);
        drop_old_incidents(world, now, &mut plan);
        self.publish_rosters(world, &mut plan);
        self.save_policy_statuses(world, &policies, now, &mut plan);
        self.ledger.prune(now);
        plan.actions.sort_by_key(Action::rank);
        plan
    }

    /// State of a node as last decided, by UID.
    pub fn state(&self, node_uid: &str) -> Option<Shown> {
        let known = self.nodes.get(node_uid)?;
        Some(Shown {
            state: known.memory.state,
            reason: known.reason,
            held: known.held,
        })
    }

    /// Takes over from the incidents: states, timers, the storm guard's ledger.
    fn adopt(&mut self, world: &World, now: Millis) {
        for (name, facts) in &world.incidents {
            let status = &facts.status;
            let uid = &facts.spec.node_uid;
            if let Some(tainted_at) = &status.tainted_at {
                self.ledger.begin(uid, &facts.spec.zone, instant(tainted_at, now));
            }
            if status.closed_at.is_some() {
                self.ledger.complete(uid);
                continue;
            }
            let since = status.state_since.as_ref().map_or(now, |time| instant(time, now));
            let known = self.nodes.entry(uid.clone()).or_default();
            let newer = known
                .incident
                .as_ref()
                .is_none_or(|other| other.status.state_since < status.state_since);
            let incident = Incident {
                name: name.clone(),
                spec: facts.spec.clone(),
                status: status.clone(),
            };
            let older = if newer {
                known.memory = Memory::restored(&status.state, since);
                known.endpoints_out = incident.mentions(events::ENDPOINTS_OUT, "");
                known.isolation_reported = incident.mentions(events::ISOLATED, "");
                known.incident.replace(incident)
            } else {
                Some(incident)
            };
            if let Some(mut older) = older {
                older.row(
                    events::RECOVERED,
                    "closed: a newer incident of this node is open".to_owned(),
                    now,
                );
                older.close(now);
                self.closing.insert(older.name.clone(), (older, now));
            }
        }
    }

    /// Forgets nodes that are gone, and ends their incidents.
    fn forget_gone(&mut self, world: &World, now: Millis) {
        let present: BTreeSet<&str> = world.nodes.values().map(|node| node.uid.as_str()).collect();
        let gone: Vec<String> = self
            .nodes
            .keys()
            .filter(|uid| !present.contains(uid.as_str()))
            .cloned()
            .collect();
        for uid in gone {
            self.ledger.complete(&uid);
            if let Some(mut incident) = self.nodes.remove(&uid).and_then(|known| known.incident) {
                let node = &incident.spec.node_name;
                let message = format!("closed: the Node object {node} with UID {uid} is gone");
                incident.row(events::RECOVERED, message, now);
                incident.close(now);
                self.closing.insert(incident.name.clone(), (incident, now));
            }
        }
    }

    /// Ends open incidents that are nobody's: what a predecessor wrote last may arrive after it was adopted from.
    fn close_strays(&mut self, world: &World, now: Millis) {
        for (name, facts) in &world.incidents {
            let stray = match self.nodes.get(&facts.spec.node_uid) {
                None => true,
                Some(known) => match &known.incident {
                    Some(own) => own.name != *name,
                    None => known.memory.state == NodeState::Healthy && !known.held,
                },
            };
            if !stray || facts.status.closed_at.is_some() || self.closing.contains_key(name) {
                continue;
            }
            let mut incident = Incident {
                name: name.clone(),
                spec: facts.spec.clone(),
                status: facts.status.clone(),
            };
            let message = "closed: the node is in no such incident any more".to_owned();
            incident.row(events::RECOVERED, message, now);
            incident.close(now);
            self.closing.insert(name.clone(), (incident, now));
        }
    }

    /// Wants every incident written that does not stand in the cluster as it should.
    fn save_incidents(&mut self, world: &World, now: Millis, plan: &mut Plan) {
        let saved = |incident: &Incident| {
            world
                .incidents
                .get(&incident.name)
                .is_some_and(|facts| facts.status == incident.status)
        };
        for known in self.nodes.values_mut() {
            if let Some(incident) = known.incident.take_if(|incident| incident.is_closed()) {
                self.closing.insert(incident.name.clone(), (incident, now));
            }
        }
        // One that stands open in the cluster is never given up: nobody else would close it.
        self.closing.retain(|name, (incident, since)| {
            !saved(incident) && (world.incidents.contains_key(name) || now.since(*since) < CLOSING_MS)
        });
        let open = self.nodes.values().filter_map(|known| known.incident.as_ref());
        let closing = self.closing.values().map(|(incident, _)| incident);
        let wanted = open.chain(closing).filter(|incident| !saved(incident));
        plan.actions
            .extend(wanted.map(|incident| Action::SaveIncident(Box::new(incident.clone()))));
    }
}

/// Wants the oldest closed incidents deleted where there are too many, but none that counts for the storm guard.
fn drop_old_incidents(world: &World, now: Millis, plan: &mut Plan) {
    let mut closed: Vec<(Millis, &String, &IncidentFacts)> = world
        .incidents
        .iter()
        .filter_map(|(name, facts)| Some((instant(facts.status.closed_at.as_ref()?, now), name, facts)))
        .collect();
    closed.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| b.1.cmp(a.1)));
    let mut of_node: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kept = 0_usize;
    for (closed_at, name, facts) in closed {
        let of_node = of_node.entry(&facts.spec.node_name).or_default();
        if now.since(closed_at) < WINDOW_MS || (*of_node < KEPT_OF_A_NODE && kept < KEPT_IN_ALL) {
            *of_node += 1;
            kept += 1;
            continue;
        }
        plan.actions.push(Action::DeleteIncident {
            name: name.clone(),
            uid: facts.uid.clone(),
        });
    }
}

/// What the nodes of a zone have in common, gathered once per look.
struct Zones<'a> {
    of_node: BTreeMap<&'a str, String>,
    /// Nodes that count for the storm guard.
    size: BTreeMap<String, usize>,
    /// Zones in which some member's Lease is not stale.
    some_fresh: BTreeSet<String>,
}

impl<'a> Zones<'a> {
    fn of(world: &'a World, config: &Config, now: Millis) -> Self {
        let mut zones = Self {
            of_node: BTreeMap::new(),
            size: BTreeMap::new(),
            some_fresh: BTreeSet::new(),
        };
        let members: BTreeSet<&str> = world
            .zones
            .values()
            .flat_map(|facts| &facts.roster.members)
            .map(|member| member.uid.as_str())
            .collect();
        for node in world.nodes.values() {
            // Nodes of no zone share one ledger: they have no neighbours, but they can fail together too.
            let zone = zone_of(&node.labels, config.default_zone.as_deref()).unwrap_or_default();
            if eligible(&node.labels) {
                *zones.size.entry(zone.clone()).or_default() += 1;
            }
            let member = members.contains(node.uid.as_str());
            if member && node.life.lease(&world.watch, &config.timing, now) != Lease::Stale {
                zones.some_fresh.insert(zone.clone());
            }
            zones.of_node.insert(&node.name, zone);
        }
        zones
    }

    fn zone(&self, node: &NodeFacts) -> &str {
        self.of_node.get(node.name.as_str()).map_or("", String::as_str)
    }

    fn size(&self, zone: &str) -> usize {
        self.size.get(zone).copied().unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "../plan_tests/mod.rs"]
mod tests;
