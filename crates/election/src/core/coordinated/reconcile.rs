//! One look at a Lease and its candidates.

use super::{Candidate, Strategies, StrategyConflict, Timing, later, pick_best_strategy};
use jiff::Timestamp;
use std::time::Duration;

/// The Lease as a coordinator sees it. Absent texts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseView {
    /// Who holds it.
    pub holder: String,
    /// Who should, once the holder's term is over.
    pub preferred_holder: String,
    /// The strategy it is labelled with.
    pub strategy: String,
    /// For how long it is valid after a renewal; `None` makes it expired.
    pub duration_seconds: Option<i32>,
    /// Its last renewal, by the holder's clock; `None` makes it expired.
    pub renew_time: Option<Timestamp>,
    /// For how long the coordinator itself has watched it without seeing a renewal or another holder. `None` has the
    /// holder's clock compared with ours, which is what Kubernetes' coordinator does.
    pub unchanged_for: Option<Duration>,
}

impl LeaseView {
    /// For how long it is still valid; `None` once it is not.
    fn remaining(&self, now: Timestamp) -> Option<Duration> {
        let valid_for = Duration::from_secs(u64::try_from(self.duration_seconds?).unwrap_or(0));
        let renewed = self.renew_time?;
        match self.unchanged_for {
            Some(unchanged) => valid_for.checked_sub(unchanged),
            None => Duration::try_from(later(renewed, valid_for).duration_since(now)).ok(),
        }
    }
}

/// What to write to the Lease. Each is one write, conditional on the Lease being as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// Make it: this strategy, this holder if the choice is ours, renewed now, valid for [`Timing::lease`].
    Create {
        /// The strategy.
        strategy: String,
        /// The elected one.
        holder: Option<String>,
    },
    /// Give it to somebody: the holder, no preferred holder, no acquire time, renewed now, valid for
    /// [`Timing::lease`], one more transition.
    Assign {
        /// The strategy.
        strategy: String,
        /// The elected one.
        holder: String,
    },
    /// Ask the holder, whose Lease is valid, to let it run out for somebody better.
    Prefer {
        /// The strategy.
        strategy: String,
        /// The elected one.
        holder: String,
    },
    /// Only say which strategy it is under; the choice is somebody else's, or has not changed.
    Label {
        /// The strategy.
        strategy: String,
    },
}

/// What a look comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There are no candidates: the Lease, if there is one, is not coordinated. No need to look again.
    Idle,
    /// Nothing to write. The Lease has a good holder, or its holder's term has to end first.
    Settled {
        /// When to look again: when the Lease would expire, and at least every [`Timing::requeue`].
        again: Duration,
    },
    /// An election is on: write `pingTime` = now to these candidates (perhaps none) and wait for answers.
    Poll {
        /// Names of the candidates to ask.
        ping: Vec<String>,
    },
    /// An election is over: write its result.
    Write(LeaseChange),
}

impl Step {
    /// When to look again at the latest; `None` if only a change makes another look worthwhile.
    pub fn requeue(&self, timing: &Timing) -> Option<Duration> {
        match self {
            Self::Idle => None,
            Self::Settled { again } => Some(*again),
            Self::Poll { .. } => Some(timing.requeue.min(timing.election)),
            Self::Write(_) => Some(timing.requeue),
        }
    }
}

/// Why an election has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Everybody was asked and nobody answered. They are asked again once one of them shows itself.
    #[error(
        "none of the {asked} candidates answered within {within:?}; are they running, and may they update their LeaseCandidate?"
    )]
    NobodyAnswered {
        /// How many were asked.
        asked: usize,
        /// How long they had.
        within: Duration,
    },
    /// Candidates answered, and the strategy chooses none of them.
    #[error(
        "no candidate can lead by {strategy}: it needs versions like 1.2.3 in binaryVersion and emulationVersion"
    )]
    NobodyElectable {
        /// The strategy.
        strategy: String,
    },
    /// See there.
    #[error(transparent)]
    Conflict(#[from] StrategyConflict),
}

