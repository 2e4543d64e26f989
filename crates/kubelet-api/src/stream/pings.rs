//! Clients that only want answers.

use std::time::Duration;
use tokio::time::Instant;

/// A time in which pings are counted.
const PERIOD: Duration = Duration::from_secs(10);
/// What the pings of a period may cost. Clients send one every few seconds.
const MOST: usize = 64 * 1024;
/// What a ping costs beside its payload.
const EACH: usize = 64;

/// The pings of a WebSocket's client, each of which is answered, also while the client does not read the
/// answers.
#[derive(Debug)]
pub(super) struct Pings {
    since: Instant,
    cost: usize,
}

impl Pings {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            cost: 0,
        }
    }

    /// Counts a ping; whether that is a flood.
    pub(super) fn flood(&mut self, payload: usize) -> bool {
        if self.since.elapsed() >= PERIOD {
            *self = Self::new();
        }
        self.cost = self.cost.saturating_add(EACH + payload);
        self.cost > MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pings_now_and_then_are_no_flood_and_many_at_once_are() {
        let mut pings = Pings::new();
        for _ in 0..10_000 {
            tokio::time::advance(PERIOD / 100).await;
            assert!(!pings.flood(125));
        }
        assert!((0..10_000).any(|_| pings.flood(0)));
    }
}
