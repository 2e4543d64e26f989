//! Proof of leadership that is checked when it is used.

use crate::core::FencingToken;
use nix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Whether this candidate leads right now, by the clock and not by a task that may not have been scheduled. Cheap to
/// clone, and to ask before each write.
#[derive(Clone, Debug, Default)]
pub struct Leadership {
    proof: Arc<Mutex<Option<Proof>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Proof {
    token: FencingToken,
    valid_until: Duration,
}

impl Leadership {
    /// The stamp for a write that starts now; `None` when this candidate does not lead or cannot prove it.
    pub fn token(&self) -> Option<FencingToken> {
        self.token_at(boot_time())
    }

    fn token_at(&self, now: Duration) -> Option<FencingToken> {
        let proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        proof
            .as_ref()
            .filter(|proof| now < proof.valid_until)
            .map(|proof| proof.token.clone())
    }

    pub(crate) fn set(&self, proof: Option<(FencingToken, Duration)>) {
        let proof = proof.map(|(token, valid_until)| Proof { token, valid_until });
        *self.proof.lock().unwrap_or_else(PoisonError::into_inner) = proof;
    }
}

/// Time since boot, the time asleep included: a suspended leader must not wake up believing that no time has passed.
pub(crate) fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has had CLOCK_BOOTTIME since 2.6.39");
    Duration::from(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_ends_by_itself() {
        let leadership = Leadership::default();
        let second = Duration::from_secs;
        assert_eq!(leadership.token_at(second(0)), None);
        let token = FencingToken {
            lease_uid: "u".into(),
            transitions: 3,
        };
        leadership.set(Some((token.clone(), second(10))));
        assert_eq!(
            leadership.clone().token_at(Duration::from_millis(9_999)),
            Some(token)
        );
        assert_eq!(leadership.token_at(second(10)), None);
        leadership.set(None);
        assert_eq!(leadership.token_at(second(1)), None);
    }

    #[test]
    fn boot_time_goes_forward() {
        let first = boot_time();
        assert!(first > Duration::ZERO);
        assert!(boot_time() >= first);
    }
}
