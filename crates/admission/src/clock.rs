//! The shell's clock: the pure rules get their time from here.

use evenkeel_zone::Millis;
use jiff::Timestamp;
use tokio::time::Instant;

/// A monotonic clock that counts from its own start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: instant() }
    }

    /// A clock that has been running for a while.
    #[cfg(test)]
    pub(crate) fn started_ago(time: std::time::Duration) -> Self {
        Self {
            start: instant() - time,
        }
    }

    pub(crate) fn now(&self) -> Millis {
        Millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// For measuring how long something takes.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Wall-clock time, for the validity of certificates only.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
pub(crate) fn wall() -> Timestamp {
    Timestamp::now()
}
