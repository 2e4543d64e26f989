//! Virtual-kubelet's list, by the names of its tests, without waiting: time is a parameter.
//!
//! | upstream | here |
//! |---|---|
//! | `TestQueueMaxRetries` | `a_key_is_given_up_after_its_tries` |
//! | `TestQueueCustomRetries` | `the_callers_delay_overrides_the_back_off` |
//! | `TestForget` | `forgetting_an_unknown_key_changes_nothing` |
//! | `TestQueueEmpty` | `an_empty_queue_hands_nothing_out` |
//! | `TestQueueItemNoSleep` | `keys_whose_time_has_come_are_handed_out_in_their_order` |
//! | `TestQueueItemSleep` | `a_delayed_key_waits_for_its_time` |
//! | `TestQueueBackgroundAdd` | `a_key_added_later_is_handed_out_then` |
//! | `TestQueueBackgroundAdvance` | `adding_a_delayed_key_again_brings_it_forward` |
//! | `TestQueueRedirty` | `a_key_added_while_worked_on_comes_again` |
//! | `TestHeapConcurrency` | `many_keys_are_worked_on_at_once` |
//! | `TestHeapOrder`, `TestQueueMoveItem` | `keys_are_moved_forward_and_never_back` |
//! | `TestRateLimiter` | `failures_back_off_until_a_success_resets_them` |
//! | `TestQueueForgetInProgress` | `a_key_forgotten_while_worked_on_does_not_come_again` |
//! | `TestQueueForgetBeforeStart` | `a_key_forgotten_before_its_start_is_not_handed_out` |

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const NOW: Duration = ms(1_000);

/// Time from `earlier` to `at`.
fn since(earlier: Duration, at: Duration) -> Duration {
    at.checked_sub(earlier).expect("time runs forward")
}

fn policy() -> Policy {
    Policy {
        first: ms(5),
        most: ms(1_000_000),
        tries: Some(20),
        rate: None,
    }
}

fn queue() -> Queue<&'static str> {
    Queue::new(policy())
}

/// Everything that is handed out from `now` on without anything being finished, with its times.
fn drain<K: Clone + Eq + Hash + Ord>(queue: &mut Queue<K>, mut now: Duration) -> Vec<(K, Duration)> {
    let mut taken = Vec::new();
    while let Some(due) = queue.due() {
        now = now.max(due);
        taken.push((queue.take(now).expect("what is due is handed out"), now));
    }
    taken
}

#[test]
fn a_key_is_given_up_after_its_tries() {
    let mut queue = queue();
    queue.add("test", NOW);
    let mut now = NOW;
    for n in 1..=20 {
        now = queue.due().unwrap().max(now);
        let key = queue.take(now).unwrap();
        assert_eq!(queue.failed(&key, None, now), n == 20, "failure {n}");
    }
    assert!(queue.is_empty());
    assert_eq!((queue.working(), queue.due()), (0, None));
}

#[test]
fn a_key_without_a_limit_of_tries_is_never_given_up() {
    let mut queue = Queue::new(Policy {
        tries: None,
        ..policy()
    });
    let mut now = NOW;
    queue.add("test", now);
    for _ in 0..100 {
        let key = queue.take(now).unwrap();
        assert!(!queue.failed(&key, None, now));
        let due = queue.due().unwrap();
        assert!(since(now, due) <= ms(1_000_000));
        now = due;
    }
}

#[test]
fn the_callers_delay_overrides_the_back_off() {
    let mut queue = queue();
    queue.add("test", NOW);
    let mut now = NOW;
    for _ in 1..20 {
        let key = queue.take(now).unwrap();
        assert!(!queue.failed(&key, Some(ms(10)), now));
        assert_eq!(queue.due(), Some(now + ms(10)));
        now += ms(10);
    }
    let key = queue.take(now).unwrap();
    assert!(
        queue.failed(&key, Some(ms(10)), now),
        "the number of tries is the policy's"
    );
    assert!(queue.is_empty());
}

