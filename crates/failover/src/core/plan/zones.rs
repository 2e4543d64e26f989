//! Rosters, and what policies are told of themselves.

use super::super::action::{Action, Plan};
use super::super::facts::World;
use super::super::policy::{Policy, effective, selects};
use super::super::roster::{eligible, member, next, zone_of};
use super::Planner;
use evenkeel_api::crd::FailoverPolicyStatus;
use evenkeel_api::zone::RosterMember;
use evenkeel_zone::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// Policies are told what they select this often.
const POLICY_STATUS_MS: u64 = 10_000;

impl Planner {
    /// Wants every roster published that differs from what its zone's nodes and agents say.
    pub(super) fn publish_rosters(&mut self, world: &World, plan: &mut Plan) {
        let mut members: BTreeMap<String, Vec<RosterMember>> = BTreeMap::new();
        for node in world.nodes.values().filter(|node| eligible(&node.labels)) {
            let Some(zone) = zone_of(&node.labels, self.config.default_zone.as_deref()) else {
                continue;
            };
            let agent = world.agents.get(&node.name);
            match agent.map(|agent| member(&node.name, &node.uid, agent)) {
                Some(Ok(member)) => members.entry(zone).or_default().push(member),
                Some(Err(why)) => plan.refused.push(why),
                None => {}
            }
        }
        for zone in world.zones.keys() {
            members.entry(zone.clone()).or_default();
        }
        for (zone, members) in members {
            let current = world.zones.get(&zone).map(|facts| &facts.roster);
            let floor = self.roster_floor.entry(zone.clone()).or_default();
            *floor = current.map_or(0, |roster| roster.version).max(*floor);
            if let Some(roster) = next(current, *floor, members) {
                plan.actions.push(Action::PublishRoster { zone, roster });
            }
        }
    }

    /// Wants policies told which nodes they select and where a more cautious one overrules them.
    pub(super) fn save_policy_statuses(
        &mut self,
        world: &World,
        policies: &[Policy],
        now: Millis,
        plan: &mut Plan,
    ) {
        if self
            .policies_looked_at
            .is_some_and(|at| now.since(at) < POLICY_STATUS_MS)
        {
            return;
        }
        self.policies_looked_at = Some(now);
        let mut matched: BTreeMap<&str, i32> = BTreeMap::new();
        let mut conflicts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in world.nodes.values() {
            for policy in policies
                .iter()
                .filter(|policy| selects(&policy.spec, &node.labels))
            {
                *matched.entry(&policy.name).or_default() += 1;
            }
            for overruled in effective(policies, &node.labels, self.config.profile).1 {
                conflicts
                    .entry(overruled.policy)
                    .or_default()
                    .insert(overruled.text);
            }
        }
        for facts in world.policies.values() {
            let name = &facts.policy.name;
            let status = FailoverPolicyStatus {
                observed_generation: facts.policy.generation,
                matched_nodes: matched.get(name.as_str()).copied().unwrap_or_default(),
                conflicts: conflicts.remove(name).unwrap_or_default().into_iter().collect(),
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
