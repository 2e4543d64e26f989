//! How a listed agent proves that its node reaches the API server: by writes that readers see (hazard 47).
//!
//! Proxies and edge caches answer pings and reads in the API server's place; only a write gets through to it.
//! The engine decides when a write is due, the caller makes it and says what became of it.

use super::{Engine, Output};
use crate::Millis;

/// The first write comes at a random time within this, so that in a zone that is listed as a whole not
/// everybody writes at the same moment.
const JITTER_MS: u64 = 3_000;
/// From the start of one write to the next. Readers believe a link for 30 s after a write: two writes may be
/// lost.
const EVERY_MS: u64 = 10_000;
/// An agent that loses half of its zone may be voted dead two periods later, and if it stalls then, it hears
/// of the vote too late to prove anything. So it proves its link without being asked, this many times and
/// this often: one of the writes is younger than that vote. The first one comes after a short random time, so
/// that in a zone that falls apart not everybody writes at the same moment.
const UNASKED: u8 = 3;
const UNASKED_EVERY_MS: u64 = 1_500;
const UNASKED_JITTER_MS: u64 = 500;
/// An agent that is asked whether it lives proves its link as well, at most this often: the question arrived,
/// but the answer may get lost.
const ASKED_EVERY_MS: u64 = 10_000;
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
    /// The next write is due at this time.
    Due {
        at: Millis,
        /// Writes that failed since the last one that did not.
        failures: usize,
    },
    /// A write is under way.
    Writing { since: Millis, failures: usize },
}

impl Engine {
    pub(super) fn tick_link(&mut self) {
        let now = self.now;
        if !self.is_listed() && self.unasked == 0 {
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

    /// This agent may be voted dead soon: it lost so much of its zone, or more of it than before. A write
    /// that failed keeps its back-off.
    pub(super) fn prove_unrequested(&mut self) {
        self.unasked = UNASKED;
        self.unasked_since = Some(self.now);
        let waits = match self.proof {
            Proof::NotOwed | Proof::Due { failures: 0, .. } => false,
            Proof::Due { .. } | Proof::Writing { .. } => true,
        };
        if !waits {
            let at = self.now.plus(self.draw(UNASKED_JITTER_MS));
            self.proof = Proof::Due { at, failures: 0 };
        }
    }

    /// This agent is asked whether it lives.
    pub(super) fn prove_when_requested(&mut self) {
        let lately = |since| self.now.since(since) < ASKED_EVERY_MS;
        if !self.unasked_since.is_some_and(lately) {
            self.prove_unrequested();
        }
    }

    /// What became of the write that is under way. Of any other nothing follows.
    pub(super) fn take_proof(&mut self, written: bool) {
        let Proof::Writing { since, failures } = self.proof else {
            return;
        };
        self.proof = if written {
            self.unasked = self.unasked.saturating_sub(1);
            let next = if self.unasked > 0 {
                UNASKED_EVERY_MS
            } else {
                EVERY_MS
            };
            Proof::Due {
                at: since.plus(next),
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
        self.wanted.contains(&self.me) || self.reporter.publication.lists(&self.identity.uid)
    }
}
