//! Budgets and what they allow.

use super::*;
use rstest::rstest;
use serde_json::from_value;

/// Pods of a ReplicaSet of that many replicas: so many of them ready, the last one evicted before so many
/// seconds.
fn view(replicas: i32, pods: usize, ready: usize) -> Snapshot {
    let object = |name: &str, owner: Value| json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}, "ownerReferences": owner});
    let set = json!({"metadata": object("set", json!([])), "spec": {"replicas": replicas, "selector": {}}});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set", "controller": true}]);
    let pod = |number: usize| {
        let condition = json!({"type": "Ready", "status": if number < ready { "True" } else { "False" }});
        let pod = json!({
            "metadata": object(&format!("p{number}"), owner.clone()),
            "status": {"phase": "Running", "conditions": [condition]},
        });
        Arc::new(from_value(pod).unwrap())
    };
    Snapshot {
        pods: (0..pods).map(pod).collect(),
        replica_sets: vec![Arc::new(from_value(set).unwrap())],
        ..Snapshot::default()
    }
}

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "a"}});
    from_value(json!({
        "metadata": {"name": "b", "namespace": "default", "generation": 3}, "spec": spec, "status": status,
    }))
    .unwrap()
}

fn status(budget: &PodDisruptionBudget, view: &Snapshot) -> Option<Value> {
    match one(budget, view, "2026-01-01T00:05:00Z".parse().unwrap())? {
        Action::Patch {
            patch, status: true, ..
        } => Some(patch["status"].clone()),
        other => panic!("{other}"),
    }
}

#[rstest]
#[case::at_least(json!({"minAvailable": 2}), (3, 3, 3), (3, 2, 1), "SufficientPods")]
#[case::not_enough(json!({"minAvailable": 2}), (3, 3, 2), (3, 2, 0), "InsufficientPods")]
#[case::share_of_what_is_wanted(json!({"minAvailable": "50%"}), (5, 4, 4), (5, 3, 1), "SufficientPods")]
#[case::at_most(json!({"maxUnavailable": 1}), (3, 3, 3), (3, 2, 1), "SufficientPods")]
#[case::share_that_may_go(json!({"maxUnavailable": "34%"}), (3, 3, 3), (3, 1, 2), "SufficientPods")]
#[case::nobody(json!({"minAvailable": 0}), (0, 0, 0), (0, 0, 0), "InsufficientPods")]
fn a_budget_allows_what_stays_healthy(
    #[case] spec: Value,
    #[case] (replicas, pods, ready): (i32, usize, usize),
    #[case] (expected, desired, allowed): (i32, i32, i32),
    #[case] reason: &str,
) {
    let status = status(&budget(spec, json!({})), &view(replicas, pods, ready)).unwrap();
    let number = |name: &str| status[name].as_i64().unwrap_or_default();
    assert_eq!(
        (
            number("expectedPods"),
            number("desiredHealthy"),
            number("disruptionsAllowed")
        ),
        (expected.into(), desired.into(), allowed.into())
    );
    assert_eq!(status["conditions"][0]["reason"], reason);
    assert_eq!(status["conditions"][0]["observedGeneration"], 3);
}

#[test]
fn pods_that_nobody_controls_are_no_part_of_the_share() {
    let mut view = view(3, 3, 3);
    let lone = json!({
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "a"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    view.pods.push(Arc::new(from_value(lone).unwrap()));
    let status = status(&budget(json!({"maxUnavailable": 1}), json!({})), &view).unwrap();
    let numbers = [
        "expectedPods",
        "desiredHealthy",
        "currentHealthy",
        "disruptionsAllowed",
    ];
    assert_eq!(numbers.map(|name| status[name].as_i64().unwrap()), [3, 2, 4, 2]);
}

#[test]
fn pods_of_an_unknown_controller_stop_the_count_and_allow_nothing() {
    let mut view = view(3, 3, 3);
    view.replica_sets.clear();
    let before = json!({
        "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 3, "disruptionsAllowed": 1, "observedGeneration": 2,
    });
    let status = status(&budget(json!({"maxUnavailable": 1}), before), &view).unwrap();
    assert_eq!(status["conditions"][0]["reason"], "SyncFailed");
    assert_eq!(
        status["conditions"][0]["message"],
        "found no controllers for pod \"p0\""
    );
    assert_eq!(status["disruptionsAllowed"], 0);
    assert_eq!(status.get("expectedPods"), None, "as before");
}

#[rstest]
#[case::under_way("2026-01-01T00:04:00Z", 2, json!({"p0": "2026-01-01T00:04:00Z"}))]
#[case::came_to_nothing("2026-01-01T00:02:00Z", 3, Value::Null)]
fn a_pod_that_is_being_evicted_counts_as_gone_for_two_minutes(
    #[case] since: &str,
    #[case] healthy: i64,
    #[case] kept: Value,
) {
    let before = json!({
        "disruptedPods": {"p0": since, "gone": "2026-01-01T00:04:59Z"}, "expectedPods": 3, "desiredHealthy": 1,
        "currentHealthy": 9, "disruptionsAllowed": 0,
    });
    let status = status(&budget(json!({"minAvailable": 1}), before), &view(3, 3, 3)).unwrap();
    assert_eq!(status["currentHealthy"], healthy);
    assert_eq!(status["disruptedPods"], kept);
}

#[test]
fn a_budget_that_says_so_already_is_left_alone() {
    let view = view(3, 3, 3);
    let mut first = budget(json!({"minAvailable": 2}), json!({}));
    let written = status(&first, &view).unwrap();
    first.status = Some(from_value(written).unwrap());
    assert_eq!(status(&first, &view), None);
}
