//! What is going on with one node.

use super::rounds::{Evidence, Outcome};
use crate::Millis;
use crate::engine::context::Context;
use crate::engine::due::Due;
use crate::verdict::ALIVE_TTL_MS;
use crate::wire::{Challenge, Facts};
use evenkeel_api::zone::VerdictKind;

/// Suspects that come up within this time share a round.
const GATHER_MS: u64 = 100;
/// Evidence of life is renewed this often: three times within its time to live.
pub(super) const RENEW_ALIVE_MS: u64 = 4_500;
/// While a death is young its round is repeated this often, so that one which readers refuse, because the
/// Lease could not be read or was renewed, is soon followed by another. A new challenge brings a round at
/// once: readers confirm a death by the challenge that a round signs.
pub(super) const REPEAT_YOUNG_DEATH_MS: u64 = 4_000;
/// A death is young for this long after this reporter first held it. Readers confirm it after some 12 s, and
/// after stock time it makes no difference any more.
const YOUNG_DEATH_MS: u64 = 60_000;
/// Evidence of an older death is renewed in every second common round, so that it fits the present roster and
/// later renewals of the Lease.
const RENEW_DEAD_MS: u64 = 8_000;
/// A round without majority is repeated after 1 and 2 s, and then with the common rounds.
const RETRY_MS: [u64; 2] = [1_000, 2_000];
/// From the start of one round about a member to the next, at least.
const LEAST_GAP_MS: u64 = 1_000;
/// How long a node must be well before it is taken off the list: after suspicion, and after a cut cloud link.
const ACQUIT_SUSPECT_MS: u64 = 15_000;
const ACQUIT_TROUBLED_MS: u64 = 5_000;

/// When the next round about a node is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// At this time, with whoever else it is due for: a first round, or another attempt.
    At(Millis),
    /// With the first of the reporter's common rounds that begins at this time or later.
    Common(Millis),
}

impl Default for Next {
    fn default() -> Self {
        Self::At(Millis(0))
    }
}

/// What is going on with one node.
#[derive(Default)]
pub(super) struct Case {
    unstable_since: Option<Millis>,
    suspect_since: Option<Millis>,
    /// What its own agent or its observers say of it.
    facts: Facts,
    troubled: bool,
    was_suspect: bool,
    next: Next,
    failures: usize,
    well_since: Option<Millis>,
    held: Option<Held>,
}

/// A verdict with its evidence.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Held {
    pub(in crate::engine) kind: VerdictKind,
    /// First time that this kind was held.
    pub(in crate::engine) since: Millis,
    /// Since when it holds what readers wait for: this kind, and of a death a round that signs this
    /// challenge.
    pub(in crate::engine) news_since: Millis,
    pub(in crate::engine) made: Millis,
    pub(in crate::engine) evidence: Option<Evidence>,
    pub(in crate::engine) reason: String,
}

/// What speaks for and against a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    /// Live observers without contact, and all live ones.
    pub(super) down: usize,
    pub(super) live: usize,
    /// What is known to be wrong.
    pub(super) bad: Option<Facts>,
    /// The controller wants rounds about it.
    pub(super) wanted: bool,
    /// It is this agent's own node.
    pub(super) is_me: bool,
}

/// What readers learn from evidence: its kind, and what its ballots sign.
type Lesson = (VerdictKind, Option<Challenge>);

/// Whether evidence teaches readers nothing new after an earlier one. By a round that signs a new challenge
/// they confirm a death.
pub(in crate::engine) fn is_no_news((kind, signed): Lesson, (before, signed_before): Lesson) -> bool {
    kind == before && (kind != VerdictKind::Dead || signed == signed_before)
}

impl Held {
    pub(in crate::engine) fn signed(&self) -> Option<Challenge> {
        self.evidence.as_ref().map(|evidence| evidence.challenge)
    }
}

