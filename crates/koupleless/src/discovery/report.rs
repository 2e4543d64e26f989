//! What is logged of bases, and how much of what is refused.

use crate::core::registry::{Change, Event, Refused};
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

/// Each refusal is logged once in this time.
const WINDOW: Duration = Duration::from_secs(60);
/// Most refusals that are logged in that time: a forger must not fill the log.
const MOST: usize = 50;

pub(super) fn log(event: &Event) {
    let Event { node, base, change } = event;
    match change {
        Change::Online => tracing::info!(%node, %base, "a base is known from now on"),
        Change::Changed { from } if from.endpoint.address != base.endpoint.address => {
            tracing::warn!(%node, %base, %from, "a base has moved");
        }
        Change::Changed { from } => tracing::debug!(%node, %base, %from, "more is known of a base"),
        Change::Silent => {
            tracing::warn!(%node, %base, "nothing is heard of a base, nothing is moved for that");
        }
        Change::Lost(evidence) => {
            tracing::warn!(%node, %base, %evidence, "a base is lost, its pods are evicted");
        }
        Change::Back => tracing::info!(%node, %base, "a base is back"),
        Change::Gone(why) => tracing::warn!(%node, %base, %why, "the node of a base is removed"),
        Change::Left => tracing::info!(%node, %base, "the node of a base was removed by others"),
    }
}

/// Refusals that were logged lately.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    since: Duration,
    logged: HashSet<String>,
    suppressed: usize,
}

impl Refusals {
    pub(super) fn add(&mut self, refused: &Refused, now: Duration) {
        self.log_suppressed(now);
        if self.is_due(refused.to_string()) {
            tracing::warn!(why = %refused, "an announcement of a base is refused");
        }
    }

    /// What came from `peer` is no heartbeat. Which base is meant is not known, and a peer can cause as many
    /// reasons as it likes: each peer is logged once.
    pub(super) fn unreadable(&mut self, peer: IpAddr, why: &str, now: Duration) {
        self.log_suppressed(now);
        if self.is_due(peer.to_string()) {
            tracing::warn!(%peer, why, "a heartbeat is not taken");
        }
    }

    fn log_suppressed(&mut self, now: Duration) {
        if let Some(suppressed) = self.turn(now) {
            tracing::warn!(
                suppressed,
                "further announcements of bases were refused within a minute"
            );
        }
    }

    /// Begins a new window once the last one is over. Returns how many refusals were not logged in it, if
    /// any.
    fn turn(&mut self, now: Duration) -> Option<usize> {
        if now.saturating_sub(self.since) < WINDOW {
            return None;
        }
        self.since = now;
        self.logged.clear();
        Some(std::mem::take(&mut self.suppressed)).filter(|suppressed| *suppressed > 0)
    }

    fn is_due(&mut self, text: String) -> bool {
        if self.logged.contains(&text) {
            return false;
        }
        if self.logged.len() >= MOST {
            self.suppressed += 1;
            return false;
        }
        self.logged.insert(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forger_does_not_fill_the_log() {
        let mut refusals = Refusals::default();
        let logged = (0..1000).filter(|number| refusals.is_due(format!("base {number}")));
        assert_eq!(logged.count(), MOST);
        assert_eq!(refusals.turn(Duration::from_secs(59)), None);
        assert_eq!(refusals.turn(Duration::from_secs(60)), Some(950));
        assert!(refusals.is_due("base 1".to_owned()));
        assert!(!refusals.is_due("base 1".to_owned()), "once a minute");
    }
}
