//! Bad input, each with what an operator reads of it, and what becomes of the candidate: none panics, none
//! leads beside another, and what can be repaired is recovered from.
//!
//! In virtual time throughout: a candidate, its gate and its lock go by a clock on tokio's paused time.

mod access;
mod clocks;
mod deleted;
mod durations;
mod malformed;
mod outage;
mod stage;
