//! Bounds of what others can make this agent do.

use crate::Millis;

pub(super) const SECOND_MS: u64 = 1_000;

/// At most so many in a time, which is a second if nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    since: Millis,
    count: u32,
}

impl Budget {
    /// One more.
    pub(super) fn allows(&mut self, now: Millis, most: u32) -> bool {
        self.takes(now, 1, (most, SECOND_MS))
    }

    /// Whether one more would be allowed.
    pub(super) fn is_left(&self, now: Millis, most: u32) -> bool {
        now.since(self.since) >= SECOND_MS || self.count < most
    }

    /// So many more, or none of them.
    pub(super) fn takes(&mut self, now: Millis, more: u32, (most, within_ms): (u32, u64)) -> bool {
        if now.since(self.since) >= within_ms {
            (self.since, self.count) = (now, 0);
        }
        let count = self.count.saturating_add(more);
        if count <= most {
            self.count = count;
        }
        count <= most
    }
}
