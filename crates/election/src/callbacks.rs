//! client-go's callbacks, on top of the stream of states.

use crate::core::State;
use crate::work::{Work, Works};
use futures::future::{BoxFuture, FutureExt as _};
use std::panic::AssertUnwindSafe;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

type Started = Box<dyn FnMut(Work) -> BoxFuture<'static, ()> + Send>;
type Stopped = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;
type NewLeader = Box<dyn FnMut(String) -> BoxFuture<'static, ()> + Send>;

/// Functions that are called when leadership changes. The election never waits for them. They run in order
/// and one at a time, except `on_started_leading`, which runs beside the others.
///
/// As in client-go, `on_stopped_leading` is called at each loss, and at the end of the candidate unless its
/// term was lost before; this includes a candidate that never led. The gate is closed by then.
/// `on_new_leader` is called with each new holder, this candidate included, and with an empty name when the
/// lock was released.
pub struct Callbacks {
    started: Started,
    stopped: Stopped,
    new_leader: NewLeader,
}

/// A change that the callbacks are called for.
#[derive(Debug)]
pub(crate) enum Notice {
    State(State),
    NewLeader(String),
}

impl Callbacks {
    /// `on_started_leading` receives a share in the term's work and should end soon after [`Work::stopped`].
    /// If it ends earlier, the candidate goes on leading; if it panics, the candidate hands over, because
    /// nobody would do the work. `on_stopped_leading` is called at every loss.
    pub fn new<F, G>(
        mut on_started_leading: impl FnMut(Work) -> F + Send + 'static,
        mut on_stopped_leading: impl FnMut() -> G + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        G: Future<Output = ()> + Send + 'static,
    {
        Self {
            started: Box::new(move |work| Box::pin(on_started_leading(work))),
            stopped: Box::new(move || Box::pin(on_stopped_leading())),
            new_leader: Box::new(|_| Box::pin(std::future::ready(()))),
        }
    }

    /// Adds a function that is called with each new holder.
    #[must_use]
    pub fn on_new_leader<F>(mut self, mut call: impl FnMut(String) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.new_leader = Box::new(move |name| Box::pin(call(name)));
        self
    }

    /// `hand_over` ends the present term where its work panicked.
    pub(crate) async fn run(
        mut self,
        works: Works,
        mut notices: mpsc::UnboundedReceiver<Notice>,
        hand_over: impl Fn() + Clone + Send + 'static,
    ) {
        let mut running = JoinSet::new();
        let mut led = false;
        // Whether `on_stopped_leading` has yet to be called.
        let mut owed = true;
        loop {
            let notice = notices.recv().await;
            while running.try_join_next().is_some() {}
            let Some(notice) = notice else { break };
            match notice {
                Notice::NewLeader(name) => {
                    call_logged("on_new_leader", async { (self.new_leader)(name).await }).await;
                }
                Notice::State(State::Leading { token, .. }) => {
                    (led, owed) = (true, true);
                    // `None` if this term has already ended; another one may have begun.
                    if let Some(work) = works.share().filter(|work| *work.token() == token) {
                        let (stop, hand_over) = (work.stop_token(), hand_over.clone());
                        let call = std::panic::catch_unwind(AssertUnwindSafe(|| (self.started)(work)));
                        running.spawn(async move {
                            let ended = match call {
                                Ok(call) => AssertUnwindSafe(call).catch_unwind().await,
                                Err(panic) => Err(panic),
                            };
                            if ended.is_err() {
                                tracing::error!(%token, "on_started_leading panicked");
                                if !stop.is_cancelled() {
                                    hand_over();
                                }
                            }
                        });
                    }
                }
                Notice::State(State::Recovered { .. }) => owed = true,
                Notice::State(State::Lost { .. } | State::Following { .. }) => {
                    if led && std::mem::take(&mut owed) {
                        call_logged("on_stopped_leading", async { (self.stopped)().await }).await;
                    }
                }
                Notice::State(State::Stopped { .. }) => {
                    if std::mem::take(&mut owed) {
                        call_logged("on_stopped_leading", async { (self.stopped)().await }).await;
                    }
                    break;
                }
            }
        }
        while running.join_next().await.is_some() {}
    }
}

/// Calls a callback, and logs a panic so that the callbacks after it are still called.
async fn call_logged(name: &str, call: impl Future<Output = ()>) {
    if AssertUnwindSafe(call).catch_unwind().await.is_err() {
        tracing::error!("{name} panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{FencingToken, StopReason};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    fn token(transitions: i32) -> FencingToken {
        FencingToken {
            lease_uid: "u".into(),
            transitions,
        }
    }

    fn leading(transitions: i32) -> Notice {
        Notice::State(State::Leading {
            token: token(transitions),
            valid_until: Duration::MAX,
        })
    }

    /// The callbacks are two terms late: the work of the first term must not begin under the token of the
    /// second.
    #[tokio::test]
    async fn the_work_of_a_term_begins_once() {
        let begun = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&begun);
        let callbacks = Callbacks::new(
            move |work| {
                seen.lock().unwrap().push(work.token().transitions);
                async {}
            },
            || async {},
        );
        let works = Works::default();
        works.begin(&token(1));
        drop(works.end());
        works.begin(&token(2));
        let (notices, heard) = mpsc::unbounded_channel();
        let reason = StopReason::Cancelled { drained: true };
        for notice in [
            leading(1),
            Notice::State(State::Following { leader: None }),
            leading(2),
            Notice::State(State::Stopped { reason }),
        ] {
            notices.send(notice).unwrap();
        }
        callbacks.run(works, heard, || {}).await;
        assert_eq!(*begun.lock().unwrap(), [2]);
    }

    #[tokio::test]
    async fn a_callback_that_panics_keeps_no_other_from_being_called() {
        let calls = Arc::new(Mutex::new(vec![]));
        let (started, stopped, named) = (calls.clone(), calls.clone(), calls.clone());
        let callbacks = Callbacks::new(
            move |_work| {
                started.lock().unwrap().push("started");
                async {}
            },
            move || {
                stopped.lock().unwrap().push("stopped");
                async { panic!("on purpose") }
            },
        )
        .on_new_leader(move |name| {
            named.lock().unwrap().push("new leader");
            assert!(name.is_empty(), "on purpose");
            async {}
        });
        let works = Works::default();
        works.begin(&token(1));
        let (notices, heard) = mpsc::unbounded_channel();
        let reason = StopReason::DuplicateIdentity;
        for notice in [
            Notice::NewLeader("me".into()),
            leading(1),
            Notice::State(State::Following { leader: None }),
            Notice::NewLeader("other".into()),
            Notice::State(State::Stopped { reason }),
        ] {
            notices.send(notice).unwrap();
        }
        callbacks.run(works, heard, || {}).await;
        let calls = calls.lock().unwrap().clone();
        assert_eq!(calls, ["new leader", "started", "stopped", "new leader"]);
    }
}
