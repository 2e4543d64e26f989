//! What cells publish of their votes: which rounds, and whether a majority of the cell can have voted so.

use crate::api::Change;
use crate::api::build::{node_of_uid, roster_of};
use crate::api::objects::Object;
use crate::script::{SECOND, Script};
use crate::sight::may_be_convicted;
use evenkeel_api::crd::ZoneReportSpec;
use evenkeel_api::zone::VerdictKind;
use evenkeel_zone::roster::cell_object_name;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Debug, Default)]
pub(crate) struct Votes {
    /// Members of each cell, by name of its ZoneHealth.
    cells: BTreeMap<String, BTreeSet<usize>>,
    rounds: usize,
    /// By cell: when which node was last newly called dead.
    convicted: BTreeMap<String, BTreeMap<usize, u64>>,
}

/// As long as a storm is counted, less the time from a report to a decision.
const TOGETHER: u64 = 50 * SECOND;

impl Votes {
    /// Rounds that were published so far.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// The cell that a node is in, where zones have several: its name and its members.
    pub(crate) fn cell_of(&self, node: usize) -> Option<(&str, &BTreeSet<usize>)> {
        let several = self.cells.len() > 1;
        let mut cells = self.cells.iter();
        let cell = cells.find(|(_, cell)| several && cell.contains(&node));
        cell.map(|(name, members)| (name.as_str(), members))
    }

    /// How many cells there are.
    pub(crate) fn cells(&self) -> usize {
        self.cells.len()
    }

    pub(crate) fn members(&self, cell: &str) -> impl Iterator<Item = usize> {
        self.cells.get(cell).into_iter().flatten().copied()
    }

    pub(crate) fn roster(&mut self, change: &Change) {
        let Some(Object::Zone(zone)) = change.object.as_deref() else {
            self.cells.remove(&change.key.1);
            return;
        };
        let members = roster_of(zone).members;
        let nodes = members.iter().filter_map(|member| node_of_uid(&member.uid));
        self.cells.insert(change.key.1.clone(), nodes.collect());
    }

    /// The nodes that a report newly calls dead, though no majority of its cell can have missed them (S4).
    pub(crate) fn report(&mut self, script: &Script, change: &Change) -> Vec<usize> {
        let (before, after) = (
            report_of(change.before.as_ref()),
            report_of(change.object.as_ref()),
        );
        let (known, Some(report)) = (before.map(dead).unwrap_or_default(), after) else {
            return Vec::new();
        };
        let published = before.map(requests).unwrap_or_default();
        self.rounds += requests(report).difference(&published).count();
        // Where a zone is one cell, its members may be on their way into the roster or out of it.
        let cell = self.cells.get(&cell_object_name(&report.zone, report.cell));
        let cell = cell.filter(|_| self.cells.len() > script.zones.len());
        let new: Vec<usize> = dead(report).difference(&known).copied().collect();
        let convicted = self
            .convicted
            .entry(cell_object_name(&report.zone, report.cell))
            .or_default();
        convicted.extend(new.iter().map(|node| (*node, change.at)));
        let unjust = |node: &usize| !may_be_convicted(script, cell, *node, change.at);
        new.into_iter().filter(unjust).collect()
    }

    /// Whether two cells or more convicted members shortly before, together more than 25 % of theirs: then
    /// nobody can tell a split from deaths (42).
    pub(crate) fn may_be_split(&self, at: u64) -> bool {
        let lately = |dead: &BTreeMap<usize, u64>| {
            let lately = dead.values().filter(|since| **since + TOGETHER >= at);
            lately.count()
        };
        let cells = self.convicted.iter();
        let cells = cells.map(|(cell, dead)| (lately(dead), self.cells.get(cell).map_or(0, BTreeSet::len)));
        let convicting: Vec<(usize, usize)> = cells.filter(|(dead, _)| *dead > 0).collect();
        let (dead, members) = convicting
            .iter()
            .fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
        convicting.len() > 1 && 4 * dead > members
    }
}

fn report_of(object: Option<&Rc<Object>>) -> Option<&ZoneReportSpec> {
    match object.map(|object| &**object) {
        Some(Object::Report(report)) => Some(&report.spec),
        _ => None,
    }
}

fn dead(spec: &ZoneReportSpec) -> BTreeSet<usize> {
    let nodes = spec.report.nodes.iter();
    let dead = nodes.filter(|node| node.verdict == VerdictKind::Dead);
    dead.filter_map(|node| node_of_uid(&node.uid)).collect()
}

fn requests(spec: &ZoneReportSpec) -> BTreeSet<&str> {
    let rounds = spec.report.rounds.iter();
    rounds.map(|round| round.request.as_str()).collect()
}
