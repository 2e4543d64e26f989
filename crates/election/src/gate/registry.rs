//! Which term the gate is open for, and which writes are in flight.

use super::GateClosed;
use super::alarm::Alarm;
use super::slot::{InFlight, Inside};
use crate::clock::Clock;
use crate::core::FencingToken;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks also what a panic left: every section under a lock here leaves its data whole.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nanoseconds; what does not fit (584 years) is for ever.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One time of being open: from when it was closed to when it is closed or runs out.
pub(super) struct Epoch {
    token: FencingToken,
    /// End of it in [`nanos`]; `u64::MAX` is never. Only ever grows.
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

/// What all handles of one gate share.
pub(super) struct Registry {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) alarm: Alarm,
    state: Mutex<State>,
    /// Notified when a closing has ended.
    closed: Condvar,
    rejections: AtomicU64,
}

#[derive(Default)]
struct State {
    /// `None`: closed.
    epoch: Option<Arc<Epoch>>,
    /// Writes of the epoch, by numbers that are not used again.
    writes: HashMap<u64, Arc<dyn InFlight>>,
    next: u64,
    /// Closings under way.
    closing: usize,
    /// Whether an elector has it.
    claimed: bool,
}

impl Registry {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            alarm: Alarm::default(),
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

    /// Counts a refusal.
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

    /// Lets a write in. The check and the entry into the register are one step, so that no closing falls in between.
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
                // Another term, or there was a time without proof.
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
        self.alarm.disarm();
        {
            let _inside = Inside::enter();
            // First all are taken, then all are dropped: one that panics in its destructor keeps none of the others.
            let cut: Vec<_> = writes.values().filter_map(|write| write.cut()).collect();
            drop(cut);
        }
        if !nested {
            for write in writes.values() {
                write.settle();
            }
        }
        drop(closing);
        if !nested {
            // Somebody else who closes at the same time may have taken writes that are not gone yet.
            let mut state = lock(&self.state);
            while state.closing > 0 {
                state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Has every write in flight polled again.
    pub(super) fn wake_all(&self) {
        let writes: Vec<_> = lock(&self.state).writes.values().cloned().collect();
        for write in writes {
            write.wake();
        }
    }
}

/// A closing under way, ended also by a panic.
struct Closing<'a>(&'a Registry);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).closing -= 1;
        self.0.closed.notify_all();
    }
}

/// A write's place in the register. Dropping it gives it up.
pub(super) struct Ticket {
    registry: Arc<Registry>,
    epoch: Arc<Epoch>,
    key: u64,
}

impl Ticket {
    /// Whether the time of the epoch has not run out. Whether it was closed is the slot's to say.
    pub(super) fn is_valid(&self) -> bool {
        self.epoch.is_valid(&*self.registry.clock)
    }

    /// Has the write polled again when the time runs out.
    pub(super) fn watch_the_time(&self) {
        self.registry.arm(&self.epoch);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The guard is gone before what it guarded is dropped.
        let entry = lock(&self.registry.state).writes.remove(&self.key);
        drop(entry);
    }
}
