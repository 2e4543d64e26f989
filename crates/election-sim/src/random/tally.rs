//! Counts of a run.

use super::fault::Fault;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Worlds run to their end.
    pub(super) worlds: u64,
    /// Terms that began: gates that opened with a new token.
    pub(super) elections: u64,
    /// Of these, won by another candidate than the one before.
    pub(super) take_overs: u64,
    /// Terms that were lost and recovered.
    pub(super) recoveries: u64,
    /// Requests that reached the register.
    pub(super) requests: u64,
    /// Virtual time that has passed.
    pub(super) time: Duration,
    /// The number of faults of each kind.
    pub(super) faults: BTreeMap<Fault, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.elections += other.elections;
        self.take_overs += other.take_overs;
        self.recoveries += other.recoveries;
        self.requests += other.requests;
        self.time += other.time;
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} elections ({} of them take-overs by another candidate), {} recoveries, {} requests, {} worlds, {:.1} days of virtual time",
            self.elections,
            self.take_overs,
            self.recoveries,
            self.requests,
            self.worlds,
            self.time.as_secs_f64() / 86_400.0,
        )?;
        f.write_str("faults:")?;
        for (place, (fault, count)) in self.faults.iter().enumerate() {
            write!(f, "{} {count} {fault}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
