//! One timer per gate, which wakes the writes in flight when the time of the gate runs out.
//!
//! A timer per write would cost more than the rest of the gate, and a task would need a runtime that the gate
//! does not own. So the waiting writes share one timer: whichever write is polled first polls it, and it
//! wakes all of them. The timer does not close the gate. It only makes the waiting writes read the clock
//! again.

use super::registry::{Epoch, Registry, lock};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// [`ExpiryTimer::at`] while the timer is not set.
const UNSET: u64 = u64::MAX;

/// The timer of one gate.
pub(super) struct ExpiryTimer {
    /// When it will fire, in nanoseconds.
    at: AtomicU64,
    timer: Mutex<Timer>,
}

enum Timer {
    /// No timer is needed.
    Off,
    /// A write is polling the timer at the moment.
    Polled {
        /// Whether another write wanted to set it meanwhile.
        missed: bool,
    },
    /// The timer is set, or has fired.
    On {
        /// The time for which it was set.
        at: u64,
        timer: BoxFuture<'static, ()>,
    },
}

impl Default for ExpiryTimer {
    fn default() -> Self {
        Self {
            at: AtomicU64::new(UNSET),
            timer: Mutex::new(Timer::Off),
        }
    }
}

impl ExpiryTimer {
    /// Turns the timer off.
    pub(super) fn disarm(&self) {
        let timer = {
            let mut timer = lock(&self.timer);
            match &*timer {
                Timer::On { .. } => {
                    self.at.store(UNSET, Ordering::Release);
                    std::mem::replace(&mut *timer, Timer::Off)
                }
                // It stays set and fires too early for the next epoch, which does no harm.
                Timer::Polled { .. } | Timer::Off => return,
            }
        };
        drop(timer);
    }

    #[cfg(test)]
    pub(super) fn is_set(&self) -> bool {
        matches!(*lock(&self.timer), Timer::On { .. })
    }
}

impl Registry {
    /// Makes sure that the writes in flight are woken when `epoch` ends, or before. Call it from the poll of
    /// a write, after that has taken its work: a wake-up from then on is not lost.
    pub(super) fn arm(self: &Arc<Self>, epoch: &Epoch) {
        let until = epoch.valid_until();
        if until == u64::MAX || self.expiry.at.load(Ordering::Acquire) <= until {
            return;
        }
        let before = {
            let mut timer = lock(&self.expiry.timer);
            match std::mem::replace(&mut *timer, Timer::Polled { missed: false }) {
                Timer::Polled { .. } => {
                    *timer = Timer::Polled { missed: true };
                    return;
                }
                before => before,
            }
        };
        let (mut at, mut timer) = match before {
            // It has fired or may still wait: timers may wake their task before their time.
            Timer::On { at, timer } if at <= until => (at, timer),
            Timer::On { .. } | Timer::Polled { .. } | Timer::Off => (until, self.timer(until)),
        };
        let waker = Waker::from(Arc::new(WakeWrites(Arc::downgrade(self))));
        let waits = loop {
            // This comes before the poll, in which the timer may fire.
            self.expiry.at.store(at, Ordering::Release);
            if timer.poll_unpin(&mut Context::from_waker(&waker)).is_pending() {
                break true;
            }
            if at >= until {
                break false;
            }
            // The epoch was extended after the timer had been set.
            at = until;
            timer = self.timer(until);
        };
        let missed = {
            let mut place = lock(&self.expiry.timer);
            let missed = matches!(*place, Timer::Polled { missed: true });
            if !waits {
                self.expiry.at.store(UNSET, Ordering::Release);
            }
            *place = if waits {
                Timer::On { at, timer }
            } else {
                Timer::Off
            };
            missed
        };
        if missed || !waits {
            self.wake_all();
        }
    }

    fn timer(&self, at: u64) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(Duration::from_nanos(at))
    }
}

/// The waker of the timer: it wakes all writes in flight.
struct WakeWrites(Weak<Registry>);

impl Wake for WakeWrites {
    fn wake(self: Arc<Self>) {
        if let Some(registry) = self.0.upgrade() {
            registry.expiry.at.store(UNSET, Ordering::Release);
            registry.wake_all();
        }
    }
}
