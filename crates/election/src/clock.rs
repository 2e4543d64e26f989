//! Clocks, timers and random numbers, as the shell reads them.

use futures::future::BoxFuture;
use jiff::Timestamp;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Clocks, timer and random numbers of a candidate. The candidate and its gate share one.
pub trait Clock: Send + Sync + 'static {
    /// Time since boot, which includes the time for which the machine was suspended: a leader that wakes up
    /// must see that time has passed.
    fn boot(&self) -> Duration;
    /// Wall clock, for the times written into records.
    fn wall(&self) -> Timestamp;
    /// A random number, uniform in `[0, 1)`.
    fn random(&self) -> f64;
    /// Resolves at or soon after `at` on [`Self::boot`]; at once if that has passed.
    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()>;
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn boot(&self) -> Duration {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has had CLOCK_BOOTTIME since 2.6.39");
        Duration::from(time)
    }

    fn wall(&self) -> Timestamp {
        let now = Timestamp::now();
        // Whole microseconds, which is what the API stores.
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    fn random(&self) -> f64 {
        rand::random::<f64>()
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            if let Err(error) = boot_timer(at).await {
                // This timer is late after a suspend, and correct otherwise.
                tracing::debug!(%error, "no timer on the boot clock, using the monotonic one");
                tokio::time::sleep(at.saturating_sub(clock.boot())).await;
            }
        })
    }
}

/// A kernel timer on the boot clock: one that expired while the machine slept fires as soon as it wakes.
async fn boot_timer(at: Duration) -> std::io::Result<()> {
    let timer = TimerFd::new(
        TimerClock::CLOCK_BOOTTIME,
        TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
    )?;
    // A time of zero would disarm it.
    let at = at.max(Duration::from_nanos(1));
    timer.set(
        Expiration::OneShot(TimeSpec::from_duration(at)),
        TimerSetTimeFlags::TFD_TIMER_ABSTIME,
    )?;
    #[expect(
        deprecated,
        reason = "sound for an OwnedFd; what replaces it is unsafe, which this workspace forbids"
    )]
    let timer = AsyncFd::new(OwnedFd::from(timer))?;
    let _ready = timer.readable().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_goes_forward() {
        let first = SystemClock.boot();
        assert!(first > Duration::ZERO);
        assert!(SystemClock.boot() >= first);
    }

    #[tokio::test]
    async fn a_sleep_ends_at_its_time_and_not_before() {
        let at = SystemClock.boot() + Duration::from_millis(30);
        SystemClock.sleep_until(at).await;
        assert!(SystemClock.boot() >= at);
        SystemClock.sleep_until(Duration::ZERO).await;
    }
}
