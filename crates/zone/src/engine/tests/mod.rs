//! Whole zones in virtual time: engines, links, a cloud and a reader.

mod carriers;
mod changes;
mod common;
mod datagrams;
mod floods;
mod hazards;
mod link;
mod moves;
mod net;
mod properties;
mod readings;
mod reporters;
mod rosters;
mod rotation;
mod scenarios;
mod votes;

use super::{Engine, Input, Met, Output};
use crate::Millis;
use crate::fixture::Fixture;
use crate::roster::Roster;
use crate::wire::Frame;

/// What an agent remembers that has met these nodes, and whose checks have found them.
fn met(roster: &Roster, nodes: impl IntoIterator<Item = usize>) -> Met {
    let mut met = Met::default();
    for member in nodes.into_iter().filter_map(|node| roster.get(Fixture::id(node))) {
        met.note_seen_alive(member);
        met.note_found(member);
    }
    met
}

/// A datagram arrives from where its author is; nobody relayed it.
fn heard(bytes: &[u8]) -> Input<'_> {
    let author = Frame::parse(bytes).ok().map(|frame| frame.from());
    let node = (1..=64).find(|node| author == Some(Fixture::id(*node)));
    Input::Datagram(bytes, Fixture::address(node.unwrap_or(99)))
}

impl Engine {
    /// What is to be done on this input.
    fn on(&mut self, now: Millis, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.handle(now, input, &mut out);
        out
    }
}