#[test]
fn forgetting_an_unknown_key_changes_nothing() {
    let mut queue = queue();
    queue.forget(&"val");
    assert_eq!(queue.len(), 0);
    queue.add("test", NOW);
    assert_eq!(queue.len(), 1);
}

#[test]
fn an_empty_queue_hands_nothing_out() {
    let mut queue = queue();
    assert_eq!(queue.take(NOW), None);
    assert_eq!(queue.due(), None);
}

#[test]
fn keys_whose_time_has_come_are_handed_out_in_their_order() {
    let mut queue = queue();
    queue.add("foo", ms(0));
    queue.add("bar", ms(0));
    assert_eq!(queue.take(NOW), Some("foo"));
    assert_eq!(queue.take(NOW), Some("bar"));
    assert_eq!(queue.working(), 2);
}

#[test]
fn a_delayed_key_waits_for_its_time() {
    let mut queue = queue();
    queue.add_after("foo", ms(100), NOW);
    queue.add_after("bar", ms(100), NOW);
    assert_eq!(queue.take(NOW + ms(99)), None);
    assert_eq!(queue.due(), Some(NOW + ms(100)));
    assert_eq!(queue.take(NOW + ms(100)), Some("foo"));
}

#[test]
fn a_key_added_later_is_handed_out_then() {
    let mut queue = queue();
    assert_eq!(queue.take(NOW), None);
    queue.add("foo", NOW + ms(100));
    assert_eq!(queue.take(NOW + ms(100)), Some("foo"));
}

#[test]
fn adding_a_delayed_key_again_brings_it_forward() {
    let mut queue = queue();
    queue.add_after("foo", ms(10_000), NOW);
    queue.add("foo", NOW + ms(200));
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.take(NOW + ms(200)), Some("foo"));
    assert_eq!(queue.take(NOW + ms(20_000)), None, "once only");
}

#[test]
fn a_key_added_while_worked_on_comes_again() {
    let mut queue = queue();
    queue.add("foo", NOW);
    let key = queue.take(NOW).unwrap();
    queue.add("foo", NOW);
    assert_eq!(queue.take(NOW), None, "never twice at once");
    queue.done(&key, NOW + ms(5));
    assert_eq!(queue.take(NOW + ms(5)), Some("foo"));
    queue.done(&key, NOW + ms(9));
    assert_eq!(queue.take(NOW + ms(9)), None);
    assert!(queue.is_empty());
}

#[test]
fn of_times_asked_for_while_worked_on_the_earliest_counts() {
    let mut queue = queue();
    queue.add("foo", NOW);
    let key = queue.take(NOW).unwrap();
    queue.add_after("foo", ms(300), NOW);
    queue.add_after("foo", ms(200), NOW);
    queue.add_after("foo", ms(400), NOW);
    queue.done(&key, NOW + ms(5));
    assert_eq!(queue.due(), Some(NOW + ms(200)));
}

#[test]
fn a_key_added_while_its_last_try_failed_comes_again_as_new() {
    let mut queue = Queue::new(Policy {
        tries: Some(1),
        ..policy()
    });
    queue.add("foo", NOW);
    let key = queue.take(NOW).unwrap();
    queue.add("foo", NOW);
    assert!(queue.failed(&key, None, NOW));
    assert_eq!(queue.take(NOW), Some("foo"));
}

#[test]
fn many_keys_are_worked_on_at_once() {
    let mut queue = Queue::new(policy());
    for key in 0..20 {
        queue.add(key, NOW);
    }
    assert_eq!(queue.len(), 20);
    let taken: Vec<i32> = drain(&mut queue, NOW).into_iter().map(|(key, _)| key).collect();
    assert_eq!(taken, (0..20).collect::<Vec<_>>());
    assert_eq!((queue.len(), queue.working()), (0, 20));
    for key in &taken {
        queue.done(key, NOW);
    }
    assert_eq!(queue.working(), 0);
}

