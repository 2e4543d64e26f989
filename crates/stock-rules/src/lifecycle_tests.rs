//! The cases of upstream's node lifecycle tests, by what they assert.

use super::super::health::{Check, Grace};
use super::super::taints;
use super::super::zones::{Rates, ZoneState, zone_key};
use super::*;
use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};

const T0: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    T0 + SignedDuration::from_secs(seconds)
}

fn text(at: Timestamp) -> Value {
    serde_json::to_value(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at)).unwrap()
}

/// A node created an hour before [`T0`], with a Ready condition reported at `heartbeat`.
fn node(name: &str, ready: &str, heartbeat: i64) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": text(at(-3_600))},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": text(at(heartbeat)),
            "lastTransitionTime": text(at(-3_600))}]},
    }))
    .unwrap()
}

fn silent(name: &str, created: i64) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": text(at(created))},
    }))
    .unwrap()
}

fn labelled(mut node: Node, labels: &[(&str, &str)]) -> Node {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    node.metadata.labels = Some(labels.collect());
    node
}

fn in_zone(node: Node, zone: &str) -> Node {
    labelled(
        node,
        &[
            ("topology.kubernetes.io/region", "r"),
            ("topology.kubernetes.io/zone", zone),
        ],
    )
}

fn with_taints(mut node: Node, keys: &[(&str, &str)]) -> Node {
    let taints: Vec<Value> = keys
        .iter()
        .map(|(key, effect)| json!({"key": key, "effect": effect}))
        .collect();
    node.spec = Some(serde_json::from_value(json!({"taints": taints})).unwrap());
    node
}

fn lifecycle() -> NodeLifecycle {
    NodeLifecycle::new(Grace::default(), Rates::default())
}

/// A whole pass in which every write succeeds. Returns what the shell had to do and the nodes as they are
/// then.
fn pass(
    core: &mut NodeLifecycle,
    nodes: &[Node],
    leases: &BTreeMap<&str, Timestamp>,
    now: Timestamp,
) -> (Vec<Action>, Vec<Node>, BTreeMap<String, ZoneFigures>) {
    let shared: Vec<Arc<Node>> = nodes.iter().cloned().map(Arc::new).collect();
    let mut actions = core.classify(&shared, now);
    let mut after = Vec::new();
    let mut found = BTreeMap::new();
    for node in nodes {
        let mut node = node.clone();
        let check = core.check(&node, leases.get(name(&node)).copied(), now);
        if !check.write.is_empty() {
            apply(&mut node, &check);
            core.written(name(&node), &check, now);
        }
        actions.extend(core.react(&node, &check, now));
        found.insert(name(&node).to_owned(), check.current_status().map(str::to_owned));
        after.push(node);
    }
    let shared: Vec<Arc<Node>> = after.iter().cloned().map(Arc::new).collect();
    let (more, figures) = core.disrupt(&shared, &found, now);
    actions.extend(more);
    (actions, after, figures)
}

fn apply(node: &mut Node, check: &Check) {
    let status = node.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    for written in &check.write {
        conditions.retain(|condition| condition.type_ != written.type_);
        conditions.push(written.clone());
    }
}

fn no_leases() -> BTreeMap<&'static str, Timestamp> {
    BTreeMap::new()
}

fn status(node: &Node, kind: &str) -> Option<(String, String)> {
    let condition = health::condition(node, kind)?;
    Some((
        condition.status.clone(),
        condition.reason.clone().unwrap_or_default(),
    ))
}

// ---- silence

#[test]
fn an_old_node_without_status_gets_all_four_conditions() {
    let mut core = lifecycle();
    let (_, after, _) = pass(&mut core, &[silent("a", -3_600)], &no_leases(), T0);
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let expected = ("Unknown".to_owned(), "NodeStatusNeverUpdated".to_owned());
        assert_eq!(status(&after[0], kind), Some(expected), "{kind}");
    }
    assert_eq!(status(&after[0], "NetworkUnavailable"), None);
    let ready = health::condition(&after[0], "Ready").unwrap();
    assert_eq!(ready.last_heartbeat_time.as_ref().unwrap().0, at(-3_600));
    assert_eq!(
        ready.message.as_deref(),
        Some("Kubelet never posted node status.")
    );
}

