//! Bounds of what others can make this agent do.

use crate::Millis;

/// At most so many in each second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    since: Millis,
    count: u32,
}

impl Budget {
    pub(super) fn allows(&mut self, now: Millis, most: u32) -> bool {
        if now.since(self.since) >= 1_000 {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= most
    }
}
