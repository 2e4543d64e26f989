//! Pauses between attempts to connect.

use std::time::Duration;

/// Doubles from `first` to `most`; begins anew after a connection that lasted longer than the longest pause,
/// so that two clients who push each other out do not do so at full speed.
#[derive(Debug)]
pub(super) struct BackOff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl BackOff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            next: first,
        }
    }

    /// How long to wait after a connection that `lasted`; `fraction` of 0 to 1 spreads clients over the
    /// second half of the pause.
    pub(super) fn pause(&mut self, lasted: Duration, fraction: f64) -> Duration {
        if lasted > self.most {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = self.next.saturating_mul(2).min(self.most);
        pause.mul_f64(0.5 + 0.5 * fraction.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_begin_anew_after_a_long_connection() {
        let second = Duration::from_secs(1);
        let mut back_off = BackOff::new(second, second * 5);
        let none = Duration::ZERO;
        let pauses: Vec<u64> = (0..5).map(|_| back_off.pause(none, 1.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        assert_eq!(back_off.pause(none, 0.0), second * 5 / 2);
        assert_eq!(back_off.pause(second * 5, 1.0), second * 5, "not long enough");
        assert_eq!(back_off.pause(second * 6, 1.0), second);
    }
}
