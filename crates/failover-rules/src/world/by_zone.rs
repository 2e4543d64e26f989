//! What the nodes of a cell, and of a zone, have in common; gathered once per look.

use super::World;
use crate::planner::roster::eligible;
use evenkeel_api::names::zone_of;
use evenkeel_judge::evidence::{Lease, ZoneEvidence};
use evenkeel_judge::{Latch, Timing};
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Deaths, Verdict, is_storm, may_be_split};
use std::collections::BTreeMap;

#[cfg(test)]
#[path = "by_zone_tests.rs"]
mod tests;

#[derive(Default)]
pub(super) struct ZonesOfNodes {
    /// Zone by node name.
    pub(super) of_node: BTreeMap<String, String>,
    /// Nodes of each zone that count for the storm guard.
    pub(super) size: BTreeMap<String, usize>,
    /// Cell by UID of the member.
    cell_of: BTreeMap<String, String>,
    of_cell: BTreeMap<String, ZoneEvidence>,
    of_zone: BTreeMap<String, ZoneEvidence>,
}

/// Members of a cell that may stand on the other side of a split.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    /// Convicted, and the death is neither confirmed nor left to stock Kubernetes.
    convicted: usize,
    /// Silent, and their cell has said nothing of them.
    unaccounted: usize,
}

impl ZonesOfNodes {
    /// What is known of the node's cell; of its zone, where the node is in no cell.
    pub(super) fn evidence(&self, node_uid: &str, zone: &str) -> ZoneEvidence {
        let cell = self.cell_of.get(node_uid).and_then(|cell| self.of_cell.get(cell));
        cell.or_else(|| self.of_zone.get(zone))
            .copied()
            .unwrap_or_default()
    }
}

impl World {
    pub(super) fn zones_of_nodes(&self, timing: &Timing, now: Millis) -> ZonesOfNodes {
        let mut zones = ZonesOfNodes::default();
        let cells = self.zones.look(now);
        for (name, cell) in &cells {
            for uid in cell.members {
                zones.cell_of.insert(uid.clone(), name.clone());
            }
        }
        let missing = self.possibly_split(&zones.cell_of, timing, now);
        let mut deaths: BTreeMap<&str, Vec<Deaths>> = BTreeMap::new();
        let mut silent: BTreeMap<&str, Vec<Deaths>> = BTreeMap::new();
        for (name, cell) in &cells {
            let missing = missing.get(name.as_str()).copied().unwrap_or_default();
            deaths.entry(cell.zone).or_default().push(cell.deaths);
            silent.entry(cell.zone).or_default().push(Deaths {
                recent: cell.deaths.recent.max(missing.convicted) + missing.unaccounted,
                ..cell.deaths
            });
        }
        for (name, cell) in &cells {
            let of_zone =
                |sums: &BTreeMap<&str, Vec<Deaths>>| sums.get(cell.zone).cloned().unwrap_or_default();
            let (dead, silent) = (of_zone(&deaths), of_zone(&silent));
            let evidence = ZoneEvidence {
                reported: cell.reported,
                advanced: cell.advanced,
                some_member_fresh: false,
                some_member_renews: false,
                storm: is_storm(&dead),
                may_be_split: may_be_split(&dead),
                may_prove_split: may_be_split(&silent),
                is_returning: cell.is_returning,
            };
            zones.of_cell.insert(name.clone(), evidence);
            // A node of the zone that is in none of its cells: whatever any of them shows.
            let of_zone = zones.of_zone.entry(cell.zone.to_owned()).or_insert(evidence);
            of_zone.reported |= cell.reported;
            of_zone.advanced = of_zone.advanced.max(cell.advanced);
        }
        for (name, node) in &self.cluster.nodes {
            // Nodes of no zone share one ledger: they have no neighbours, but they can fail together too.
            let zone = zone_of(&node.labels, self.config.default_zone.as_deref()).unwrap_or_default();
            if eligible(&node.labels) {
                *zones.size.entry(zone.clone()).or_default() += 1;
            }
            let lease = node.life.lease(&self.sight.leases, timing, now);
            if let Some(cell) = zones.cell_of.get(&node.uid) {
                let of_cell = zones.of_cell.get_mut(cell);
                for evidence in of_cell.into_iter().chain(zones.of_zone.get_mut(&zone)) {
                    evidence.some_member_fresh |= lease != Lease::Stale;
                    evidence.some_member_renews |= lease == Lease::Fresh;
                }
            }
            zones.of_node.insert(name.clone(), zone);
        }
        zones
    }

    /// Members who may be dead or on the other side of a split, by name of their cell.
    fn possibly_split<'a>(
        &self,
        cell_of: &'a BTreeMap<String, String>,
        timing: &Timing,
        now: Millis,
    ) -> BTreeMap<&'a str, Missing> {
        let mut missing: BTreeMap<&str, Missing> = BTreeMap::new();
        let silent = self.cluster.nodes.values().filter(|node| {
            let silence = node.life.silent_for(&self.sight.leases, now);
            silence.is_some_and(|silence| silence >= timing.overdue_after())
        });
        for node in silent {
            let Some(cell) = cell_of.get(&node.uid) else {
                continue;
            };
            let of_cell = missing.entry(cell).or_default();
            match self.zones.book().verdict(&node.uid) {
                Verdict::Alive(alive) if alive.until > now => {}
                Verdict::Alive(_) | Verdict::None(_) => of_cell.unaccounted += 1,
                Verdict::Dead(_) | Verdict::OneShort(_) => {
                    let latch = self.memories.get(&node.uid).map(|memory| memory.latch);
                    let waits = |latch| matches!(latch, Latch::Dead(death) if death.confirmed.is_none() && death.slow.is_none());
                    of_cell.convicted += usize::from(latch.is_some_and(waits));
                }
            }
        }
        missing
    }
}