/// One look: what to do about the Lease named by the candidates.
///
/// `candidates` are those that stand for this Lease; expired ones are passed over. An election is held when the Lease
/// is missing, expired or free, when a candidate has not been heard of for half its life, and when somebody better
/// than the holder is there. In it, whoever has not shown itself lately is asked to; what counts is who answers in
/// time. The order of candidates does not matter.
///
/// # Errors
/// An election without a result. The Lease stays as it is.
pub fn reconcile(
    lease: Option<&LeaseView>,
    candidates: &[Candidate],
    strategies: &Strategies,
    timing: &Timing,
    now: Timestamp,
) -> Result<Step, Refusal> {
    let candidates: Vec<&Candidate> = candidates
        .iter()
        .filter(|candidate| !candidate.is_expired(timing, now))
        .collect();
    if candidates.is_empty() {
        return Ok(Step::Idle);
    }
    if !election_needed(lease, &candidates, strategies, timing, now)? {
        return Ok(settled(lease, timing, now));
    }
    if let Some(ping) = poll(&candidates, timing, now) {
        return Ok(Step::Poll { ping });
    }
    let answered: Vec<&Candidate> = candidates
        .iter()
        .copied()
        .filter(|candidate| candidate.is_fresh(timing, now))
        .collect();
    let Some(strategy) = pick_best_strategy(&answered)? else {
        return Err(Refusal::NobodyAnswered {
            asked: candidates.len(),
            within: timing.election,
        });
    };
    let electee = match strategies.get(strategy) {
        None => None,
        Some(rule) => Some(rule.best(&answered).ok_or_else(|| Refusal::NobodyElectable {
            strategy: strategy.to_owned(),
        })?),
    };
    let electee = electee.map(|electee| electee.name.clone());
    let change = decide(lease, strategy.to_owned(), electee, now);
    Ok(change.map_or_else(|| settled(lease, timing, now), Step::Write))
}

fn settled(lease: Option<&LeaseView>, timing: &Timing, now: Timestamp) -> Step {
    // Valid up to and including its last moment, so a moment after that.
    let expiry = lease
        .and_then(|lease| lease.remaining(now))
        .map(|remaining| remaining + Duration::from_millis(1));
    Step::Settled {
        again: expiry.map_or(timing.requeue, |expiry| expiry.min(timing.requeue)),
    }
}

fn election_needed(
    lease: Option<&LeaseView>,
    candidates: &[&Candidate],
    strategies: &Strategies,
    timing: &Timing,
    now: Timestamp,
) -> Result<bool, StrategyConflict> {
    let Some(lease) = lease else {
        return Ok(true);
    };
    if lease.holder.is_empty() || lease.remaining(now).is_none() {
        return Ok(true);
    }
    let long_unheard = |candidate: &&Candidate| {
        candidate
            .renew_time
            .is_some_and(|renewed| later(renewed, timing.candidate_valid / 2) < now)
    };
    if candidates.iter().any(long_unheard) {
        return Ok(true);
    }
    let rule = pick_best_strategy(candidates)?.and_then(|strategy| strategies.get(strategy));
    let best = rule.and_then(|rule| rule.best(candidates));
    Ok(best.is_some_and(|best| best.name != lease.holder))
}

/// Whom to ask now; `None` when everybody has answered or had the time to.
fn poll(candidates: &[&Candidate], timing: &Timing, now: Timestamp) -> Option<Vec<String>> {
    let mut ping = Vec::new();
    let mut waiting = false;
    for candidate in candidates {
        let recent = candidate
            .ping_time
            .is_some_and(|pinged| later(pinged, timing.election) > now);
        match candidate.unanswered_ping() {
            Some(_) if recent => waiting = true,
            _ if candidate.is_fresh(timing, now) => {}
            // It had its time. It is asked again when it has shown itself.
            Some(_) => {}
            None => ping.push(candidate.name.clone()),
        }
    }
    (waiting || !ping.is_empty()).then_some(ping)
}

fn decide(
    lease: Option<&LeaseView>,
    strategy: String,
    electee: Option<String>,
    now: Timestamp,
) -> Option<LeaseChange> {
    let Some(lease) = lease else {
        return Some(LeaseChange::Create {
            strategy,
            holder: electee,
        });
    };
    match electee {
        // A holder that is elected anew after its Lease has run out is told so as well: it waits for the word.
        Some(holder) if lease.holder.is_empty() || lease.remaining(now).is_none() => {
            Some(LeaseChange::Assign { strategy, holder })
        }
        Some(holder) if lease.holder != holder => {
            let said = lease.preferred_holder == holder && lease.strategy == strategy;
            (!said).then_some(LeaseChange::Prefer { strategy, holder })
        }
        _ => (lease.strategy != strategy).then_some(LeaseChange::Label { strategy }),
    }
}

/// The candidates whose objects can be deleted. Ask again for each right before: it may just have come back.
pub fn expired_candidates<'a>(
    candidates: impl IntoIterator<Item = &'a Candidate>,
    timing: &Timing,
    now: Timestamp,
) -> Vec<&'a Candidate> {
    candidates
        .into_iter()
        .filter(|candidate| candidate.is_expired(timing, now))
        .collect()
}