#[test]
fn a_new_node_without_status_has_its_startup_grace() {
    let mut core = lifecycle();
    for now in [at(0), at(60)] {
        let check = core.check(&silent("a", 0), None, now);
        assert!(check.write.is_empty());
        assert_eq!(
            (check.observed.as_str(), check.current_status()),
            ("Unknown", None)
        );
    }
    assert_eq!(core.check(&silent("a", 0), None, at(61)).write.len(), 4);
}

#[test]
fn a_node_that_stops_posting_is_marked_after_its_grace_by_our_clock() {
    let mut core = lifecycle();
    // Its own times are an hour old: they do not count, only that they do not change.
    let node = node("a", "True", -3_600);
    for now in [at(0), at(50)] {
        assert!(core.check(&node, None, now).write.is_empty());
    }
    let check = core.check(&node, None, at(51));
    let ready = check.current.clone().unwrap();
    assert_eq!(
        (check.observed.as_str(), ready.status.as_str()),
        ("True", "Unknown")
    );
    assert_eq!(ready.reason.as_deref(), Some("NodeStatusUnknown"));
    assert_eq!(
        ready.message.as_deref(),
        Some("Kubelet stopped posting node status.")
    );
    assert_eq!(
        ready.last_heartbeat_time.unwrap().0,
        at(-3_600),
        "heartbeat is untouched"
    );
    assert_eq!(ready.last_transition_time.unwrap().0, at(51));
}

#[test]
fn heartbeats_and_lease_renewals_are_signs_of_life() {
    let mut core = lifecycle();
    core.check(&node("a", "True", 0), Some(at(0)), at(0));
    core.check(&node("a", "True", 40), Some(at(0)), at(40));
    // The heartbeat dropped the saved Lease, so the old one counts once more: stock's own extra period.
    core.check(&node("a", "True", 40), Some(at(0)), at(45));
    assert!(
        core.check(&node("a", "True", 40), Some(at(0)), at(95))
            .write
            .is_empty()
    );
    assert!(
        !core
            .check(&node("a", "True", 40), Some(at(0)), at(96))
            .write
            .is_empty()
    );
    assert!(
        core.check(&node("a", "True", 40), Some(at(90)), at(97))
            .write
            .is_empty()
    );
}

/// Upstream's table of a status and a Lease, each fresh or old.
#[rstest]
#[case::new_without_status_or_lease(silent("a", 0), None, false)]
#[case::new_without_status_with_lease(silent("a", 0), Some((0, 10)), false)]
#[case::old_without_status_or_lease(silent("a", -3_600), None, true)]
#[case::old_without_status_lease_renewed(silent("a", -3_600), Some((0, 100)), false)]
#[case::old_without_status_lease_expired(silent("a", -3_600), Some((0, 0)), true)]
#[case::stale_status_lease_renewed(node("a", "True", 0), Some((0, 100)), false)]
#[case::stale_status_lease_expired(node("a", "True", 0), Some((0, 0)), true)]
#[case::stale_status_no_lease(node("a", "True", 0), None, true)]
fn status_and_lease_together(#[case] node: Node, #[case] lease: Option<(i64, i64)>, #[case] unknown: bool) {
    let mut core = lifecycle();
    core.check(&node, lease.map(|(first, _)| at(first)), at(0));
    let check = core.check(&node, lease.map(|(_, second)| at(second)), at(100));
    // A node that is 100 s old by now is past its startup grace unless a Lease vouches for it.
    let young = node.metadata.creation_timestamp.as_ref().unwrap().0 == T0;
    let unknown = unknown || young && lease.is_none();
    assert_eq!(!check.write.is_empty(), unknown, "{check:?}");
}

#[rstest]
#[case::is_true("True")]
#[case::is_false("False")]
#[case::is_unknown("Unknown")]
fn memory_equals_what_is_found(#[case] ready: &str) {
    for now in [at(10), at(100)] {
        let mut memory = None;
        let node = node("a", ready, 0);
        health::check(&mut memory, &node, None, Grace::default(), at(0));
        let check = health::check(&mut memory, &node, None, Grace::default(), now);
        if !check.write.is_empty() {
            health::written(&mut memory, &check, now);
        }
        assert_eq!(memory.unwrap().ready, check.current);
    }
}

#[test]
fn a_restart_gives_everybody_a_fresh_grace() {
    let node = node("a", "True", -3_600);
    let mut core = lifecycle();
    assert!(core.check(&node, Some(at(-3_600)), at(0)).write.is_empty());
    assert!(core.check(&node, Some(at(-3_600)), at(50)).write.is_empty());
}

