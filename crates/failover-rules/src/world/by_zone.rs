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

/// Who falls silent together does so within this time: faults do not cut all links at once.
const TOGETHER_MS: u64 = 120_000;

/// Members of a cell that may stand on the other side of a split, beside those that died lately.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    /// Convicted earlier, and the death is neither confirmed nor left to stock Kubernetes.
    awaited: usize,
    /// Silent for a short time, and their cell has not said why.
    unaccounted: usize,
}

/// What the cells of a zone show together.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    storm: bool,
    may_be_split: bool,
    may_prove_split: bool,
}

impl Together {
    fn of(cells: &[(Deaths, Missing)]) -> Self {
        let with = |more: fn(&Missing) -> usize| -> Vec<Deaths> {
            let cells = cells.iter().map(|(deaths, missing)| Deaths {
                recent: deaths.recent + more(missing),
                ..*deaths
            });
            cells.collect()
        };
        Self {
            storm: is_storm(&with(|_| 0)),
            may_be_split: may_be_split(&with(|missing| missing.awaited)),
            may_prove_split: may_be_split(&with(|missing| missing.awaited + missing.unaccounted)),
        }
    }
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
        let missing = self.missing_members(&zones.cell_of, timing, now);
        let mut by_zone: BTreeMap<&str, Vec<(Deaths, Missing)>> = BTreeMap::new();
        for (name, cell) in &cells {
            let missing = missing.get(name.as_str()).copied().unwrap_or_default();
            by_zone.entry(cell.zone).or_default().push((cell.deaths, missing));
        }
        let by_zone = by_zone.into_iter();
        let together: BTreeMap<&str, Together> = by_zone
            .map(|(zone, cells)| (zone, Together::of(&cells)))
            .collect();
        for (name, cell) in &cells {
            let together = together.get(cell.zone).copied().unwrap_or_default();
            let evidence = ZoneEvidence {
                reported: cell.reported,
                advanced: cell.advanced,
                some_member_fresh: false,
                some_member_renews: false,
                storm: together.storm,
                may_be_split: together.may_be_split,
                may_prove_split: together.may_prove_split,
                is_returning: cell.is_returning,
                is_alone: cell.members.len() == 1,
            };
            zones.of_cell.insert(name.clone(), evidence);
            // A node of the zone that is in none of its cells: whatever any of them shows.
            let of_zone = zones.of_zone.entry(cell.zone.to_owned()).or_insert(evidence);
            of_zone.is_alone = false;
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
    fn missing_members<'a>(
        &self,
        cell_of: &'a BTreeMap<String, String>,
        timing: &Timing,
        now: Millis,
    ) -> BTreeMap<&'a str, Missing> {
        let mut missing: BTreeMap<&str, Missing> = BTreeMap::new();
        for (name, node) in &self.cluster.nodes {
            let silence = node.life.silent_for(&self.sight.leases, now);
            let is_late = silence.is_some_and(|silence| silence >= timing.overdue_after());
            let Some(cell) = cell_of.get(&node.uid).filter(|_| is_late) else {
                continue;
            };
            let died_lately = || self.zones.book().died_lately(cell, &node.uid, now);
            let memory = self.memories.get(&node.uid).copied().unwrap_or_default();
            let of_cell = missing.entry(cell).or_default();
            match memory.latch {
                Latch::Dead(death) => {
                    let waits = death.confirmed.is_none() && death.slow.is_none();
                    of_cell.awaited += usize::from(waits && !died_lately());
                }
                Latch::Open | Latch::Isolated { .. } => {
                    let life = memory.life.or(node.life.known_since());
                    let lately = life.is_some_and(|life| now.since(life) < TOGETHER_MS);
                    let writes = self
                        .signs
                        .get(name)
                        .is_some_and(|signs| signs.agent.since(now).is_some());
                    let accounted = match self.zones.book().verdict(&node.uid) {
                        Verdict::Alive(alive) => alive.until > now,
                        // This pass latches the death, and counts it among the recent ones.
                        Verdict::Dead(_) | Verdict::OneShort(_) => died_lately(),
                        Verdict::None(_) => false,
                    };
                    of_cell.unaccounted += usize::from(lately && !writes && !accounted);
                }
            }
        }
        missing
    }
}
