//! Cells that nobody speaks for: with few links to the cloud, most of a large zone is protected no more (59).

use crate::api::build::node_name;
use crate::script::{Fault, Group, Script};
use crate::votes::Votes;
use evenkeel_judge::NodeState;
use evenkeel_zone::engine::MOST_CARRIED;
use std::collections::{BTreeMap, BTreeSet};

/// A member with a link speaks for its own cell, and its agent carries others.
const OF_EACH_LINK: usize = 1 + MOST_CARRIED;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::few_links;

    /// 20 cells of three, and one node with a link: eleven cells may go dark, and no more.
    #[test]
    fn one_link_speaks_for_nine_cells_and_whoever_it_does_not_speak_for_is_named() {
        let script = few_links(60, 1, 1);
        let cells = (0..20).map(|cell| (format!("c{cell:02}"), 3 * cell + 1..3 * cell + 4));
        let votes = Votes::of(cells);
        let mut uncarried = Uncarried::default();
        for cell in 0..11 {
            assert!(uncarried.may_be(&script, &votes, 3 * cell + 1), "cell {cell}");
            assert!(uncarried.may_be(&script, &votes, 3 * cell + 2), "cell {cell}");
        }
        assert_eq!(uncarried.spoken_for(&votes), 9);
        let mut states: BTreeMap<String, Vec<(u64, NodeState)>> = (1..=33)
            .map(|node| (node_name(node), vec![(1, NodeState::Dark)]))
            .collect();
        assert_eq!(uncarried.unnamed(&votes, &states), None);
        states.insert(node_name(5), vec![(1, NodeState::Unknown)]);
        assert_eq!(uncarried.unnamed(&votes, &states), Some(node_name(5)));
        assert!(!uncarried.may_be(&script, &votes, 60), "the twelfth cell");
    }
}
