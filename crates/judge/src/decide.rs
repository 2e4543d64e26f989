//! The decision table: evidence about a node, and what was decided before, to the state of the node.
//!
//! First match wins; the table is total.
//!
//! | Lease | verdict | state |
//! |---|---|---|
//! | any, Isolated latched | anything but alive | Isolated; Dead at stock pace once not renewed for the stock grace period, and its agent not seen writing |
//! | any, Dead latched | anything but alive, not renewed since | Dead: announced, confirmed by a later round, or paused |
//! | renewed since, or its agent wrote | Dead latched | Isolated |
//! | any | dead, by a round that names the last renewal; its agent wrote since | Isolated |
//! | any | dead, by a round that names the last renewal | Dead, announced |
//! | any | dead, by a round that names a renewal which we have not seen yet | held |
//! | any | dead, by a round that names an earlier renewal; it wrote since the round came | Isolated |
//! | any | dead, by a round that names an earlier renewal; nothing since | as without a verdict |
//! | fresh | anything else | Healthy |
//! | not yet known | alive, after Dead | Disconnected |
//! | stale | alive; kubelet or runtime broken for 60 s, or the agent seen writing for 60 s | KubeletDown |
//! | stale | alive, none of that | Disconnected |
//! | stale | none; the zone, which used to report, is silent, and every member's Lease is stale | Dark |
//! | stale | none; Dark before, and since then neither the zone nor a Lease of it was seen | Dark |
//! | stale | none, everything else | Unknown |
//!
//! Where some watch is not proven live, only evidence of life changes anything (hazard 55). Where the Lease
//! was not watched for long enough to tell, the former state is held.

use crate::evidence::{Evidence, Lease, Timing};
use crate::memory::{DeadLatch, Latch, Memory, Recorded};
use crate::sight::View;
use crate::state::{Dead, NodeState, Reason, Slow};
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Alive, Death, Health, NoVerdict, Verdict};
use std::cmp::Ordering;

/// Peers must have vouched for a node for this long, and called its kubelet and runtime well, before marks of
/// ours are given back (hazard 37).
pub const GIVE_BACK_AFTER_MS: u64 = 10_000;

/// A record of the leader that contradicts a majority of the cell is followed for so long.
const OVERRULED_MS: u64 = 60_000;

/// What was decided about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The state, with what to remember.
    pub memory: Memory,
    /// Why the node is in that state.
    pub reason: Reason,
    /// What could be seen. Under [`View::Held`] nothing that could harm a node may be done, under
    /// [`View::Lost`] nothing at all.
    pub view: View,
    /// The state is only held: the evidence does not suffice to decide anew.
    pub held: bool,
}

impl Decision {
    /// The state that was decided.
    pub fn state(&self) -> NodeState {
        self.memory.state
    }

    /// Whether marks of ours on the node's pods are to be given back: it is Disconnected, so that its kubelet
    /// cannot, and its peers have vouched for it for long enough.
    pub fn gives_back(&self, now: Millis) -> bool {
        let well = |since| now.since(since) >= GIVE_BACK_AFTER_MS;
        self.state() == NodeState::Disconnected && self.memory.well_since.is_some_and(well)
    }

    /// Whether anything that could harm the node may be done on this decision.
    pub fn may_harm(&self) -> bool {
        self.view == View::Full && !self.held
    }
}

/// After a power cut, a node is back when it has been seen alive without a break for this long.
const BACK_FOR_MS: u64 = 60_000;

/// A zone that was dark comes back member by member: kubelets renew every 10 s, and peers that vouch for the
/// others need up to 15 s. Until then, of whom nothing was heard yet is as Dark as before.
const DARK_ENDS_MS: u64 = 20_000;

/// What the evidence says.
enum Row {
    /// The node is in this state.
    Is(NodeState, Reason),
    /// The evidence does not suffice; the former state is held.
    Unsaid(Reason),
}

/// The decision table. Total: every evidence has an answer.
pub fn decide(evidence: &Evidence, memory: &Memory, timing: &Timing, now: Millis) -> Decision {
    let view = evidence.sight.at(now);
    let case = Case {
        evidence,
        timing,
        now,
        lease: evidence.life.lease(&evidence.sight.leases, timing, now),
        alive: counts_as_alive(evidence, timing, now),
    };
    let mut next = case.remember(memory);
    let row = case.row(memory, &mut next);
    let (state, reason) = match row {
        Row::Is(state, reason) if view == View::Full || case.is_life(state, memory) => (state, reason),
        Row::Is(..) => return held(memory, &next, Reason::Blind, view),
        Row::Unsaid(reason) => return held(memory, &next, reason, view),
    };
    if !state.same_row(memory.state) || memory.since == Millis(0) {
        next.since = now;
    }
    next.state = state;
    Decision {
        memory: next,
        reason,
        view,
        held: false,
    }
}

