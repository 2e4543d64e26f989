//! Nodes that come back and fall silent again, and what is only seen half.

use super::*;
use evenkeel_judge::View;

fn seconds(second: i64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(second).ok()
}

/// Falls silent, is voted dead, and is acted upon.
fn dies(stage: &mut Stage, nodes: &[&str], now: u64) {
    stage.go(now + 4, nodes);
    for node in nodes {
        stage.convict(node);
    }
    stage.go(now + 20, nodes);
    stage.settle();
}

/// Its kubelet renews, and then its peers hear it.
fn returns(stage: &mut Stage, nodes: &[&str], now: u64) {
    stage.go(now - 10, &[]);
    assert_eq!(stage.state(nodes[0]), NodeState::Isolated);
    for node in nodes {
        stage.says(node, cut_off());
    }
    stage.go(now, &[]);
    stage.settle();
}

/// The stock controller's mark still stands from a silence before. What the kubelet wrote after it was true
/// then, and says nothing of a machine that died since.
#[test]
fn a_death_takes_every_endpoint_that_was_ready_before() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    let node = stage.node("n3");
    (node.life.stock_mark, node.marked_time) = (Some(at(2)), seconds(1_000));
    stage.pod("n3", "seen").became_ready = Some(at(5));
    stage.pod("n3", "told").ready_time = seconds(2_000);
    stage.pod("n3", "later").became_ready = Some(at(100));
    dies(&mut stage, &["n3"], 10);
    for (pod, ready) in [
        ("seen", Status::False),
        ("told", Status::False),
        ("later", Status::True),
    ] {
        assert_eq!(stage.pod_now(pod).ready, ready, "{pod}");
    }
}

/// The watch was late: the kubelet wrote before it died. One that lives renews its Lease within 15 s.
#[test]
fn what_became_ready_under_our_eyes_after_a_death_stays_for_15_s() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    stage.pod("n3", "late").ready = Status::False;
    dies(&mut stage, &["n3"], 10);
    let since = stage.memories["n3"].since;
    let late = stage.pod("n3", "late");
    (late.ready, late.became_ready) = (Status::True, Some(since.plus(1_000)));
    let ready_after = |stage: &mut Stage, seconds: u64| {
        stage.go(since.since(at(0)) / 1_000 + seconds, &["n3"]);
        stage.settle();
        stage.pod_now("late").ready
    };
    assert_eq!(ready_after(&mut stage, 15), Status::True);
    assert_eq!(ready_after(&mut stage, 17), Status::False);
}

/// A kubelet's clock may run ahead of the stock controller's.
#[test]
fn times_of_two_clocks_exempt_no_pod_that_was_seen_ready_long_before_the_mark() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    stage.go(65, &["n3"]);
    let node = stage.node("n3");
    (node.life.stock_mark, node.marked_time) = (Some(at(65)), seconds(1_000));
    for (name, seen) in [("ahead", 5), ("told", 64)] {
        let pod = stage.pod("n3", name);
        (pod.ready_time, pod.ready_seen) = (seconds(2_000), Some(at(seen)));
    }
    stage.go(100, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Unknown);
    assert_eq!(stage.pod_now("ahead").ready, Status::False, "owed");
    assert_eq!(stage.pod_now("told").ready, Status::True, "its kubelet's word");
}

/// Where no replica is left that saw what the kubelet said, the times of the stock controller tell whether it
/// marked the pod for the kubelet's word, before it found the node silent.
#[test]
fn a_mark_from_before_the_silence_is_given_back_only_where_the_kubelet_was_seen_to_be_well() {
    for (said, before) in [
        (None, Status::False),
        (Some(true), Status::False),
        (Some(false), Status::True),
    ] {
        let mut stage = Stage::with_nodes(3);
        stage.go(10, &[]);
        stage.says("n3", cut_off());
        let node = stage.node("n3");
        (node.says_not_ready, node.marked_time) = (said, seconds(1_000));
        for (name, second) in [("before", 900), ("after", 1_000)] {
            let pod = stage.pod("n3", name);
            (pod.ready, pod.ready_time) = (Status::False, seconds(second));
        }
        stage.go(60, &["n3"]);
        assert_eq!(stage.state("n3"), NodeState::Disconnected);
        assert_eq!(stage.pod_now("before").ready, before, "{said:?}");
        let after = if said == Some(true) {
            Status::False
        } else {
            Status::True
        };
        assert_eq!(stage.pod_now("after").ready, after, "{said:?}");
    }
}

#[test]
fn nodes_that_came_back_count_in_the_storm_guards_window_after_a_change_of_leader() {
    let mut stage = Stage::with_nodes(6).profile(Profile::Edge);
    stage.go(10, &[]);
    for node in ["n3", "n4", "n5"] {
        stage.pod(node, &format!("web-{node}"));
    }
    dies(&mut stage, &["n3", "n4"], 10);
    assert_eq!(stage.evicted(), ["web-n3", "web-n4"]);
    returns(&mut stage, &["n3", "n4"], 60);
    assert_eq!(stage.state("n3"), NodeState::Healthy);
    stage.restart();
    dies(&mut stage, &["n5"], 60);
    assert_eq!(stage.evicted(), ["web-n3", "web-n4"]);
    stage.go(660, &["n5"]);
    stage.settle();
    assert_eq!(stage.evicted(), ["web-n3", "web-n4", "web-n5"]);
}

/// Its Lease is seen sooner than any report, while nothing else is proven.
#[test]
fn a_recovery_that_was_seen_while_sight_was_lost_ends_the_incident_once_it_is_back() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    stage.says("n3", cut_off());
    stage.go(60, &["n3"]);
    stage.settle();
    assert_eq!(stage.incident("n3").status.state, "Disconnected");
    stage.now = 160;
    stage.sight.look(at(160));
    stage.sight.leases.progress(at(160));
    stage.renew_all_but(&[]);
    stage.look();
    let decision = &stage.decisions["n3"];
    assert_eq!(
        (decision.view, decision.state()),
        (View::Lost, NodeState::Healthy)
    );
    assert_eq!(stage.incident("n3").status.closed_at, None);
    stage.go(163, &[]);
    stage.settle();
    assert!(stage.incident("n3").status.closed_at.is_some());
}

#[test]
fn each_incident_says_again_that_a_stateful_pod_stays() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.go(10, &[]);
    stage.pod("n3", "db-0").owner = Owner::StatefulSet;
    for (now, times) in [(10, 1), (100, 2)] {
        dies(&mut stage, &["n3"], now);
        assert_eq!(stage.pod_events().len(), times, "{:?}", stage.pod_events());
        returns(&mut stage, &["n3"], now + 90);
    }
}
