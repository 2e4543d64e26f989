//! What is going on with one node.

use super::rounds::{Evidence, Outcome};
use crate::Millis;
use crate::engine::context::Context;
use crate::engine::due::Due;
use crate::verdict::ALIVE_TTL_MS;
use crate::wire::Facts;
use evenkeel_api::zone::VerdictKind;

/// Suspects that come up within this time share a round.
const GATHER_MS: u64 = 100;
/// Evidence of life is renewed this often: three times within its time to live.
const RENEW_ALIVE_MS: u64 = 4_500;
/// While a death is young its round is repeated this often, counted from the start of the round. Readers need
/// two rounds whose requests lie at least 12 s apart. Three repeats make 12.75 s; the rest is for writes that
/// take differently long.
const REPEAT_YOUNG_DEATH_MS: u64 = 4_250;
/// A death is young for this long after this reporter first held it.
const YOUNG_DEATH_MS: u64 = 60_000;
/// Evidence of an older death is renewed this often, counted from the start of the round, so that it fits the
/// present roster and later renewals of the Lease.
const RENEW_DEAD_MS: u64 = 10_000;
/// A round without majority is repeated after 1, 2, 4, then every 5 s.
const RETRY_MS: [u64; 4] = [1_000, 2_000, 4_000, 5_000];
/// How long a node must be well before it is taken off the list: after suspicion, and after a cut cloud link.
const ACQUIT_SUSPECT_MS: u64 = 15_000;
const ACQUIT_TROUBLED_MS: u64 = 5_000;

/// What is going on with one node.
#[derive(Default)]
pub(super) struct Case {
    unstable_since: Option<Millis>,
    suspect_since: Option<Millis>,
    /// What its own agent or its observers say of it.
    facts: Facts,
    troubled: bool,
    was_suspect: bool,
    next_round: Millis,
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

impl Case {
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspect_since.is_some()
    }

    /// Whether rounds are held about it, whatever the controller wants.
    pub(super) fn is_listed(&self) -> bool {
        self.is_suspect() || self.troubled || self.held.is_some()
    }

    pub(super) fn next_round(&self) -> Millis {
        self.next_round
    }

    /// How much earlier than it is due its next round may be held. Rounds about a death are not held earlier:
    /// they would confirm it later, because readers count the time between rounds.
    pub(super) fn shares(&self, at_most: u64) -> u64 {
        let dead = self
            .held
            .as_ref()
            .is_some_and(|held| held.kind == VerdictKind::Dead);
        if dead { 0 } else { at_most }
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
                self.next_round = now.plus(GATHER_MS);
                became_suspect = true;
            }
            (false, Some(_)) if down < low => {
                self.suspect_since = None;
                self.failures = 0;
                self.next_round = now;
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

    /// The agent of the node proved its life. Returns whether that calls for a round at once.
    pub(super) fn lives(&mut self, now: Millis) -> bool {
        let dead = self
            .held
            .as_ref()
            .is_some_and(|held| held.kind == VerdictKind::Dead);
        let late = dead && self.next_round > now.plus(RETRY_MS[0]);
        if late {
            self.next_round = now;
        }
        late
    }

    /// A round about the node is over.
    pub(super) fn conclude(&mut self, cx: &Context, outcome: Outcome) {
        let (now, kind) = (cx.now(), outcome.kind);
        let former = self.held.as_ref().map(|held| held.kind);
        let same_kind = self.held.as_ref().filter(|held| held.kind == kind);
        let since = same_kind.map_or(now, |held| held.since);
        self.next_round = match kind {
            VerdictKind::Dead if now.since(since) < YOUNG_DEATH_MS => {
                outcome.began.plus(REPEAT_YOUNG_DEATH_MS)
            }
            VerdictKind::Dead => outcome.began.plus(RENEW_DEAD_MS),
            VerdictKind::Alive => now.plus(RENEW_ALIVE_MS),
            VerdictKind::None => now.plus(RETRY_MS.get(self.failures).copied().unwrap_or(RETRY_MS[3])),
        };
        self.failures = if kind == VerdictKind::None {
            self.failures + 1
        } else {
            0
        };
        // Death stays until evidence of life, life until it runs out: no majority changes neither.
        if kind == VerdictKind::None && matches!(former, Some(VerdictKind::Dead | VerdictKind::Alive)) {
            return;
        }
        self.held = Some(Held {
            kind,
            since,
            made: now,
            reason: outcome.reason(cx.roster().len(), self.facts),
            evidence: outcome.into_evidence(cx),
        });
    }
}
