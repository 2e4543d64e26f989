//! Limits, and whose turn it is.

use super::*;
use crate::core::Attempt;
use std::collections::HashMap;

fn limited(concurrency: usize, exec_concurrency: usize) -> Engine {
    Engine::new(Config {
        concurrency,
        exec_concurrency,
        ..config(Compat::Kubelet)
    })
}

fn add(engine: &mut Engine, uid: &str, containers: usize, probe: &Probe) {
    let names: Vec<_> = (0..containers).map(|index| format!("c{index}")).collect();
    let of = |name: &String| container(name, Role::Regular, &[(Kind::Liveness, probe.clone())]);
    engine.add_pod(pod(uid, names.iter().map(of)), secs(100));
    engine.update_status(
        uid,
        status(names.iter().map(|name| running(name, "c://1", 0))),
        secs(100),
    );
}

#[test]
fn no_more_attempts_run_than_the_limits_say() {
    let mut engine = limited(5, 2);
    for pod in ["exec", "exec too"] {
        add(&mut engine, pod, 10, &exec());
    }
    for pod in ["tcp", "tcp too"] {
        add(&mut engine, pod, 10, &probe());
    }
    let running = attempts(&mut engine, secs(100));
    let execs = running
        .iter()
        .filter(|attempt| attempt.key.pod.starts_with("exec"))
        .count();
    assert_eq!(
        (running.len(), execs),
        (5, 2),
        "exec probes that wait hold up no others"
    );
    assert_eq!(engine.due(), None, "until one ends");
}

/// Attempts may last for as long as a manifest says: those of one pod must not take all places.
#[test]
fn a_pod_keeps_no_more_than_its_share_of_the_places() {
    let mut engine = limited(8, 8);
    add(&mut engine, "hangs", 20, &probe());
    add(&mut engine, "other", 1, &probe());
    let of = |running: &[Attempt], pod: &str| running.iter().filter(|it| &*it.key.pod == pod).count();
    let running = attempts(&mut engine, secs(100));
    assert_eq!((of(&running, "hangs"), of(&running, "other")), (4, 1));
    assert_eq!(engine.due(), None, "until one ends");
    // A place that it gives back is its own again, and one that its end gives back is anybody's.
    let ends = |engine: &mut Engine, ticket| engine.settle(ticket, Outcome::success(""), false, secs(101));
    let first = running
        .iter()
        .find(|it| &*it.key.pod == "hangs")
        .expect("it runs");
    ends(&mut engine, first.ticket);
    assert_eq!(of(&attempts(&mut engine, secs(101)), "hangs"), 1);
    engine.remove_pod("hangs");
    let abandoned = engine.abandoned();
    assert_eq!((abandoned.len(), engine.abandoned().len()), (4, 0));
    add(&mut engine, "next", 20, &probe());
    assert_eq!(
        of(&attempts(&mut engine, secs(101)), "next"),
        3,
        "of eight places five are held"
    );
    for ticket in abandoned {
        ends(&mut engine, ticket);
    }
    assert_eq!(
        of(&attempts(&mut engine, secs(101)), "next"),
        1,
        "four of eight are its share"
    );
}

#[test]
fn limits_of_zero_count_as_one() {
    let mut engine = limited(0, 0);
    add(&mut engine, "exec", 3, &exec());
    assert_eq!(attempts(&mut engine, secs(100)).len(), 1);
}

#[test]
fn a_pod_with_many_slow_probes_delays_another_by_its_turn_alone() {
    let mut engine = limited(1, 1);
    add(&mut engine, "many", 100, &probe());
    let first = engine.next_attempt(secs(100)).expect("due");
    add(&mut engine, "few", 3, &probe());
    let mut order = Vec::new();
    let mut now = 100;
    let mut running = first;
    for _ in 0..8 {
        now += 1;
        engine.settle(running.ticket, Outcome::success(""), false, secs(now));
        running = engine.next_attempt(secs(now)).expect("somebody waits");
        assert_eq!(running.lag, Duration::from_secs(now - 100));
        order.push(running.key.pod.to_string());
    }
    assert_eq!(order[..6], ["many", "few", "many", "few", "many", "few"]);
    assert_eq!(order[6..], ["many", "many"]);
}

#[test]
fn exec_probes_and_others_take_turns_where_both_may_run() {
    let mut engine = limited(1, 1);
    add(&mut engine, "exec", 50, &exec());
    add(&mut engine, "tcp", 50, &probe());
    let mut counts: HashMap<String, u32> = HashMap::new();
    for turn in 0..20 {
        let attempt = engine.next_attempt(secs(100)).expect("somebody waits");
        *counts.entry(attempt.key.pod.to_string()).or_default() += 1;
        engine.settle(attempt.ticket, Outcome::success(""), false, secs(100));
        let difference = counts
            .get("exec")
            .copied()
            .unwrap_or(0)
            .abs_diff(counts.get("tcp").copied().unwrap_or(0));
        assert!(difference <= 1, "turn {turn}: {counts:?}");
    }
}

#[test]
fn a_removed_pod_leaves_the_line() {
    let mut engine = limited(1, 1);
    for (uid, probe) in [("a", exec()), ("b", probe()), ("c", probe())] {
        add(&mut engine, uid, 5, &probe);
    }
    let running = engine.next_attempt(secs(100)).expect("due");
    for uid in ["a", "b"] {
        engine.remove_pod(uid);
    }
    engine.settle(running.ticket, Outcome::success(""), false, secs(100));
    let next = engine.next_attempt(secs(100)).expect("c waits");
    assert_eq!(&*next.key.pod, "c");
    engine.settle(next.ticket, Outcome::success(""), false, secs(100));
    engine.remove_pod("c");
    assert_empty(&engine);
}
