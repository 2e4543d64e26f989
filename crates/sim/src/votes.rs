//! What cells publish of their votes: which rounds, and whether a majority of the cell can have voted so.

use crate::api::Change;
use crate::api::build::{node_number, node_of_uid, roster_of};
use crate::api::objects::Object;
use crate::script::Script;
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
}

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

    #[cfg(test)]
    pub(crate) fn of(cells: impl Iterator<Item = (String, std::ops::Range<usize>)>) -> Self {
        let cells = cells.map(|(name, members)| (name, members.collect()));
        Self {
            cells: cells.collect(),
            ..Self::default()
        }
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
        // What a hostile member writes is no verdict of anybody.
        if node_number(&report.reporter).is_some_and(|node| script.is_hostile(node, change.at)) {
            return Vec::new();
        }
        let published = before.map(requests).unwrap_or_default();
        self.rounds += requests(report).difference(&published).count();
        // Where a zone is one cell, its members may be on their way into the roster or out of it.
        let cell = self.cells.get(&cell_object_name(&report.zone, report.cell));
        let cell = cell.filter(|_| self.cells.len() > script.zones.len());
        let now_dead = dead(report);
        let new = now_dead.difference(&known).copied();
        let unjust = |node: &usize| !may_be_convicted(script, cell, *node, change.at);
        new.filter(unjust).collect()
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