#[test]
fn keys_are_moved_forward_and_never_back() {
    let mut queue = queue();
    for (key, delay) in [("a", 1000), ("b", 2000), ("c", 3000), ("d", 4000), ("e", 5000)] {
        queue.add_after(key, ms(delay), NOW);
    }
    for (key, delay) in [("d", 1000), ("c", 1001), ("e", 999), ("a", 7000)] {
        queue.add_after(key, ms(delay), NOW);
    }
    let order: Vec<_> = drain(&mut queue, NOW)
        .into_iter()
        .map(|(key, at)| (key, since(NOW, at)))
        .collect();
    assert_eq!(
        order,
        [
            ("e", ms(999)),
            ("a", ms(1000)),
            ("d", ms(1000)),
            ("c", ms(1001)),
            ("b", ms(2000))
        ]
    );
}

#[test]
fn failures_back_off_until_a_success_resets_them() {
    let mut queue = Queue::new(Policy {
        first: ms(10),
        most: ms(60),
        ..policy()
    });
    queue.add("foo", NOW);
    let mut now = NOW;
    let mut delays = Vec::new();
    for _ in 0..5 {
        let key = queue.take(now).unwrap();
        queue.failed(&key, None, now);
        delays.push(since(now, queue.due().unwrap()));
        now = queue.due().unwrap();
    }
    assert_eq!(delays, [ms(10), ms(20), ms(40), ms(60), ms(60)]);
    let key = queue.take(now).unwrap();
    queue.done(&key, now);
    assert!(queue.is_empty());
    queue.add("foo", now);
    let key = queue.take(now).unwrap();
    queue.failed(&key, None, now);
    assert_eq!(queue.due(), Some(now + ms(10)));
}

#[test]
fn a_key_forgotten_while_worked_on_does_not_come_again() {
    let mut queue = queue();
    queue.add("foo", NOW);
    let key = queue.take(NOW).unwrap();
    queue.add("foo", NOW);
    queue.forget(&key);
    assert!(!queue.failed(&key, None, NOW), "forgotten is not given up");
    assert!(queue.is_empty());
    assert_eq!(queue.working(), 0);
}

#[test]
fn a_key_added_after_it_was_forgotten_comes_again() {
    let mut queue = queue();
    queue.add("foo", NOW);
    let key = queue.take(NOW).unwrap();
    queue.forget(&key);
    queue.add("foo", NOW);
    queue.done(&key, NOW);
    assert_eq!(queue.take(NOW), Some("foo"));
}

#[test]
fn a_key_forgotten_before_its_start_is_not_handed_out() {
    let mut queue = queue();
    queue.add("foo", NOW);
    queue.forget(&"foo");
    assert!(queue.is_empty());
    assert_eq!(queue.take(NOW), None);
}

#[test]
fn what_was_not_handed_out_is_neither_done_nor_failed() {
    let mut queue = queue();
    queue.done(&"foo", NOW);
    assert!(!queue.failed(&"foo", None, NOW));
    queue.add("foo", NOW);
    queue.done(&"foo", NOW);
    assert_eq!(queue.take(NOW), Some("foo"));
}

#[test]
fn the_rate_bounds_what_is_handed_out_over_all() {
    let mut queue = Queue::new(Policy {
        rate: Some((10.0, 3)),
        ..policy()
    });
    for key in 0..6 {
        queue.add(key, NOW);
    }
    let times: Vec<Duration> = drain(&mut queue, NOW)
        .into_iter()
        .map(|(_, at)| since(NOW, at))
        .collect();
    assert_eq!(times, [ms(0), ms(0), ms(0), ms(100), ms(200), ms(300)]);
    // A rest of one second earns the burst again, and no more.
    let later = NOW + ms(1_300);
    for key in 10..15 {
        queue.add(key, later);
    }
    let times: Vec<Duration> = drain(&mut queue, later)
        .into_iter()
        .map(|(_, at)| since(later, at))
        .collect();
    assert_eq!(times, [ms(0), ms(0), ms(0), ms(100), ms(200)]);
}

