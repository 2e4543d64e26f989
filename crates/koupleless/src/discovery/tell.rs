//! What is logged.

use crate::core::registry::{Change, Event, Refused};
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

/// Refusals are told once in this time each.
const WINDOW: Duration = Duration::from_secs(60);
/// So many in that time; a forger must not fill the log.
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

/// Refusals that were told lately.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    since: Duration,
    told: HashSet<String>,
    untold: usize,
}

impl Complaints {
    pub(super) fn add(&mut self, refused: &Refused, now: Duration) {
        self.tell_of_others(now);
        if self.is_to_be_told(refused.to_string()) {
            tracing::warn!(why = %refused, "a word about a base is refused");
        }
    }

    /// What came from `peer` is no heartbeat. Who it is meant to be is not known, and reasons are as many as a peer likes: each
    /// peer is told of once.
    pub(super) fn unreadable(&mut self, peer: IpAddr, why: &str, now: Duration) {
        self.tell_of_others(now);
        if self.is_to_be_told(peer.to_string()) {
            tracing::warn!(%peer, why, "a heartbeat is not taken");
        }
    }

    fn tell_of_others(&mut self, now: Duration) {
        if let Some(untold) = self.turn(now) {
            tracing::warn!(untold, "further words about bases were refused within a minute");
        }
    }

    /// Begins anew once the window is over; how many were not told, if any.
    fn turn(&mut self, now: Duration) -> Option<usize> {
        if now.saturating_sub(self.since) < WINDOW {
            return None;
        }
        self.since = now;
        self.told.clear();
        Some(std::mem::take(&mut self.untold)).filter(|untold| *untold > 0)
    }

    fn is_to_be_told(&mut self, text: String) -> bool {
        if self.told.contains(&text) {
            return false;
        }
        if self.told.len() >= MOST {
            self.untold += 1;
            return false;
        }
        self.told.insert(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forger_does_not_fill_the_log() {
        let mut complaints = Complaints::default();
        let told = (0..1000).filter(|number| complaints.is_to_be_told(format!("base {number}")));
        assert_eq!(told.count(), MOST);
        assert_eq!(complaints.turn(Duration::from_secs(59)), None);
        assert_eq!(complaints.turn(Duration::from_secs(60)), Some(950));
        assert!(complaints.is_to_be_told("base 1".to_owned()));
        assert!(!complaints.is_to_be_told("base 1".to_owned()), "once a minute");
    }
}
