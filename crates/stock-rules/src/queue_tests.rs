//! The cases of upstream's queue and limiter tests, by what they assert.

use super::*;
use jiff::SignedDuration;

const T0: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    T0 + SignedDuration::from_secs(seconds)
}

/// A queue that is limited by nothing within a test.
fn queue(names: &[&str]) -> TimedQueue {
    let mut queue = TimedQueue::new(1e9, T0);
    for name in names {
        assert!(queue.add(name, "", T0));
    }
    queue
}

/// Serves until nothing is due.
fn served(queue: &mut TimedQueue, now: Timestamp) -> Vec<String> {
    let mut names = Vec::new();
    for step in 1..100 {
        // A nanosecond is a token.
        match queue.next(now + SignedDuration::from_micros(step)) {
            Some(entry) => names.push(entry.name),
            None => break,
        }
    }
    names
}

#[test]
fn names_are_served_in_order_and_once() {
    let mut queue = queue(&["first", "second", "third"]);
    assert!(!queue.add("second", "", T0), "its name is blocked");
    assert_eq!(queue.waiting(), ["first", "second", "third"]);
    assert_eq!(served(&mut queue, at(1)), ["first", "second", "third"]);
}

#[test]
fn any_of_them_can_be_removed() {
    for removed in ["first", "second", "third"] {
        let mut queue = queue(&["first", "second", "third"]);
        assert!(queue.remove(removed));
        assert!(!queue.remove(removed));
        let left: Vec<&str> = ["first", "second", "third"]
            .into_iter()
            .filter(|name| *name != removed)
            .collect();
        assert_eq!(served(&mut queue, at(1)), left);
    }
}

#[test]
fn a_name_that_was_served_is_blocked_until_it_is_removed() {
    let mut queue = queue(&["first"]);
    assert_eq!(served(&mut queue, at(1)), ["first"]);
    assert!(!queue.add("first", "", at(1)));
    assert!(served(&mut queue, at(2)).is_empty());
    queue.remove("first");
    assert!(queue.add("first", "", at(2)));
    assert_eq!(served(&mut queue, at(3)), ["first"]);
}

#[test]
fn an_entry_that_is_delayed_lets_others_pass() {
    let mut queue = queue(&["first", "second", "third"]);
    let first = queue.next(at(1)).unwrap();
    queue.retry(first, at(10));
    assert_eq!(served(&mut queue, at(2)), ["second", "third"]);
    assert!(served(&mut queue, at(9)).is_empty());
    assert_eq!(served(&mut queue, at(10)), ["first"]);
}

#[test]
fn removal_while_an_entry_is_served_is_honoured() {
    let mut queue = queue(&["first"]);
    let first = queue.next(at(1)).unwrap();
    queue.remove("first");
    queue.retry(first.clone(), at(2));
    assert!(queue.waiting().is_empty());
    // Added anew meanwhile: not twice.
    queue.add("first", "", at(2));
    queue.retry(first, at(3));
    assert_eq!(queue.waiting(), ["first"]);
}

#[test]
fn a_head_that_is_not_due_costs_a_token() {
    let mut queue = TimedQueue::new(0.1, T0);
    queue.add("first", "", T0);
    let first = queue.next(T0).unwrap();
    queue.retry(first, at(11));
    assert_eq!(queue.next(at(10)), None);
    assert_eq!(queue.next(at(11)), None, "the token went at 10");
    assert_eq!(queue.next(at(20)).unwrap().name, "first");
}

#[test]
fn one_token_and_then_the_rate() {
    let mut limiter = Limiter::new(0.1, T0);
    let accepted: Vec<i64> = (0..=30)
        .filter(|second| limiter.try_accept(at(*second)))
        .collect();
    assert_eq!(accepted, [0, 10, 20, 30]);
}

#[test]
fn a_rate_of_nothing_lets_nothing_happen() {
    for rate in [0.0, -1.0] {
        let mut limiter = Limiter::new(rate, T0);
        assert!(!limiter.try_accept(at(1_000_000)));
    }
}

#[test]
fn another_rate_is_no_free_token() {
    let mut drained = Limiter::new(0.1, T0);
    assert!(drained.try_accept(T0));
    drained.swap(1.0, at(5));
    assert!(!drained.try_accept(at(5)));
    assert!(drained.try_accept(at(6)));

    let mut full = Limiter::new(0.1, T0);
    full.swap(1.0, at(5));
    assert!(full.try_accept(at(5)));

    let mut same = Limiter::new(0.1, T0);
    assert!(same.try_accept(T0));
    same.swap(0.1, at(5));
    assert!(same.try_accept(at(10)), "the same rate changes nothing");

    let mut stopped = Limiter::new(0.1, T0);
    stopped.swap(0.0, T0);
    assert!(!stopped.try_accept(at(100)));
}
