//! A reporter for which an agent of another cell writes.

use crate::Millis;
use crate::engine::budget::Budget;
use crate::engine::context::{Context, NEVER, Stranger};
use crate::engine::parts::{Parts, Turn};
use crate::roster::MemberId;
use crate::wire::{Body, HandOver};
use evenkeel_api::zone::ReportDraft;
use std::collections::BTreeMap;

/// Who has not been heard for so long does not hand over any more: a cell whose members have no link renews
/// its report every 8 s.
pub(super) const FORGETS_MS: u64 = 30_000;
/// No report is longer: with all evidence one has at most 40 KB.
const LONGEST: usize = 64 * 1_024;

/// A reporter of another cell, in its present life.
pub(super) struct Asker {
    pub(super) to: Stranger,
    pub(super) incarnation: u64,
    pub(super) heard: Millis,
    /// When a report of it was last begun to be written.
    pub(super) served: Millis,
    /// Another reporter of its cell has somebody who writes.
    pub(super) spare: bool,
    /// A report that is being fetched, and when it was drafted.
    pub(super) fetch: Option<(Parts, Millis)>,
    /// One that waits to be written, its number, and when it was drafted.
    pub(super) ready: Option<(u64, Millis, Box<ReportDraft>)>,
    /// Number of the last one that was written.
    pub(super) written: u64,
    /// Leases that are read for it, and since when.
    pub(super) reads: BTreeMap<MemberId, Millis>,
    pub(super) readings: Budget,
    pub(super) parts: Budget,
}

impl Asker {
    pub(super) fn new(to: Stranger, incarnation: u64) -> Self {
        Self {
            to,
            incarnation,
            heard: Millis(0),
            served: Millis(0),
            spare: false,
            fetch: None,
            ready: None,
            written: 0,
            reads: BTreeMap::new(),
            readings: Budget::default(),
            parts: Budget::default(),
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        let fetch = self.fetch.as_ref().map_or(NEVER, |(parts, _)| parts.deadline());
        fetch.min(self.heard.plus(FORGETS_MS))
    }

    /// Begins to fetch a report that is new.
    pub(super) fn take_offer(&mut self, cx: &mut Context, offer: &HandOver) {
        let is_known = |number: u64| number >= offer.report;
        let fetched = self
            .fetch
            .as_ref()
            .is_some_and(|(parts, _)| is_known(parts.version()));
        let ready = self.ready.as_ref().is_some_and(|(number, ..)| is_known(*number));
        if is_known(self.written) || fetched || ready {
            return;
        }
        let now = cx.now();
        let mut parts = Parts::new(offer.report, LONGEST, now);
        let asked = parts.ask(now);
        let drafted = Millis(now.0.saturating_sub(u64::from(offer.age_ms)));
        self.fetch = Some((parts, drafted));
        cx.send_outside(&self.to, &Body::ReportAsked(asked));
    }

    pub(super) fn step(&mut self, cx: &mut Context) {
        let now = cx.now();
        match self.fetch.as_mut().map(|(parts, _)| parts.step(now)) {
            None | Some(Turn::Waits) => {}
            Some(Turn::Asks(asked)) => cx.send_outside(&self.to, &Body::ReportAsked(asked)),
            Some(Turn::GivesUp) => self.fetch = None,
        }
    }
}
