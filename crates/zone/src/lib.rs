//! Decides whether a node is dead, or only cut off from the cloud: the nodes of its zone vote, and a majority
//! answers within seconds.
//!
//! This crate is pure: it takes bytes, facts and a time, and returns bytes to send and things to do. It reads
//! no clock, no socket, no environment and no random source; signing and verifying are functions of their
//! inputs.

#[cfg(test)]
mod decoder_tests;
pub mod engine;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod keys;
pub mod roster;
pub mod verdict;
pub mod vote;
pub mod wire;

/// Milliseconds on some monotonic clock of the caller; only differences mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// This instant plus `ms` milliseconds.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant, 0 if it lies ahead.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
