//! How long to wait after failures.

use std::time::Duration;

/// The longest wait after a failure.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// After the first failure 0.75 to 1.5 s, after each further one up to twice as long.
const FIRST: Duration = Duration::from_millis(1_500);

/// Waits at random that grow with each failure in a row. Half of each is random: of 5,000 agents that have
/// waited for the longest time, 333 come back in each of 15 seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackOff {
    failures: u32,
}

impl BackOff {
    /// The wait after one more failure, at most `longest`. `fraction` is random, from 0 to 1.
    pub(crate) fn next(&mut self, longest: Duration, fraction: f64) -> Duration {
        let full = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)
    }

    /// A success: the next failure is the first again.
    pub(crate) fn end(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(longest: Duration, fraction: f64) -> Vec<f64> {
        let mut back_off = BackOff::default();
        let mut next = || back_off.next(longest, fraction).as_secs_f64();
        std::iter::repeat_with(&mut next).take(7).collect()
    }

    #[test]
    fn waits_grow_up_to_the_longest_and_half_of_each_is_random() {
        assert_eq!(waits(LONGEST, 0.0), [0.75, 1.5, 3.0, 6.0, 12.0, 15.0, 15.0]);
        assert_eq!(waits(LONGEST, 1.0), [1.5, 3.0, 6.0, 12.0, 24.0, 30.0, 30.0]);
        assert_eq!(
            waits(Duration::from_secs(5), 1.0),
            [1.5, 3.0, 5.0, 5.0, 5.0, 5.0, 5.0]
        );
    }

    #[test]
    fn a_success_begins_anew_and_no_number_of_failures_overflows() {
        let mut back_off = BackOff { failures: u32::MAX };
        assert_eq!(back_off.next(LONGEST, 1.0), LONGEST);
        back_off.end();
        assert_eq!(back_off.next(LONGEST, 1.0), FIRST);
    }

    #[test]
    fn agents_that_lost_the_api_server_together_do_not_come_back_together() {
        const AGENTS: u32 = 5_000;
        const OUTAGE: f64 = 60.0;
        // Fractions that are spread evenly and differ for each agent and failure: multiples of the golden
        // ratio.
        let fraction = |agent: u32, failure: u32| (f64::from(agent * 7 + failure) * 0.618_033_988_75).fract();
        let (mut asked, mut returns) = ([0; 60], [0; 60]);
        for agent in 0..AGENTS {
            let (mut back_off, mut at) = (BackOff::default(), 0.0);
            for failure in 0.. {
                at += back_off.next(LONGEST, fraction(agent, failure)).as_secs_f64();
                if at >= OUTAGE {
                    returns[(at - OUTAGE) as usize] += 1;
                    break;
                }
                asked[at as usize] += 1;
            }
        }
        let (busiest, tries) = (returns.iter().max().unwrap(), asked.iter().sum::<u32>());
        // Spread evenly over 30 s there would be 167 in each second.
        assert!(
            *busiest <= AGENTS / 10,
            "{busiest} of {AGENTS} come back in one second"
        );
        assert!(
            tries <= 8 * AGENTS,
            "{tries} attempts of {AGENTS} agents in {OUTAGE} s"
        );
    }
}
