//! Keeps the actions of level-triggered plans from being carried out twice at a time, too often, or all at
//! once.

use crate::planner::action::Action;
use evenkeel_zone::Millis;
use std::collections::BTreeMap;

/// Actions under way at a time. The most urgent of a plan go first; the others are part of the next plan
/// again.
const AT_A_TIME: usize = 48;
/// How many of these only endpoints and evictions may use, so that writes of records never hold up pods.
const RESERVED: usize = 16;
/// How many only the others may use: no pod of a node is touched before its incident is written, and so
/// writes of one node's pods that take long do not keep another's rescue from beginning.
const RESERVED_FOR_RECORDS: usize = 8;
/// Events that wait for room or for another try, and for how long: a plan asks for each once.
const NOTICES: usize = 256;
const NOTICE_MS: u64 = 600_000;
/// An action that was done is not done again for this long, while the watch catches up.
const ECHO_MS: u64 = 3_000;
/// First and longest pause after a failure.
const BACKOFF_MS: (u64, u64) = (250, 10_000);

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Done, or there was nothing left to do.
    Done,
    /// The object has changed; the next look decides again.
    Stale,
    /// It failed, or was refused.
    Failed,
}

/// Bookkeeping of actions by key.
#[derive(Debug, Default)]
pub struct Dispatch {
    /// By key: whether it is urgent.
    under_way: BTreeMap<String, bool>,
    /// Events that were not made yet, by key, and since when.
    notices: BTreeMap<String, (Action, Millis)>,
    done: BTreeMap<String, (Action, Millis)>,
    failing: BTreeMap<String, (Millis, u64)>,
}

impl Dispatch {
    /// Whether the action may be started at `now`; if so it counts as under way.
    pub fn admit(&mut self, action: &Action, now: Millis) -> bool {
        let key = action.key();
        let echo = self
            .done
            .get(&key)
            .is_some_and(|(done, at)| now.since(*at) < ECHO_MS && same(done, action));
        if echo || self.under_way.contains_key(&key) {
            return false;
        }
        let resting = self.failing.get(&key).is_some_and(|(until, _)| now < *until);
        let urgent = action.rank() <= 3;
        let alike = self.under_way.values().filter(|other| **other == urgent).count();
        let reserved = if urgent { RESERVED_FOR_RECORDS } else { RESERVED };
        if resting || alike + reserved >= AT_A_TIME || self.under_way.len() >= AT_A_TIME {
            self.keep(key, action, now);
            return false;
        }
        self.under_way.insert(key, urgent);
        true
    }

    /// Keeps an Event for another try.
    fn keep(&mut self, key: String, action: &Action, since: Millis) {
        if matches!(action, Action::Event(_)) && self.notices.len() < NOTICES {
            self.notices.entry(key).or_insert_with(|| (action.clone(), since));
        }
    }

    /// Events to try now that were not made before.
    pub fn notices(&mut self, now: Millis) -> Vec<Action> {
        self.notices.retain(|_, (_, since)| now.since(*since) < NOTICE_MS);
        let rests = |key| self.failing.get(key).is_some_and(|(until, _)| now < *until);
        let due = self.notices.iter().filter(|(key, _)| !rests(*key));
        due.map(|(_, (action, _))| action.clone()).collect()
    }

    /// The action ended.
    pub fn ended(&mut self, action: Action, ended: Ended, now: Millis) {
        let key = action.key();
        self.under_way.remove(&key);
        if ended == Ended::Done {
            self.failing.remove(&key);
            self.notices.remove(&key);
            self.done.insert(key, (action, now));
            return;
        }
        let pause = self
            .failing
            .get(&key)
            .map_or(BACKOFF_MS.0, |(_, pause)| (pause * 2).min(BACKOFF_MS.1));
        // A conflict is no failure: the next look decides on the newer object.
        let pause = if ended == Ended::Stale {
            BACKOFF_MS.0
        } else {
            pause
        };
        self.keep(key.clone(), &action, now);
        self.failing.insert(key, (now.plus(pause), pause));
    }

    /// Nothing is under way any more, and nothing is remembered but Events that were not made: another term
    /// begins.
    pub fn reset(&mut self) {
        let notices = std::mem::take(&mut self.notices);
        *self = Self {
            notices,
            ..Self::default()
        };
    }

    /// Forgets what has no effect any more.
    pub fn prune(&mut self, now: Millis) {
        self.done.retain(|_, (_, at)| now.since(*at) < ECHO_MS);
        self.failing
            .retain(|_, (until, pause)| now.since(*until) < 2 * *pause);
    }

    pub fn under_way(&self) -> usize {
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
    use crate::planner::action::{About, NodeRef, Notice};

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
        dispatch.ended(mirror(1, true), Ended::Done, Millis(10));
        assert!(!dispatch.admit(&mirror(1, true), Millis(3009)));
        assert!(
            dispatch.admit(&mirror(1, false), Millis(100)),
            "something else is"
        );
        dispatch.ended(mirror(1, false), Ended::Done, Millis(200));
        assert!(dispatch.admit(&mirror(1, false), Millis(3200)));
    }

    #[test]
    fn failures_rest_longer_and_longer() {
        let mut dispatch = Dispatch::default();
        let mut now = Millis(0);
        for pause in [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000] {
            assert!(dispatch.admit(&mirror(1, true), now));
            dispatch.ended(mirror(1, true), Ended::Failed, now);
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

    #[test]
    fn pods_leave_room_for_the_records_on_which_others_wait() {
        let mut dispatch = Dispatch::default();
        let untaint = |number: usize| Action::Untaint {
            node: NodeRef {
                name: format!("n{number}"),
                uid: format!("u{number}"),
            },
            taints: vec![],
        };
        let pods = (0..100).filter(|number| dispatch.admit(&untaint(*number), Millis(0)));
        assert_eq!(pods.count(), AT_A_TIME - RESERVED_FOR_RECORDS);
        assert!(dispatch.admit(&mirror(1, true), Millis(0)));
        let more = (2..100).filter(|number| dispatch.admit(&mirror(*number, true), Millis(0)));
        assert_eq!(more.count(), RESERVED_FOR_RECORDS - 1);
    }

    #[test]
    fn an_event_that_finds_no_room_or_fails_is_made_later_and_once() {
        let mut dispatch = Dispatch::default();
        let event = Action::Event(Notice {
            about: About::Node(NodeRef {
                name: "n".to_owned(),
                uid: "u".to_owned(),
            }),
            at: Millis(0),
            warning: true,
            reason: "NodeDead".to_owned(),
            message: String::new(),
            incident: "n-1".to_owned(),
        });
        for number in 0..AT_A_TIME - RESERVED {
            assert!(dispatch.admit(&mirror(number, true), Millis(0)));
        }
        assert!(!dispatch.admit(&event, Millis(0)));
        dispatch.ended(mirror(1, true), Ended::Done, Millis(10));
        assert_eq!(dispatch.notices(Millis(20)), std::slice::from_ref(&event));
        assert!(dispatch.admit(&event, Millis(20)));
        dispatch.ended(event.clone(), Ended::Failed, Millis(30));
        dispatch.reset();
        assert_eq!(dispatch.notices(Millis(40)), std::slice::from_ref(&event));
        assert!(dispatch.admit(&event, Millis(40)));
        dispatch.ended(event.clone(), Ended::Done, Millis(50));
        assert!(dispatch.notices(Millis(60)).is_empty());
        dispatch.ended(event, Ended::Failed, Millis(70));
        assert!(
            dispatch.notices(Millis(70 + NOTICE_MS)).is_empty(),
            "some day it is no news"
        );
    }
}
