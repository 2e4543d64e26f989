//! Decides what a coordinator writes for one Lease and its candidates.

use super::{Candidate, Strategies, StrategyConflict, Timing, later, pick_best_strategy};
use jiff::Timestamp;
use std::time::Duration;

/// The fields of a Lease that a coordinator uses. Absent texts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseView {
    /// The candidate that holds the Lease.
    pub holder: String,
    /// The candidate that should get the Lease after the holder's term.
    pub preferred_holder: String,
    /// The strategy that is recorded in the Lease.
    pub strategy: String,
    /// For how long the Lease is valid after a renewal. With `None` it counts as expired.
    pub duration_seconds: Option<i32>,
    /// Its last renewal, on the holder's clock. With `None` it counts as expired.
    pub renew_time: Option<Timestamp>,
    /// For how long the coordinator itself has seen neither a renewal nor another holder. With `None` the
    /// holder's clock is compared with our own, as Kubernetes' coordinator does.
    pub unchanged_for: Option<Duration>,
}

impl LeaseView {
    /// For how long the Lease is still valid; `None` once it has expired.
    fn remaining(&self, now: Timestamp) -> Option<Duration> {
        let valid_for = Duration::from_secs(u64::try_from(self.duration_seconds?).unwrap_or(0));
        let renewed = self.renew_time?;
        match self.unchanged_for {
            Some(unchanged) => valid_for.checked_sub(unchanged),
            None => Duration::try_from(later(renewed, valid_for).duration_since(now)).ok(),
        }
    }
}

/// A write to the Lease, on the condition that it has not changed since it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// Create the Lease, renewed now and valid for [`Timing::lease`].
    Create {
        /// Name of the strategy.
        strategy: String,
        /// The elected candidate; `None` if somebody else carries out the strategy.
        holder: Option<String>,
    },
    /// Assign the Lease to a holder: no preferred holder, no acquire time, renewed now, valid for
    /// [`Timing::lease`], one more transition.
    Assign {
        /// Name of the strategy.
        strategy: String,
        /// The elected candidate.
        holder: String,
    },
    /// Name a preferred holder, so that the present holder, whose Lease is valid, lets it expire.
    Prefer {
        /// Name of the strategy.
        strategy: String,
        /// The elected candidate.
        holder: String,
    },
    /// Only record the strategy, because somebody else chooses, or because the choice has not changed.
    Label {
        /// Name of the strategy.
        strategy: String,
    },
}

/// The result of [`reconcile`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There are no candidates, so the Lease, if there is one, is not coordinated. It need not be reconciled
    /// again.
    Idle,
    /// There is nothing to write: the Lease has the right holder, or its holder's term has to end first.
    Settled {
        /// When to reconcile again: when the Lease would expire, and at least every [`Timing::requeue`].
        again: Duration,
    },
    /// An election is under way: write `pingTime` = now to these candidates (maybe none) and wait for
    /// answers.
    Poll {
        /// Names of the candidates to ping.
        ping: Vec<String>,
    },
    /// An election has ended: write its result.
    Write(LeaseChange),
}

impl Step {
    /// After what time to reconcile again at the latest; `None` if only a change makes that necessary.
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
    /// All candidates were pinged and none answered. They are pinged again once one of them renews its
    /// object.
    #[error(
        "none of the {asked} candidates answered within {within:?}; are they running, and may they update their LeaseCandidate?"
    )]
    NobodyAnswered {
        /// How many candidates were pinged.
        asked: usize,
        /// How much time they had.
        within: Duration,
    },
    /// Candidates answered, and the strategy chooses none of them.
    #[error(
        "no candidate can lead by {strategy}: it needs versions like 1.2.3 in binaryVersion and emulationVersion"
    )]
    NobodyElectable {
        /// Name of the strategy.
        strategy: String,
    },
    /// The candidates ask for different strategies.
    #[error(transparent)]
    Conflict(#[from] StrategyConflict),
}

/// Decides what to write for the Lease for which these candidates stand.
///
/// Expired candidates are left out, and the order of candidates does not matter. An election is held when the
/// Lease is missing, expired or without a holder, when a candidate has not renewed its object for half of
/// [`Timing::candidate_valid`], and when a better candidate than the holder exists. In an election all
/// candidates are pinged that have not renewed lately, and those that answer in time can be elected.
///
/// # Errors
/// The election has no result. The Lease stays as it is.
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
    // The Lease is valid up to and including its last moment, so reconcile just after it.
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
    let silent = |candidate: &&Candidate| {
        candidate
            .renew_time
            .is_some_and(|renewed| later(renewed, timing.candidate_valid / 2) < now)
    };
    if candidates.iter().any(silent) {
        return Ok(true);
    }
    let rule = pick_best_strategy(candidates)?.and_then(|strategy| strategies.get(strategy));
    let best = rule.and_then(|rule| rule.best(candidates));
    Ok(best.is_some_and(|best| best.name != lease.holder))
}

/// The candidates to ping now; `None` when every candidate has answered or had time enough to answer.
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
            // It did not answer in time. It is pinged again once it has renewed its object.
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
        // The Lease is assigned again also if its last holder is elected: after the expiry it waits for that.
        Some(holder) if lease.holder.is_empty() || lease.remaining(now).is_none() => {
            Some(LeaseChange::Assign { strategy, holder })
        }
        Some(holder) if lease.holder != holder => {
            let preferred = lease.preferred_holder == holder && lease.strategy == strategy;
            (!preferred).then_some(LeaseChange::Prefer { strategy, holder })
        }
        _ => (lease.strategy != strategy).then_some(LeaseChange::Label { strategy }),
    }
}

/// The candidates whose objects can be deleted. Read each again just before: it may have come back.
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