impl Case {
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    pub(super) fn suspect_since(&self) -> Option<Millis> {
        self.suspect_since
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspect_since.is_some()
    }

    /// Whether rounds are held about it, whatever the controller wants.
    pub(super) fn is_listed(&self) -> bool {
        self.is_suspect() || self.troubled || self.held.is_some()
    }

    /// When its next round is due, if the next common round begins at that time. `None` if not before the
    /// common round is over. In a crowd all take part in each, because the report would otherwise hold two
    /// large rounds.
    pub(super) fn due_at(&self, common: Option<Millis>, crowd: bool) -> Option<Millis> {
        match self.next {
            Next::At(at) => Some(at),
            Next::Common(from) => common.filter(|at| crowd || *at >= from),
        }
    }

    pub(super) fn awaits_common_round(&self) -> bool {
        matches!(self.next, Next::Common(_))
    }

    /// How much earlier than it is due its next round may be held. Common rounds are not held earlier, and
    /// neither are others about a death: each costs a reading of the Lease.
    pub(super) fn shares(&self, at_most: u64) -> u64 {
        if self.awaits_common_round() || self.is_dead() {
            0
        } else {
            at_most
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.kind == VerdictKind::Dead)
    }

    /// Readers may not have confirmed its death yet.
    pub(super) fn is_young_death(&self, now: Millis) -> bool {
        let held = self.held.as_ref().filter(|_| self.is_dead());
        held.is_some_and(|held| now.since(held.since) < YOUNG_DEATH_MS)
    }

    /// Below L nothing, at H or above a suspect, in between a suspect after two periods. Fewer than two live
    /// observers cannot be outvoted: straight to the confirm round. Returns whether it became a suspect.
    pub(super) fn weigh(&mut self, cx: &Context, weight: Weight, due: &mut Due) -> bool {
        let now = cx.now();
        let Weight { down, live, .. } = weight;
        let (low, high) = ((3 * live).div_ceil(10).max(1), (7 * live).div_ceil(10).max(1));
        self.unstable_since = if down >= low {
            self.unstable_since.or(Some(now))
        } else {
            None
        };
        let ripe_at = self.unstable_since.map(|since| since.plus(2 * cx.period_ms()));
        let ripe = ripe_at.is_some_and(|at| now >= at);
        ripe_at.filter(|_| !ripe).into_iter().for_each(|at| due.by(at));
        // No observer is left that could lose contact with it, so only a vote can tell.
        let unwatched = live == 0 && !weight.is_me;
        let suspect = unwatched || down > 0 && (live < 2 || down >= high || ripe);
        self.troubled = weight.bad.is_some();
        self.facts = weight.bad.unwrap_or_default();
        let mut became_suspect = false;
        match (suspect, self.suspect_since) {
            (true, None) => {
                self.suspect_since = Some(now);
                self.was_suspect = true;
                self.failures = 0;
                self.next = Next::At(now.plus(GATHER_MS));
                became_suspect = true;
            }
            (false, Some(_)) if down < low => {
                self.suspect_since = None;
                self.failures = 0;
                self.next = Next::At(now);
            }
            _ => {}
        }
        // Well: 0.9 of the live observers have contact, nothing is known to be wrong, and the controller does
        // not want rounds about it.
        let contacts_suffice = 10 * (live - down) >= 9 * live;
        let calm = !suspect && !self.is_suspect() && !self.troubled && !weight.wanted;
        self.well_since = if calm && contacts_suffice {
            self.well_since.or(Some(now))
        } else {
            None
        };
        became_suspect
    }

    /// Evidence of life that nobody renewed is worth nothing any more.
    pub(super) fn let_life_expire(&mut self, now: Millis, due: &mut Due) {
        let Some(held) = self.held.as_mut().filter(|held| held.kind == VerdictKind::Alive) else {
            return;
        };
        if now.since(held.made) < ALIVE_TTL_MS {
            return due.by(held.made.plus(ALIVE_TTL_MS));
        }
        held.kind = VerdictKind::None;
        held.since = now;
        held.evidence = None;
        held.reason = String::from("evidence of life ran out");
    }

