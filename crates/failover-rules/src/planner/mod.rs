//! The planner: from decisions to what has to be done next. Pure; the leader alone runs it.
//!
//! It is level-triggered: every look at the world yields everything that is still wanted, so that an action
//! that failed, or whose success was lost, is simply wanted again. What must survive a restart (timers,
//! decisions) stands in the NodeIncident and in the taints themselves, and a latch stands there before it is
//! acted upon.
//!
//! | module | what it holds |
//! |---|---|
//! | `node`, `dead`, `stateful` | what the state of a node asks for |
//! | `kept` | what goes from a node that is kept |
//! | `stock` | taints for which the stock controller finds no turn |
//! | `zones` | rosters, wanted rounds, statuses of policies |
//! | [`action`] | what is to be done |
//! | [`incident`] | the record of a failure |
//! | [`storm`] | how many nodes at once |
//! | [`cells`], [`roster`] | which nodes watch each other |

pub mod action;
pub mod cells;
mod challenges;
pub mod contacts;
mod dead;
pub mod incident;
mod kept;
mod node;
pub mod roster;
mod scene;
mod stateful;
mod stock;
pub mod storm;
mod zones;

use crate::world::facts::{Cluster, IncidentFacts, NodeFacts, TaintRef};
use crate::world::{Config, Decisions};
use action::{Action, Plan};
use evenkeel_api::crd::NodeIncidentStatus;
use evenkeel_api::names::events;
use evenkeel_judge::policy::refused;
use evenkeel_judge::{Latch, NodeState};
use evenkeel_zone::Millis;
use incident::{Incident, instant};
use roster::{Progress, SoundKeys};
use std::collections::{BTreeMap, BTreeSet};
use stock::Turns;
use storm::{Ledger, WINDOW_MS};
use zones::Planned;

/// A closed incident whose write never succeeds is given up after this long.
const CLOSING_MS: u64 = 60_000;
/// Closed incidents that are kept of each node, and of all nodes; nobody else ever deletes one.
const KEPT_OF_A_NODE: usize = 10;
const KEPT_IN_ALL: usize = 1_000;

/// The planner with what it remembers. One per term of leadership: a new leader adopts what its predecessor
/// left in the NodeIncidents.
#[derive(Debug)]
pub struct Planner {
    config: Config,
    adopted: bool,
    nodes: BTreeMap<String, Known>,
    ledger: Ledger,
    turns: Turns,
    closing: BTreeMap<String, (Incident, Millis)>,
    policies_looked_at: Option<Millis>,
    /// Since when members have had an incident or a latch, by UID.
    listed_since: BTreeMap<String, Millis>,
    /// By zone and number, since when a cell has had, without a break, a member that came to be listed
    /// lately.
    listed_lately: BTreeMap<(String, u32), Millis>,
    /// By name of their object, what is known of cells' rosters.
    rosters: BTreeMap<String, Progress>,
    /// By zone and number, cells' rosters that were planned and have not been seen since.
    planned: BTreeMap<(String, u32), Planned>,
    /// Keys of agents that were looked at.
    sound_keys: SoundKeys,
    /// When this leader first looked.
    leads_since: Option<Millis>,
}

/// What is remembered of a node.
#[derive(Debug, Default)]
struct Known {
    state: NodeState,
    latch: Latch,
    /// The evidence did not suffice to decide anew.
    held: bool,
    incident: Option<Incident>,
    /// The pods were seen out of endpoints in this death.
    endpoints_out: bool,
    /// This leader has reported the isolation. After a hand-over the next leader reports it again, which
    /// makes no second Event, because the Event's name is made of its contents.
    isolation_reported: bool,
    /// It was Dead before its present state, or before it was Isolated.
    was_dead: bool,
    /// It was Dead, its peers vouch for it, and nobody was told yet that it is Disconnected.
    returning: bool,
    /// Pods that the stock controller had marked in this state, though the node lives.
    passed: BTreeSet<String>,
    /// Pods whose withdrawal was asked for in this state, and those that were then seen not ready: a kubelet
    /// that restores one of these is not fought.
    withdrawing: BTreeSet<String>,
    withdrawn: BTreeSet<String>,
    /// Pods that were reported to stay, and pods whose eviction was requested.
    not_moved: BTreeSet<String>,
    evicting: BTreeSet<String>,
    /// The eviction was summed up.
    eviction_summed_up: bool,
}

