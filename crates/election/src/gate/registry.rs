//! Which term the gate is open for, and which writes are in flight.

use super::GateClosed;
use super::slot::{InFlight, Inside};
use super::timer::ExpiryTimer;
use crate::clock::Clock;
use crate::core::FencingToken;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks a mutex, also one that a panic has poisoned: no section under a lock here can leave its data half
/// changed.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time in nanoseconds. What does not fit (584 years) becomes `u64::MAX`, which means without end.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One period in which the gate is open: it ends when the gate is closed or the time runs out.
pub(super) struct Epoch {
    token: FencingToken,
    /// The end of the period in [`nanos`]; `u64::MAX` means without end. It only grows.
    valid_until: AtomicU64,
}

impl Epoch {
    pub(super) fn valid_until(&self) -> u64 {
        self.valid_until.load(Ordering::Acquire)
    }

    fn is_valid(&self, clock: &dyn Clock) -> bool {
        let until = self.valid_until();
        until == u64::MAX || nanos(clock.boot()) < until
    }
}

/// The state that all handles of one gate share.
pub(super) struct Registry {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) expiry: ExpiryTimer,
    state: Mutex<State>,
    /// Notified when a call of [`Registry::close`] ends.
    closed: Condvar,
    rejections: AtomicU64,
}

#[derive(Default)]
struct State {
    /// `None` while the gate is closed.
    epoch: Option<Arc<Epoch>>,
    /// The writes of the epoch, by numbers that are never used twice.
    writes: HashMap<u64, Arc<dyn InFlight>>,
    next: u64,
    /// How many calls of [`Registry::close`] are under way.
    closing: usize,
    /// Whether an elector uses the gate.
    claimed: bool,
}

impl Registry {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            expiry: ExpiryTimer::default(),
            state: Mutex::default(),
            closed: Condvar::new(),
            rejections: AtomicU64::new(0),
        }
    }

    pub(super) fn token(&self) -> Option<FencingToken> {
        let state = lock(&self.state);
        let epoch = state
            .epoch
            .as_ref()
            .filter(|epoch| epoch.is_valid(&*self.clock))?;
        Some(epoch.token.clone())
    }

    pub(super) fn valid_until(&self) -> Option<Duration> {
        let state = lock(&self.state);
        let epoch = state
            .epoch
            .as_ref()
            .filter(|epoch| epoch.is_valid(&*self.clock))?;
        Some(match epoch.valid_until() {
            u64::MAX => Duration::MAX,
            until => Duration::from_nanos(until),
        })
    }

    /// Counts a refused write, and returns its error.
    pub(super) fn refuse(&self) -> GateClosed {
        self.rejections.fetch_add(1, Ordering::Relaxed);
        GateClosed
    }

    pub(super) fn rejections(&self) -> u64 {
        self.rejections.load(Ordering::Relaxed)
    }

    pub(super) fn in_flight(&self) -> usize {
        lock(&self.state).writes.len()
    }

    pub(super) fn claim(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).claimed, true)
    }

    pub(super) fn release(&self) {
        lock(&self.state).claimed = false;
    }

    /// Admits a write if the gate is open. The check and the entry into the registry happen under one lock,
    /// so the gate cannot be closed in between.
    pub(super) fn admit<W: InFlight + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce() -> W,
    ) -> Option<(Arc<W>, Ticket)> {
        let mut state = lock(&self.state);
        let epoch = state
            .epoch
            .as_ref()
            .filter(|epoch| epoch.is_valid(&*self.clock))?;
        let epoch = Arc::clone(epoch);
        let write = Arc::new(make());
        let key = state.next;
        state.next += 1;
        let entry: Arc<dyn InFlight> = Arc::<W>::clone(&write);
        state.writes.insert(key, entry);
        drop(state);
        let ticket = Ticket {
            registry: Arc::clone(self),
            epoch,
            key,
        };
        Some((write, ticket))
    }

    pub(super) fn open(&self, token: FencingToken, valid_until: Duration) {
        let until = nanos(valid_until);
        loop {
            let mut state = lock(&self.state);
            match &state.epoch {
                Some(epoch) if epoch.token == token && epoch.is_valid(&*self.clock) => {
                    epoch.valid_until.fetch_max(until, Ordering::AcqRel);
                    return;
                }
                // It is another term, or leadership was unproven in between.
                Some(_) => {
                    drop(state);
                    self.close();
                }
                None => {
                    let valid_until = AtomicU64::new(until);
                    state.epoch = Some(Arc::new(Epoch { token, valid_until }));
                    return;
                }
            }
        }
    }

    pub(super) fn close(&self) {
        let nested = Inside::is();
        let writes = {
            let mut state = lock(&self.state);
            state.epoch = None;
            state.closing += 1;
            std::mem::take(&mut state.writes)
        };
        let closing = Closing(self);
        self.expiry.disarm();
        {
            let _inside = Inside::enter();
            // All writes are taken before any is dropped: if a destructor panics, the others are dropped all
            // the same.
            let cut: Vec<_> = writes.values().filter_map(|write| write.cut()).collect();
            drop(cut);
        }
        if !nested {
            for write in writes.values() {
                write.wait_released();
            }
        }
        drop(closing);
        if !nested {
            // Another thread that closes at the same time may have taken writes and not dropped them yet.
            let mut state = lock(&self.state);
            while state.closing > 0 {
                state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Wakes every write in flight, so that it is polled again.
    pub(super) fn wake_all(&self) {
        let writes: Vec<_> = lock(&self.state).writes.values().cloned().collect();
        for write in writes {
            write.wake();
        }
    }
}

/// Marks a call of [`Registry::close`] as under way, and ends the mark also after a panic.
struct Closing<'a>(&'a Registry);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).closing -= 1;
        self.0.closed.notify_all();
    }
}

/// A write's entry in the registry. Dropping it removes the entry.
pub(super) struct Ticket {
    registry: Arc<Registry>,
    epoch: Arc<Epoch>,
    key: u64,
}

impl Ticket {
    /// Whether the time of the epoch has not run out. Whether the gate was closed shows in the slot.
    pub(super) fn is_valid(&self) -> bool {
        self.epoch.is_valid(&*self.registry.clock)
    }

    /// Wakes the write when the time runs out.
    pub(super) fn wake_at_expiry(&self) {
        self.registry.arm(&self.epoch);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The lock is released before the write is dropped, whose destructor may need it.
        let entry = lock(&self.registry.state).writes.remove(&self.key);
        drop(entry);
    }
}
