//! What the controller writes: rosters, by the planner's own rule over what agents say of themselves;
//! challenges; and the members about which rounds are wanted.

use crate::api::build;
use crate::api::objects::{Object, cluster_key};
use crate::event::Event;
use crate::script::SECOND;
use crate::sim::Sim;
use evenkeel_failover_rules::planner::roster::{Acknowledged, Signs, next};
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::Millis;
use evenkeel_zone::roster::cell_object_name;
use std::sync::Arc;

const CHALLENGES_EVERY: u64 = 10 * SECOND;

impl Sim {
    /// Asks for rounds about whom the reader holds dead, as the planner does while an incident is open: who
    /// returns is acquitted by a round, never because a report leaves it out.
    pub(crate) fn keep_wanted(&mut self, zone: usize) {
        let wanted = self.wanted_in(zone);
        let name = build::zone_name(zone);
        let _ = build::challenge(&mut self.store, self.now, (&name, 0), None, wanted);
    }

    /// Replaces a zone's challenge, as often as the planner does where a member is listed.
    pub(crate) fn keep_challenge(&mut self, zone: usize) {
        let (wanted, name) = (self.wanted_in(zone), build::zone_name(zone));
        let drawn = build::drawn(&mut self.rng, self.now, "keeper");
        let _ = build::challenge(&mut self.store, self.now, (&name, 0), Some(drawn), wanted);
        // As the planner does, each at a time of its own.
        let spread = if self.now == 0 {
            700 * zone as u64 % 5_000
        } else {
            0
        };
        self.after(CHALLENGES_EVERY + spread, Event::Challenge { zone });
        // Learners and rosters that settle wait for time as well as for what agents write.
        self.keep_roster(zone);
    }

    fn wanted_in(&self, zone: usize) -> Vec<String> {
        let held = self
            .reader
            .held_dead()
            .filter(|node| self.script.zone_of(*node) == zone);
        held.map(build::node_uid).collect()
    }

    /// UID of a cell's object.
    pub(crate) fn uid_of_cell(&self, cell: &str) -> String {
        let object = self.store.get(Kind::Zone, &cluster_key(cell));
        let uid = object.and_then(|object| object.meta().uid.clone());
        uid.unwrap_or_default()
    }

    /// Publishes the roster of a zone, if it changed. Who never came up has not said who it is.
    pub(crate) fn keep_roster(&mut self, zone: usize) {
        let key = cluster_key(&build::zone_name(zone));
        let Some(Object::Zone(found)) = self.store.get(Kind::Zone, &key).map(|object| (**object).clone())
        else {
            return;
        };
        let known = build::roster_of(&found);
        let members: Vec<_> = (1..=self.machines.len())
            .filter(|node| self.script.zone_of(*node) == zone)
            .filter_map(|node| {
                let is_known = known
                    .members
                    .iter()
                    .find(|member| member.uid == build::node_uid(node));
                let registers = self
                    .machines
                    .get(node - 1)
                    .is_some_and(|machine| machine.agent.is_some())
                    && self.has_link(node);
                if registers {
                    Some(self.member(node))
                } else {
                    is_known.cloned()
                }
            })
            .collect();
        let now = Millis(self.now);
        let mut progress = self.progress.remove(&zone).unwrap_or_default();
        progress.note(&known, now);
        let object = cell_object_name(&build::zone_name(zone), 0);
        let uid_of_cell = self.uid_of_cell(&object);
        let signs = |uid: &str| {
            let node = build::node_of_uid(uid).unwrap_or_default();
            let Some(machine) = node.checked_sub(1).and_then(|place| self.machines.get(place)) else {
                return Signs::default();
            };
            Signs {
                acknowledged: Acknowledged::read(
                    machine.acknowledged.as_ref(),
                    (&object, &uid_of_cell),
                    &machine.signer.public().to_base64(),
                ),
                renews: machine.powered && machine.kubelet_up && self.has_link(node),
                listed: self.reader.held_dead().any(|dead| dead == node),
            }
        };
        let roster = next(
            (Some(&known), true),
            (members, Vec::new()),
            &signs,
            (&progress, now),
        );
        self.progress.insert(zone, progress);
        let Some(roster) = roster else {
            return;
        };
        let (name, signer) = (build::zone_name(zone), Arc::clone(&self.roster_key));
        let signer = Some((&*signer, self.script.mixed_versions));
        let _ = build::publish(&mut self.store, self.now, (&name, 0), &roster, signer);
    }
}
