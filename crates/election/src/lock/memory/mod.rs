//! A lock in memory whose requests can be made to fail.

mod register;
mod script;

pub use register::Write;
pub use script::{Announcement, Call, Fault, Op, Outcome, Rule};

use super::{Lock, LockError};
use crate::clock::Clock;
use crate::core::{Observation, Record};
use futures::future::{self, BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use register::{Register, Request};
use script::Script;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// A lock on a register in memory, for tests of programs that elect a leader.
///
/// Each handle is one candidate's connection to the register. The register and its history are shared with
/// the [`peer`](Self::peer)s; the faults and the log of calls belong to this handle. Clones are the same
/// handle. All times count from the creation of the first handle, on the given clock, so scenarios are exact
/// with a clock on tokio's paused time.
///
/// The first [`Rule`] that applies to a request when it starts decides what happens to it. A request that
/// reached the register takes effect even if the caller gives up: as with a real server, dropping a request
/// does not undo it.
///
/// ```
/// # use evenkeel_election::clock::SystemClock;
/// use evenkeel_election::lock::{Fault, Lock as _, MemoryLock, Op, Rule};
/// # use std::sync::Arc;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let lock = MemoryLock::new(Arc::new(SystemClock), "me");
/// lock.inject(Rule::new(Fault::Conflict).on(Op::Update).times(1));
/// lock.inject(Rule::new(Fault::Hang).from(Duration::from_secs(5)));
/// assert_eq!(lock.get().await?, None);
/// let rival = lock.peer("rival");
/// assert!(rival.create(Default::default()).await.is_ok());
/// assert_eq!(lock.ops(), [Op::Get]);
/// # Ok::<(), evenkeel_election::lock::LockError>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryLock {
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    /// The clock's time when the first handle was created.
    epoch: Duration,
    register: Register,
    script: Arc<Mutex<Script>>,
    /// Notifies open watches that the rules have changed.
    ruled: watch::Sender<()>,
    watched: bool,
}

impl MemoryLock {
    /// Creates an empty register and one handle to it. The history names `name` as the author of what this
    /// handle writes.
    pub fn new(clock: Arc<dyn Clock>, name: &str) -> Self {
        Self {
            name: Arc::from(name),
            epoch: clock.boot(),
            clock,
            register: Register::default(),
            script: Arc::default(),
            ruled: watch::Sender::default(),
            watched: true,
        }
    }

    /// A handle for another candidate: the same register, no faults, an empty log.
    #[must_use]
    pub fn peer(&self, name: &str) -> Self {
        Self {
            name: Arc::from(name),
            script: Arc::default(),
            ruled: watch::Sender::default(),
            ..self.clone()
        }
    }

    /// This handle without [`Lock::changes`], as for an account that may not watch.
    #[must_use]
    pub fn without_watch(mut self) -> Self {
        self.watched = false;
        self
    }

    /// Adds a rule after the existing ones.
    pub fn inject(&self, rule: Rule) {
        self.script().rules.push(rule);
        self.ruled.send_replace(());
    }

    /// Removes all rules. Requests that hang go on hanging.
    pub fn heal(&self) {
        self.script().rules.clear();
        self.ruled.send_replace(());
    }

    /// The requests of this handle so far, in the order of their start.
    pub fn calls(&self) -> Vec<Call> {
        self.script().calls.clone()
    }

    /// The kinds of all [`Self::calls`], in order.
    pub fn ops(&self) -> Vec<Op> {
        self.script().calls.iter().map(|call| call.op).collect()
    }

    /// What this handle announced so far.
    pub fn announcements(&self) -> Vec<Announcement> {
        self.script().announcements.clone()
    }

    /// All writes to the register, by all handles.
    pub fn history(&self) -> Vec<Write> {
        self.register.history()
    }

    /// The content of the register, without a call in the log.
    pub fn peek(&self) -> Option<Observation> {
        self.register.current()
    }

    /// Writes without conditions and without a call in the log, as `kubectl edit` would. Creates the object
    /// if needed.
    pub fn put(&self, record: Record) -> Observation {
        self.register.put(self.now(), &self.name, record)
    }

    /// Deletes the object without a call in the log. Returns whether there was one.
    pub fn delete(&self) -> bool {
        self.register.delete(self.now(), &self.name)
    }

    /// Time since the first handle was created.
    pub fn now(&self) -> Duration {
        self.clock.boot().saturating_sub(self.epoch)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(self.clock.boot() + time)
    }

    /// Makes one request, and logs its start and its outcome.
    async fn request(self, request: Request) -> Result<Option<Observation>, LockError> {
        let (call, fault) = self.script().start(request.op(), self.now());
        let answer = self.answer(request, fault).await;
        self.script().end(call, &answer);
        answer
    }

    async fn answer(&self, request: Request, fault: Option<Fault>) -> Result<Option<Observation>, LockError> {
        match fault {
            None => self.serve(request),
            Some(Fault::Hang) => future::pending().await,
            Some(Fault::HangAfterCommit) => {
                let _unheard = self.serve(request);
                future::pending().await
            }
            Some(Fault::LoseReply) => {
                let _unheard = self.serve(request);
                Err(LockError::Unreachable("the reply was lost".to_owned()))
            }
            Some(Fault::Delay { before, after }) => {
                let server = self.clone();
                let served = tokio::spawn(async move {
                    server.sleep(before).await;
                    server.serve(request)
                });
                let answer = served
                    .await
                    .unwrap_or_else(|error| Err(LockError::Unreachable(error.to_string())));
                self.sleep(after).await;
                answer
            }
            Some(Fault::Conflict) => Err(LockError::Conflict),
            Some(Fault::Answer(error)) => Err(error),
        }
    }

    fn serve(&self, request: Request) -> Result<Option<Observation>, LockError> {
        self.register.serve(self.now(), &self.name, request)
    }

    async fn write(self, request: Request) -> Result<Observation, LockError> {
        let written = self.request(request).await?;
        written.ok_or(LockError::Conflict)
    }

    /// Waits until no rule silences the watch.
    async fn until_watch_works(&self) {
        let mut ruled = self.ruled.subscribe();
        loop {
            let silent = self.script().silent_until(self.now());
            let end: BoxFuture<'static, ()> = match silent {
                None => return,
                Some(Duration::MAX) => future::pending().boxed(),
                Some(until) => self.clock.sleep_until(self.epoch + until),
            };
            tokio::select! {
                () = end => {}
                // The sender is in `self`, so it cannot be gone.
                _ = ruled.changed() => {}
            }
        }
    }
}

impl Lock for MemoryLock {
    fn describe(&self) -> String {
        "memory/lock".to_owned()
    }

    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
        self.clone().request(Request::Get).boxed()
    }

    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.clone().write(Request::Create(record)).boxed()
    }

    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.clone().write(Request::Update(record, version)).boxed()
    }

    /// The state at the start, then the newest state after each change. What a fault held back comes when the
    /// fault ends.
    fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        if !self.watched {
            return stream::pending().boxed();
        }
        let mut changed = self.register.subscribe();
        changed.mark_changed();
        stream::unfold((self.clone(), changed), async |(lock, mut changed)| {
            // The sender is in the lock's register, so it cannot be gone.
            changed.changed().await.ok()?;
            lock.until_watch_works().await;
            let now = changed.borrow_and_update().clone();
            Some((now, (lock, changed)))
        })
        .boxed()
    }

    fn announce(&self, message: String) -> BoxFuture<'static, ()> {
        let at = self.now();
        self.script().announcements.push(Announcement { at, message });
        future::ready(()).boxed()
    }
}

#[cfg(test)]
pub(in crate::lock) mod tests;
