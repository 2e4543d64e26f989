//! When a node's Lease counts as stale, by our own observation.

use evenkeel_zone::Millis;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A Lease not seen renewed for this long is stale: below the stock grace period of 50 s, above two missed renewals.
pub const STALE_AFTER_MS: u64 = 25_000;
/// A watch on Leases that showed no news of anybody for this long is not proven live (hazards 20 and 21).
pub const PROGRESS_TTL_MS: u64 = 15_000;

/// What the watch on the kubelets' Leases has shown. Times are the reader's; `renewTime` is only compared with itself.
#[derive(Clone, Debug, Default)]
pub struct LeaseFacts {
    nodes: BTreeMap<String, Renewals>,
    /// Last news of any Lease.
    progress: Option<Millis>,
    /// Nothing is counted from before this: the end of the last gap in the watch.
    counted_from: Millis,
}

#[derive(Clone, Debug)]
struct Renewals {
    mark: Option<Timestamp>,
    /// First sight or last renewal.
    changed_at: Millis,
    /// A renewal was seen, not only the object.
    renewed: bool,
}

impl LeaseFacts {
    /// A Lease as the watch delivered it at `now`. The first sight of a Lease proves nothing about when it was renewed.
    pub fn observe(&mut self, now: Millis, node: &str, renew_time: Option<Timestamp>) {
        let renewed = match self.nodes.get(node) {
            Some(known) if known.mark == renew_time => return,
            Some(_) => true,
            None => false,
        };
        let seen = Renewals {
            mark: renew_time,
            changed_at: now,
            renewed,
        };
        self.nodes.insert(node.to_owned(), seen);
        if !self.is_live(now) {
            self.counted_from = now;
        }
        self.progress = Some(now);
    }

    /// The Lease is gone.
    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Drops every Lease that is not in `present`, after a new list.
    pub fn retain(&mut self, present: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, _| present(node));
    }

    /// Whether the watch is proven live at `now` by news of any node's Lease.
    pub fn is_live(&self, now: Millis) -> bool {
        self.progress.is_some_and(|at| now.since(at) <= PROGRESS_TTL_MS)
    }

    /// When the node's Lease was last seen renewed; `None` if never.
    pub fn renewed_at(&self, node: &str) -> Option<Millis> {
        self.nodes
            .get(node)
            .filter(|lease| lease.renewed)
            .map(|lease| lease.changed_at)
    }

    /// Whether the Lease is stale: not seen renewed for [`STALE_AFTER_MS`], counted without a gap on a watch that is
    /// proven live. A node without a Lease, or a watch that shows nothing, is not stale.
    pub fn is_stale(&self, node: &str, now: Millis) -> bool {
        self.is_live(now)
            && self
                .nodes
                .get(node)
                .is_some_and(|lease| now.since(lease.changed_at.max(self.counted_from)) >= STALE_AFTER_MS)
    }
}