// ---- reaction

fn kinds(actions: &[Action]) -> Vec<String> {
    let kind = |action: &Action| match action {
        Action::Event { node, reason, .. } => format!("{reason} {node}"),
        Action::MarkReachable { node } => format!("reachable {node}"),
        Action::Swap { node, add, .. } => format!("swap {node} {add}"),
        Action::MarkPods { node } => format!("mark {node}"),
    };
    actions.iter().map(kind).collect()
}

#[test]
fn a_transition_is_told_once_and_marks_the_pods_once() {
    let mut core = lifecycle();
    let nodes = [node("a", "True", 0), node("b", "True", 0)];
    let (actions, nodes, _) = pass(&mut core, &nodes, &no_leases(), at(0));
    assert_eq!(kinds(&actions), ["RegisteredNode a", "RegisteredNode b"]);
    let healthy = node("b", "True", 60);
    let (actions, nodes, _) = pass(
        &mut core,
        &[nodes[0].clone(), healthy.clone()],
        &no_leases(),
        at(60),
    );
    assert_eq!(kinds(&actions), ["NodeNotReady a", "mark a"]);
    let Action::Event { uid, message, .. } = &actions[0] else {
        panic!("{actions:?}")
    };
    assert_eq!(
        (uid.as_str(), message.as_str()),
        ("uid-a", "Node a status is now: NodeNotReady")
    );
    core.pods_marked("a", true);
    let (actions, ..) = pass(&mut core, &nodes, &no_leases(), at(65));
    assert_eq!(kinds(&actions), [""; 0]);
}

#[test]
fn pods_that_could_not_be_marked_are_tried_again_while_the_node_is_not_ready() {
    let mut core = lifecycle();
    let nodes = [node("a", "True", 0)];
    pass(&mut core, &nodes, &no_leases(), at(0));
    let (actions, nodes, _) = pass(&mut core, &nodes, &no_leases(), at(60));
    assert_eq!(kinds(&actions), ["NodeNotReady a", "mark a"]);
    core.pods_marked("a", false);
    let (actions, nodes, _) = pass(&mut core, &nodes, &no_leases(), at(65));
    assert_eq!(kinds(&actions), ["mark a"]);
    core.pods_marked("a", false);
    let back = [node("a", "True", 66)];
    let (actions, ..) = pass(&mut core, &back, &no_leases(), at(70));
    assert!(!kinds(&actions).contains(&"mark a".to_owned()));
    let (actions, ..) = pass(&mut core, &nodes, &no_leases(), at(75));
    assert!(
        !kinds(&actions).contains(&"mark a".to_owned()),
        "the debt ended with the return"
    );
}

#[rstest]
#[case::by_the_kubelet("False")]
#[case::by_an_external_detector("Unknown")]
fn a_transition_that_somebody_else_wrote_marks_no_pods(#[case] ready: &str) {
    let mut core = lifecycle();
    pass(&mut core, &[node("a", "True", 0)], &no_leases(), at(0));
    let (actions, ..) = pass(&mut core, &[node("a", ready, 5)], &no_leases(), at(5));
    assert_eq!(kinds(&actions), [""; 0]);
}

#[test]
fn pods_bound_to_a_node_known_not_to_be_ready_are_marked() {
    let mut core = lifecycle();
    assert!(!core.marks_bound_pod("a"), "health unknown");
    pass(
        &mut core,
        &[node("a", "True", 0), node("b", "False", 0)],
        &no_leases(),
        at(0),
    );
    assert!(!core.marks_bound_pod("a"));
    assert!(core.marks_bound_pod("b"));
}

#[test]
fn a_node_that_leaves_is_told_and_forgotten() {
    let mut core = lifecycle();
    pass(
        &mut core,
        &[node("a", "True", 0), node("b", "False", 0)],
        &no_leases(),
        at(0),
    );
    assert_eq!(core.waiting(""), ["b"]);
    let (actions, ..) = pass(&mut core, &[node("a", "True", 0)], &no_leases(), at(5));
    assert_eq!(kinds(&actions), ["RemovingNode b"]);
    assert_eq!(core.waiting(""), [""; 0]);
    // It comes back and queues again: no entry was stuck.
    pass(
        &mut core,
        &[node("a", "True", 0), node("b", "False", 0)],
        &no_leases(),
        at(10),
    );
    assert_eq!(core.waiting(""), ["b"]);
}

// ---- NoExecute taints

