//! For how long a node is served.

use evenkeel_election::Gate;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The time in which this replica serves a node. What is asked of the provider for the node is asked in it and ends with
/// it: calls, probes, and the streams of clients. Cheap to clone; clones end together.
///
/// It ends when it is told to, and at once when the gate of the node's slot closes: by the gate's clock, so that a process that
/// was stopped and goes on does nothing more for nodes that another serves meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Term {
    stop: CancellationToken,
    /// Of the node's slot. `None` where there is no other replica.
    gate: Option<Gate>,
    tasks: TaskTracker,
}

impl Term {
    /// Lasts until `stop`, and no longer than `gate` is open.
    pub fn new(stop: CancellationToken, gate: Option<Gate>) -> Self {
        Self {
            stop,
            gate,
            tasks: TaskTracker::new(),
        }
    }

    /// A part of it, which can be ended by itself. Who waits for the end of the whole waits for that of the part.
    #[must_use]
    pub fn part(&self) -> Self {
        Self {
            stop: self.stop.child_token(),
            ..self.clone()
        }
    }

    /// What ends it.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether nothing may be done for the node any more.
    pub fn is_over(&self) -> bool {
        self.stop.is_cancelled() || self.gate.as_ref().is_some_and(|gate| !gate.is_open())
    }

    /// Tasks that [`Term::ended`] waits for.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Something that [`Term::ended`] waits for, until it is dropped.
    pub(crate) fn share(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Does the work; `None` where the term ends first, and then the work is dropped. Each step of it is taken only if the term
    /// is not over.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        // Declared first: the work is dropped before it.
        let _share = self.share();
        let mut stopped = pin!(self.stop.cancelled());
        let mut work = pin!(work);
        poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() || self.is_over() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Waits until nothing is under way any more, for `most` at the longest; tells whether nothing is. To be called once the
    /// term is told to end.
    pub async fn ended(&self, most: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(most, self.tasks.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_election::FencingToken;
    use futures::FutureExt as _;
    use std::cell::Cell;
    use tokio::sync::oneshot;

    fn token() -> FencingToken {
        FencingToken {
            lease_uid: "uid".to_owned(),
            transitions: 1,
        }
    }

    #[tokio::test]
    async fn nothing_is_begun_while_another_replica_may_serve_the_node() {
        let gate = Gate::new();
        let term = Term::new(CancellationToken::new(), Some(gate.clone()));
        let begun = Cell::new(0);
        let work = || async { begun.set(begun.get() + 1) };
        assert_eq!(term.run(work()).await, None);
        gate.open(token(), Duration::MAX);
        assert_eq!(term.run(work()).await, Some(()));
        gate.close();
        assert_eq!((term.run(work()).await, begun.get()), (None, 1));
    }

    #[tokio::test]
    async fn work_that_is_woken_after_the_gate_has_closed_goes_no_further() {
        let gate = Gate::new();
        gate.open(token(), Duration::MAX);
        let term = Term::new(CancellationToken::new(), Some(gate.clone()));
        let (answer, answered) = oneshot::channel();
        let mut work = pin!(term.run(answered));
        assert!(work.as_mut().now_or_never().is_none());
        gate.close();
        answer.send(()).unwrap();
        assert_eq!(work.await, None);
    }

    #[tokio::test]
    async fn the_end_of_what_is_under_way_is_waited_for() {
        let term = Term::default();
        let part = term.part();
        let (held, mut dropped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let work = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            part.run(work).await
        });
        tokio::task::yield_now().await;
        assert!(!term.ended(Duration::from_millis(1)).await);
        assert_eq!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        term.stop().cancel();
        assert!(term.ended(Duration::from_secs(60)).await);
        assert_eq!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(task.await.unwrap(), None);
    }
}
