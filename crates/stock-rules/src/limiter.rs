//! A token bucket of one token.

use jiff::Timestamp;

/// Lets one thing happen at once and then `rate` things a second; a rate of 0 or less lets nothing happen.
#[derive(Clone, Debug)]
pub struct Limiter {
    rate: f64,
    tokens: f64,
    counted_at: Timestamp,
}

/// Elapsed time is a float: a token that is due is not missed by a rounding error.
const NEARLY_ONE: f64 = 1.0 - 1e-9;

impl Limiter {
    /// A bucket that holds its one token.
    pub fn new(rate: f64, now: Timestamp) -> Self {
        Self {
            rate,
            tokens: 1.0,
            counted_at: now,
        }
    }

    /// Takes a token if there is one.
    pub fn try_accept(&mut self, now: Timestamp) -> bool {
        if self.rate <= 0.0 {
            return false;
        }
        let elapsed = now.duration_since(self.counted_at).as_secs_f64().max(0.0);
        self.tokens = (self.tokens + elapsed * self.rate).min(1.0);
        self.counted_at = self.counted_at.max(now);
        if self.tokens < NEARLY_ONE {
            return false;
        }
        self.tokens = 0.0;
        true
    }

    /// Another rate from now on. A bucket that has no token right now is replaced by an empty one, so that a
    /// change of rate is no free token.
    pub fn swap(&mut self, rate: f64, now: Timestamp) {
        #[allow(clippy::float_cmp, reason = "both come from the same settings")]
        if self.rate == rate {
            return;
        }
        let had_token = self.try_accept(now);
        *self = Self::new(rate, now);
        if !had_token {
            self.tokens = 0.0;
        }
    }
}