impl Planner {
    /// Knows nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            adopted: false,
            nodes: BTreeMap::new(),
            ledger: Ledger::default(),
            turns: Turns::default(),
            closing: BTreeMap::new(),
            policies_looked_at: None,
            listed_since: BTreeMap::new(),
            listed_lately: BTreeMap::new(),
            rosters: BTreeMap::new(),
            planned: BTreeMap::new(),
            sound_keys: SoundKeys::default(),
            leads_since: None,
        }
    }

    /// Looks at the decisions of `now` and says what has to be done.
    ///
    /// The first call adopts the open incidents; call it only when every watch has delivered its first list.
    pub fn tick(&mut self, cluster: &Cluster, decisions: &Decisions, now: Millis) -> Plan {
        let mut plan = Plan::default();
        if !std::mem::replace(&mut self.adopted, true) {
            self.adopt(cluster, now);
        }
        self.turns.plan(cluster, decisions, now, &mut plan);
        for node in cluster.nodes.values() {
            if let Some(judged) = decisions.nodes.get(&node.name) {
                self.node(cluster, node, judged, decisions, now, &mut plan);
            }
        }
        self.forget_gone(cluster, now);
        self.close_strays(cluster, now);
        self.save_incidents(cluster, now, &mut plan);
        drop_old_incidents(cluster, now, &mut plan);
        self.publish_cells(cluster, now, &mut plan);
        self.challenge_cells(cluster, decisions, now, &mut plan);
        for policy in cluster.policies() {
            let why = refused(&policy.spec).into_iter();
            plan.complaints
                .extend(why.map(|why| format!("FailoverPolicy {}: {why}", policy.name)));
        }
        self.save_policy_statuses(cluster, now, &mut plan);
        self.ledger.prune(now);
        plan.actions.sort_by_key(Action::rank);
        plan
    }

    /// Takes over from the incidents: states, timers, the storm guard's ledger.
    fn adopt(&mut self, cluster: &Cluster, now: Millis) {
        for (name, facts) in &cluster.incidents {
            let status = &facts.status;
            let uid = &facts.spec.node_uid;
            let (state, is_closed) = (NodeState::parse(&status.state), status.closed_at.is_some());
            // A predecessor may have ended between the taint and its record.
            let is_ours = |node: &&NodeFacts| node.uid == *uid && node.added.contains(&TaintRef::evicting());
            let node = cluster.nodes.get(&facts.spec.node_name).filter(is_ours);
            let recorded = status.tainted_at.as_ref().map(|at| instant(at, now));
            if let Some(at) = recorded.or(node.filter(|_| !is_closed).map(|_| now)) {
                self.ledger.begin(uid, &facts.spec.zone, at);
            }
            if is_closed || !matches!(state, Some(NodeState::Dead(_))) {
                self.ledger.complete(uid);
            }
            if is_closed {
                continue;
            }
            let known = self.nodes.entry(uid.clone()).or_default();
            let newer = known
                .incident
                .as_ref()
                .is_none_or(|other| other.status.state_since < status.state_since);
            let incident = Incident {
                name: name.clone(),
                spec: facts.spec.clone(),
                status: NodeIncidentStatus {
                    acted: status.acted
                        || !status.decision.state.is_empty() && !status.decision.observed_only,
                    ..status.clone()
                },
            };
            let older = if newer {
                known.state = state.unwrap_or_default();
                known.endpoints_out = incident.has(events::ENDPOINTS_OUT);
                known.was_dead = incident.last_state_row_is_of_a_death();
                known.returning = known.was_dead && known.state == NodeState::Disconnected;
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
    fn forget_gone(&mut self, cluster: &Cluster, now: Millis) {
        let present: BTreeSet<&str> = cluster.nodes.values().map(|node| node.uid.as_str()).collect();
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

    /// Ends open incidents that belong to no node. A predecessor's last write may arrive after this leader
    /// has adopted the incidents.
    fn close_strays(&mut self, cluster: &Cluster, now: Millis) {
        for (name, facts) in &cluster.incidents {
            let stray = match self.nodes.get(&facts.spec.node_uid) {
                None => true,
                Some(known) => match &known.incident {
                    Some(own) => own.name != *name,
                    None => known.state == NodeState::Healthy && !known.held,
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

    /// Plans the write of every incident that differs from what stands in the cluster.
    fn save_incidents(&mut self, cluster: &Cluster, now: Millis, plan: &mut Plan) {
        let saved = |incident: &Incident| {
            cluster
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
            !saved(incident) && (cluster.incidents.contains_key(name) || now.since(*since) < CLOSING_MS)
        });
        let open = self.nodes.values().filter_map(|known| known.incident.as_ref());
        let closing = self.closing.values().map(|(incident, _)| incident);
        let wanted = open.chain(closing).filter(|incident| !saved(incident));
        plan.actions
            .extend(wanted.map(|incident| Action::SaveIncident(Box::new(incident.clone()))));
    }
}

/// Wants the oldest closed incidents deleted where there are too many, but none that counts for the storm
/// guard.
fn drop_old_incidents(cluster: &Cluster, now: Millis, plan: &mut Plan) {
    let mut closed: Vec<(Millis, &String, &IncidentFacts)> = cluster
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

#[cfg(test)]
mod tests;