fn next(core: &mut NodeLifecycle, nodes: &[Node], now: Timestamp) -> Option<DueTaint> {
    core.next_taint(now, |wanted| {
        nodes
            .iter()
            .find(|node| name(node) == wanted)
            .cloned()
            .map(Arc::new)
    })
}

#[rstest]
#[case::unknown("Unknown", UNREACHABLE, NOT_READY)]
#[case::not_ready("False", NOT_READY, UNREACHABLE)]
fn the_condition_says_which_taint(#[case] ready: &str, #[case] add: &str, #[case] remove: &str) {
    let mut core = lifecycle();
    let (_, nodes, _) = pass(
        &mut core,
        &[node("a", ready, 0), node("b", "True", 0)],
        &no_leases(),
        at(0),
    );
    let due = next(&mut core, &nodes, at(0)).unwrap();
    assert_eq!((due.node.as_str(), due.add, due.remove), ("a", add, remove));
    core.tainted(due, true, at(0));
    assert_eq!(next(&mut core, &nodes, at(60)), None);
}

#[test]
fn a_condition_that_clears_before_its_turn_gets_no_taint() {
    let mut core = lifecycle();
    pass(
        &mut core,
        &[node("a", "Unknown", 0), node("b", "True", 0)],
        &no_leases(),
        at(0),
    );
    assert_eq!(next(&mut core, &[node("a", "True", 1)], at(1)), None);
}

