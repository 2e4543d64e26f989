//! A model check: every interleaving of two candidates and one register, on a grid of time.
//!
//! A *step* is one thing that happens: a request takes effect, is answered or is given up by its sender; a
//! write takes effect after its sender gave up on it; a candidate wakes, sees a change late or early, ends
//! its work, is told to stop or to hand over, crashes and starts again; or time passes, by a number of
//! seconds that each clock chooses for itself out of [`Grid::advances`]. Nothing *has to* happen at any time,
//! so that delays, lost requests, lost replies, missed changes, and pauses of a whole process (SIGSTOP, a
//! frozen guest) of any length are all among the interleavings.
//!
//! After each step at most one gate may be open, and the token of a gate that opens must be greater than that
//! of every earlier term of another process over the same lock object.
//!
//! States that differ only in the time and in the values of versions, UIDs and time stamps count as one
//! ([`Abstraction`](evenkeel_election::core::Abstraction)). The search is breadth first, so the script that
//! it finds is a shortest one. It is written here, in a hundred lines, because the library for such searches,
//! stateright, cannot be used without its web server.

mod names;
mod node;
mod search;
mod state;
mod step;

pub use search::{Found, Outcome, search};
use state::State;
pub use state::Violation;
use step::Step;
pub use step::Trace;

use crate::GateCheck;
use evenkeel_election::core::{Config, ConfigError};
use std::time::Duration;

/// Timing of both candidates, and by how much time may pass in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Lease duration, in seconds of the candidate's own clock.
    pub lease: u64,
    /// Renew deadline, in seconds of the same clock.
    pub deadline: u64,
    /// Retry period, in seconds of the same clock.
    pub retry: u64,
    /// By how many seconds a clock may move when time passes. Each clock chooses anew at every such step: the
    /// clocks drift at will, with a ratio of rates up to that of the largest to the smallest of these.
    pub advances: &'static [u64],
}

/// A rule that is left out, to show that the check fails without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    /// No rule is left out.
    #[default]
    None,
    /// The gate does not read the clock.
    NoDeadlineCheck,
    /// The register accepts writes over any version.
    NoVersionCheck,
    /// A candidate does not wait for the record of another to expire.
    Impatient,
    /// The proof counts from the answer to a request, not from its start.
    DeadlineFromAnswer,
}

/// How often rare events may happen in one script. Everything else may happen at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// A process dies and starts again at once, under its old identity.
    pub crashes: u8,
    /// A candidate is told to stop: it ends its work, releases the lock, and starts again.
    pub stops: u8,
    /// A candidate is told to hand over.
    pub hand_overs: u8,
    /// An administrator deletes the lock object, once both candidates have seen it. (A process that never saw
    /// a lock takes it as soon as there is none: crashes and stops in the same script let both gates open.)
    pub deletions: u8,
    /// A candidate is told of the lock as it was before it last changed. (As it is, it may be told at any
    /// time.)
    pub stale_changes: u8,
}

/// The settings of a search.
#[derive(Clone, Debug)]
pub struct Model {
    /// Timing of both candidates.
    pub grid: Grid,
    /// How often rare events may happen.
    pub budget: Budget,
    /// The rule that is left out.
    pub mutation: Mutation,
    /// The largest number of steps in a script.
    pub depth: u32,
}

impl Grid {
    /// The coarsest one: 3, 2 and 1 s, clocks alike, a step of 1 s.
    pub const COARSE: Self = Self {
        lease: 3,
        deadline: 2,
        retry: 1,
        advances: &[1],
    };

    /// 6, 4 and 2 s; at every step of time each clock moves by 2 or by 3 s. Lease and deadline are as 3 to 2,
    /// the documented limit for rates.
    pub const DRIFTING: Self = Self {
        lease: 6,
        deadline: 4,
        retry: 2,
        advances: &[2, 3],
    };

    /// Beyond the limit: clocks whose rates are as 2 to 1 with a lease and a deadline that are as 3 to 2.
    pub const BEYOND: Self = Self {
        lease: 6,
        deadline: 4,
        retry: 2,
        advances: &[1, 2],
    };

    fn config(&self, identity: &str) -> Config {
        Config {
            lease_duration: Duration::from_secs(self.lease),
            renew_deadline: Duration::from_secs(self.deadline),
            retry_period: Duration::from_secs(self.retry),
            ..Config::new(identity)
        }
    }
}

impl Model {
    /// A model in which no rule is left out.
    pub fn new(grid: Grid, budget: Budget, depth: u32) -> Self {
        Self {
            grid,
            budget,
            mutation: Mutation::None,
            depth,
        }
    }

    /// The same model with a rule left out.
    #[must_use]
    pub fn without(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// The first state: two candidates that know nothing, and no lock object.
    fn start(&self) -> Result<State, ConfigError> {
        State::new(self)
    }

    fn gate_check(&self) -> GateCheck {
        match self.mutation {
            Mutation::NoDeadlineCheck => GateCheck::TaskOnly,
            _ => GateCheck::Clock,
        }
    }
}

#[cfg(test)]
mod tests;
