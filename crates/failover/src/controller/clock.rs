//! The shell's clock: the pure core gets its time from here.

use evenkeel_zone::Millis;
use jiff::Timestamp;
use tokio::time::Instant;

/// A clock that never goes back: the wall clock as it was at the start, counted on monotonically. So instants can be
/// compared, and written into objects; a step of the wall clock changes no deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: u64,
    start: Instant,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
    pub(super) fn start() -> Self {
        Self {
            began: u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0),
            start: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Millis {
        Millis(self.began).plus(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Wall-clock time, for the times that people read in objects.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
pub(super) fn wall() -> Timestamp {
    Timestamp::now()
}
