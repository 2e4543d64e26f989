//! The pure part of coordinated election (KEP-4355): candidates register, and one coordinator chooses among
//! them.
//!
//! In other elections the first candidate to take the lock leads. Here a candidate only publishes that it
//! could lead, in a LeaseCandidate (`coordination.k8s.io/v1beta1`), and a coordinator writes the name of the
//! best one into the Lease. So a component that is upgraded replica by replica is led by its oldest version
//! until the last old replica is gone, and a preferred replica gets the Lease back when it returns.
//!
//! [`reconcile`] decides what a coordinator writes for one Lease and its candidates. [`answer`] decides what
//! a candidate writes to its own object. A [`Strategy`] chooses the best candidate.
//!
//! # Clocks
//!
//! Candidates write times of their own clocks, and the coordinator compares them with its own clock. This is
//! the design of the API object: a candidate whose clock is more than [`Timing::election`] *ahead* counts as
//! alive for that much longer. This implementation goes beyond Kubernetes' coordinator in two points. A
//! candidate whose clock is *behind* answers with the time of the ping (see [`answer`]). And a Lease that the
//! coordinator itself has watched expires by that observation ([`LeaseView::unchanged_for`]), not by the
//! holder's clock.

mod answer;
mod candidate;
mod reconcile;
mod strategy;
#[cfg(test)]
mod tests;

pub use answer::{Answer, answer};
pub use candidate::{Candidate, compare, parse_version};
pub use reconcile::{LeaseChange, LeaseView, Refusal, Step, expired_candidates, reconcile};
pub use strategy::{
    HIGHEST_WEIGHT, HighestWeight, OLDEST_EMULATION_VERSION, OldestEmulationVersion, Strategies, Strategy,
    StrategyConflict, WEIGHT_ANNOTATION, pick_best_leader, pick_best_strategy, should_reelect,
};

use std::time::Duration;

/// Name of the Lease under which Kubernetes' own coordinator elects itself, in `kube-system`. A coordinator
/// that runs beside an API server with the feature must campaign for the same Lease, so that there is only
/// one.
pub const COORDINATOR_LEASE: &str = "leader-election-controller";

/// How often a candidate renews its object without being asked.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The timing of a coordinator. Kubernetes has no flags for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// After what time a Lease is reconciled again if nothing happens: 5 s.
    pub requeue: Duration,
    /// For how long the Lease that a coordinator writes is valid: 5 s. Whole seconds; a fraction is rounded
    /// up.
    pub lease: Duration,
    /// For how long a pinged candidate may take to answer, and an answer counts: 5 s.
    pub election: Duration,
    /// After this long without an answer a candidate is dead and its object is deleted: 30 min. After half of
    /// it an election is held, so that all candidates that live are asked.
    pub candidate_valid: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            requeue: Duration::from_secs(5),
            lease: Duration::from_secs(5),
            election: Duration::from_secs(5),
            candidate_valid: Duration::from_secs(30 * 60),
        }
    }
}

impl Timing {
    /// `leaseDurationSeconds` of the Leases that a coordinator writes; at least one.
    pub fn lease_seconds(&self) -> i32 {
        let seconds = self.lease.as_secs() + u64::from(self.lease.subsec_nanos() > 0);
        i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
    }
}

/// `time + by`, at the end of time if there is nothing after it.
fn later(time: jiff::Timestamp, by: Duration) -> jiff::Timestamp {
    time.saturating_add(by).unwrap_or(jiff::Timestamp::MAX)
}