    /// Whether it has been well for long enough.
    pub(super) fn is_acquitted(&self, now: Millis, due: &mut Due) -> bool {
        let hold = match (&self.held, self.was_suspect) {
            (None, _) => 0,
            (Some(_), true) => ACQUIT_SUSPECT_MS,
            (Some(_), false) => ACQUIT_TROUBLED_MS,
        };
        let Some(at) = self.well_since.map(|since| since.plus(hold)) else {
            return false;
        };
        if now < at {
            due.by(at);
        }
        now >= at
    }

    /// When a round may sign another challenge, if readers wait for that: of a young death.
    pub(super) fn challenged(&self, now: Millis) -> Option<Millis> {
        match self.next {
            Next::Common(from) if self.is_young_death(now) => Some(from.max(now)),
            Next::Common(_) | Next::At(_) => None,
        }
    }

    /// The agent of the node proved its life. Returns whether that calls for a round at once.
    pub(super) fn lives(&mut self, now: Millis) -> bool {
        let late = self.is_dead() && self.awaits_common_round();
        if late {
            self.next = Next::At(now);
        }
        late
    }

    /// A round about the node is over. Returns by when the next common round has to begin for it.
    pub(super) fn conclude(&mut self, cx: &Context, outcome: Outcome) -> Option<Millis> {
        let (now, kind, began) = (cx.now(), outcome.kind, outcome.began);
        let signs_other = outcome.challenge != cx.challenge();
        self.hold(cx, outcome);
        let soon = began.plus(LEAST_GAP_MS);
        let (from, by) = match kind {
            // The challenge was replaced while the round was under way.
            VerdictKind::Dead if self.is_young_death(now) && signs_other => (soon, soon.max(now)),
            VerdictKind::Dead if self.is_young_death(now) => (soon, began.plus(REPEAT_YOUNG_DEATH_MS)),
            VerdictKind::Dead => (began.plus(RENEW_DEAD_MS), began.plus(RENEW_DEAD_MS)),
            VerdictKind::Alive => (soon, began.plus(RENEW_ALIVE_MS)),
            VerdictKind::None => (now.plus(RETRY_MS[1]), now.plus(RENEW_ALIVE_MS)),
        };
        let retry = RETRY_MS.get(self.failures).filter(|_| kind == VerdictKind::None);
        self.failures = if kind == VerdictKind::None {
            self.failures + 1
        } else {
            0
        };
        // It was lost while the round was under way, which may have heard it before.
        if kind == VerdictKind::Alive && self.suspect_since.is_some_and(|since| since > began) {
            self.next = Next::At(now);
            return None;
        }
        if let Some(wait) = retry {
            self.next = Next::At(now.plus(*wait));
            return None;
        }
        self.next = Next::Common(from);
        Some(by)
    }

    fn hold(&mut self, cx: &Context, outcome: Outcome) {
        let (now, kind) = (cx.now(), outcome.kind);
        let former = self.held.as_ref().map(|held| held.kind);
        let same_kind = self.held.as_ref().filter(|held| held.kind == kind);
        let since = same_kind.map_or(now, |held| held.since);
        let lesson = (kind, Some(outcome.challenge));
        let no_news = same_kind.filter(|held| is_no_news(lesson, (held.kind, held.signed())));
        let news_since = no_news.map_or(now, |held| held.news_since);
        // Death stays until evidence of life, life until it runs out: no majority changes neither.
        if kind == VerdictKind::None && matches!(former, Some(VerdictKind::Dead | VerdictKind::Alive)) {
            return;
        }
        self.held = Some(Held {
            kind,
            since,
            news_since,
            made: now,
            reason: outcome.reason(cx.roster().voters(), self.facts),
            evidence: outcome.into_evidence(cx),
        });
    }
}
