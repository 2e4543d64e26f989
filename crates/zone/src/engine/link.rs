//! How a listed agent proves that its node reaches the API server: by writes that readers see (hazard 47).
//!
//! Proxies and edge caches answer pings and reads in the API server's place; only a write gets through to it. The
//! engine decides when a write is due, the caller makes it and says what became of it.

use super::{Engine, Output};
use crate::Millis;

/// The first write comes at a random time within this, so that a zone that is listed as a whole does not write at
/// once.
const JITTER_MS: u64 = 3_000;
/// From the start of one write to the next. Readers believe a link for 30 s after a write: two writes may be lost.
const EVERY_MS: u64 = 10_000;
/// Longest wait after the first, second, … write that failed; the last value repeats. Half of it is random.
const BACK_OFF_MS: [u64; 4] = [1_000, 2_000, 4_000, 5_000];
/// A write of which nothing is heard for this long has failed.
const GIVE_UP_MS: u64 = 10_000;

/// Where the proof of the link stands.
#[derive(Debug, Default)]
pub(super) enum Proof {
    /// This agent is not listed: it owes nobody a proof.
    #[default]
    NotOwed,
    /// The next write is due then.
    Due {
        /// When.
        at: Millis,
        /// Writes that failed since the last one that did not.
        failures: usize,
    },
    /// A write is under way.
    Writing {
        /// Since.
        since: Millis,
        /// As in `Due`.
        failures: usize,
    },
}

impl Engine {
    pub(super) fn tick_link(&mut self) {
        let now = self.now;
        if !self.is_listed() {
            self.proof = Proof::NotOwed;
            return;
        }
        match self.proof {
            Proof::NotOwed => {
                let at = now.plus(self.draw(JITTER_MS));
                self.proof = Proof::Due { at, failures: 0 };
            }
            Proof::Due { at, failures } if now >= at => {
                self.proof = Proof::Writing { since: now, failures };
                self.out.push(Output::ProveLink);
            }
            Proof::Writing { since, .. } if now.since(since) >= GIVE_UP_MS => self.take_proof(false),
            Proof::Due { .. } | Proof::Writing { .. } => {}
        }
    }

    /// What became of the write that is under way. Of any other nothing follows.
    pub(super) fn take_proof(&mut self, written: bool) {
        let Proof::Writing { since, failures } = self.proof else {
            return;
        };
        self.proof = if written {
            Proof::Due {
                at: since.plus(EVERY_MS),
                failures: 0,
            }
        } else {
            let longest = BACK_OFF_MS.get(failures).copied().unwrap_or(BACK_OFF_MS[3]);
            let wait = longest / 2 + self.draw(longest / 2);
            Proof::Due {
                at: self.now.plus(wait),
                failures: failures.saturating_add(1),
            }
        };
    }

    /// The last ZoneHealth that was read lists this agent's node, or the controller wants rounds about it.
    fn is_listed(&self) -> bool {
        self.wanted.contains(&self.me) || self.reporter.press.lists(&self.identity.uid)
    }
}
