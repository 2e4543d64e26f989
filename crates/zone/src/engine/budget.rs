//! Bounds of what others can make this agent do.

use crate::Millis;

/// At most so many in each second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    since: Millis,
    count: u32,
}

impl Budget {
    /// One more.
    pub(super) fn allows(&mut self, now: Millis, most: u32) -> bool {
        self.takes(now, 1, most)
    }

    /// Whether one more would be allowed.
    pub(super) fn is_left(&self, now: Millis, most: u32) -> bool {
        now.since(self.since) >= 1_000 || self.count < most
    }

    /// So many more, or none of them.
    pub(super) fn takes(&mut self, now: Millis, more: u32, most: u32) -> bool {
        if now.since(self.since) >= 1_000 {
            (self.since, self.count) = (now, 0);
        }
        let count = self.count.saturating_add(more);
        if count <= most {
            self.count = count;
        }
        count <= most
    }
}
