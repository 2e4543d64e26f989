//! How a listed agent proves that its node reaches the API server: by writes that readers see (hazard 47).
//!
//! Proxies and edge caches answer pings and reads in the API server's place; only a write gets through to it.
//! The engine decides when a write is due, the caller makes it and says what became of it.

use super::Output;
use super::context::Context;
use super::write::Write;
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
/// A member is listed for this long after it was asked: reporters hold a round about a listed member every
/// 4.5 s, of which two may be lost.
const LISTED_MS: u64 = 15_000;
/// How this agent proves its link.
pub(super) struct LinkProof {
    write: Write,
    /// The controller wants rounds about this agent's node.
    wanted: bool,
    /// When reporters last asked for votes about this agent's node: they list it.
    asked: Option<Millis>,
    /// Writes that this agent still makes without being listed.
    unasked: u8,
    /// When such a series of writes last began.
    unasked_since: Option<Millis>,
}

impl LinkProof {
    pub(super) fn new() -> Self {
        Self {
            write: Write::NotOwed,
            wanted: false,
            asked: None,
            unasked: 0,
            unasked_since: None,
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        self.write.deadline()
    }

    /// Whether the controller wants rounds about this agent's node.
    pub(super) fn take_wanted(&mut self, cx: &mut Context, wanted: bool) {
        self.wanted = wanted;
        match self.write {
            Write::NotOwed if wanted => {
                let at = cx.now().plus(cx.draw(JITTER_MS));
                self.write = Write::due(at);
            }
            _ => self.rest_if_not_owed(cx.now()),
        }
    }

    fn rest_if_not_owed(&mut self, now: Millis) {
        let listed = self.asked.is_some_and(|at| now.since(at) < LISTED_MS);
        if !self.wanted && !listed && self.unasked == 0 {
            self.write = Write::NotOwed;
        }
    }

    /// Asks for the write that is due, or gives up the one that is under way.
    pub(super) fn step(&mut self, cx: &mut Context) {
        let now = cx.now();
        if self.write.is_given_up(now) {
            self.take(cx, false);
        } else if self.write.is_due(now) {
            self.rest_if_not_owed(now);
            if !matches!(self.write, Write::NotOwed) {
                self.write.begin(now);
                cx.put(Output::ProveLink);
            }
        }
    }

    /// This agent may be voted dead soon: it lost so much of its zone, or more of it than before.
    pub(super) fn prove_unrequested(&mut self, cx: &mut Context) {
        self.prove_within(cx, UNASKED_JITTER_MS);
    }

    /// Begins a series of writes after a random time. A write that failed keeps its back-off.
    fn prove_within(&mut self, cx: &mut Context, jitter: u64) {
        self.unasked = UNASKED;
        self.unasked_since = Some(cx.now());
        let waits = match self.write {
            Write::NotOwed | Write::Due { failures: 0, .. } => false,
            Write::Due { .. } | Write::Writing { .. } => true,
        };
        if !waits {
            let at = cx.now().plus(cx.draw(jitter));
            let sooner = match self.write {
                Write::Due { at: due, .. } => due.min(at),
                _ => at,
            };
            self.write = Write::due(sooner);
        }
    }

    /// This agent is asked whether it lives. After an outage of the API server all members of many cells are
    /// asked about at the same time; where a round is about `most` of a cell, a stall is not what is feared,
    /// and they take their time.
    pub(super) fn prove_when_requested(&mut self, cx: &mut Context, most: bool) {
        self.asked = Some(cx.now());
        let lately = |since| cx.now().since(since) < ASKED_EVERY_MS;
        if !self.unasked_since.is_some_and(lately) {
            let jitter = if most { JITTER_MS } else { UNASKED_JITTER_MS };
            self.prove_within(cx, jitter);
        }
    }

    /// What became of the write that is under way. Of any other nothing follows.
    pub(super) fn take(&mut self, cx: &mut Context, written: bool) {
        let Write::Writing { since, .. } = self.write else {
            return;
        };
        if written {
            self.unasked = self.unasked.saturating_sub(1);
            let next = if self.unasked > 0 {
                UNASKED_EVERY_MS
            } else {
                EVERY_MS
            };
            self.write = Write::due(since.plus(next));
        } else {
            self.write.failed(cx);
        }
        self.rest_if_not_owed(cx.now());
    }
}
