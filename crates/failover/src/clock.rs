//! The shell's clock: the pure cores get their time from here.

use evenkeel_election::clock::{Clock as _, SystemClock};
use evenkeel_zone::Millis;
use jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// A clock that never goes back: the wall clock as it was at the start, counted on by the time since boot. So
/// instants can be compared and written into objects, and a step of the wall clock changes no deadline. The
/// time for which the machine was suspended counts: what was seen before it is as old as for everybody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: u64,
    start: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            began: u64::try_from(wall().as_millisecond()).unwrap_or(0),
            start: SystemClock.boot(),
        }
    }

    /// A clock that has been running for a while.
    #[cfg(test)]
    pub(crate) fn started_ago(time: Duration) -> Self {
        Self {
            start: SystemClock.boot().saturating_sub(time),
            ..Self::start()
        }
    }

    pub(crate) fn now(&self) -> Millis {
        let passed = SystemClock.boot().saturating_sub(self.start).as_millis();
        Millis(self.began).plus(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

/// For measuring how long something takes, and for deadlines of this process alone.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Wall-clock time, for the times that people read in objects and for the validity of certificates.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
pub(crate) fn wall() -> Timestamp {
    Timestamp::now()
}
