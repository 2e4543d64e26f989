//! Simulated candidates on one lock, in virtual time: proof and counter-proof of the one rule that matters, that no two
//! of them may act as leader at the same true time.
//!
//! * [`model`]: every interleaving of two candidates on a coarse grid of time.
//! * [`random`]: elections by the million, of several candidates under seeded faults.
//!
//! Both ask the gate as a write would: it is open if the machine opened it, and the candidate's own clock says that the
//! proof still holds. Both can be told to leave a rule out, and then find what the rule is for.

pub mod model;
pub mod random;
mod register;

pub use register::{Missing, Refused, Register};

/// How a write finds out whether it may pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Judge {
    /// By the candidate's own clock, at the write: open until `valid_until`.
    #[default]
    Clock,
    /// By what the election task last said, as with client-go: a paused task has said nothing new.
    TaskOnly,
}