#[test]
fn a_rate_that_is_none_neither_panics_nor_loops() {
    for rate in [0.0, -1.0, f64::NAN] {
        let mut queue = Queue::new(Policy {
            rate: Some((rate, 2)),
            ..policy()
        });
        for key in 1..=3 {
            queue.add(key, NOW);
        }
        assert_eq!(queue.take(NOW), Some(1));
        assert_eq!(queue.take(NOW), Some(2));
        assert_eq!(queue.take(NOW + ms(1_000_000)), None, "{rate}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, u64),
    Take,
    Done(usize),
    Failed(usize),
    Forget(u8),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6_u8, 0..50_u64).prop_map(|(key, delay)| Step::Add(key, delay)),
        Just(Step::Take),
        Just(Step::Take),
        (0..4_usize).prop_map(Step::Done),
        (0..4_usize).prop_map(Step::Failed),
        (0..6_u8).prop_map(Step::Forget),
        (1..40_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// Against what anybody would write down: a key that was added and not forgotten is handed out after
    /// that, by the time asked for or its back-off; and no key is in two hands.
    #[test]
    fn no_key_is_lost_and_none_is_handed_out_twice_at_once(
        steps in steps(), rate in prop::option::of((1.0..1000.0_f64, 1..4_u32))
    ) {
        let mut queue = Queue::new(Policy { first: ms(5), most: ms(40), tries: None, rate });
        let mut now = ms(0);
        let mut owed: HashSet<u8> = HashSet::new();
        let mut hands: Vec<u8> = Vec::new();
        // Earliest time at which a key may come, of those that wait.
        let mut not_before: BTreeMap<u8, Duration> = BTreeMap::new();
        let mut forgotten: HashSet<u8> = HashSet::new();
        for step in steps {
            match step {
                Step::Add(key, delay) => {
                    let at = now + ms(delay);
                    queue.add_after(key, ms(delay), now);
                    owed.insert(key);
                    forgotten.remove(&key);
                    not_before.entry(key).and_modify(|old| *old = at.min(*old)).or_insert(at);
                }
                Step::Take => {
                    let due = queue.due();
                    let taken = queue.take(now);
                    prop_assert_eq!(taken.is_some(), due.is_some_and(|due| due <= now));
                    if let Some(key) = taken {
                        prop_assert!(!hands.contains(&key), "{} is in two hands", key);
                        prop_assert!(owed.remove(&key), "{} was not asked for", key);
                        let at = not_before.remove(&key);
                        prop_assert!(at.is_none_or(|at| at <= now), "{} came early", key);
                        hands.push(key);
                    }
                }
                Step::Done(at) if at < hands.len() => {
                    let key = hands.swap_remove(at);
                    queue.done(&key, now);
                    forgotten.remove(&key);
                }
                Step::Failed(at) if at < hands.len() => {
                    let key = hands.swap_remove(at);
                    prop_assert!(!queue.failed(&key, None, now));
                    if !forgotten.remove(&key) {
                        owed.insert(key);
                        not_before.insert(key, now + ms(5));
                    }
                }
                Step::Forget(key) => {
                    queue.forget(&key);
                    owed.remove(&key);
                    not_before.remove(&key);
                    if hands.contains(&key) {
                        forgotten.insert(key);
                    }
                }
                Step::Pass(passed) => now += ms(passed),
                Step::Done(_) | Step::Failed(_) => {}
            }
            prop_assert_eq!(queue.working(), hands.len());
        }
        for key in hands.drain(..) {
            queue.done(&key, now);
        }
        let rest: Vec<u8> = drain(&mut queue, now).into_iter().map(|(key, _)| key).collect();
        prop_assert_eq!(rest.iter().copied().collect::<HashSet<_>>().len(), rest.len());
        prop_assert_eq!(rest.into_iter().collect::<HashSet<_>>(), owed);
    }
}
