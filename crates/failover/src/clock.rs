//! The shell's clock: the pure cores get their time from here.

use evenkeel_zone::Millis;
use jiff::Timestamp;
use tokio::time::Instant;

/// A clock that never goes back: the wall clock as it was at the start, counted on by the monotonic clock. So
/// instants can be compared and written into objects, and a step of the wall clock changes no deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: u64,
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            began: u64::try_from(wall().as_millisecond()).unwrap_or(0),
            start: instant(),
        }
    }

    /// A clock that has been running for a while.
    #[cfg(test)]
    pub(crate) fn started_ago(time: std::time::Duration) -> Self {
        Self {
            start: instant() - time,
            ..Self::start()
        }
    }

    pub(crate) fn now(&self) -> Millis {
        Millis(self.began).plus(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// For measuring how long something takes, and for deadlines.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Wall-clock time, for the times that people read in objects and for the validity of certificates.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
pub(crate) fn wall() -> Timestamp {
    Timestamp::now()
}
