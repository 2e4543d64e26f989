//! The storm guard: how many nodes of a zone may be under irreversible action (safety property S5, hazard
//! 24).
//!
//! At once at most max(1, 10 %) of a zone, and at most max(2, 25 %) begun within ten minutes. A slot frees
//! when its action completes or times out. A node without a slot is not accelerated; Kubernetes itself still
//! evicts it at its own pace, so that the guard never makes anything slower than stock.

use evenkeel_zone::Millis;
use std::collections::BTreeMap;

/// Window of the second limit.
pub const WINDOW_MS: u64 = 10 * 60 * 1000;
/// An action that did not complete frees its slot after this long.
pub const SLOT_TIMEOUT_MS: u64 = 5 * 60 * 1000;

/// How many nodes of a zone of `size` may be under irreversible action at once.
pub fn at_once(size: usize) -> usize {
    (size / 10).max(1)
}

/// On how many nodes of a zone of `size` irreversible action may begin within [`WINDOW_MS`].
pub fn in_window(size: usize) -> usize {
    (size / 4).max(2)
}

/// Irreversible actions of all zones, as far as they count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Node UID to its action.
    actions: BTreeMap<String, Begun>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    zone: String,
    at: Millis,
    completed: bool,
}

/// Why a node has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Others of the zone are under way.
    AtOnce { limit: usize },
    /// Too many began in the last ten minutes.
    InWindow { limit: usize },
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtOnce { limit } => write!(f, "storm guard: at most {limit} node(s) of the zone at once"),
            Self::InWindow { limit } => {
                write!(f, "storm guard: at most {limit} nodes of the zone in 10 minutes")
            }
        }
    }
}

impl Ledger {
    /// Whether action on a node of a zone of `size` nodes may begin or go on.
    pub fn admits(&self, node_uid: &str, zone: &str, size: usize, now: Millis) -> Result<(), Wait> {
        if self.actions.get(node_uid).is_some_and(|begun| !begun.completed) {
            return Ok(());
        }
        let of_zone = || self.actions.values().filter(|begun| begun.zone == zone);
        let running = of_zone()
            .filter(|begun| !begun.completed && now.since(begun.at) < SLOT_TIMEOUT_MS)
            .count();
        if running >= at_once(size) {
            return Err(Wait::AtOnce { limit: at_once(size) });
        }
        let recent = of_zone().filter(|begun| now.since(begun.at) < WINDOW_MS).count();
        if recent >= in_window(size) {
            return Err(Wait::InWindow {
                limit: in_window(size),
            });
        }
        Ok(())
    }

    /// Action on the node began at `at`; no change while it is under way.
    pub fn begin(&mut self, node_uid: &str, zone: &str, at: Millis) {
        let begun = Begun {
            zone: zone.to_owned(),
            at,
            completed: false,
        };
        match self.actions.get_mut(node_uid) {
            Some(known) if known.completed => *known = begun,
            Some(_) => {}
            None => {
                self.actions.insert(node_uid.to_owned(), begun);
            }
        }
    }

    /// Nothing is left to do on the node; its slot is free, its place in the window is not.
    pub fn complete(&mut self, node_uid: &str) {
        if let Some(begun) = self.actions.get_mut(node_uid) {
            begun.completed = true;
        }
    }

    /// Forgets what counts in no limit any more. A node that is still being acted upon stays admitted.
    pub fn prune(&mut self, now: Millis) {
        self.actions
            .retain(|_, begun| !begun.completed || now.since(begun.at) < WINDOW_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn minute(minutes: u64) -> Millis {
        Millis(1_000_000 + minutes * 60_000)
    }

    #[rstest]
    #[case(0, 1, 2)]
    #[case(1, 1, 2)]
    #[case(6, 1, 2)]
    #[case(11, 1, 2)]
    #[case(12, 1, 3)]
    #[case(20, 2, 5)]
    #[case(100, 10, 25)]
    #[case(5000, 500, 1250)]
    fn limits_have_a_floor(#[case] size: usize, #[case] once: usize, #[case] window: usize) {
        assert_eq!((at_once(size), in_window(size)), (once, window));
    }

    #[test]
    fn a_second_node_waits_until_the_first_is_done() {
        let mut ledger = Ledger::default();
        ledger.begin("a", "z", minute(0));
        assert_eq!(
            ledger.admits("b", "z", 6, minute(1)),
            Err(Wait::AtOnce { limit: 1 })
        );
        assert_eq!(ledger.admits("a", "z", 6, minute(1)), Ok(()), "the first goes on");
        assert_eq!(
            ledger.admits("c", "other", 6, minute(1)),
            Ok(()),
            "zones do not hinder each other"
        );
        ledger.complete("a");
        assert_eq!(ledger.admits("b", "z", 6, minute(1)), Ok(()));
    }

    #[test]
    fn a_node_that_dies_again_needs_a_new_slot() {
        let mut ledger = Ledger::default();
        ledger.begin("a", "z", minute(0));
        ledger.complete("a");
        ledger.begin("b", "z", minute(1));
        assert_eq!(
            ledger.admits("a", "z", 6, minute(2)),
            Err(Wait::AtOnce { limit: 1 })
        );
        ledger.complete("b");
        assert_eq!(
            ledger.admits("a", "z", 6, minute(2)),
            Err(Wait::InWindow { limit: 2 })
        );
        ledger.begin("a", "z", minute(11));
        assert_eq!(
            ledger.admits("c", "z", 6, minute(11)),
            Err(Wait::AtOnce { limit: 1 })
        );
    }

    #[test]
    fn a_slot_frees_when_its_action_times_out() {
        let mut ledger = Ledger::default();
        ledger.begin("a", "z", minute(0));
        assert_eq!(
            ledger.admits("b", "z", 6, minute(4)),
            Err(Wait::AtOnce { limit: 1 })
        );
        assert_eq!(ledger.admits("b", "z", 6, minute(5)), Ok(()));
    }

    #[test]
    fn the_third_node_within_ten_minutes_waits() {
        let mut ledger = Ledger::default();
        for (node, at) in [("a", 0), ("b", 1)] {
            ledger.begin(node, "z", minute(at));
            ledger.complete(node);
        }
        assert_eq!(
            ledger.admits("c", "z", 6, minute(9)),
            Err(Wait::InWindow { limit: 2 })
        );
        assert_eq!(ledger.admits("c", "z", 6, minute(10)), Ok(()));
    }

    #[test]
    fn only_what_is_done_and_old_is_forgotten() {
        let mut ledger = Ledger::default();
        ledger.begin("a", "z", minute(0));
        ledger.begin("b", "z", minute(0));
        ledger.complete("b");
        ledger.prune(minute(9));
        assert_eq!(ledger.actions.len(), 2);
        ledger.prune(minute(10));
        assert_eq!(ledger.actions.keys().collect::<Vec<_>>(), ["a"]);
    }
}
