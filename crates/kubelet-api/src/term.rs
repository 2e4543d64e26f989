//! The time in which a node is served.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The time in which this process serves a node. What is asked of whoever runs its pods is asked in it and
/// ends with it: calls, probes, and the streams of clients. Cheap to clone; clones end together.
///
/// It ends when its token is cancelled, and as soon as its condition does not hold. The condition is for
/// processes that share nodes: it is checked before each step of the work, so that a process that was stopped
/// and goes on does nothing more for nodes that another serves meanwhile.
#[derive(Clone, Default)]
pub struct Term {
    stop: CancellationToken,
    /// `None` where no other process may serve the node.
    holds: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    tasks: TaskTracker,
}

impl Term {
    /// Lasts until `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            holds: None,
            tasks: TaskTracker::new(),
        }
    }

    /// It is over whenever `holds` returns false, too. `holds` is called often, and returns at once.
    #[must_use]
    pub fn only_while(self, holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            holds: Some(Arc::new(holds)),
            ..self
        }
    }

    /// A part of it, which can be ended by itself. Who waits for the end of the whole waits for that of the
    /// part.
    #[must_use]
    pub fn part(&self) -> Self {
        Self {
            stop: self.stop.child_token(),
            ..self.clone()
        }
    }

    /// The token that ends it.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether nothing may be done for the node any more.
    pub fn is_over(&self) -> bool {
        self.stop.is_cancelled() || self.holds.as_ref().is_some_and(|holds| !holds())
    }

    /// Tasks that [`Term::ended`] waits for.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Something that [`Term::ended`] waits for, until it is dropped.
    pub fn share(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Does the work; `None` where the term ends first, and then the work is dropped. Each step of it is
    /// taken only if the term is not over.
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

    /// Waits until nothing is under way any more, for `most` at the longest; returns whether nothing is. To
    /// be called after the token was cancelled.
    pub async fn ended(&self, most: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(most, self.tasks.wait()).await.is_ok()
    }
}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Term")
            .field("over", &self.is_over())
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}
