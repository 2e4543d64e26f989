//! The cases of upstream's taint eviction tests, by what they assert.

use super::*;
use rstest::rstest;

const T0: Timestamp = Timestamp::constant(1_800_000_000, 0);
const NODE: &str = "node-1";

fn at(seconds: i64) -> Timestamp {
    T0 + SignedDuration::from_secs(seconds)
}

fn taint(number: u32) -> Taint {
    Taint {
        key: format!("taint-{number}"),
        effect: "NoExecute".to_owned(),
        ..Taint::default()
    }
}

fn tolerates(number: u32, seconds: Option<i64>) -> Toleration {
    Toleration {
        key: Some(format!("taint-{number}")),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        toleration_seconds: seconds,
        ..Toleration::default()
    }
}

fn key(name: &str) -> PodKey {
    PodKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn pod(name: &str, node: &str, tolerations: &[Toleration]) -> PodFacts {
    PodFacts {
        key: key(name),
        node: node.to_owned(),
        tolerations: tolerations.to_vec(),
    }
}

fn tainted(taints: &[Taint]) -> TaintEviction {
    let mut core = TaintEviction::new();
    assert!(core.node_changed(NODE, taints.to_vec(), &[], T0).is_empty());
    core
}

fn delete(name: &str) -> Vec<Action> {
    vec![Action::Delete(key(name))]
}

/// A pod appears: deleted at once, at a time, or never.
#[rstest]
#[case::not_scheduled(pod("p", "", &[]), false, None)]
#[case::on_a_node_without_taints(pod("p", "node-2", &[]), false, None)]
#[case::on_a_tainted_node(pod("p", NODE, &[]), true, None)]
#[case::with_a_limit(pod("p", NODE, &[tolerates(1, Some(100))]), false, Some(100))]
#[case::without_a_limit(pod("p", NODE, &[tolerates(1, None)]), false, None)]
#[case::tolerates_another_taint(pod("p", NODE, &[tolerates(2, Some(100))]), true, None)]
#[case::limit_of_zero(pod("p", NODE, &[tolerates(1, Some(0))]), true, None)]
#[case::negative_limit(pod("p", NODE, &[tolerates(1, Some(-1))]), true, None)]
fn a_pod_appears(#[case] pod: PodFacts, #[case] at_once: bool, #[case] seconds: Option<i64>) {
    let mut core = tainted(&[taint(1)]);
    let expected = if at_once { delete("p") } else { Vec::new() };
    assert_eq!(core.pod_changed(&pod, T0), expected);
    assert_eq!(core.next_due(), seconds.map(at));
    if let Some(seconds) = seconds {
        assert!(core.due(at(seconds - 1)).is_empty());
        assert_eq!(core.due(at(seconds)), delete("p"));
        assert!(core.due(at(seconds + 1)).is_empty(), "once");
    }
}

#[test]
fn a_pod_that_goes_takes_its_timer_along() {
    let mut core = tainted(&[taint(1)]);
    core.pod_changed(&pod("p", NODE, &[tolerates(1, Some(100))]), T0);
    assert_eq!(core.pod_gone(&key("p")), Some(Action::Cancelled(key("p"))));
    assert!(core.due(at(200)).is_empty());
    assert_eq!(core.pod_gone(&key("p")), None, "nothing was scheduled any more");
}

#[test]
fn a_pod_that_is_bound_to_a_tainted_node_is_deleted() {
    let mut core = tainted(&[taint(1)]);
    assert!(core.pod_changed(&pod("p", "", &[]), T0).is_empty());
    assert_eq!(core.pod_changed(&pod("p", NODE, &[]), at(1)), delete("p"));
}

#[test]
fn a_pod_that_loses_its_toleration_is_deleted() {
    let mut core = tainted(&[taint(1)]);
    core.pod_changed(&pod("p", NODE, &[tolerates(1, Some(100))]), T0);
    let actions = core.pod_changed(&pod("p", NODE, &[]), at(1));
    assert_eq!(actions, [Action::Cancelled(key("p")), Action::Delete(key("p"))]);
}

#[rstest]
#[case::longer(1_000)]
#[case::shorter(10)]
fn another_limit_moves_no_timer(#[case] seconds: i64) {
    let mut core = tainted(&[taint(1)]);
    core.pod_changed(&pod("p", NODE, &[tolerates(1, Some(100))]), T0);
    assert!(
        core.pod_changed(&pod("p", NODE, &[tolerates(1, Some(seconds))]), at(1))
            .is_empty()
    );
    assert_eq!(core.next_due(), Some(at(100)));
}

#[test]
fn a_limit_that_is_taken_away_cancels_the_timer() {
    let mut core = tainted(&[taint(1)]);
    core.pod_changed(&pod("p", NODE, &[tolerates(1, Some(100))]), T0);
    let actions = core.pod_changed(&pod("p", NODE, &[tolerates(1, None)]), at(1));
    assert_eq!(actions, [Action::Cancelled(key("p"))]);
    assert_eq!(core.next_due(), None);
}

#[test]
fn a_status_update_of_a_pod_does_nothing() {
    let mut core = tainted(&[taint(1)]);
    let pod = pod("p", NODE, &[]);
    assert_eq!(core.pod_changed(&pod, T0), delete("p"));
    core.deleted(&key("p"), false);
    assert!(
        core.pod_changed(&pod, at(1)).is_empty(),
        "forgotten until the next event that matters"
    );
}

#[rstest]
#[case::taint_not_tolerated(&[], &delete("p"), None)]
#[case::tolerated_for_a_while(&[tolerates(1, Some(100))], &[], Some(100))]
#[case::tolerated_for_ever(&[tolerates(1, None)], &[], None)]
fn a_node_gets_a_taint(
    #[case] tolerations: &[Toleration],
    #[case] expected: &[Action],
    #[case] due: Option<i64>,
) {
    let mut core = TaintEviction::new();
    let pod = pod("p", NODE, tolerations);
    core.pod_changed(&pod, T0);
    assert_eq!(core.node_changed(NODE, vec![taint(1)], &[pod], T0), expected);
    assert_eq!(core.next_due(), due.map(at));
}

#[test]
fn only_one_of_two_taints_tolerated_is_not_enough() {
    let mut core = TaintEviction::new();
    let pod = pod("p", NODE, &[tolerates(1, Some(100))]);
    assert_eq!(
        core.node_changed(NODE, vec![taint(1), taint(2)], &[pod], T0),
        delete("p")
    );
}

#[test]
fn the_shortest_of_several_limits_counts() {
    let mut core = TaintEviction::new();
    let pod = pod("p", NODE, &[tolerates(1, Some(10)), tolerates(2, Some(100))]);
    core.node_changed(NODE, vec![taint(1), taint(2)], &[pod], T0);
    assert_eq!(core.next_due(), Some(at(10)));
}

#[test]
fn a_taint_that_goes_cancels_the_timers() {
    let mut core = TaintEviction::new();
    let pods = [
        pod("p", NODE, &[tolerates(1, Some(100))]),
        pod("q", NODE, &[tolerates(1, None)]),
    ];
    core.node_changed(NODE, vec![taint(1)], &pods, T0);
    assert_eq!(
        core.node_changed(NODE, Vec::new(), &pods, at(50)),
        [Action::Cancelled(key("p"))]
    );
    assert!(core.due(at(1_000)).is_empty());
}

#[test]
fn one_taint_of_two_goes_and_the_timer_of_the_other_goes_on() {
    let mut core = TaintEviction::new();
    let pods = [pod("p", NODE, &[tolerates(1, Some(1)), tolerates(2, Some(100))])];
    core.node_changed(NODE, vec![taint(1), taint(2)], &pods, T0);
    // As upstream: the timer that runs is kept, also one that the remaining taint would not set.
    assert!(
        core.node_changed(
            NODE,
            vec![taint(2)],
            &pods,
            at(0) + SignedDuration::from_millis(1)
        )
        .is_empty()
    );
    assert_eq!(core.next_due(), Some(at(1)));
}

#[test]
fn pods_of_a_node_leave_each_in_its_time() {
    let mut core = TaintEviction::new();
    let pods = [
        pod("pod1", NODE, &[]),
        pod("pod2", NODE, &[tolerates(1, Some(1))]),
        pod("pod3", NODE, &[tolerates(1, None)]),
    ];
    assert_eq!(core.node_changed(NODE, vec![taint(1)], &pods, T0), delete("pod1"));
    assert_eq!(core.due(at(1)), delete("pod2"));
    assert_eq!(core.next_due(), None);
}

#[test]
fn a_node_that_goes_leaves_the_timers_of_its_pods_running() {
    let mut core = TaintEviction::new();
    let pods = [pod("p", NODE, &[tolerates(1, Some(100))])];
    core.node_changed(NODE, vec![taint(1)], &pods, T0);
    core.node_gone(NODE);
    assert_eq!(core.due(at(100)), delete("p"));
    assert!(core.pod_changed(&pod("q", NODE, &[]), at(100)).is_empty());
}

#[test]
fn the_same_taints_again_are_no_event() {
    let mut core = TaintEviction::new();
    let pods = [pod("p", NODE, &[])];
    assert_eq!(core.node_changed(NODE, vec![taint(1)], &pods, T0), delete("p"));
    core.deleted(&key("p"), false);
    assert!(core.node_changed(NODE, vec![taint(1)], &pods, at(1)).is_empty());
}

#[test]
fn a_pod_is_not_deleted_twice_until_it_is_seen_to_be_gone() {
    let mut core = tainted(&[taint(1)]);
    assert_eq!(core.pod_changed(&pod("p", NODE, &[]), T0), delete("p"));
    core.deleted(&key("p"), true);
    assert!(
        core.pod_changed(&pod("p", NODE, &[tolerates(2, None)]), at(1))
            .is_empty()
            || core.next_due().is_none()
    );
    assert_eq!(core.pod_gone(&key("p")), None);
    assert_eq!(
        core.pod_changed(&pod("p", NODE, &[]), at(2)),
        delete("p"),
        "another pod of the name"
    );
}

#[test]
fn a_limit_beyond_the_calendar_never_comes() {
    let mut core = tainted(&[taint(1)]);
    assert!(
        core.pod_changed(&pod("p", NODE, &[tolerates(1, Some(i64::MAX))]), T0)
            .is_empty()
    );
    assert_eq!(core.next_due(), None);
}