/// The former state, with what was noted of the new evidence.
fn held(memory: &Memory, noted: &Memory, reason: Reason, view: View) -> Decision {
    Decision {
        memory: Memory {
            life: noted.life,
            lived_from: noted.lived_from,
            known_from: noted.known_from,
            zone_returns: noted.zone_returns,
            ..*memory
        },
        reason,
        view,
        held: true,
    }
}

/// What a replica says that does not lead: what the leader has recorded, as long as the leader is seen to
/// work. Without a record it says what it decided itself (hazard 50), and so it does where the record
/// contradicts for too long what a majority of the cell says. Its own memory is kept in any case.
pub fn follow(own: &Decision, leader: Option<&Recorded>, now: Millis) -> Decision {
    let counts = |recorded: &&Recorded| own.view != View::Lost && !is_overruled(own, recorded, now);
    let Some(recorded) = leader.filter(counts) else {
        return *own;
    };
    // The leader's `since` is taken as well, so that what is protected for a time ends at the same time
    // everywhere.
    let memory = Memory {
        state: recorded.state,
        since: recorded.since,
        life: recorded.life.or(own.memory.life),
        ..own.memory
    };
    if recorded.state == own.state() {
        return Decision { memory, ..*own };
    }
    Decision {
        memory,
        reason: Reason::LeaderSays,
        view: own.view,
        held: false,
    }
}

/// Whether a majority of the cell has said the contrary of the leader's record for so long, and this replica
/// sees everything, that the leader does not see it: one that works records it within seconds.
fn is_overruled(own: &Decision, recorded: &Recorded, now: Millis) -> bool {
    let says_dead = matches!(recorded.state, NodeState::Dead(_));
    let contradicts = match own.state() {
        NodeState::Dead(Dead::Announced | Dead::Confirmed) => !says_dead,
        NodeState::Disconnected => says_dead,
        _ => false,
    };
    contradicts && own.view == View::Full && now.since(own.memory.since) >= OVERRULED_MS
}

/// Evidence of life as far as it counts at `now`: until it runs out, or for a while after sight was lost.
fn counts_as_alive(evidence: &Evidence, timing: &Timing, now: Millis) -> Option<Alive> {
    match evidence.verdict {
        Verdict::Alive(alive) => {
            let valid = alive.until.plus(timing.patience) > now || evidence.sight.keeps(alive.until, now);
            valid.then_some(alive)
        }
        Verdict::None(_) | Verdict::Dead(_) | Verdict::OneShort(_) => None,
    }
}

/// The evidence with what follows from it alone.
struct Case<'a> {
    evidence: &'a Evidence,
    timing: &'a Timing,
    now: Millis,
    lease: Lease,
    alive: Option<Alive>,
}

