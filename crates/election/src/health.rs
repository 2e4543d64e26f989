//! Whether the election loop keeps up, as client-go's `HealthzAdaptor` tells it.

use crate::clock::Clock;
use crate::core::Machine;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why a candidate is unhealthy, in client-go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HealthError(pub String);

/// The health of one election. Cheap to clone.
#[derive(Clone)]
pub struct Health {
    pub(crate) machine: Arc<Mutex<Machine>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lock: Arc<str>,
}

impl Health {
    /// Unhealthy: a leader whose record has not changed for the lease duration plus `tolerance`, a loop that has not
    /// tried to recover for as long, or work that has not ended with its term for as long. Anything else is healthy.
    pub fn check(&self, tolerance: Duration) -> Result<(), HealthError> {
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine
            .check(self.clock.boot(), tolerance, &self.lock)
            .map_err(HealthError)
    }
}

/// A health check that can be registered before there is an election. Cheap to clone.
#[derive(Clone)]
pub struct HealthAdaptor {
    tolerance: Duration,
    election: Arc<Mutex<Option<Health>>>,
}

impl HealthAdaptor {
    /// Name of the check in the Kubernetes components.
    pub const NAME: &'static str = "leaderElection";

    /// `tolerance` beyond the lease duration; the Kubernetes components allow 20 s.
    pub fn new(tolerance: Duration) -> Self {
        Self {
            tolerance,
            election: Arc::default(),
        }
    }

    /// The election to look at from now on, in the place of the last one: a process that campaigns anew is as healthy
    /// as its present candidate.
    pub fn watch(&self, election: Health) {
        *self.watched() = Some(election);
    }

    /// Healthy while there is no election; then [`Health::check`].
    pub fn check(&self) -> Result<(), HealthError> {
        let election = self.watched().clone();
        election.map_or(Ok(()), |election| election.check(self.tolerance))
    }

    fn watched(&self) -> MutexGuard<'_, Option<Health>> {
        self.election.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
