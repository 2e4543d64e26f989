//! How many connections a process accepts at a time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Refused connections are reported once in this time at most.
const REPORT: Duration = Duration::from_secs(1);

/// A limit of open connections, shared by listeners.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    most: usize,
    refused: Mutex<Refused>,
}

/// Connections that were refused.
#[derive(Debug, Default)]
struct Refused {
    reported: Option<Instant>,
    since_then: u64,
}

/// What an open connection holds, if there is a limit; dropping it returns it.
pub(super) type Permit = Option<OwnedSemaphorePermit>;

impl ConnectionLimit {
    pub(super) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(most)),
            most,
            refused: Mutex::default(),
        }
    }

    /// Takes a permit if one is left; otherwise the refusal is reported.
    pub(super) fn permit(&self, address: SocketAddr) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Some(permit);
        }
        if let Some(refused) = self.refuse() {
            let most = self.most;
            tracing::warn!(%address, refused, most, "refusing connections: too many are open");
        }
        None
    }

    /// Counts a refusal. Returns how many there were since the last report if it is time for the next one.
    fn refuse(&self) -> Option<u64> {
        // Two numbers: nothing is half done when a holder panics.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.since_then += 1;
        if refused
            .reported
            .is_some_and(|reported| reported.elapsed() < REPORT)
        {
            return None;
        }
        refused.reported = Some(Instant::now());
        Some(std::mem::take(&mut refused.since_then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusals_are_reported_once_a_second_with_their_number() {
        let limit = ConnectionLimit::new(1);
        assert_eq!(limit.refuse(), Some(1));
        assert_eq!((limit.refuse(), limit.refuse()), (None, None));
        tokio::time::advance(REPORT).await;
        assert_eq!(limit.refuse(), Some(3));
    }

    #[tokio::test]
    async fn a_permit_can_be_taken_again_once_it_was_returned() {
        let limit = ConnectionLimit::new(1);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let permit = limit.permit(address);
        assert!(permit.is_some());
        assert!(limit.permit(address).is_none());
        drop(permit);
        assert!(limit.permit(address).is_some());
    }
}
