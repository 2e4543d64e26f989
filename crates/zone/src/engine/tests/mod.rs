//! Whole zones in virtual time: engines, links, a cloud and a reader.

mod common;
mod datagrams;
mod hazards;
mod link;
mod net;
mod properties;
mod readings;
mod reporters;
mod rosters;
mod scenarios;
mod votes;

use super::{Engine, Input, Output};
use crate::Millis;

impl Engine {
    /// What is to be done on this input.
    fn on(&mut self, now: Millis, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.handle(now, input, &mut out);
        out
    }
}
