//! The handle of a running candidate.

use crate::core::{State, StopReason};
use crate::gate::Gate;
use crate::health::{Health, HealthError};
use crate::work::{Work, Works};
use futures::Stream;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A request to a running candidate.
#[derive(Debug)]
pub(crate) enum Request {
    StepDown,
}

/// A running candidate. It is a stream of all changes of [`State`], in order, which ends after
/// [`State::Stopped`]. Dropping it does not end the candidate; cancelling the shutdown token does.
pub struct Election {
    pub(crate) states: mpsc::UnboundedReceiver<State>,
    pub(crate) latest: watch::Receiver<State>,
    pub(crate) renewals: watch::Receiver<()>,
    pub(crate) gate: Gate,
    pub(crate) works: Works,
    pub(crate) health: Health,
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) task: JoinHandle<()>,
}

impl Election {
    /// The present state.
    pub fn state(&self) -> State {
        self.latest.borrow().clone()
    }

    /// A receiver that always holds the present state. It may skip states between two reads.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.latest.clone()
    }

    /// A receiver that changes each time that the lock is acquired or renewed: [`Gate::valid_until`] and
    /// [`Self::expires_at`] are others then, and a renewal is no change of [`State`].
    pub fn renewals(&self) -> watch::Receiver<()> {
        self.renewals.clone()
    }

    /// The next change of state; `None` after the last one. Cancel safe.
    pub async fn next(&mut self) -> Option<State> {
        self.states.recv().await
    }

    /// The gate that every write of a leader must pass: put [`Gate::layer`] around a client, or ask
    /// [`Gate::token`] before any other write.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// A share in the present term's work; `None` when there is no term. Take one before acting as leader and
    /// keep it until the action has ended: the lock is not released before.
    pub fn work(&self) -> Option<Work> {
        self.works.share()
    }

    /// The earliest time on the boot clock at which others may take the lock from this candidate; `None` when
    /// there is no term.
    pub fn expires_at(&self) -> Option<Duration> {
        let machine = self.health.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.expires_at()
    }

    /// Hands over: the guarded work is told to end, the lock is released, and this candidate does not take it
    /// again for a lease duration. A term that was lost is not recovered any more. Nothing happens if there
    /// is no term.
    pub fn step_down(&self) {
        // The request cannot be sent to a candidate that has ended, which does not lead either.
        let _ = self.requests.send(Request::StepDown);
    }

    /// Whether the election loop works; see [`Health::check`].
    pub fn check(&self, tolerance: Duration) -> Result<(), HealthError> {
        self.health.check(tolerance)
    }

    /// The health check of this election, for use elsewhere.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Ends the candidate as a crash would: the gate closes, the guarded work is told to end and not waited
    /// for, the lock is not released, and the stream of states ends without [`State::Stopped`].
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Waits for the end of the candidate and returns the reason; `None` if it was aborted or panicked. A
    /// panic is logged.
    pub async fn stopped(self) -> Option<StopReason> {
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            tracing::error!(%error, "the election's task panicked");
        }
        match &*self.latest.borrow() {
            State::Stopped { reason } => Some(reason.clone()),
            _ => None,
        }
    }
}

impl Stream for Election {
    type Item = State;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<State>> {
        self.states.poll_recv(context)
    }
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election")
            .field("lock", &self.health.lock)
            .field("state", &*self.latest.borrow())
            .finish_non_exhaustive()
    }
}
