//! A running candidate, as its process sees it.

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

/// What the process can ask of a running candidate.
#[derive(Debug)]
pub(crate) enum Request {
    StepDown,
}

/// A running candidate. It is a stream of every change of [`State`], in order and none left out, that ends after
/// [`State::Stopped`]. Dropping it does not end the candidate: its shutdown token does.
pub struct Election {
    pub(crate) states: mpsc::UnboundedReceiver<State>,
    pub(crate) latest: watch::Receiver<State>,
    pub(crate) gate: Gate,
    pub(crate) works: Works,
    pub(crate) health: Health,
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) task: JoinHandle<()>,
}

impl Election {
    /// The state as it is now.
    pub fn state(&self) -> State {
        self.latest.borrow().clone()
    }

    /// The state as a value to watch, for who cares for the present only.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.latest.clone()
    }

    /// The next change; `None` after the last. Cancel safe.
    pub async fn next(&mut self) -> Option<State> {
        self.states.recv().await
    }

    /// What every write of a leader passes: [`Gate::layer`] for a client, [`Gate::token`] for anything else.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// A share in the present term's work; `None` when there is no term. Take one before acting as leader, and keep it
    /// until the acting is over: the lock is not given back before.
    pub fn work(&self) -> Option<Work> {
        self.works.share()
    }

    /// When others may take the lock from us at the earliest, on the boot clock; `None` when there is no term.
    pub fn expires_at(&self) -> Option<Duration> {
        let machine = self.health.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.expires_at()
    }

    /// Hands over: tells the guarded work to end, gives the lock back, and leaves it to the others for a lease duration.
    /// Nothing happens when this candidate does not lead.
    pub fn step_down(&self) {
        // A candidate that has ended leads no more.
        let _ = self.requests.send(Request::StepDown);
    }

    /// Whether the loop keeps up; see [`Health::check`].
    pub fn check(&self, tolerance: Duration) -> Result<(), HealthError> {
        self.health.check(tolerance)
    }

    /// The health check, to hand on.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Ends the candidate as a crash would: the gate closes, the guarded work is told to end and not waited for, nothing
    /// is given back, and the stream of states ends without [`State::Stopped`].
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Waits for the end; the reason, or `None` when the candidate died without one (aborted, or a defect: it is in
    /// the log).
    pub async fn stopped(self) -> Option<StopReason> {
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            tracing::error!(%error, "the election's task died");
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
