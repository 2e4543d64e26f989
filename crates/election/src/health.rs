//! Health checks of elections, as client-go's `HealthzAdaptor` makes them.

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
    /// Unhealthy is a leader whose record has not changed for the lease duration plus `tolerance`, a loop
    /// that has not tried to recover for that time, and work that has not ended for that time after its term.
    /// Anything else is healthy.
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

    /// Reports on this election from now on, instead of the last one: a process that starts another candidate
    /// is as healthy as that one.
    pub fn watch(&self, election: Health) {
        *self.watched() = Some(election);
    }

    /// Returns [`Health::check`] of the election; healthy as long as there is none.
    pub fn check(&self) -> Result<(), HealthError> {
        let election = self.watched().clone();
        election.map_or(Ok(()), |election| election.check(self.tolerance))
    }

    fn watched(&self) -> MutexGuard<'_, Option<Health>> {
        self.election.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
