//! The cells of zones: as a run begins with them, and as the others find them.

use crate::api::build;
use crate::api::objects::{Object, cluster_key};
use crate::event::CellKey;
use crate::script::Level;
use crate::sim::Sim;
use evenkeel_failover_rules::planner::cells::{self, divide};
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::roster::cell_object_name;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

impl Sim {
    /// Publishes a zone of these nodes, some of which join later.
    pub(crate) fn build_zone(&mut self, zone: usize, mut nodes: Vec<usize>, later: &[usize]) {
        let (name, key) = (build::zone_name(zone), Arc::clone(&self.roster_key));
        let is_there = |node: &usize| !later.contains(node);
        if self.level != Level::Zones {
            // The planners place who joins.
            nodes.retain(is_there);
            for node in &nodes {
                let member = self.member(*node);
                build::node(&mut self.store, 0, &name, &member);
            }
        }
        for (number, nodes) in self.divided(nodes) {
            let members = nodes.iter().copied().filter(is_there);
            let members = members.map(|node| self.member(node)).collect();
            let signer = Some((&*key, self.script.mixed_versions));
            build::cell(&mut self.store, (&name, number), members, signer);
            if self.level == Level::Zones {
                for node in &nodes {
                    if let Some(machine) = self.machines.get_mut(node - 1) {
                        machine.cell = number;
                    }
                }
                self.cells.insert((zone, number), nodes);
            }
        }
        let cells: Vec<CellKey> = self.cells_of(zone).map(|(key, _)| *key).collect();
        for cell in cells {
            self.keep_challenge(cell);
        }
    }

    /// How the nodes of a zone are divided. What is one cell with planners is one without them.
    fn divided(&self, nodes: Vec<usize>) -> BTreeMap<u32, Vec<usize>> {
        let one = self.level != Level::System && nodes.len() <= cells::LARGEST;
        if one || nodes.is_empty() {
            return BTreeMap::from([(0, nodes)]);
        }
        let present = nodes.iter().map(|node| (build::node_uid(*node), String::new()));
        let division = divide(&cells::Zone {
            present: present.collect(),
            ..cells::Zone::default()
        });
        let of = |uids: BTreeSet<String>| {
            let nodes: BTreeSet<usize> = uids.iter().filter_map(|uid| build::node_of_uid(uid)).collect();
            nodes.into_iter().collect()
        };
        let cells = division.cells.into_iter();
        cells.map(|(number, uids)| (number, of(uids))).collect()
    }

    /// The cells of a zone, in a run of zones alone.
    pub(crate) fn cells_of(&self, zone: usize) -> impl Iterator<Item = (&CellKey, &Vec<usize>)> {
        self.cells.range((zone, 0)..=(zone, u32::MAX))
    }

    /// The cell of a node, in a run of zones alone.
    pub(crate) fn cell_key(&self, node: usize) -> CellKey {
        let cell = self
            .machines
            .get(node.wrapping_sub(1))
            .map(|machine| machine.cell);
        (self.script.zone_of(node), cell.unwrap_or_default())
    }

    /// Name of the ZoneHealth of the node's cell: as its agent was told, else the zone's first. In a run of
    /// zones alone agents know it.
    pub(crate) fn cell_of(&self, node: usize) -> String {
        let agent = self.store.get(Kind::Agent, &cluster_key(&build::node_name(node)));
        let told = agent.and_then(|agent| match &**agent {
            Object::Agent(agent) => agent.status.as_ref().map(|status| status.cell.clone()),
            _ => None,
        });
        let machine = self.machines.get(node.wrapping_sub(1));
        let known = || machine.map(|machine| cell_object_name(&machine.zone, machine.cell));
        told.filter(|told| !told.is_empty())
            .or_else(known)
            .unwrap_or_default()
    }

    /// The object of that kind about the node's cell, as it stands or stood a while ago.
    pub(crate) fn cell_object(&self, kind: Kind, node: usize, age: u64) -> Option<Rc<Object>> {
        let key = cluster_key(&self.cell_of(node));
        if age > 0 {
            return self.store.as_of(kind, &key, self.now.saturating_sub(age));
        }
        self.store.get(kind, &key).cloned()
    }
}
