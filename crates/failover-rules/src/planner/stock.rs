//! NoExecute taints for which the stock node controller finds no turn, because nodes that are kept take them.
//!
//! That controller taints one node of a zone of its own in ten seconds. A node whose taint the webhook takes
//! out stands in the same queue again within five seconds, and who is served first is left to chance: beside
//! 20 nodes that stay Disconnected, one that nobody keeps would wait for 200 s in the mean, and for ever if
//! chance wants it. So the leader puts the taint on such nodes, at the stock controller's own rate, and
//! never sooner than that controller would have come to the last of all that wait: what it holds back in a
//! zone that is disrupted may be alive.

use super::action::{Action, NodeRef, Plan};
use crate::world::Decisions;
use crate::world::facts::{Cluster, NodeFacts, Status, TaintRef};
use evenkeel_api::names::{EXCLUDE_DISRUPTION_LABEL, taints};
use evenkeel_api::policy::ModePolicy;
use evenkeel_stock_rules::tolerations::NO_EXECUTE;
use evenkeel_stock_rules::zones::{Rates, ZoneState, zone_key};
use evenkeel_zone::Millis;
use std::collections::BTreeMap;

/// The stock controller looks as often as this, and then its queue begins to serve.
const LOOK_MS: u64 = 5_000;

/// Who waits for a taint, and who got the last one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By UID, since when a node has waited.
    waiting: BTreeMap<String, Millis>,
    /// By zone of the stock controller, when a node that had waited was last given its taint.
    served: BTreeMap<String, Millis>,
    /// By zone of the stock controller, when it was last so disrupted that nobody gets a taint.
    stood: BTreeMap<String, Millis>,
}

/// A zone of the stock controller.
#[derive(Default)]
struct Zone<'a> {
    ready: usize,
    not_ready: usize,
    /// So many of its nodes wait whose taint the webhook takes out again and again.
    kept: usize,
    /// Nodes that nobody keeps, and that lack their taint.
    waiting: Vec<&'a NodeFacts>,
}

impl Turns {
    pub(super) fn plan(&mut self, cluster: &Cluster, decisions: &Decisions, now: Millis, plan: &mut Plan) {
        if cluster.nodes.values().all(|node| node.ready == Status::True) {
            return *self = Self::default();
        }
        let rates = Rates::default();
        let zones = self.look(cluster, decisions, now);
        let before = std::mem::take(&mut self.waiting);
        let since = |node: &NodeFacts| before.get(&node.uid).copied().unwrap_or(now);
        let waiting = zones.values().flat_map(|zone| &zone.waiting);
        self.waiting = waiting.map(|node| (node.uid.clone(), since(node))).collect();
        self.served.retain(|name, _| zones.contains_key(name));
        let state = |zone: &Zone<'_>| rates.state(zone.ready, zone.not_ready);
        // Where no node of the cluster is ready, the stock controller stops.
        let stops = zones.values().all(|zone| state(zone) == ZoneState::Full);
        self.stood.retain(|name, _| zones.contains_key(name));
        for (name, zone) in &zones {
            let rate = rates.rate(state(zone), zone.ready + zone.not_ready);
            if stops || rate <= 0.0 {
                self.stood.insert(name.clone(), now);
                continue;
            }
            if zone.kept == 0 {
                continue;
            }
            let turn = (1_000.0 / rate) as u64;
            if self.served.get(name).is_some_and(|at| now.since(*at) < turn) {
                continue;
            }
            let all = LOOK_MS + turn * (zone.kept + zone.waiting.len()) as u64;
            let longest = zone.waiting.iter().min_by_key(|node| (since(node), &node.name));
            if let Some(node) = longest.filter(|node| now.since(since(node)) >= all) {
                self.served.insert(name.clone(), now);
                plan.actions.push(Action::TaintForStock {
                    node: NodeRef {
                        name: node.name.clone(),
                        uid: node.uid.clone(),
                    },
                    version: node.version.clone(),
                    taint: TaintRef::new(key(node), NO_EXECUTE),
                });
            }
        }
    }

    /// When the stock controller last tainted nobody in the zone of the node; 0 for never.
    pub(super) fn stood(&self, node: &NodeFacts) -> Millis {
        let stood = self.stood.get(&zone_key(Some(&node.labels)));
        stood.copied().unwrap_or_default()
    }

    /// The zones as they stand. Whoever has waited and has its taint now was served, by whomever.
    fn look<'a>(
        &mut self,
        cluster: &'a Cluster,
        decisions: &Decisions,
        now: Millis,
    ) -> BTreeMap<String, Zone<'a>> {
        let mut zones: BTreeMap<String, Zone<'a>> = BTreeMap::new();
        for node in cluster.nodes.values() {
            let name = zone_key(Some(&node.labels));
            let counts = !node.labels.contains_key(EXCLUDE_DISRUPTION_LABEL);
            let zone = zones.entry(name.clone()).or_default();
            if node.ready == Status::True {
                zone.ready += usize::from(counts);
                continue;
            }
            zone.not_ready += usize::from(counts);
            if node.taint(key(node), NO_EXECUTE).is_some() {
                if self.waiting.contains_key(&node.uid) {
                    self.served.insert(name, now);
                }
                continue;
            }
            let Some(judged) = decisions.nodes.get(&node.name) else {
                continue;
            };
            let is_kept = judged.protection.evictions || judged.if_stale.evictions;
            // What its kubelet had said is not taken back: see `strip_no_execute`.
            if is_kept && node.says_not_ready != Some(true) {
                zone.kept += 1;
            } else if node.ready != Status::Missing
                && judged.decision.may_harm()
                && judged.settings.mode == ModePolicy::Act
            {
                zone.waiting.push(node);
            }
        }
        zones
    }
}

/// The taint that the stock controller gives a node that is not ready.
fn key(node: &NodeFacts) -> &'static str {
    if node.ready == Status::False {
        taints::NOT_READY
    } else {
        taints::UNREACHABLE
    }
}
