//! The write gate: a `tower` layer that lets writes through only while this candidate leads.
//!
//! Put it around the client that does the *work*. Do not put it around the elector's own client, which must
//! write while not leading, or around the client that writes Events:
//!
//! ```no_run
//! # fn f(config: kube::Config) -> Result<(), kube::Error> {
//! let gate = evenkeel_election::gate::Gate::new();
//! let work = kube::client::ClientBuilder::try_from(config)?
//!     .with_layer(&gate.layer())
//!     .build();
//! # drop(work); Ok(()) }
//! ```
//!
//! # Rules
//!
//! The rules are those of client-go's write gate (KEP-6361), and in addition the gate checks the time.
//!
//! * `GET`, `HEAD`, `OPTIONS` and `TRACE`, in this spelling, are reads. They always pass, watches included.
//!   Everything else is a write, whatever it does.
//! * A gate is closed until it is opened. It is opened *until a time* on the clock of [`Clock::boot`], which
//!   runs while the machine sleeps. Every write reads that clock. No task has to run in time for the gate to
//!   close: a process that was stopped and goes on finds the gate closed.
//! * While closed, a write fails with [`GateClosed`] without waiting for, or reaching, anything below the
//!   layer.
//! * A write is in flight until its response body was read to its end or dropped. [`Gate::close`] takes the
//!   writes in flight away from their callers and drops them before it returns. This aborts them on the
//!   connection (HTTP/1 closes it, HTTP/2 resets the stream), and the callers get [`GateClosed`], also while
//!   they read a body.
//! * When the time runs out and nobody closes the gate, writes in flight are woken and end in the same way.
//! * Errors of the layers below, and a caller that gives up, pass through unchanged. The request is not
//!   changed.
//! * Of an upgraded connection only the handshake is checked, as a write whatever its method.
//!
//! A write that was cut may have taken effect: nobody can call back a request that has left the machine. How
//! to protect the objects of the next leader from it is described at [`fence`](crate::fence).

use crate::clock::{Clock, SystemClock};
use crate::core::FencingToken;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod registry;
mod service;
mod shared;
mod slot;
mod timer;
mod write;

use registry::Registry;
pub use service::{GateFuture, GateLayer, GateService, GatedBody};
pub use write::WriteBody;

/// Returned when a write was refused or cut because this candidate does not lead, or cannot prove it any
/// more.
///
/// A retry does not help before this candidate leads. The network is not the cause, so do not increase a
/// back-off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("leader election write gate is closed: not leading")]
pub struct GateClosed;

impl GateClosed {
    /// Whether `error` is this one, or was caused by it.
    pub fn caused(error: &(dyn Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<Self>() {
                return true;
            }
            // `source` of an I/O error skips the error that it wraps.
            let wrapped = error
                .downcast_ref::<std::io::Error>()
                .and_then(std::io::Error::get_ref);
            next = match wrapped {
                Some(wrapped) => Some(wrapped),
                None => error.source(),
            };
        }
        false
    }
}

/// Whether a request failed because the gate was, or was being, closed.
pub fn is_gate_closed(error: &kube::Error) -> bool {
    GateClosed::caused(error)
}

/// Returned when another elector uses the gate already. Give each elector a gate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("WriteGate is already in use by another LeaderElector")]
pub struct GateInUse;

/// The gate. Clones are handles of the same one. See the [module](self).
#[derive(Clone)]
pub struct Gate {
    registry: Arc<Registry>,
}

impl Gate {
    /// A closed gate on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// A closed gate on a clock of the caller's, which must be the elector's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            registry: Arc::new(Registry::new(clock)),
        }
    }

    /// The token of the present term, if the gate is open and its time has not run out, by the clock as it is
    /// now.
    pub fn token(&self) -> Option<FencingToken> {
        self.registry.token()
    }

    /// As [`Self::token`]; a refusal is counted in [`Self::rejections`].
    pub fn check(&self) -> Result<FencingToken, GateClosed> {
        self.registry.token().ok_or_else(|| self.registry.refuse())
    }

    /// Whether a write would be let through now.
    pub fn is_open(&self) -> bool {
        self.valid_until().is_some()
    }

    /// Up to when the gate is open, on the clock of [`Clock::boot`]; `None` when it is closed or that has
    /// passed.
    pub fn valid_until(&self) -> Option<Duration> {
        self.registry.valid_until()
    }

    /// Opens the gate until `valid_until` on the clock of [`Clock::boot`], or moves that time on;
    /// `Duration::MAX` is for ever. An earlier time than the present one changes nothing: what was proven
    /// stays proven.
    ///
    /// With another token, or after the time ran out, the writes still in flight are cut as by
    /// [`Self::close`] first: none survives a time in which the gate was shut.
    pub fn open(&self, token: FencingToken, valid_until: Duration) {
        self.registry.open(token, valid_until);
    }

    /// Closes the gate. When this returns, no write is in flight, and none that was can make progress.
    ///
    /// It waits for other threads that are inside the poll of a gated write; such a poll does not block.
    /// Called from inside such a poll, or from the destructor of a write that is being cut, it cannot wait
    /// for itself: then the writes that are being polled end with their poll.
    pub fn close(&self) {
        self.registry.close();
    }

    /// Takes the gate for one elector. It is released, and closed, when the claim is dropped.
    pub fn claim(&self) -> Result<Claim, GateInUse> {
        if self.registry.claim() {
            Ok(Claim { gate: self.clone() })
        } else {
            Err(GateInUse)
        }
    }

    /// The layer to put around the client that does the work; any number of clients share one gate.
    pub fn layer(&self) -> GateLayer {
        GateLayer::new(Arc::clone(&self.registry))
    }

    /// How many writes and [`Self::check`]s were refused. Writes that were cut in flight do not count.
    pub fn rejections(&self) -> u64 {
        self.registry.rejections()
    }

    /// How many writes are in flight.
    pub fn in_flight(&self) -> usize {
        self.registry.in_flight()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("token", &self.token())
            .field("valid_until", &self.valid_until())
            .field("in_flight", &self.in_flight())
            .field("rejections", &self.rejections())
            .finish()
    }
}

/// Proof that an elector has the gate for itself.
#[derive(Debug)]
#[must_use = "the gate is released and closed when the claim is dropped"]
pub struct Claim {
    gate: Gate,
}

impl Claim {
    /// The gate that is held.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Close first: whoever claims the gate next must find it closed.
        self.gate.close();
        self.gate.registry.release();
    }
}

#[cfg(test)]
mod tests;