#[test]
fn a_node_that_is_healthy_again_loses_both_taints_and_may_queue_anew() {
    let mut core = lifecycle();
    let other = node("b", "True", 0);
    let (_, nodes, _) = pass(
        &mut core,
        &[node("a", "Unknown", 0), other.clone()],
        &no_leases(),
        at(0),
    );
    let due = next(&mut core, &nodes, at(0)).unwrap();
    core.tainted(due, true, at(0));
    let back = with_taints(
        node("a", "True", 5),
        &[(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")],
    );
    let (actions, ..) = pass(&mut core, &[back.clone(), other.clone()], &no_leases(), at(5));
    assert_eq!(kinds(&actions), ["reachable a"]);
    let left = taints::reachable(&back).unwrap();
    assert_eq!((left.len(), left[0].effect.as_str()), (1, "NoSchedule"));
    let (_, nodes, _) = pass(
        &mut core,
        &[node("a", "Unknown", 10), other],
        &no_leases(),
        at(10),
    );
    assert_eq!(next(&mut core, &nodes, at(10)).unwrap().node, "a");
}

#[test]
fn a_taint_that_somebody_took_off_is_put_on_again() {
    let mut core = lifecycle();
    let bare = [node("a", "Unknown", 0), node("b", "True", 0)];
    pass(&mut core, &bare, &no_leases(), at(0));
    let due = next(&mut core, &bare, at(0)).unwrap();
    core.tainted(due, true, at(0));
    // Still there: it does not queue.
    let tainted = [
        with_taints(bare[0].clone(), &[(UNREACHABLE, "NoExecute")]),
        bare[1].clone(),
    ];
    pass(&mut core, &tainted, &no_leases(), at(5));
    assert_eq!(core.waiting(""), [""; 0]);
    // Stripped: it queues again, at the pace of the zone.
    pass(&mut core, &bare, &no_leases(), at(9));
    assert_eq!(next(&mut core, &bare, at(9)), None);
    assert_eq!(next(&mut core, &bare, at(10)).unwrap().node, "a");
}

#[rstest]
#[case::to_not_ready("False", UNREACHABLE, NOT_READY)]
#[case::to_unreachable("Unknown", NOT_READY, UNREACHABLE)]
fn the_other_taint_is_swapped_at_once(#[case] ready: &str, #[case] has: &str, #[case] gets: &'static str) {
    let mut core = lifecycle();
    let tainted = with_taints(node("a", ready, 0), &[(has, "NoExecute")]);
    let (actions, ..) = pass(
        &mut core,
        &[tainted.clone(), node("b", "True", 0)],
        &no_leases(),
        at(0),
    );
    assert!(kinds(&actions).contains(&format!("swap a {gets}")), "{actions:?}");
    let after = taints::swapped(
        &tainted,
        gets,
        if gets == NOT_READY { UNREACHABLE } else { NOT_READY },
        at(0),
    );
    let after = after.unwrap();
    assert_eq!((after.len(), after[0].key.as_str()), (1, gets));
    assert_eq!(after[0].time_added.as_ref().unwrap().0, at(0));
}

#[test]
fn a_taint_that_could_not_be_written_is_due_again() {
    let mut core = lifecycle();
    let nodes = [node("a", "Unknown", 0), node("b", "True", 0)];
    pass(&mut core, &nodes, &no_leases(), at(0));
    let due = next(&mut core, &nodes, at(0)).unwrap();
    core.tainted(due, false, at(0));
    assert_eq!(next(&mut core, &nodes, at(1)), None, "the limiter has no token");
    assert_eq!(next(&mut core, &nodes, at(11)).unwrap().node, "a");
}

#[test]
fn nodes_are_tainted_one_in_ten_seconds() {
    let mut core = lifecycle();
    let nodes: Vec<Node> = (0..3)
        .map(|i| node(&format!("lost-{i}"), "Unknown", 0))
        .chain((0..5).map(|i| node(&format!("ok-{i}"), "True", 0)))
        .collect();
    pass(&mut core, &nodes, &no_leases(), at(0));
    let mut tainted = Vec::new();
    for tenth in 0..=200 {
        let now = T0 + SignedDuration::from_millis(tenth * 100);
        if let Some(due) = next(&mut core, &nodes, now) {
            tainted.push((due.node.clone(), tenth));
            core.tainted(due, true, now);
        }
    }
    let expected = [
        ("lost-0".to_owned(), 0),
        ("lost-1".to_owned(), 100),
        ("lost-2".to_owned(), 200),
    ];
    assert_eq!(tainted, expected);
}

// ---- zones

/// `(zone, ready, not ready)` before and an hour later, with the states expected.
#[rstest]
#[case::one_healthy_node(&[("", 1, 0)], &[ZoneState::Normal], &[("", 1, 0)], &[ZoneState::Normal])]
#[case::two_zones_down_one_returns(
    &[("1", 0, 1), ("2", 0, 1)], &[ZoneState::Full, ZoneState::Full],
    &[("1", 0, 1), ("2", 1, 0)], &[ZoneState::Full, ZoneState::Normal]
)]
#[case::two_of_five_then_three(&[("", 3, 2)], &[ZoneState::Normal], &[("", 2, 3)], &[ZoneState::Partial])]
#[case::two_of_three_then_all(&[("", 1, 2)], &[ZoneState::Normal], &[("", 0, 3)], &[ZoneState::Full])]
#[case::one_zone_stays_down(
    &[("1", 0, 1), ("2", 1, 0)], &[ZoneState::Full, ZoneState::Normal],
    &[("1", 0, 1), ("2", 1, 0)], &[ZoneState::Full, ZoneState::Normal]
)]
#[case::both_zones_stay_down(
    &[("1", 0, 1), ("2", 0, 1)], &[ZoneState::Full, ZoneState::Full],
    &[("1", 0, 1), ("2", 0, 1)], &[ZoneState::Full, ZoneState::Full]
)]
fn zones_follow_their_nodes(
    #[case] before: &[(&str, usize, usize)],
    #[case] states_before: &[ZoneState],
    #[case] after: &[(&str, usize, usize)],
    #[case] states_after: &[ZoneState],
) {
    let mut core = lifecycle();
    for (zones, states, hour) in [(before, states_before, 0), (after, states_after, 1)] {
        let heartbeat = hour * 3_600;
        let nodes: Vec<Node> = zones
            .iter()
            .flat_map(|(zone, ready, not_ready)| {
                (0..ready + not_ready).map(move |i| {
                    let status = if i < *ready { "True" } else { "Unknown" };
                    let node = node(&format!("{zone}-{i}"), status, heartbeat);
                    if zone.is_empty() {
                        node
                    } else {
                        in_zone(node, zone)
                    }
                })
            })
            .collect();
        let (_, _, figures) = pass(&mut core, &nodes, &no_leases(), at(heartbeat));
        for ((zone, ready, not_ready), state) in zones.iter().zip(states) {
            let key = if zone.is_empty() {
                String::new()
            } else {
                format!("r:\0:{zone}")
            };
            assert_eq!(core.zone_state(&key), Some(*state), "zone {zone:?}");
            let expected = ZoneFigures {
                size: ready + not_ready,
                unhealthy: *not_ready,
            };
            assert_eq!(figures[&key], expected);
        }
    }
}

