//! What the controller writes: rosters, by the planner's own rule over what agents say of themselves;
//! challenges; and the members about which rounds are wanted.

use crate::api::build;
use crate::api::objects::{Object, cluster_key};
use crate::event::{CellKey, Event};
use crate::script::SECOND;
use crate::sim::Sim;
use evenkeel_api::zone::RosterContact;
use evenkeel_failover_rules::planner::contacts::contacts;
use evenkeel_failover_rules::planner::roster::{Acknowledged, Signs, next};
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::Millis;
use evenkeel_zone::roster::cell_object_name;
use std::sync::Arc;

const CHALLENGES_EVERY: u64 = 10 * SECOND;

impl Sim {
    /// Asks for rounds about whom the reader holds dead, as the planner does while an incident is open: who
    /// returns is acquitted by a round, never because a report leaves it out.
    pub(crate) fn keep_wanted(&mut self, (zone, cell): CellKey) {
        let (wanted, name) = (self.wanted_in((zone, cell)), build::zone_name(zone));
        let _ = build::challenge(&mut self.store, self.now, (&name, cell), None, wanted);
    }

    /// Replaces a cell's challenge, as often as the planner does where a member is listed.
    pub(crate) fn keep_challenge(&mut self, (zone, cell): CellKey) {
        let (wanted, name) = (self.wanted_in((zone, cell)), build::zone_name(zone));
        let drawn = build::drawn(&mut self.rng, self.now, "keeper");
        let _ = build::challenge(&mut self.store, self.now, (&name, cell), Some(drawn), wanted);
        // As the planner does, each at a time of its own.
        let spread = if self.now == 0 {
            700 * (zone as u64 + u64::from(cell)) % 5_000
        } else {
            0
        };
        self.after(CHALLENGES_EVERY + spread, Event::Challenge((zone, cell)));
        // Learners and rosters that settle wait for time as well as for what agents write.
        self.keep_roster((zone, cell));
    }

    fn wanted_in(&self, cell: CellKey) -> Vec<String> {
        let held = self.reader.held_dead();
        let held = held.filter(|node| self.cell_key(*node) == cell);
        held.map(build::node_uid).collect()
    }

    /// The nodes of the cell whose ZoneHealth has this name.
    pub(crate) fn nodes_of_cell(&self, object: &str) -> Vec<usize> {
        let mut cells = self.cells.iter();
        let found =
            cells.find(|((zone, cell), _)| cell_object_name(&build::zone_name(*zone), *cell) == object);
        found.map(|(_, nodes)| nodes.clone()).unwrap_or_default()
    }

    /// Whom a cell's roster names of other cells: chosen by the planner's rule, after which they stay,
    /// because no cell changes. Each is named as it is now.
    fn contacts_of(&self, (zone, cell): CellKey, known: &[RosterContact]) -> Vec<RosterContact> {
        let of_now = |contact: &RosterContact| {
            let node = build::node_of_uid(&contact.uid)?;
            Some(RosterContact::from(&self.member(node)))
        };
        // Where there is one cell, nobody is in another one.
        if !known.is_empty() || self.cells_of(zone).count() == 1 {
            return known.iter().filter_map(of_now).collect();
        }
        let nodes = || self.cells_of(zone).flat_map(|(_, nodes)| nodes);
        let uids = |nodes: &Vec<usize>| nodes.iter().map(|node| build::node_uid(*node)).collect();
        let cells = self.cells_of(zone).map(|((_, cell), nodes)| (*cell, uids(nodes)));
        let members = nodes().map(|node| (build::node_uid(*node), self.member(*node)));
        let object = cell_object_name(&build::zone_name(zone), cell);
        contacts((&object, cell), known, &cells.collect(), &members.collect())
    }

    /// UID of a cell's object.
    pub(crate) fn uid_of_cell(&self, cell: &str) -> String {
        let object = self.store.get(Kind::Zone, &cluster_key(cell));
        let uid = object.and_then(|object| object.meta().uid.clone());
        uid.unwrap_or_default()
    }

    /// Publishes the roster of a cell, if it changed. Who never came up has not said who it is.
    pub(crate) fn keep_roster(&mut self, (zone, cell): CellKey) {
        let object = cell_object_name(&build::zone_name(zone), cell);
        let key = cluster_key(&object);
        let Some(Object::Zone(found)) = self.store.get(Kind::Zone, &key).map(|object| (**object).clone())
        else {
            return;
        };
        let known = build::roster_of(&found);
        let nodes = self.cells.get(&(zone, cell)).into_iter().flatten();
        let members: Vec<_> = nodes
            .copied()
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
        let mut progress = self.progress.remove(&(zone, cell)).unwrap_or_default();
        progress.note(&known, now);
        let contacts = self.contacts_of((zone, cell), &known.contacts);
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
            (members, contacts),
            &signs,
            (&progress, now),
        );
        self.progress.insert((zone, cell), progress);
        let Some(roster) = roster else {
            return;
        };
        let (name, signer) = (build::zone_name(zone), Arc::clone(&self.roster_key));
        let signer = Some((&*signer, self.script.mixed_versions));
        let _ = build::publish(&mut self.store, self.now, (&name, cell), &roster, signer);
    }
}
