//! What an agent says of its own node, and whether it trusts its own view of the zone.

use super::context::{Context, NEVER};
use super::reach::Reach;
use super::{Note, PAUSE_PENALTY_MS};
use crate::Millis;
use crate::verdict::{ALIVE_TTL_MS, Health, Link};
use crate::wire::Facts;

/// For so long after a round began to which a majority answered, this agent reaches one: as long as what the
/// round says of life. It is three times as long as it takes to the next round, because a majority of just
/// those that live may miss one where datagrams are lost.
const ANSWERED_COUNTS_MS: u64 = ALIVE_TTL_MS;
/// An agent that meets its cell within this time says nothing of the doubt before; nor within three periods.
const FIRST_DOUBT_MS: u64 = 10_000;

/// This agent's own node and view.
pub(super) struct Own {
    facts: Facts,
    started: Millis,
    cloud_contact: Option<Millis>,
    /// Since when the link has been up.
    linked_since: Option<Millis>,
    /// An agent of another cell reads for this one.
    carried: bool,
    /// After a pause its votes have no weight until this time.
    weightless_until: Millis,
    doubting: bool,
    /// What was last noted of that, since there is a roster that names this agent, and since when there is.
    noted: Option<bool>,
    in_roster_since: Option<Millis>,
    /// It reaches half of those it watches or fewer, and no majority answered it, so it reports nothing.
    on_smaller_side: bool,
    /// Until then the answers to its last round count; answers to rounds from before the other time do not.
    answered_until: Millis,
    answers_from: Millis,
    /// It is not, because of such answers.
    by_answers: bool,
    /// It may be on the smaller side; `within` is how many it reached when it last looked.
    may_be_smaller: bool,
    within: usize,
    within_reach_since: Option<Millis>,
    /// Who is within reach has to be counted again at this time.
    count_at: Millis,
}

/// What came of a look at the own view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// It began or ceased to doubt, or to report.
    pub(super) changed: bool,
    /// It may be voted dead soon: it lost so much of its zone, or more of it than before.
    pub(super) endangered: bool,
}