#[test]
fn a_ready_condition_that_disappears_counts_as_not_ready() {
    let mut core = lifecycle();
    pass(&mut core, &[node("a", "True", 0)], &no_leases(), at(0));
    assert_eq!(core.zone_state(""), Some(ZoneState::Normal));
    pass(&mut core, &[silent("a", -3_600)], &no_leases(), at(5));
    assert_eq!(core.zone_state(""), Some(ZoneState::Full));
}

#[rstest]
#[case::nobody_excluded(&[], ZoneState::Normal)]
#[case::the_label_excludes(&[("node.kubernetes.io/exclude-disruption", "")], ZoneState::Full)]
#[case::another_label_does_not(&[("node-role.kubernetes.io/control-plane", "")], ZoneState::Normal)]
fn excluded_nodes_do_not_count(#[case] labels: &[(&str, &str)], #[case] expected: ZoneState) {
    let mut core = lifecycle();
    // A name is no label.
    let nodes = [
        node("master-1", "Unknown", 0),
        labelled(node("a", "True", 0), labels),
    ];
    pass(&mut core, &nodes, &no_leases(), at(0));
    assert_eq!(core.zone_state(""), Some(expected));
}

#[test]
fn when_everything_is_silent_all_taints_go_and_none_comes() {
    let mut core = lifecycle();
    let healthy = [node("a", "True", 0), node("b", "True", 0)];
    pass(&mut core, &healthy, &no_leases(), at(0));
    let down = [
        with_taints(node("a", "Unknown", 0), &[(UNREACHABLE, "NoExecute")]),
        node("b", "Unknown", 0),
    ];
    let (actions, ..) = pass(&mut core, &down, &no_leases(), at(5));
    assert!(kinds(&actions).contains(&"reachable a".to_owned()), "{actions:?}");
    pass(&mut core, &down, &no_leases(), at(10));
    assert_eq!(next(&mut core, &down, at(100)), None);
    // One returns: the grace of all starts over, and taints come at the normal pace again.
    let half = [node("a", "True", 100), node("b", "Unknown", 0)];
    pass(&mut core, &half, &no_leases(), at(100));
    assert_eq!(core.zone_state(""), Some(ZoneState::Normal));
    pass(&mut core, &half, &no_leases(), at(105));
    assert_eq!(next(&mut core, &half, at(110)).unwrap().node, "b");
}

#[test]
fn leaving_full_disruption_restarts_every_grace() {
    let mut core = lifecycle();
    let quiet = node("c", "True", 0);
    pass(
        &mut core,
        &[node("a", "Unknown", 0), quiet.clone()],
        &no_leases(),
        at(0),
    );
    let (_, nodes, _) = pass(&mut core, &[node("a", "Unknown", 0), quiet], &no_leases(), at(60));
    assert_eq!(core.zone_state(""), Some(ZoneState::Full));
    assert_eq!(status(&nodes[1], "Ready").unwrap().0, "Unknown");
    let returned = [node("a", "True", 65), node("c", "True", 0)];
    pass(&mut core, &returned, &no_leases(), at(65));
    let (_, nodes, _) = pass(&mut core, &returned, &no_leases(), at(115));
    assert_eq!(
        status(&nodes[1], "Ready").unwrap().0,
        "True",
        "silent since 0, but counted from 65"
    );
}

#[test]
fn a_restart_while_everything_is_down_takes_the_taints_off() {
    let mut core = lifecycle();
    let down = [with_taints(
        node("a", "Unknown", 0),
        &[(UNREACHABLE, "NoExecute")],
    )];
    let (actions, ..) = pass(&mut core, &down, &no_leases(), at(0));
    assert_eq!(
        kinds(&actions),
        ["RegisteredNode a", "reachable a", "reachable a"]
    );
}

#[rstest]
#[case::normal(1, 0, ZoneState::Normal, 1, 0.1)]
#[case::all_down(0, 1, ZoneState::Full, 1, 0.1)]
#[case::two_bad_are_normal(1, 2, ZoneState::Normal, 3, 0.1)]
#[case::partial_in_a_small_zone_stops(2, 3, ZoneState::Partial, 5, 0.0)]
#[case::partial_in_a_zone_of_50_stops(20, 30, ZoneState::Partial, 50, 0.0)]
#[case::partial_in_a_large_zone_slows_down(20, 31, ZoneState::Partial, 51, 0.01)]
#[case::just_below_the_threshold(46, 54, ZoneState::Normal, 100, 0.1)]
#[case::at_the_threshold(45, 55, ZoneState::Partial, 100, 0.01)]
#[case::empty(0, 0, ZoneState::Normal, 0, 0.1)]
fn states_and_rates(
    #[case] ready: usize,
    #[case] not_ready: usize,
    #[case] state: ZoneState,
    #[case] size: usize,
    #[case] rate: f64,
) {
    let rates = Rates::default();
    assert_eq!(rates.state(ready, not_ready), state);
    assert!((rates.rate(state, size) - rate).abs() < 1e-12);
}

