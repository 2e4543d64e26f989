//! Timers and attempts.

use super::shared::{Ended, Shared};
use crate::core::{Attempt, Compat, Outcome, Verdict};
use crate::handler::Prober;
use crate::pulse;
use futures::FutureExt as _;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Beyond its time a prober gets this long to say so; then it is given up. More than a call into a container
/// runtime is given beyond its time (two minutes upstream).
const GRACE: Duration = Duration::from_secs(150);

/// Starts what is due.
pub(super) struct Driver<P> {
    shared: Arc<Shared>,
    prober: P,
}

impl<P: Prober> Driver<P> {
    pub(super) fn new(shared: Arc<Shared>, prober: P) -> Self {
        Self { shared, prober }
    }

    /// Runs until the shutdown.
    pub(super) async fn drive(self: Arc<Self>) {
        loop {
            self.launch(None);
            let sleep = match self.shared.plan() {
                Some(due) => tokio::time::sleep_until(self.shared.clock.instant(due)).left_future(),
                None => std::future::pending().right_future(),
            };
            tokio::select! {
                biased;
                () = self.shared.shutdown.cancelled() => break,
                () = self.shared.wake.notified() => {}
                () = sleep => {}
            }
        }
        self.shared.close();
    }

    /// Settles an attempt, and starts all that are due: a permit may be free now.
    fn launch(self: &Arc<Self>, mut ended: Option<Ended>) {
        loop {
            let (attempts, now) = self.shared.attempts(ended.take());
            if attempts.is_empty() {
                return;
            }
            // All of them at once: what is dropped before it runs returns its permit, too.
            let permits: Vec<_> = attempts
                .into_iter()
                .map(|attempt| (Permit::of(&self.shared, &attempt), attempt))
                .collect();
            for (permit, attempt) in permits {
                let task = self.clone().make(permit, attempt, now.mono);
                self.shared.tasks.spawn(task);
            }
        }
    }

    /// Makes one attempt, whatever becomes of it.
    async fn make(self: Arc<Self>, permit: Permit, mut attempt: Attempt, taken: Duration) {
        let shared = &self.shared;
        attempt.lag += shared.clock.now().mono.saturating_sub(taken);
        let limit = GRACE.saturating_add(attempt.probe.timeout.saturating_mul(attempt.tries()));
        // On the heap once, for else each layer around it has room for it: it may be large.
        let probe = AssertUnwindSafe(async { self.prober.probe(&attempt).await })
            .catch_unwind()
            .boxed();
        let watched = async {
            match attempt.compat {
                Compat::Strict => pulse::watch(probe, attempt.probe.timeout, limit).await,
                // A kubelet does not ask whether it was late itself: nobody would look at the beats.
                Compat::Kubelet => (tokio::time::timeout(limit, probe).await.ok(), false),
            }
        };
        let Some((ended, starved)) = shared.shutdown.run_until_cancelled(watched).await else {
            return;
        };
        let outcome = match ended {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => {
                let why = panic_text(&*panic);
                tracing::error!(probe = %attempt.key, panic = why, "a prober panicked: this attempt counts as unknown");
                Outcome::error(Verdict::Unknown, format!("the prober panicked: {why}"))
            }
            None => {
                tracing::error!(probe = %attempt.key, ?limit, "a prober did not end in time: this attempt counts as unknown");
                Outcome::error(
                    Verdict::Unknown,
                    format!("the prober did not end within {limit:?}"),
                )
            }
        };
        let lag = attempt.lag;
        drop(attempt);
        let Some(ticket) = permit.give_up() else { return };
        self.launch(Some(Ended {
            ticket,
            outcome,
            starved,
            lag,
        }));
    }
}

/// An attempt's permit under the limits. Whatever becomes of the attempt's task, the engine is told of its
/// end: a worker whose attempt never ends is never asked again.
struct Permit {
    shared: Arc<Shared>,
    ticket: Option<u64>,
    lag: Duration,
}

impl Permit {
    fn of(shared: &Arc<Shared>, attempt: &Attempt) -> Self {
        Self {
            shared: shared.clone(),
            ticket: Some(attempt.ticket),
            lag: attempt.lag,
        }
    }

    /// The ticket, for who tells the engine himself.
    fn give_up(mut self) -> Option<u64> {
        self.ticket.take()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        // What the shutdown cuts off says nothing about anybody.
        if self.shared.shutdown.is_cancelled() {
            return;
        }
        tracing::error!("the task of an attempt ended too early: this attempt counts as unknown");
        self.shared.settle(Ended {
            ticket,
            outcome: Outcome::error(Verdict::Unknown, "the prober panicked"),
            starved: false,
            lag: self.lag,
        });
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
