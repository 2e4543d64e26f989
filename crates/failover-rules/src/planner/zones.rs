//! Plans the writes of rosters and of the status of policies.

use super::Planner;
use super::action::{Action, Plan};
use super::roster::{eligible, member, next};
use crate::world::facts::Cluster;
use evenkeel_api::crd::FailoverPolicyStatus;
use evenkeel_api::names::zone_of;
use evenkeel_api::zone::{RosterMember, RosterSpec};
use evenkeel_judge::Latch;
use evenkeel_judge::policy::{effective, refused, selects};
use evenkeel_zone::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// The status of policies is written at most this often.
const POLICY_STATUS_MS: u64 = 10_000;

impl Planner {
    /// Plans a write for every zone whose published roster differs from what its nodes and agents say, or
    /// whose published list of wanted members is out of date.
    pub(super) fn publish_zones(&mut self, cluster: &Cluster, plan: &mut Plan) {
        let mut members: BTreeMap<String, Vec<RosterMember>> = BTreeMap::new();
        for node in cluster.nodes.values().filter(|node| eligible(&node.labels)) {
            let Some(zone) = zone_of(&node.labels, self.config.default_zone.as_deref()) else {
                continue;
            };
            let agent = cluster.agents.get(&node.name);
            match agent.map(|agent| member(&node.name, &node.uid, agent)) {
                Some(Ok(member)) => members.entry(zone).or_default().push(member),
                Some(Err(why)) => plan.complaints.push(why),
                None => {}
            }
        }
        for (zone, facts) in &cluster.zones {
            members.entry(zone.clone()).or_insert_with(|| {
                plan.complaints.push(format!(
                    "ZoneHealth {}: no node with an agent is in zone {zone:?}; delete it if the zone is gone",
                    facts.object
                ));
                Vec::new()
            });
        }
        for (zone, members) in members {
            let current = cluster.zones.get(&zone).map(|facts| &facts.roster);
            let readable = current.filter(|roster| roster.has_version());
            let known = cluster.roster_floors.get(&zone).copied().unwrap_or_default();
            let floor = readable.map_or(0, |roster| roster.version).max(known);
            let unreadable = current.filter(|roster| !roster.has_version());
            if let Some(roster) = unreadable.filter(|_| floor == 0) {
                plan.complaints.push(format!(
                    "zone {zone:?}: its roster had version {}, which nobody can follow, and no earlier one is known. \
                     Restart the zone's agents if `evenkeel status zones` shows none of them reporting",
                    roster.version
                ));
            }
            if floor == RosterSpec::LAST_VERSION {
                plan.complaints.push(format!(
                    "zone {zone:?}: its roster has the largest version there is, {floor}, which somebody wrote by hand; \
                     its members can never change again. While no node of the zone is Disconnected or Dark \
                     (`evenkeel status`), delete its ZoneHealth, then restart the controllers and the zone's agents"
                ));
            }
            let changed = next(current, floor, members);
            let roster = changed.as_ref().or(current);
            let wanted = roster
                .map(|roster| self.wanted(&roster.members))
                .unwrap_or_default();
            let asked = cluster.zones.get(&zone).map(|facts| facts.wanted.as_slice());
            let differs = changed.is_some() || asked.is_some_and(|asked| asked != wanted);
            if let (Some(roster), true) = (roster.cloned(), differs) {
                plan.actions.push(Action::PublishZone { zone, roster, wanted });
            }
        }
    }

    /// Members with an open incident or a latch. About them the reporters must hold rounds, because silence
    /// about a member says nothing.
    fn wanted(&self, members: &[RosterMember]) -> Vec<String> {
        let open = |member: &&RosterMember| {
            self.nodes
                .get(&member.uid)
                .is_some_and(|known| known.latch != Latch::Open || known.incident.is_some())
        };
        members
            .iter()
            .filter(open)
            .map(|member| member.uid.clone())
            .collect()
    }

    /// Plans the writes that say in a policy's status which nodes it selects and where a more cautious one
    /// overrules it.
    pub(super) fn save_policy_statuses(&mut self, cluster: &Cluster, now: Millis, plan: &mut Plan) {
        if self
            .policies_looked_at
            .is_some_and(|at| now.since(at) < POLICY_STATUS_MS)
        {
            return;
        }
        self.policies_looked_at = Some(now);
        let mut matched: BTreeMap<&str, i32> = BTreeMap::new();
        let mut conflicts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in cluster.nodes.values() {
            for policy in cluster
                .policies()
                .filter(|policy| selects(&policy.spec, &node.labels))
            {
                *matched.entry(&policy.name).or_default() += 1;
            }
            for overruled in effective(cluster.policies(), &node.labels, self.config.profile).1 {
                conflicts
                    .entry(overruled.policy)
                    .or_default()
                    .insert(overruled.text);
            }
        }
        for facts in cluster.policies.values() {
            let name = &facts.policy.name;
            let status = FailoverPolicyStatus {
                observed_generation: facts.policy.generation,
                matched_nodes: matched.get(name.as_str()).copied().unwrap_or_default(),
                conflicts: conflicts.remove(name).unwrap_or_default().into_iter().collect(),
                refused: refused(&facts.policy.spec),
            };
            if status != facts.status {
                plan.actions.push(Action::SavePolicyStatus {
                    policy: name.clone(),
                    status,
                });
            }
        }
    }
}