#[rstest]
#[case::neither(&[], "")]
#[case::both(&[("topology.kubernetes.io/region", "r"), ("topology.kubernetes.io/zone", "z")], "r:\0:z")]
#[case::zone_only(&[("topology.kubernetes.io/zone", "z")], ":\0:z")]
#[case::beta_wins(
    &[("topology.kubernetes.io/zone", "z"), ("failure-domain.beta.kubernetes.io/zone", "old")],
    ":\0:old"
)]
fn zones_are_named_by_labels(#[case] labels: &[(&str, &str)], #[case] expected: &str) {
    let node = labelled(silent("a", 0), labels);
    assert_eq!(zone_key(node.metadata.labels.as_ref()), expected);
}

// ---- NoSchedule taints and labels

fn keys(taints: Option<Vec<k8s_openapi::api::core::v1::Taint>>) -> Option<Vec<String>> {
    taints.map(|taints| {
        taints
            .into_iter()
            .map(|taint| format!("{}:{}", taint.key, taint.effect))
            .collect()
    })
}

#[rstest]
#[case::ready(node("a", "True", 0), None)]
#[case::not_ready(node("a", "False", 0), Some(vec!["node.kubernetes.io/not-ready:NoSchedule"]))]
#[case::unknown(node("a", "Unknown", 0), Some(vec!["node.kubernetes.io/unreachable:NoSchedule"]))]
#[case::healthy_again(with_taints(node("a", "True", 0), &[(UNREACHABLE, "NoSchedule")]), Some(vec![]))]
#[case::others_stay(
    with_taints(node("a", "False", 0), &[("mine", "NoSchedule"), (NOT_READY, "NoExecute"), (UNREACHABLE, "NoSchedule")]),
    Some(vec!["mine:NoSchedule", "node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"])
)]
#[case::as_it_should_be(with_taints(node("a", "Unknown", 0), &[(UNREACHABLE, "NoSchedule")]), None)]
fn no_schedule_follows_the_conditions(#[case] node: Node, #[case] expected: Option<Vec<&str>>) {
    let expected = expected.map(|keys| keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(keys(taints::by_condition(&node, at(0))), expected);
}

#[test]
fn pressure_and_cordon_are_taints_too() {
    let mut node = node("a", "True", 0);
    let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
    for kind in [
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
    ] {
        conditions.push(serde_json::from_value(json!({"type": kind, "status": "True"})).unwrap());
    }
    node.spec.get_or_insert_default().unschedulable = Some(true);
    assert_eq!(
        keys(taints::by_condition(&node, at(0))).unwrap(),
        [
            "node.kubernetes.io/memory-pressure:NoSchedule",
            "node.kubernetes.io/disk-pressure:NoSchedule",
            "node.kubernetes.io/pid-pressure:NoSchedule",
            "node.kubernetes.io/network-unavailable:NoSchedule",
            "node.kubernetes.io/unschedulable:NoSchedule",
        ]
    );
}

#[rstest]
#[case::no_ga_label(&[], &[])]
#[case::beta_is_missing(&[("kubernetes.io/os", "linux")], &[("beta.kubernetes.io/os", "linux")])]
#[case::beta_differs(
    &[("kubernetes.io/arch", "arm64"), ("beta.kubernetes.io/arch", "amd64")],
    &[("beta.kubernetes.io/arch", "arm64")]
)]
#[case::equal(&[("kubernetes.io/os", "linux"), ("beta.kubernetes.io/os", "linux")], &[])]
fn beta_labels_follow_ga_labels(#[case] labels: &[(&str, &str)], #[case] expected: &[(&str, &str)]) {
    let node = labelled(silent("a", 0), labels);
    let set = taints::labels_to_set(&node);
    let set: Vec<(&str, &str)> = set.iter().map(|(key, value)| (*key, value.as_str())).collect();
    assert_eq!(set, expected);
}
