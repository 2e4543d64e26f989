//! The shell's clock: the engine gets its times from here.

use crate::core::Now;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Monotonic and wall time, taken together.
///
/// The monotonic one is that of the timers (`CLOCK_MONOTONIC`), which stands still while the machine sleeps:
/// containers sleep with it, and a probe that was due in three seconds still is.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: Wall,
}

#[derive(Clone, Copy, Debug)]
enum Wall {
    System,
    /// As it was at `origin`.
    Steady(Duration),
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self {
            origin: Instant::now(),
            wall: Wall::System,
        }
    }

    /// A wall clock that shows `wall` (since the Unix epoch) now and goes on with the timers: for tests with
    /// paused time.
    pub fn steady(wall: Duration) -> Self {
        Self {
            origin: Instant::now(),
            wall: Wall::Steady(wall),
        }
    }

    /// The time now.
    pub fn now(&self) -> Now {
        let mono = self.origin.elapsed();
        let wall = match self.wall {
            // Before 1970 no container has started.
            Wall::System => SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
            Wall::Steady(wall) => wall.saturating_add(mono),
        };
        Now { mono, wall }
    }

    /// A time of [`Now::mono`] for timers; far times are cut to a day, after which one may ask again.
    pub(crate) fn instant(&self, mono: Duration) -> Instant {
        let left = mono.saturating_sub(self.origin.elapsed());
        Instant::now() + left.min(Duration::from_secs(86_400))
    }
}
