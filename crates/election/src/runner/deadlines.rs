//! Up to when the command of a term may run.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When a command is made to end if no further renewal succeeds. Boot time: it goes on while the machine sleeps.
///
/// The time between `valid_until` (start of the last successful renewal + renew deadline) and `expires_at` (the same
/// start + lease duration, after which others may take the lease) is the *window*. Three quarters of it are the
/// command's, to end by itself after TERM. The last quarter is the margin for what is not in our hands: a standby
/// whose clock runs faster than ours, and the time from KILL to the end of the process. With 5/3/1 s: TERM at
/// 3 s, KILL at 4.5 s, the lease free at 5 s; so a standby's clock may be 11 % faster than ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlines {
    /// TERM.
    pub term_at: Duration,
    /// KILL.
    pub kill_at: Duration,
    /// What is left, keeper included, is killed by the runner, in case the keeper does not run.
    pub destroy_at: Duration,
}

impl Deadlines {
    /// Of a term that is proven until `valid_until` and that nobody may end before `expires_at`.
    pub fn new(valid_until: Duration, expires_at: Duration) -> Self {
        let window = expires_at.saturating_sub(valid_until);
        Self {
            term_at: valid_until,
            kill_at: valid_until + window * 3 / 4,
            destroy_at: valid_until + window * 7 / 8,
        }
    }

    /// The same for a command that gets KILL where others get TERM.
    #[must_use]
    pub fn without_grace(self) -> Self {
        Self {
            kill_at: self.term_at,
            ..self
        }
    }

    /// For how long a command may go on after TERM when leadership is lost.
    pub fn grace(&self) -> Duration {
        self.kill_at.saturating_sub(self.term_at)
    }

    /// For how long the keeper may be late with a KILL.
    pub fn slack(&self) -> Duration {
        self.destroy_at.saturating_sub(self.kill_at)
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
            [got.term_at, got.kill_at, got.destroy_at].map(|at| at.as_millis()),
            expected
        );
    }
}