impl Own {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            facts: Facts::default(),
            started: now,
            cloud_contact: None,
            linked_since: None,
            carried: false,
            weightless_until: Millis(0),
            doubting: true,
            noted: None,
            in_roster_since: None,
            on_smaller_side: true,
            answered_until: Millis(0),
            answers_from: now,
            by_answers: false,
            may_be_smaller: true,
            within: 0,
            within_reach_since: None,
            count_at: now,
        }
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts
    }

    /// Whether it doubts its own view, so that it may accuse nobody. That is so while it reaches half of
    /// those it watches or fewer, for a while after a pause, and before it has met a majority in this life.
    pub(super) fn doubts(&self) -> bool {
        self.doubting
    }

    /// Whether it may report on the zone.
    pub(super) fn sees_the_zone(&self) -> bool {
        !self.doubting && !self.on_smaller_side
    }

    /// Since when this agent has reached a majority, plus the time that it takes to have an opinion of every
    /// member: two periods.
    pub(super) fn settles_at(&self, period_ms: u64) -> Millis {
        let since = self.within_reach_since.filter(|_| !self.doubting);
        since.map_or(NEVER, |since| since.plus(2 * period_ms))
    }

    /// When the API server last answered.
    pub(super) fn cloud_contact(&self) -> Option<Millis> {
        self.cloud_contact
    }

    /// Since when the link has been up; nothing if it is not.
    pub(super) fn linked_since(&self) -> Option<Millis> {
        self.linked_since.filter(|_| self.facts.cloud == Link::Up)
    }

    /// Whether an agent of another cell writes and reads for this one.
    pub(super) fn be_carried(&mut self, carried: bool) {
        self.carried = carried;
    }

    /// Whether the API server can be asked, by this agent or for it.
    pub(super) fn may_read(&self) -> bool {
        self.facts.cloud == Link::Up || self.carried
    }

    /// Tenths of a second since the API server last answered.
    pub(super) fn cloud_age(&self, now: Millis) -> u16 {
        let age = self.cloud_contact.map_or(u64::MAX, |at| now.since(at) / 100);
        u16::try_from(age).unwrap_or(u16::MAX)
    }

    /// State of the node's own kubelet and runtime. Returns whether that is news.
    pub(super) fn take_health(&mut self, kubelet: Health, runtime: Health) -> bool {
        self.say(Facts {
            kubelet,
            runtime,
            ..self.facts
        })
    }

    /// The API server answered. Returns whether that is news.
    pub(super) fn take_cloud_contact(&mut self, now: Millis) -> bool {
        self.cloud_contact = Some(now);
        if self.facts.cloud != Link::Up {
            self.linked_since = Some(now);
        }
        self.say(Facts {
            cloud: Link::Up,
            ..self.facts
        })
    }

    /// Looks whether the link to the API server is down by now. Returns whether that is news.
    pub(super) fn look_at_link(&mut self, cx: &Context) -> bool {
        let down = cx.now() >= self.link_down_at(cx);
        let cloud = match self.cloud_contact {
            _ if down => Link::Down,
            Some(_) => Link::Up,
            None => Link::Unknown,
        };
        self.say(Facts { cloud, ..self.facts })
    }

    fn link_down_at(&self, cx: &Context) -> Millis {
        let last = self.cloud_contact.unwrap_or(self.started);
        last.plus(cx.cloud_down_after_ms() + 1)
    }

    fn say(&mut self, facts: Facts) -> bool {
        std::mem::replace(&mut self.facts, facts) != facts
    }

    /// This process did not run for a while: its view is worth nothing for some time.
    pub(super) fn pause(&mut self, cx: &Context) {
        let penalty = PAUSE_PENALTY_MS.max(2 * cx.period_ms());
        self.weightless_until = cx.now().plus(penalty);
        self.forget_answers(cx);
        self.count_at = cx.now();
    }

    /// A majority answered a round that began then.
    pub(super) fn take_answers(&mut self, cx: &Context, began: Millis) {
        if began < self.answers_from {
            return;
        }
        self.answered_until = self.answered_until.max(began.plus(ANSWERED_COUNTS_MS));
        if self.on_smaller_side && self.is_answered(cx) {
            self.count_at = cx.now();
        }
    }

    /// What was answered before now says nothing of whom this agent reaches: it was paused, has lost more of
    /// its cell, or has another one.
    pub(super) fn forget_answers(&mut self, cx: &Context) {
        (self.answers_from, self.answered_until) = (cx.now(), Millis(0));
    }

    /// Whether this agent reaches its cell by the answers to its rounds alone.
    pub(super) fn sees_by_answers(&self) -> bool {
        self.by_answers
    }

    /// Whether a majority answered lately. Who watches everybody needs no answers to know whom it reaches.
    fn is_answered(&self, cx: &Context) -> bool {
        !cx.roster().all_pairs() && cx.now() < self.answered_until
    }

    /// Somebody came within reach or was lost.
    pub(super) fn count_again(&mut self, cx: &Context) {
        self.count_at = cx.now();
    }

    pub(super) fn deadline(&self, cx: &Context) -> Millis {
        let link = if self.facts.cloud == Link::Down {
            NEVER
        } else {
            self.link_down_at(cx)
        };
        link.min(self.count_at)
    }

    /// Finds out whether this agent may accuse anybody, when that is due. A look may come a period early:
    /// heartbeats are due more often than that, and so nobody wakes up for this alone in a calm zone.
    ///
    /// Above all-pairs size those it watches are a sample: with 40 % of the zone dead, every sixth sample of
    /// ten is for the greater part dead. There a voter doubts itself when three quarters are out of reach,
    /// and the majority of all votes stands against a smaller side. Who reports needs more than half of its
    /// sample, or of all voters answers to a round of its own: with 31 of 64 dead, all three reporters have
    /// the lesser part of their samples in 4 of 100 cells.
    pub(super) fn judge_myself(&mut self, cx: &mut Context, reach: Reach<'_>) -> Turn {
        let now = cx.now();
        if now.plus(cx.period_ms()) < self.count_at {
            return Turn::default();
        }
        let (within, watched, first_loss) = reach.count(cx.roster());
        let all_pairs = cx.roster().all_pairs();
        // Of two members one is never more than half. They never reach a verdict, and their report only says
        // so.
        let in_reach = if cx.roster().voters() == 2 {
            reach.has_met_anybody()
        } else {
            (within + 1) * 2 > watched + 1
        };
        // With a sample, half of the zone may be out of reach when a third of the sample is.
        let may_be_smaller = !in_reach || !all_pairs && within * 3 < watched * 2;
        let loses_more = within < std::mem::replace(&mut self.within, within);
        if loses_more && !in_reach {
            self.forget_answers(cx);
        }
        let answered = self.is_answered(cx);
        self.by_answers = answered && !in_reach;
        let endangered = may_be_smaller && (loses_more || !self.may_be_smaller);
        self.may_be_smaller = may_be_smaller;
        let saw = self.sees_the_zone();
        self.on_smaller_side = !in_reach && !answered;
        match (in_reach || answered, self.within_reach_since) {
            (true, None) => self.within_reach_since = Some(now),
            (false, Some(_)) => self.within_reach_since = None,
            _ => {}
        }
        let hears_enough = in_reach || (!all_pairs && (within + 1) * 4 > watched + 1);
        let weightless = now < self.weightless_until;
        let doubting = !hears_enough || weightless;
        let turned = std::mem::replace(&mut self.doubting, doubting) != doubting;
        self.count_at = if weightless {
            first_loss.min(self.weightless_until)
        } else {
            first_loss
        };
        if self.by_answers {
            self.count_at = self.count_at.min(self.answered_until);
        }
        self.note_doubt(cx);
        Turn {
            changed: turned || saw != self.sees_the_zone(),
            endangered,
        }
    }

    /// A life begins in doubt, and that is worth a line once it lasts.
    fn note_doubt(&mut self, cx: &mut Context) {
        if cx.place().is_none() {
            (self.noted, self.in_roster_since) = (None, None);
            return;
        }
        let since = *self.in_roster_since.get_or_insert(cx.now());
        let noted_from = since.plus(FIRST_DOUBT_MS.max(3 * cx.period_ms()));
        if self.noted.is_none() && self.doubting && cx.now() < noted_from {
            self.count_at = self.count_at.min(noted_from);
        } else if self.noted != Some(self.doubting) {
            self.noted = Some(self.doubting);
            cx.note(Note::Doubt(self.doubting));
        }
    }
}
