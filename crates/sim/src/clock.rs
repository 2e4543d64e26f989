//! The clocks of a machine.

/// What a machine's own clocks say. Everything of it that measures time runs by the boot clock, which cannot
/// be set but runs at a rate of its own. Times of day come from the wall clock, which somebody may set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The boot clock at the start of the run.
    pub(crate) boot: u64,
    /// How much faster the boot clock runs than true time, in millionths.
    pub(crate) rate: i64,
    /// How far the wall clock is ahead of the true time of day, in milliseconds.
    pub(crate) wall: i64,
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// The boot clock at a true time of the run.
    pub(crate) fn local(&self, now: u64) -> u64 {
        let run = i128::from(now) * (MILLION + i128::from(self.rate)) / MILLION;
        self.boot.saturating_add(u64::try_from(run).unwrap_or_default())
    }

    /// The first true millisecond at which the boot clock has reached `local`.
    pub(crate) fn truly(&self, local: u64) -> u64 {
        let run = i128::from(local.saturating_sub(self.boot));
        let rate = MILLION + i128::from(self.rate);
        u64::try_from((run * MILLION + rate - 1) / rate).unwrap_or(u64::MAX)
    }

    /// The time of day as this machine has it, in the run's own milliseconds.
    pub(crate) fn of_day(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_of_the_boot_clock_is_never_early_and_never_a_millisecond_late() {
        for rate in [-200, -1, 0, 1, 200] {
            let clock = Clock {
                boot: 77,
                rate,
                wall: 0,
            };
            for local in (77..2_000_000).step_by(997) {
                let at = clock.truly(local);
                assert!(clock.local(at) >= local, "{rate} {local} {at}");
                assert!(at == 0 || clock.local(at - 1) < local, "{rate} {local} {at}");
            }
        }
    }
}
