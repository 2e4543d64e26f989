//! A slot's Lease, which is taken only by whom it is due to.

use evenkeel_election::Lock;
use evenkeel_election::core::{Observation, Record};
use evenkeel_election::lock::{LeaseLock, LockError};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The lock of one slot. What is held is renewed in any case; what is free is taken when it is due to this
/// replica. A candidate that would take it otherwise is made to wait for a moment, in which the shares are
/// looked at anew, and is then told that somebody else was first.
#[derive(Clone)]
pub(super) struct Due {
    pub(super) inner: LeaseLock,
    pub(super) slot: usize,
    pub(super) me: Arc<str>,
    /// What this replica may take.
    pub(super) wanted: watch::Receiver<BTreeSet<usize>>,
    /// Has the shares looked at anew.
    pub(super) look: Arc<Notify>,
    pub(super) patience: Duration,
    pub(super) held: Arc<Mutex<Held>>,
}

/// What this process knows of its own writes of the Lease.
#[derive(Default)]
pub(super) struct Held {
    /// Version that the Lease had when this process last wrote it.
    version: Option<String>,
    /// Whether it has written. If so, a record of its name may be a write of its own whose answer was lost.
    /// Otherwise such a record is that of a predecessor with the same identity, and is taken as any other:
    /// when the slot is due to this replica.
    has_written: bool,
}

impl Due {
    fn write(
        &self,
        version: Option<&str>,
        request: BoxFuture<'static, Result<Observation, LockError>>,
    ) -> BoxFuture<'static, Result<Observation, LockError>> {
        let is_renewal = version.is_some() && held(&self.held).version.as_deref() == version;
        let lock = self.clone();
        async move {
            if !is_renewal && !lock.is_due().await {
                return Err(LockError::Conflict);
            }
            held(&lock.held).has_written = true;
            let written = request.await?;
            let is_ours = written.record.holder == *lock.me;
            held(&lock.held).version = is_ours.then(|| written.version.clone());
            Ok(written)
        }
        .boxed()
    }

    async fn is_due(&self) -> bool {
        let mut wanted = self.wanted.clone();
        if wanted.borrow_and_update().contains(&self.slot) {
            return true;
        }
        self.look.notify_one();
        let comes = wanted.wait_for(|wanted| wanted.contains(&self.slot));
        matches!(tokio::time::timeout(self.patience, comes).await, Ok(Ok(_)))
    }
}

fn held(held: &Mutex<Held>) -> std::sync::MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lock for Due {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
        let (request, lock) = (self.inner.get(), self.clone());
        async move {
            let found = request.await?;
            // A write of ours whose answer was lost is ours all the same.
            if let Some(found) = &found {
                let mut held = held(&lock.held);
                let is_ours = held.has_written && found.record.holder == *lock.me;
                held.version = is_ours.then(|| found.version.clone());
            }
            Ok(found)
        }
        .boxed()
    }

    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.write(None, self.inner.create(record))
    }

    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>> {
        let request = self.inner.update(record, version.clone());
        self.write(Some(&version), request)
    }

    fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        self.inner.changes()
    }

    fn announce(&self, message: String) -> BoxFuture<'static, ()> {
        self.inner.announce(message)
    }
}
