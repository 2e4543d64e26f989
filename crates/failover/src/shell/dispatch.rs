//! Keeps the actions of level-triggered plans from being carried out twice at a time, too often, or all at
//! once.

use super::execute::Outcome;
use evenkeel_failover_rules::planner::action::Action;
use evenkeel_zone::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// Actions under way at a time. The most urgent of a plan go first; the others are part of the next plan
/// again.
const AT_A_TIME: usize = 48;
/// How many of these only endpoints and evictions may use, so that writes of records never hold up pods.
const RESERVED: usize = 16;
/// An action that was done is not done again for this long, while the watch catches up.
const ECHO_MS: u64 = 3_000;
/// First and longest pause after a failure.
const BACKOFF_MS: (u64, u64) = (250, 10_000);

/// Bookkeeping of actions by key.
#[derive(Debug, Default)]
pub(super) struct Dispatch {
    under_way: BTreeSet<String>,
    done: BTreeMap<String, (Action, Millis)>,
    failing: BTreeMap<String, (Millis, u64)>,
}

impl Dispatch {
    /// Whether the action may be started at `now`; if so it counts as under way.
    pub(super) fn admit(&mut self, action: &Action, now: Millis) -> bool {
        let room = if action.rank() <= 3 {
            AT_A_TIME
        } else {
            AT_A_TIME - RESERVED
        };
        if self.under_way.len() >= room {
            return false;
        }
        let key = action.key();
        let echo = self
            .done
            .get(&key)
            .is_some_and(|(done, at)| now.since(*at) < ECHO_MS && same(done, action));
        let resting = self.failing.get(&key).is_some_and(|(until, _)| now < *until);
        if echo || resting || self.under_way.contains(&key) {
            return false;
        }
        self.under_way.insert(key)
    }

    /// The action ended.
    pub(super) fn ended(&mut self, action: Action, outcome: Option<&Outcome>, now: Millis) {
        let key = action.key();
        self.under_way.remove(&key);
        if outcome == Some(&Outcome::Done) {
            self.failing.remove(&key);
            self.done.insert(key, (action, now));
            return;
        }
        let pause = self
            .failing
            .get(&key)
            .map_or(BACKOFF_MS.0, |(_, pause)| (pause * 2).min(BACKOFF_MS.1));
        // A conflict is no failure: the next look decides on the newer object.
        let pause = if outcome == Some(&Outcome::Stale) {
            BACKOFF_MS.0
        } else {
            pause
        };
        self.failing.insert(key, (now.plus(pause), pause));
    }

    /// Nothing is under way any more, and nothing is remembered: another term begins.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Forgets what has no effect any more.
    pub(super) fn prune(&mut self, now: Millis) {
        self.done.retain(|_, (_, at)| now.since(*at) < ECHO_MS);
        self.failing
            .retain(|_, (until, pause)| now.since(*until) < 2 * *pause);
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

/// Whether two actions of one key ask for the same. What was decided upon a newer version of an object is not
/// the same: somebody wrote in between.
fn same(done: &Action, wanted: &Action) -> bool {
    match (done, wanted) {
        // The proof moves with time, the deletion does not.
        (Action::Evict { .. }, Action::Evict { .. }) => true,
        _ => done == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_failover_rules::planner::action::NodeRef;

    fn mirror(number: usize, healthy: bool) -> Action {
        let node = NodeRef {
            name: format!("n{number}"),
            uid: format!("u{number}"),
        };
        Action::MirrorVerdict { node, healthy }
    }

    #[test]
    fn one_action_per_object_is_under_way() {
        let mut dispatch = Dispatch::default();
        assert!(dispatch.admit(&mirror(1, true), Millis(0)));
        assert!(!dispatch.admit(&mirror(1, false), Millis(0)));
        assert!(dispatch.admit(&mirror(2, true), Millis(0)));
    }

    #[test]
    fn what_was_done_is_not_done_again_until_the_watch_had_time() {
        let mut dispatch = Dispatch::default();
        assert!(dispatch.admit(&mirror(1, true), Millis(0)));
        dispatch.ended(mirror(1, true), Some(&Outcome::Done), Millis(10));
        assert!(!dispatch.admit(&mirror(1, true), Millis(3009)));
        assert!(
            dispatch.admit(&mirror(1, false), Millis(100)),
            "something else is"
        );
        dispatch.ended(mirror(1, false), Some(&Outcome::Done), Millis(200));
        assert!(dispatch.admit(&mirror(1, false), Millis(3200)));
    }

    #[test]
    fn failures_rest_longer_and_longer() {
        let mut dispatch = Dispatch::default();
        let mut now = Millis(0);
        for pause in [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000] {
            assert!(dispatch.admit(&mirror(1, true), now));
            dispatch.ended(mirror(1, true), None, now);
            dispatch.prune(now);
            assert!(!dispatch.admit(&mirror(1, true), now.plus(pause - 1)));
            now = now.plus(pause);
        }
    }

    #[test]
    fn paper_leaves_room_for_pods() {
        let mut dispatch = Dispatch::default();
        let papers = (0..100)
            .filter(|number| dispatch.admit(&mirror(*number, true), Millis(0)))
            .count();
        assert_eq!(papers, AT_A_TIME - RESERVED);
        let node = NodeRef {
            name: "n".to_owned(),
            uid: "u".to_owned(),
        };
        let urgent = Action::Untaint { node, taints: vec![] };
        assert!(dispatch.admit(&urgent, Millis(0)));
        assert_eq!(dispatch.under_way(), AT_A_TIME - RESERVED + 1);
    }
}
