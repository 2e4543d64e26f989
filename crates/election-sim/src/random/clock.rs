//! A candidate's clocks, as functions of true time.

use jiff::Timestamp;
use std::time::Duration;

/// The unit of clock rates: parts per million.
pub(super) const MILLION: u128 = 1_000_000;

/// A boot clock that runs at a rate of its own, and a wall clock that can be set.
#[derive(Clone, Debug)]
pub(super) struct SimClock {
    /// The true time since which the clock has its present rate.
    since: Duration,
    /// The boot clock at that time.
    boot: Duration,
    /// The rate in parts per million of true time.
    rate: u32,
    /// Difference of wall clock and boot clock, in microseconds.
    wall: i64,
}

impl SimClock {
    pub(super) fn new(boot: Duration, rate: u32, wall: i64) -> Self {
        Self {
            since: Duration::ZERO,
            boot,
            rate,
            wall,
        }
    }

    pub(super) fn boot(&self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.since).as_nanos() * u128::from(self.rate) / MILLION;
        self.boot + nanos(passed)
    }

    pub(super) fn wall(&self, now: Duration) -> Timestamp {
        let micros = i64::try_from(self.boot(now).as_micros()).unwrap_or(i64::MAX / 2);
        Timestamp::from_microsecond(micros.saturating_add(self.wall)).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The true time at which the boot clock first shows `boot` or more.
    pub(super) fn when(&self, boot: Duration) -> Duration {
        let ahead = boot.saturating_sub(self.boot).as_nanos() * MILLION;
        self.since + nanos(ahead.div_ceil(u128::from(self.rate)))
    }

    pub(super) fn set_rate(&mut self, now: Duration, rate: u32) {
        self.boot = self.boot(now);
        self.since = now;
        self.rate = rate;
    }

    pub(super) fn step_wall(&mut self, by: i64) {
        self.wall = self.wall.saturating_add(by);
    }
}

/// A duration of this number of nanoseconds. Virtual time is far from the limit of 584 years.
fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_a_time_at_the_moment_it_names_and_not_before() {
        let mut clock = SimClock::new(Duration::from_secs(7), 700_001, 0);
        clock.set_rate(Duration::from_secs(3), 1_299_999);
        for boot in [10_000_000_001_u64, 12_345_678_901] {
            let boot = Duration::from_nanos(boot);
            let when = clock.when(boot);
            assert!(clock.boot(when) >= boot);
            assert!(clock.boot(when.saturating_sub(Duration::from_nanos(1))) < boot);
        }
    }
}
