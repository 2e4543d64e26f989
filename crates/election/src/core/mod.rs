//! The pure elector: a record, a clock reading and an answer go in, requests and waits come out.

mod config;
mod elector;
mod record;

pub use config::{Config, ConfigError};
pub use elector::{Action, Elector, Event, Loss, Now, ReadResult, WriteResult};
pub use record::{Observation, Record};

/// Proof of leadership that can be stamped on writes: grows with every change of leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencingToken {
    /// UID of the Lease object.
    pub lease_uid: String,
    /// `leaseTransitions` at the time of taking it.
    pub transitions: i32,
}

/// What a candidate is at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Somebody else leads, or nobody known.
    Following {
        /// Holder of the Lease, if there is one.
        leader: Option<String>,
    },
    /// This candidate leads.
    Leading {
        /// Stamp for writes.
        token: FencingToken,
    },
    /// Ended; not running any more.
    Stopped,
}
