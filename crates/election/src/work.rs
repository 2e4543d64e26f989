//! The work that leadership guards: it is told to end with its term, and waited for before the lock is
//! released.

use crate::core::FencingToken;
use crate::terms::TermFile;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A share in the work of one term. As long as one exists, the lock is not released, but at most for a lease
/// duration after the work was told to end. Drop it when the work has ended. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Work {
    token: FencingToken,
    stop: CancellationToken,
    _share: TaskTrackerToken,
    /// What this process held has not ended before its work has.
    _terms: Option<TermFile>,
}

impl Work {
    /// The fencing token of the term, to stamp on writes.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// Resolves when the term ends: finish or give up what is under way, then drop every share. While
    /// leadership is lost and may be recovered, the term goes on and its writes are refused.
    pub fn stopped(&self) -> WaitForCancellationFuture<'_> {
        self.stop.cancelled()
    }

    /// The same as a cancellation token, for use elsewhere.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

struct Term {
    token: FencingToken,
    stop: CancellationToken,
    shares: TaskTracker,
}

/// The work of the present term.
#[derive(Clone, Default)]
pub(crate) struct Works {
    term: Arc<Mutex<Option<Term>>>,
    terms: Option<TermFile>,
}

impl Works {
    pub(crate) fn new(terms: Option<TermFile>) -> Self {
        Self {
            term: Arc::default(),
            terms,
        }
    }

    /// A share in the present term.
    pub(crate) fn share(&self) -> Option<Work> {
        let term = self.lock();
        let term = term.as_ref().filter(|term| !term.stop.is_cancelled())?;
        Some(Work {
            token: term.token.clone(),
            stop: term.stop.clone(),
            _share: term.shares.token(),
            _terms: self.terms.clone(),
        })
    }

    /// Begins a term, unless it is the present one.
    pub(crate) fn begin(&self, token: &FencingToken) {
        let mut present = self.lock();
        if present.as_ref().is_some_and(|term| term.token == *token) {
            return;
        }
        let next = Term {
            token: token.clone(),
            stop: CancellationToken::new(),
            shares: TaskTracker::new(),
        };
        if let Some(last) = present.replace(next) {
            last.stop.cancel();
        }
    }

    /// Ends the term: asks its work to end. The future resolves when all shares have been dropped.
    pub(crate) fn end(&self) -> BoxFuture<'static, ()> {
        let Some(term) = self.lock().take() else {
            return Box::pin(std::future::ready(()));
        };
        term.stop.cancel();
        term.shares.close();
        Box::pin(async move { term.shares.wait().await })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Term>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn token(transitions: i32) -> FencingToken {
        FencingToken {
            lease_uid: "u".into(),
            transitions,
        }
    }

    #[tokio::test]
    async fn the_end_of_a_term_waits_for_every_share() {
        let works = Works::default();
        assert!(works.share().is_none());
        works.begin(&token(1));
        let one = works.share().unwrap();
        let two = one.clone();
        works.begin(&token(1));
        assert!(one.stopped().now_or_never().is_none(), "the same term goes on");
        let mut ended = works.end();
        assert!(one.stopped().now_or_never().is_some() && works.share().is_none());
        assert!((&mut ended).now_or_never().is_none());
        drop(one);
        assert!((&mut ended).now_or_never().is_none());
        drop(two);
        ended.await;
        works.end().await;
    }

    #[tokio::test]
    async fn another_term_ends_the_work_of_the_last_one() {
        let works = Works::default();
        works.begin(&token(1));
        let old = works.share().unwrap();
        works.begin(&token(2));
        assert!(old.stopped().now_or_never().is_some());
        assert_eq!(*works.share().unwrap().token(), token(2));
    }
}
