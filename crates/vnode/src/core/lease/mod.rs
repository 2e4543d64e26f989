//! The heartbeat Lease of a node, by the rules of component-helpers' lease controller. Pure.
//!
//! In the steady state a renewal is one request: the Lease that was last written is written again, on the
//! condition that nobody wrote between. Only when that fails is it read.
//!
//! What differs from upstream: after an update that failed (conflicts aside) there is a pause before the
//! next, of 200 ms, doubled, and spread: one process serves ten thousand nodes, whose five updates each, all
//! at once, are what an API server in trouble needs least; the pauses between reads are spread, too; an
//! update that finds no Lease reads and creates at once instead of trying four times more; a reference to an
//! earlier Node of the same name is replaced, so that a Lease does not go with a Node that is no more; the
//! first renewal comes after a random part of the interval, so that the beats of nodes that began together
//! spread.

mod machine;
mod object;

#[cfg(test)]
mod tests;

pub use machine::Machine;

use k8s_openapi::api::coordination::v1::Lease;
use std::sync::Arc;
use std::time::Duration;

/// What all Leases share.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `leaseDurationSeconds`. 40 s.
    pub duration: Duration,
    /// Time between renewals, a quarter of it.
    pub interval: Duration,
    /// `holderIdentity`, where others are to see which process renews. None: the Node's name, as a kubelet
    /// has it, unless another stands there already.
    pub holder: Option<Arc<str>>,
}

impl Default for Settings {
    /// The kubelet's: 40 s and 10 s.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(40),
            interval: Duration::from_secs(10),
            holder: None,
        }
    }
}

/// Whose Lease it is.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Name of the Node and of the Lease.
    pub name: &'a str,
    /// UID of the Node; without it no Lease is created.
    pub uid: Option<&'a str>,
}

/// What happened to a Lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The answer to the request that was asked for.
    Answered(Answer),
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Read the Lease.
    Get,
    /// Create the Lease.
    Create(Box<Lease>),
    /// Update it, with its resourceVersion.
    Update(Box<Lease>),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The Lease as it is now.
    Done(Box<Lease>),
    /// There is none.
    NotFound,
    /// Somebody wrote between, or it exists already.
    Conflict,
    /// Failed otherwise, or no answer in time.
    Failed(String),
}