impl Case<'_> {
    /// Carries over how long things have lasted.
    fn remember(&self, memory: &Memory) -> Memory {
        let now = self.now;
        let broken = |alive: &Alive| alive.kubelet == Health::Failing || alive.runtime == Health::Failing;
        let proven = self.alive.filter(|alive| alive.until > now);
        let well = proven.is_some_and(|alive| alive.kubelet == Health::Ok && !broken(&alive));
        let lasting = |holds: bool, since: Option<Millis>| holds.then(|| since.unwrap_or(now));
        let heard = !matches!(self.evidence.verdict, Verdict::None(_));
        let life = memory
            .life
            .max(self.evidence.life.renewed)
            .max(self.alive.map(|alive| alive.received));
        let goes_on = life.zip(memory.life).is_some_and(|(life, before)| {
            life.since(before) < self.timing.stale_after && memory.lived_from.is_some()
        });
        Memory {
            broken_since: lasting(self.alive.as_ref().is_some_and(broken), memory.broken_since),
            well_since: lasting(well, memory.well_since),
            life,
            lived_from: if goes_on { memory.lived_from } else { life },
            // For how long it had been silent before this replica first saw it, nobody knows.
            known_from: memory.known_from.or(self.evidence.life.first_seen),
            zone_returns: lasting(
                memory.state == NodeState::Dark && self.zone_returns(),
                memory.zone_returns,
            ),
            vouched_before: memory.vouched_before && !heard && self.evidence.sight.is_recovering(now),
            ..*memory
        }
    }

    fn row(&self, memory: &Memory, next: &mut Memory) -> Row {
        if self.alive.is_some() {
            // A majority in fresh contact with the node is evidence of life, and of reachability.
            next.latch = Latch::Open;
        }
        match next.latch {
            Latch::Isolated { since } => self.isolated(since, next),
            Latch::Dead(death) => self.dead(death, next),
            Latch::Open => match self.evidence.verdict {
                // Who is left alone in its cell cannot be acquitted by anybody.
                Verdict::Dead(round) if !self.evidence.zone.is_alone => {
                    self.first_round(&round, memory, next)
                }
                Verdict::OneShort(round) if self.pair_lost(&round) => {
                    self.latch(&round, Some(Slow::Pair), next)
                }
                _ => self.by_lease(memory),
            },
        }
    }

    /// An Isolated node: its peers could not reach it. It is Dead only after the grace period of stock
    /// Kubernetes (hazard 38), and not while its agent writes. If only its kubelet is silent, stock
    /// Kubernetes acts without us.
    fn isolated(&self, since: Millis, next: &mut Memory) -> Row {
        let (life, now) = (&self.evidence.life, self.now);
        if self.evidence.verdict == Verdict::None(NoVerdict::NotAMember) || self.evidence.zone.is_alone {
            // No peer is left that could ever vouch for it.
            next.latch = Latch::Open;
            return self.by_lease(next);
        }
        let grace = self.timing.stock_grace + self.timing.patience;
        let silent = life.silent_for(&self.evidence.sight.leases, now);
        let is_stale = life.is_marked(self.timing.patience) || silent.is_some_and(|silence| silence >= grace);
        // A replica that starts, or saw nothing for a while, has not seen whether its agent writes.
        let writes = self.evidence.agent.since(now).is_some() || self.evidence.sight.is_recovering(now);
        if !is_stale || writes {
            next.latch = Latch::Isolated { since };
            return Row::Is(NodeState::Isolated, Reason::RenewedAfterVerdict);
        }
        let slow = Slow::WasIsolated;
        next.latch = Latch::Dead(DeadLatch {
            requested: now,
            renewal: life.renewal,
            received: now,
            own: Some(now),
            later: None,
            confirmed: None,
            slow: Some(slow),
        });
        Row::Is(NodeState::Dead(Dead::AtStockPace), Reason::VotedDeadSlowly(slow))
    }

    /// The first round that finds the node dead.
    fn first_round(&self, round: &Death, memory: &Memory, next: &mut Memory) -> Row {
        let life = &self.evidence.life;
        match life.order(round.renewal) {
            // It has renewed, or its agent has written, since the round came: its peers could not reach it,
            // and it lives. Before that, such a round says nothing: who asked has named the renewal, and
            // nobody vouches for that.
            Ordering::Less
                if life.seen_since(round.received) || self.evidence.agent.seen_since(round.received) =>
            {
                next.latch = Latch::Isolated { since: self.now };
                return Row::Is(NodeState::Isolated, Reason::RenewedAfterVerdict);
            }
            Ordering::Less => return self.by_lease(memory),
            // It was not seen for so long that the Lease is stale: who asked has made it up.
            Ordering::Greater if self.lease == Lease::Stale => return self.by_lease(memory),
            Ordering::Greater => return Row::Unsaid(Reason::RenewalNotSeen),
            Ordering::Equal => {}
        }
        let has_lease = life.renewal.is_some();
        if self.evidence.agent.seen_since(round.requested) || !has_lease && life.seen_since(round.requested) {
            next.latch = Latch::Isolated { since: self.now };
            return Row::Is(NodeState::Isolated, Reason::RenewedAfterVerdict);
        }
        match life.known_since() {
            Some(known) if has_lease || known < round.requested => {
                let slow = (self.lease == Lease::Stale).then_some(Slow::LeaseWasStale);
                self.latch(round, slow, next)
            }
            // Without a Lease: the round is older than what we know of the node, which has been silent since.
            _ if self.lease == Lease::Stale => self.dark_or(next, Reason::NoVerdict(NoVerdict::Void)),
            _ => Row::Unsaid(Reason::LeaseNotProven),
        }
    }

    /// In a zone of two, this side votes no by the same rule that lets it act: silence of 1.5 renewal
    /// intervals, and no renewal since the one that the round names (hazards 13 and 21).
    fn pair_lost(&self, round: &Death) -> bool {
        let life = &self.evidence.life;
        let known_before = life.known_since().is_some_and(|known| known < round.requested);
        self.silent_long_enough()
            && life.order(round.renewal) == Ordering::Equal
            && (life.renewal.is_some() || known_before)
    }

    fn latch(&self, round: &Death, slow: Option<Slow>, next: &mut Memory) -> Row {
        let slow = slow.or(next.flaps.is_flapping(self.now).then_some(Slow::Flapping));
        next.flaps = next.flaps.and_one(self.now);
        let death = DeadLatch {
            requested: round.requested,
            renewal: Some(round.renewal),
            received: round.received,
            own: Some(round.received),
            later: None,
            confirmed: None,
            slow,
        };
        next.latch = Latch::Dead(death);
        self.dead(death, next)
    }

    /// A death stands until evidence of life. A renewal is such evidence; that its peers do not vouch for it
    /// makes it Isolated.
    fn dead(&self, mut death: DeadLatch, next: &mut Memory) -> Row {
        if self.evidence.lived_after(&death) {
            next.latch = Latch::Isolated { since: self.now };
            return Row::Is(NodeState::Isolated, Reason::RenewedAfterVerdict);
        }
        let round = match self.evidence.verdict {
            Verdict::Dead(round) if self.evidence.life.order(round.renewal) == Ordering::Equal => Some(round),
            _ => None,
        };
        if let Some(round) = round.filter(|_| death.confirmed.is_none()) {
            let first = *death.own.get_or_insert(round.received);
            // A majority that heard it since, or began anew, does not speak for all the time since the first
            // round. It may do so for the time since this one.
            let covers = |first: Millis| round.silence_ms > round.received.since(first);
            if !covers(first) && !death.later.is_some_and(|(later, _)| covers(later)) {
                let slow = (self.lease == Lease::Stale).then_some(Slow::LeaseWasStale);
                death.later = Some((round.received, slow));
            }
        }
        if death.confirmed.is_none() && self.evidence.zone.may_be_split {
            death.slow = death.slow.or(Some(Slow::SeveralCells));
        }
        if death.confirmed.is_none() && !self.was_back(next) {
            death.slow = death.slow.or(Some(Slow::Returning));
        }
        if let Some(round) = round.filter(|_| death.confirmed.is_none())
            && let Some((_, slow)) = self.confirms(&death, &round)
        {
            let split = self.evidence.zone.may_prove_split.then_some(Slow::OthersSilent);
            match slow.or(split) {
                Some(slow) => death.slow = death.slow.or(Some(slow)),
                None => death.confirmed = Some(round.received),
            }
        }
        next.latch = Latch::Dead(death);
        let silent = self
            .evidence
            .zone
            .is_silent(&self.evidence.sight.reports, self.timing, self.now);
        let (phase, reason) = match (death.slow, death.confirmed) {
            (Some(slow), _) => (Dead::AtStockPace, Reason::VotedDeadSlowly(slow)),
            _ if round.is_none() || silent => (Dead::Paused, Reason::NobodyReports),
            (None, Some(_)) if self.silent_long_enough() => (Dead::Confirmed, Reason::VotedDeadTwice),
            (None, _) => (Dead::Announced, Reason::VotedDead),
        };
        Row::Is(NodeState::Dead(phase), reason)
    }

    /// Whether the node had been back for long enough when it was last seen alive, where most of its cell
    /// booted shortly before (hazard 43). Whoever was not away has been back for ever.
    fn was_back(&self, memory: &Memory) -> bool {
        let lived = memory.life.zip(memory.lived_from);
        !self.evidence.zone.is_returning || lived.is_some_and(|(life, from)| life.since(from) >= BACK_FOR_MS)
    }

    /// Whether a later round confirms a death (hazard 36): its ballots sign a challenge that was drawn long
    /// enough after the first round was received, and a majority of them had had no contact since then. Both
    /// are signed by the voters. Only who drew the challenge knows when that was, so only a leader confirms.
    /// Returns with which round the death began, and why it is not accelerated.
    fn confirms(&self, death: &DeadLatch, round: &Death) -> Option<(Millis, Option<Slow>)> {
        let mut rounds = death.first_rounds();
        let began = rounds.find(|(first, confirmable, _)| {
            round.challenged.is_some_and(|drawn| drawn >= *confirmable)
                && round.silence_ms > round.received.since(*first)
                && self.silent_long_enough()
                // Who was cut off together with it is late by now.
                && self.now.since(*first) >= self.timing.overdue_after()
        });
        began.map(|(first, _, slow)| (first, slow))
    }

    /// Neither latch nor dead verdict: the Lease decides, and the neighbours where it is stale.
    fn by_lease(&self, memory: &Memory) -> Row {
        let grace = |since: Option<Millis>| {
            let grace = self.timing.kubelet_grace + self.timing.patience;
            since.is_some_and(|since| self.now.since(since) >= grace)
        };
        match (self.lease, self.alive) {
            (Lease::Fresh, _) => Row::Is(NodeState::Healthy, Reason::Renewing),
            // That it lives takes a death back, whatever its Lease will say.
            (Lease::Unproven, Some(_)) if matches!(memory.state, NodeState::Dead(_)) => {
                Row::Is(NodeState::Disconnected, Reason::VouchedForAgain)
            }
            (Lease::Unproven, _) => Row::Unsaid(Reason::LeaseNotProven),
            (Lease::Stale, Some(alive)) => {
                let broken = alive.kubelet == Health::Failing || alive.runtime == Health::Failing;
                let writes = self.evidence.agent.since(self.now);
                // A replica that starts has not seen for how long: what was recorded stands for as long as
                // the next write of the agent takes, and then for as long as the evidence for it goes on.
                let before = memory.state == NodeState::KubeletDown;
                let awaited = before && self.evidence.sight.is_recovering(self.now);
                if broken && (before || grace(memory.broken_since)) {
                    Row::Is(NodeState::KubeletDown, Reason::KubeletBroken)
                } else if grace(writes) || before && writes.is_some() || awaited {
                    Row::Is(NodeState::KubeletDown, Reason::AgentReachesApi)
                } else {
                    Row::Is(NodeState::Disconnected, Reason::VouchedFor)
                }
            }
            (Lease::Stale, None) => self.no_verdict(memory),
        }
    }

    fn no_verdict(&self, memory: &Memory) -> Row {
        let (evidence, now) = (self.evidence, self.now);
        let why = match evidence.verdict {
            Verdict::None(why) => why,
            Verdict::Alive(_) => return self.dark_or(memory, Reason::EvidenceRanOut),
            Verdict::Dead(_) | Verdict::OneShort(_) => NoVerdict::NoMajority,
        };
        if memory.vouched_before && evidence.sight.is_recovering(now) {
            return Row::Is(NodeState::Disconnected, Reason::VouchedForBefore);
        }
        if why == NoVerdict::NotAMember {
            // A node that no agent watches was never vouched for: it is stock, whatever its zone does.
            return Row::Is(NodeState::Unknown, Reason::NoVerdict(why));
        }
        self.dark_or(memory, Reason::NoVerdict(why))
    }

    fn dark_or(&self, memory: &Memory, reason: Reason) -> Row {
        let (zone, reports) = (&self.evidence.zone, &self.evidence.sight.reports);
        let silent = zone.is_silent(reports, self.timing, self.now);
        let was_dark = memory.state == NodeState::Dark && zone.reported;
        let returns = memory.zone_returns.unwrap_or(self.now);
        if silent && !zone.some_member_fresh {
            Row::Is(NodeState::Dark, Reason::ZoneSilent)
        } else if was_dark && !self.zone_returns() {
            // Its time began when it became dark, not when this replica did, or its watch (hazards 50, 54,
            // 55).
            Row::Is(NodeState::Dark, Reason::ZoneSilentBefore)
        } else if was_dark && self.now.since(returns) < DARK_ENDS_MS {
            Row::Is(NodeState::Dark, Reason::ZoneReturns)
        } else {
            Row::Is(NodeState::Unknown, reason)
        }
    }

    /// Whether there is a sign that the zone is dark no more.
    fn zone_returns(&self) -> bool {
        let (zone, reports) = (&self.evidence.zone, &self.evidence.sight.reports);
        let silent = zone.is_silent(reports, self.timing, self.now);
        zone.some_member_renews || !silent && zone.was_seen(reports, self.now)
    }

    fn silent_long_enough(&self) -> bool {
        self.evidence
            .life
            .silent_for(&self.evidence.sight.leases, self.now)
            .is_some_and(|silence| silence >= self.timing.confirm_after)
    }

    /// Whether a state is entered on evidence of life alone, which counts on any live watch.
    fn is_life(&self, state: NodeState, memory: &Memory) -> bool {
        match state {
            NodeState::Healthy => true,
            NodeState::Disconnected => self.alive.is_some() || memory.vouched_before,
            NodeState::Isolated => matches!(memory.latch, Latch::Dead(_) | Latch::Isolated { .. }),
            NodeState::KubeletDown | NodeState::Dead(_) | NodeState::Unknown | NodeState::Dark => false,
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
