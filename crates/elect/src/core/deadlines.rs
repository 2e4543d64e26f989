//! Until when the command of a term may run.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When a command is made to end if no further renewal succeeds. All three are boot time, which goes on while
/// the machine sleeps.
///
/// The time between `valid_until` (start of the last successful renewal + renew deadline) and `expires_at`
/// (the same start + lease duration, after which others may take the lease) is the *window*. In the first
/// three quarters the command can end by itself after TERM. The last quarter is the margin for what we do not
/// control: a standby whose clock runs faster than ours, and the time from KILL to the end of the process.
/// With 5/3/1 s, TERM comes at 3 s, KILL at 4.5 s, and the lease is free at 5 s; so a standby's clock may run
/// 11 % faster than ours (5 / 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deadlines {
    /// When the command gets TERM.
    pub(crate) terminate: Duration,
    /// When the command gets KILL.
    pub(crate) kill: Duration,
    /// When the runner kills the keeper and all that is left of the command, in case the keeper does not run.
    pub(crate) destroy: Duration,
}

impl Deadlines {
    /// Deadlines for a term that is proven until `valid_until` and that nobody may take over before
    /// `expires_at`.
    pub(crate) fn new(valid_until: Duration, expires_at: Duration) -> Self {
        let window = expires_at.saturating_sub(valid_until);
        Self {
            terminate: valid_until,
            kill: valid_until + window * 3 / 4,
            destroy: valid_until + window * 7 / 8,
        }
    }

    /// The same deadlines for a command that gets KILL instead of TERM.
    #[must_use]
    pub(crate) fn without_grace(self) -> Self {
        Self {
            kill: self.terminate,
            ..self
        }
    }

    /// Time from TERM to KILL when leadership is lost.
    pub(crate) fn grace(&self) -> Duration {
        self.kill.saturating_sub(self.terminate)
    }

    /// Time from the KILL that is due until the runner kills keeper and command itself.
    pub(crate) fn slack(&self) -> Duration {
        self.destroy.saturating_sub(self.kill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::ours(3_000, 5_000, [3_000, 4_500, 4_750])]
    #[case::stock(10_000, 15_000, [10_000, 13_750, 14_375])]
    #[case::sub_second(300, 1_000, [300, 825, 912])]
    #[case::no_window(5_000, 5_000, [5_000, 5_000, 5_000])]
    fn a_command_ends_before_the_lease_is_free(
        #[case] valid_until: u64,
        #[case] expires_at: u64,
        #[case] expected: [u128; 3],
    ) {
        let millis = Duration::from_millis;
        let got = Deadlines::new(millis(valid_until), millis(expires_at));
        assert_eq!(
            [got.terminate, got.kill, got.destroy].map(|at| at.as_millis()),
            expected
        );
    }
}
