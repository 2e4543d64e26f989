//! Cells that nobody speaks for: with few links to the cloud, most of a large zone is protected no more (59).

use crate::api::build::node_name;
use crate::script::{Fault, Group, Script};
use crate::votes::Votes;
use evenkeel_judge::NodeState;
use std::collections::{BTreeMap, BTreeSet};

/// A member with a link speaks for its own cell, and its agent carries eight others.
const OF_EACH_LINK: usize = 1 + 8;

/// The cells of which members lost endpoints, by name of the ZoneHealth.
#[derive(Debug, Default)]
pub(crate) struct Uncarried(BTreeSet<String>);

impl Uncarried {
    /// A node lost an endpoint because it is cut off. Whether its cell may be one that nobody speaks for:
    /// those with links are enough for all others.
    pub(crate) fn may_be(&mut self, script: &Script, votes: &Votes, node: usize) -> bool {
        let Some((cell, _)) = votes.cell_of(node).filter(|_| script.group == Group::Carriers) else {
            return false;
        };
        self.0.insert(cell.to_owned());
        self.spoken_for(votes) >= votes.cells().min(OF_EACH_LINK * linked(script))
    }

    /// Cells of which no member lost an endpoint.
    pub(crate) fn spoken_for(&self, votes: &Votes) -> usize {
        votes.cells() - self.0.len()
    }

    /// A member of such a cell that was never called Dark, which is how people learn of it.
    pub(crate) fn unnamed(
        &self,
        votes: &Votes,
        states: &BTreeMap<String, Vec<(u64, NodeState)>>,
    ) -> Option<String> {
        let members = self.0.iter().flat_map(|cell| votes.members(cell));
        let mut names = members.map(node_name);
        names.find(|name| {
            let states = states.get(name).into_iter().flatten();
            !states.into_iter().any(|(_, state)| *state == NodeState::Dark)
        })
    }
}

fn linked(script: &Script) -> usize {
    let cut = script.steps.iter().filter_map(|step| match step.fault {
        Fault::CutCloud(node) => Some(node),
        _ => None,
    });
    script.nodes() - cut.collect::<BTreeSet<usize>>().len()
}
