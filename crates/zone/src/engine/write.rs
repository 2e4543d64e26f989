//! A write to this agent's own AgentStatus: when it is due, and when it is repeated.

use super::context::{Context, NEVER};
use crate::Millis;

/// Longest wait after the first, second, … write that failed; the last value repeats. Half of it is random.
const BACK_OFF_MS: [u64; 4] = [1_000, 2_000, 4_000, 5_000];
/// A write of which nothing is heard for this long has failed.
const GIVE_UP_MS: u64 = 10_000;

/// Where the next write stands.
pub(super) enum Write {
    /// There is nothing to write.
    NotOwed,
    /// It is due at this time.
    Due {
        at: Millis,
        /// Writes that failed since the last one that did not.
        failures: usize,
    },
    /// It is under way.
    Writing { since: Millis, failures: usize },
}

impl Write {
    pub(super) fn due(at: Millis) -> Self {
        Self::Due { at, failures: 0 }
    }

    /// When something is to be done, if nothing is heard.
    pub(super) fn deadline(&self) -> Millis {
        match self {
            Self::NotOwed => NEVER,
            Self::Due { at, .. } => *at,
            Self::Writing { since, .. } => since.plus(GIVE_UP_MS),
        }
    }

    pub(super) fn is_due(&self, now: Millis) -> bool {
        matches!(self, Self::Due { at, .. } if now >= *at)
    }

    pub(super) fn is_given_up(&self, now: Millis) -> bool {
        matches!(self, Self::Writing { since, .. } if now.since(*since) >= GIVE_UP_MS)
    }

    /// The write that is due is under way from now on.
    pub(super) fn begin(&mut self, now: Millis) {
        if let Self::Due { failures, .. } = *self {
            *self = Self::Writing { since: now, failures };
        }
    }

    /// The write under way has failed, and is repeated after a while.
    pub(super) fn failed(&mut self, cx: &mut Context) {
        if let Self::Writing { failures, .. } = *self {
            let longest = BACK_OFF_MS.get(failures).copied().unwrap_or(BACK_OFF_MS[3]);
            *self = Self::Due {
                at: cx.now().plus(longest / 2 + cx.draw(longest / 2)),
                failures: failures.saturating_add(1),
            };
        }
    }
}
