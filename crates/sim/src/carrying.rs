//! What an agent does for other cells of its zone: it watches their objects while it carries for them.

use crate::api::Change;
use crate::api::objects::{Object, cluster_key};
use crate::event::{AgentDue, Call, Source};
use crate::sim::Sim;
use evenkeel_api::crd::ZoneChallenge;
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::engine::Input;
use evenkeel_zone::roster::{MemberId, cell_object_name};
use evenkeel_zone::wire::{Challenge, Renewal};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A watch that did not begin, or what is under way when a link fails, is tried again so often.
const AGAIN: u64 = 500;

impl Sim {
    /// The agent follows these cells, and no others.
    pub(crate) fn follow_others(&mut self, node: usize, life: u64, cells: &BTreeSet<u32>) {
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        agent.others.retain(|cell, _| cells.contains(cell));
        let new: Vec<u32> = cells
            .iter()
            .copied()
            .filter(|cell| !agent.others.contains_key(cell))
            .collect();
        for cell in new {
            agent.others.insert(cell, BTreeMap::new());
        }
        self.note(|| format!("agent {node}: carries for cells {cells:?}"));
        for cell in cells {
            self.follow_other(node, life, *cell);
        }
    }

    pub(crate) fn follow_other(&mut self, node: usize, life: u64, cell: u32) {
        let agent = self.agent_of(node, life);
        if agent.is_some_and(|agent| agent.others.get(&cell).is_some_and(BTreeMap::is_empty)) {
            self.request(Source::Agent(node, life), Call::WatchOther { cell });
        }
    }

    pub(crate) fn follow_other_later(&mut self, node: usize, life: u64, cell: u32) {
        self.agent_later(node, life, AGAIN, AgentDue::FollowOther(cell));
    }

    /// Name of the object of a cell in a node's zone.
    pub(crate) fn other_cell(&self, node: usize, cell: u32) -> String {
        let machine = self.machines.get(node.wrapping_sub(1));
        cell_object_name(machine.map_or("", |machine| machine.zone.as_str()), cell)
    }

    /// ZoneHealth and ZoneChallenge of another cell.
    pub(crate) fn other_objects(&self, node: usize, cell: u32) -> [Option<Rc<Object>>; 2] {
        let key = cluster_key(&self.other_cell(node, cell));
        [Kind::Zone, Kind::Challenge].map(|kind| self.store.get(kind, &key).cloned())
    }

    pub(crate) fn follows_other(
        &mut self,
        node: usize,
        life: u64,
        cell: u32,
        objects: [Option<Rc<Object>>; 2],
    ) {
        for object in objects.into_iter().flatten() {
            self.sees_other(node, life, cell, object);
        }
    }

    pub(crate) fn sees_other(&mut self, node: usize, life: u64, cell: u32, object: Rc<Object>) {
        if !self.has_link(node) {
            return self.agent_later(node, life, AGAIN, AgentDue::SeesOther(cell, object));
        }
        let known = self
            .agent_of(node, life)
            .and_then(|agent| agent.others.get_mut(&cell));
        let Some(known) = known.map(|known| known.entry(object.kind()).or_default()) else {
            return;
        };
        let version = object.meta().resource_version.as_deref();
        let version: u64 = version
            .and_then(|version| version.parse().ok())
            .unwrap_or_default();
        if *known >= version {
            return;
        }
        *known = version;
        match &*object {
            Object::Zone(zone) => {
                if let Some(roster) = self.roster_of(zone) {
                    self.feed(node, life, Input::OtherRoster { cell, roster });
                }
            }
            Object::Challenge(asked) => {
                let (challenge, wanted) = asked_of(asked);
                self.feed(
                    node,
                    life,
                    Input::OtherChallenge {
                        cell,
                        challenge,
                        wanted,
                    },
                );
            }
            _ => {}
        }
    }

    /// The last renewal of a member of another cell was read, or could not be.
    pub(crate) fn other_lease_read(
        &mut self,
        node: usize,
        life: u64,
        cell: u32,
        (member, renewal): (MemberId, Option<Renewal>),
    ) {
        let read = Input::OtherLeaseRead {
            cell,
            member,
            renewal,
        };
        self.feed(node, life, read);
    }

    /// A write of a report of another cell ended.
    pub(crate) fn carried(&mut self, node: usize, life: u64, cell: u32, (sequence, written): (i64, bool)) {
        let ended = Input::CarriedWritten {
            cell,
            sequence,
            written,
        };
        self.feed(node, life, ended);
    }

    /// Sends what was written about a cell to the agents that carry for it.
    pub(crate) fn tell_carriers(&mut self, change: &Change) {
        let Some(object) = &change.object else {
            return;
        };
        let mut follow = Vec::new();
        for (place, machine) in self.machines.iter().enumerate() {
            let Some(agent) = &machine.agent else {
                continue;
            };
            let of = |cell: &&u32| cell_object_name(&machine.zone, **cell) == change.key.1;
            if let Some(cell) = agent.others.keys().find(of) {
                follow.push((place + 1, machine.agent_life, *cell));
            }
        }
        for (node, life, cell) in follow {
            let delay = self.rng.between(2, 60);
            self.agent_later(node, life, delay, AgentDue::SeesOther(cell, Rc::clone(object)));
        }
    }
}

/// The challenge, and the members about which rounds are wanted.
pub(crate) fn asked_of(asked: &ZoneChallenge) -> (Challenge, BTreeSet<MemberId>) {
    let challenge = Challenge::from_base64(&asked.spec.current.value).unwrap_or_default();
    let wanted = asked.spec.wanted.iter().map(|uid| MemberId::of(uid));
    (challenge, wanted.collect())
}
