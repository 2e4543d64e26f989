//! Simulated candidates on one lock, in virtual time. They check the one rule that matters: no two candidates
//! may act as leader at the same true time.
//!
//! * [`model`] checks every interleaving of two candidates on a coarse grid of time.
//! * [`random`] runs millions of elections of several candidates under seeded faults.
//!
//! Both run the shipping state machine, [`evenkeel_election::core::Machine`], and look at the gate as a write
//! would: it is open if the machine opened it and the candidate's own clock says that the proof still holds.
//! Both can leave a rule out, and then find two leaders: this shows what the rule is for, and that the check
//! can fail.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests draw a seed of their own, and take their depth from the environment"
    )
)]

pub mod model;
pub mod random;
mod register;

/// How a candidate's write finds out whether the gate is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum GateCheck {
    /// The write asks the candidate's own clock: the gate is open until `valid_until`.
    #[default]
    Clock,
    /// The write asks what the election task reported last, as with client-go. A task that is paused reports
    /// nothing new.
    TaskOnly,
}
