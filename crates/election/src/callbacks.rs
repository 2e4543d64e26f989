//! client-go's callbacks on top of the state stream.

use crate::core::State;
use crate::work::{Work, Works};
use futures::future::{BoxFuture, FutureExt as _};
use std::panic::AssertUnwindSafe;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

type Started = Box<dyn FnMut(Work) -> BoxFuture<'static, ()> + Send>;
type Stopped = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;
type NewLeader = Box<dyn FnMut(String) -> BoxFuture<'static, ()> + Send>;

/// What to call when leadership changes. The election never waits for a callback; they run in order, one at a time,
/// but for `on_started_leading`, which runs beside the others.
///
/// As in client-go, `on_stopped_leading` is called at each loss and, unless the term was lost already, at the end, even
/// of a candidate that never led; by then the gate is closed. `on_new_leader` is called with each new holder, ourselves included, and
/// with an empty name when the lock was given back.
pub struct Callbacks {
    started: Started,
    stopped: Stopped,
    new_leader: NewLeader,
}

/// What the adapter is told.
#[derive(Debug)]
pub(crate) enum Notice {
    State(State),
    NewLeader(String),
}

impl Callbacks {
    /// `on_started_leading` is given a share in the term's work and should end soon after [`Work::stopped`];
    /// `on_stopped_leading` hears of every loss.
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

    /// Hears of each new holder.
    #[must_use]
    pub fn on_new_leader<F>(mut self, mut call: impl FnMut(String) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.new_leader = Box::new(move |name| Box::pin(call(name)));
        self
    }

    pub(crate) async fn run(mut self, works: Works, mut notices: mpsc::UnboundedReceiver<Notice>) {
        let mut running = JoinSet::new();
        let mut led = false;
        // Whether `on_stopped_leading` is still owed.
        let mut owed = true;
        loop {
            let notice = tokio::select! {
                notice = notices.recv() => notice,
                Some(ended) = running.join_next() => {
                    tell(ended);
                    continue;
                }
            };
            let Some(notice) = notice else { break };
            match notice {
                Notice::NewLeader(name) => {
                    survive("on_new_leader", async { (self.new_leader)(name).await }).await;
                }
                Notice::State(State::Leading { token, .. }) => {
                    (led, owed) = (true, true);
                    // None: the term is over before anything of it began, and maybe another one has begun.
                    if let Some(work) = works.share().filter(|work| *work.token() == token) {
                        running.spawn((self.started)(work));
                    }
                }
                Notice::State(State::Recovered { .. }) => owed = true,
                Notice::State(State::Lost { .. } | State::Following { .. }) => {
                    if led && std::mem::take(&mut owed) {
                        survive("on_stopped_leading", async { (self.stopped)().await }).await;
                    }
                }
                Notice::State(State::Stopped { .. }) => {
                    if std::mem::take(&mut owed) {
                        survive("on_stopped_leading", async { (self.stopped)().await }).await;
                    }
                    break;
                }
            }
        }
        while let Some(ended) = running.join_next().await {
            tell(ended);
        }
    }
}

/// Says that the work died: the candidate leads on, with nobody at work.
fn tell(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "on_started_leading died");
    }
}

/// A callback that panics has been called, and no other is the worse for it.
async fn survive(name: &str, call: impl Future<Output = ()>) {
    if AssertUnwindSafe(call).catch_unwind().await.is_err() {
        tracing::error!("{name} died");
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

    /// The callbacks lag behind by two terms: the first one's work is not begun under the second one's token.
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
        callbacks.run(works, heard).await;
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
        callbacks.run(works, heard).await;
        let calls = calls.lock().unwrap().clone();
        assert_eq!(calls, ["new leader", "started", "stopped", "new leader"]);
    }
}
