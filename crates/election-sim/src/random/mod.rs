//! Elections by the million, under seeded faults, in virtual time.
//!
//! A run is a series of *worlds*. A world has two to four candidates, and constants drawn from its seed:
//! timing, the range of clock rates, latency, loss, how often something goes wrong. `Fault` lists what
//! does. Each candidate has a boot clock, whose rate changes, and a wall clock, which is set. Nothing is ever
//! duplicated: HTTP requests are not.
//!
//! A gate is open from the moment the machine opens it until the machine closes it or the candidate's own
//! boot clock reaches the end of the proof, whichever comes first; two that are open at one instant of true
//! time break the run. So does a term whose fencing token is not greater than that of the term before over
//! the same lock object, and a world in which, once the faults are over, nobody leads within a bound
//! (`Broken::NobodyLeads`).
//!
//! Two things are promised to nobody and left out: deleting the lock before every running candidate has seen
//! it, or within a lease duration before a new one starts. A process that finds no lock, and never saw one,
//! takes it.

mod candidate;
mod clock;
mod fault;
mod inflict;
mod script;
mod setup;
mod tally;
mod traffic;
mod world;

use fault::Fault;
use script::Line;
pub use setup::Rules;
pub use tally::Tally;

use evenkeel_election::core::FencingToken;
use std::fmt;
use world::World;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Broken {
    /// Two candidates may write.
    #[error("the gate of `{opened}` opens while that of `{open}` is open")]
    TwoOpenGates {
        /// The candidate whose gate opened.
        opened: String,
        /// The candidate whose gate was open already.
        open: String,
    },
    /// A term began with the token of an earlier one.
    #[error("a term begins with {opened}, and {newest} was there before")]
    StaleToken {
        /// The token of the term that began.
        opened: FencingToken,
        /// The token of the newest term until then.
        newest: FencingToken,
    },
    /// Nobody leads long after the last fault.
    #[error("nobody leads long after the last fault")]
    NobodyLeads,
    /// The machine refused the timing that was drawn: the simulation is wrong.
    #[error("the simulation is set up wrongly: {0}")]
    Config(String),
}

/// A world that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the world, with which [`replay`] runs it again.
    pub world: u64,
    /// The settings of the world, in words.
    setup: String,
    /// The rule that was broken.
    broken: Broken,
    /// The last events before that.
    script: Vec<Line>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (world {}: {})", self.broken, self.world, self.setup)?;
        self.script.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counts of all worlds, including the broken one.
    pub tally: Tally,
    /// The first world that broke a rule.
    pub failure: Option<Failure>,
}

/// Runs worlds until this number of elections is reached or a rule is broken. The same arguments give the
/// same run.
pub fn run(rules: Rules, seed: u64, elections: u64) -> Report {
    let mut report = Report::default();
    let mut number = 0_u64;
    while report.tally.elections < elections {
        // Multiplied, so that neighbouring seeds give different worlds.
        let world = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(number)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number += 1;
        let mut running = World::new(rules, world, false);
        let result = running.run();
        report.tally.add(&running.tally);
        if result.is_err() {
            report.failure = replay(rules, world);
            return report;
        }
    }
    report
}

/// Runs one world again and records its events; `None` if it breaks no rule.
pub fn replay(rules: Rules, world: u64) -> Option<Failure> {
    let mut running = World::new(rules, world, true);
    let broken = running.run().err()?;
    Some(Failure {
        world,
        setup: running.setup.to_string(),
        broken,
        script: running.script(),
    })
}

#[cfg(test)]
mod tests;
