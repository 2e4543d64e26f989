//! Limits, and whose turn it is.

use super::*;
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
    add(&mut engine, "exec", 10, &exec());
    add(&mut engine, "tcp", 10, &probe());
    let running = attempts(&mut engine, secs(100));
    let execs = running
        .iter()
        .filter(|attempt| &*attempt.key.pod == "exec")
        .count();
    assert_eq!(
        (running.len(), execs),
        (5, 2),
        "exec probes that wait hold up no others"
    );
    assert_eq!(engine.due(), None, "until one ends");
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
