//! One timer per gate, which wakes the writes in flight when the time of the gate runs out.
//!
//! A timer per write would cost more than the rest of the gate, and a task would need a place to live. So the writes
//! that wait keep one timer between them: it is polled by whichever write comes first, and wakes all. It is never what
//! shuts the gate, only what makes those that wait look at the clock.

use super::registry::{Epoch, Registry, lock};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// [`Alarm::at`] of an alarm that is not set.
const UNSET: u64 = u64::MAX;

pub(super) struct Alarm {
    /// When it will ring, in nanoseconds.
    at: AtomicU64,
    timer: Mutex<Timer>,
}

enum Timer {
    /// None is needed.
    Off,
    /// Some write is polling it.
    Polled {
        /// Another write wanted it set meanwhile.
        missed: bool,
    },
    /// It waits, or has rung.
    On {
        /// For when it was made.
        at: u64,
        timer: BoxFuture<'static, ()>,
    },
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            at: AtomicU64::new(UNSET),
            timer: Mutex::new(Timer::Off),
        }
    }
}

impl Alarm {
    /// Puts it away.
    pub(super) fn disarm(&self) {
        let timer = {
            let mut timer = lock(&self.timer);
            match &*timer {
                Timer::On { .. } => {
                    self.at.store(UNSET, Ordering::Release);
                    std::mem::replace(&mut *timer, Timer::Off)
                }
                // It stays, and rings too early for the next epoch: harmless.
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
    /// Sees to it that the writes in flight are woken when `epoch` runs out, or before. To be called from a write's
    /// poll, after it has taken its work: a ring from then on is not lost.
    pub(super) fn arm(self: &Arc<Self>, epoch: &Epoch) {
        let until = epoch.valid_until();
        if until == u64::MAX || self.alarm.at.load(Ordering::Acquire) <= until {
            return;
        }
        let before = {
            let mut timer = lock(&self.alarm.timer);
            match std::mem::replace(&mut *timer, Timer::Polled { missed: false }) {
                Timer::Polled { .. } => {
                    *timer = Timer::Polled { missed: true };
                    return;
                }
                before => before,
            }
        };
        let (mut at, mut timer) = match before {
            // It has rung, perhaps for nothing: timers may wake before they end.
            Timer::On { at, timer } if at <= until => (at, timer),
            Timer::On { .. } | Timer::Polled { .. } | Timer::Off => (until, self.timer(until)),
        };
        let waker = Waker::from(Arc::new(Ring(Arc::downgrade(self))));
        let waits = loop {
            // Before the poll: it may ring in it.
            self.alarm.at.store(at, Ordering::Release);
            if timer.poll_unpin(&mut Context::from_waker(&waker)).is_pending() {
                break true;
            }
            if at >= until {
                break false;
            }
            // The epoch was prolonged after it had been set.
            at = until;
            timer = self.timer(until);
        };
        let missed = {
            let mut place = lock(&self.alarm.timer);
            let missed = matches!(*place, Timer::Polled { missed: true });
            if !waits {
                self.alarm.at.store(UNSET, Ordering::Release);
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

/// What the timer wakes.
struct Ring(Weak<Registry>);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        if let Some(registry) = self.0.upgrade() {
            registry.alarm.at.store(UNSET, Ordering::Release);
            registry.wake_all();
        }
    }
}
