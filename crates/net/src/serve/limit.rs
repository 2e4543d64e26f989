//! How many connections a process takes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What is refused is told so often at most.
const TELL: Duration = Duration::from_secs(1);

/// A bound of connections, shared by listeners.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    most: usize,
    refused: Mutex<Refused>,
}

/// What has been refused.
#[derive(Debug, Default)]
struct Refused {
    told: Option<Instant>,
    since: u64,
}

/// A connection's permit; dropping it gives it back.
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

    /// A permit, if there is one; otherwise the refusal is told.
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

    /// Counts a refusal; how many are to be told, if it is time.
    fn refuse(&self) -> Option<u64> {
        // Two numbers: nothing is half done when a holder panics.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.since += 1;
        if refused.told.is_some_and(|told| told.elapsed() < TELL) {
            return None;
        }
        refused.told = Some(Instant::now());
        Some(std::mem::take(&mut refused.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusals_are_told_once_a_second_with_their_number() {
        let limit = ConnectionLimit::new(1);
        assert_eq!(limit.refuse(), Some(1));
        assert_eq!((limit.refuse(), limit.refuse()), (None, None));
        tokio::time::advance(TELL).await;
        assert_eq!(limit.refuse(), Some(3));
    }

    #[tokio::test]
    async fn a_permit_can_be_taken_again_when_it_was_given_back() {
        let limit = ConnectionLimit::new(1);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let permit = limit.permit(address);
        assert!(permit.is_some());
        assert!(limit.permit(address).is_none());
        drop(permit);
        assert!(limit.permit(address).is_some());
    }
}
