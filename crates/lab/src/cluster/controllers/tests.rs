//! Tables of cases for the controllers.

use super::*;
use crate::cluster::action::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

fn object<K: DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn meta(name: &str, extra: Value) -> Value {
    let mut meta = json!({
        "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    json_patch::merge(&mut meta, &extra);
    meta
}

fn owned_by(kind: &str, name: &str) -> Value {
    json!({"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true,
    }]})
}

fn pod(name: &str, metadata: Value, node: Option<&str>, ready: bool) -> Value {
    json!({
        "metadata": meta(name, metadata),
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {
            "phase": if node.is_some() { "Running" } else { "Pending" },
            "podIP": node.map(|_| format!("10.244.0.{}", name.len())),
            "conditions": [{
                "type": "Ready", "status": if ready { "True" } else { "False" },
                "lastTransitionTime": "2026-01-01T00:00:30Z",
            }],
        },
    })
}

fn replica_set(name: &str, replicas: i32, metadata: Value) -> Value {
    json!({
        "metadata": meta(name, metadata),
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
        "status": {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas},
    })
}

fn writes(actions: &[Action]) -> Vec<String> {
    actions
        .iter()
        .filter(|action| !matches!(action, Action::Patch { status: true, .. }))
        .map(ToString::to_string)
        .collect()
}

fn status_patch(actions: &[Action]) -> Value {
    let found = actions.iter().find_map(|action| match action {
        Action::Patch {
            status: true, patch, ..
        } => Some(patch["status"].clone()),
        _ => None,
    });
    found.expect("a status patch")
}

#[test]
fn a_replica_set_creates_what_is_missing_and_ignores_terminating_and_foreign_pods() {
    let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:50Z"});
    let mut leaving = owned_by("ReplicaSet", "web");
    json_patch::merge(&mut leaving, &terminating);
    let view = Snapshot {
        replica_sets: vec![object(replica_set("web", 3, json!({})))],
        pods: vec![
            object(pod("web-a", owned_by("ReplicaSet", "web"), Some("n1"), true)),
            object(pod("web-b", leaving, Some("n2"), true)),
            object(pod("other", owned_by("ReplicaSet", "other"), Some("n2"), true)),
        ],
        ..Snapshot::default()
    };
    let actions = replicaset::reconcile(&view, now());
    assert_eq!(
        writes(&actions),
        ["create Pod default/web-", "create Pod default/web-"]
    );
    assert_eq!(status_patch(&actions)["readyReplicas"], 1);
}

#[test]
fn a_replica_set_that_shrinks_gives_up_unbound_and_unready_pods_first() {
    let view = Snapshot {
        replica_sets: vec![object(replica_set("web", 1, json!({})))],
        pods: vec![
            object(pod("ready", owned_by("ReplicaSet", "web"), Some("n1"), true)),
            object(pod("unready", owned_by("ReplicaSet", "web"), Some("n1"), false)),
            object(pod("unbound", owned_by("ReplicaSet", "web"), None, false)),
        ],
        ..Snapshot::default()
    };
    let actions = replicaset::reconcile(&view, now());
    assert_eq!(
        writes(&actions),
        ["delete Pod default/unbound", "delete Pod default/unready"]
    );
}

fn deployment(replicas: i32, image: &str) -> Value {
    json!({
        "metadata": meta("web", json!({})),
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
    })
}

/// The ReplicaSet that the controller would make, as the API server would store it.
fn made(action: &Action, uid: &str) -> Value {
    let Action::Create {
        kind: Kind::ReplicaSet,
        object,
        ..
    } = action
    else {
        panic!("expected a ReplicaSet: {action}")
    };
    let mut object = object.clone();
    object["metadata"]["uid"] = json!(uid);
    object["metadata"]["namespace"] = json!("default");
    object
}

#[test]
fn a_deployment_makes_one_replica_set_per_template_and_rolls_within_its_bounds() {
    let mut view = Snapshot {
        deployments: vec![object(deployment(4, "web:1"))],
        ..Snapshot::default()
    };
    let first = deployment::reconcile(&view, now());
    let mut old = made(&first[0], "uid-old");
    assert_eq!(old["spec"]["replicas"], 4, "the first set starts whole");
    old["status"] = json!({"replicas": 4, "readyReplicas": 4, "availableReplicas": 4});

    // A new template: 4 + 25 % = 5 pods at most, 4 - 25 % = 3 available at least.
    view.deployments = vec![object(deployment(4, "web:2"))];
    view.replica_sets = vec![object(old.clone())];
    let second = deployment::reconcile(&view, now());
    let mut new = made(&second[0], "uid-new");
    assert_eq!(new["spec"]["replicas"], 1, "one surge pod");
    assert_ne!(new["metadata"]["name"], old["metadata"]["name"]);

    new["status"] = json!({"replicas": 1, "readyReplicas": 0, "availableReplicas": 0});
    view.replica_sets = vec![object(old.clone()), object(new.clone())];
    let third = deployment::reconcile(&view, now());
    let scaled: Vec<&Value> = third
        .iter()
        .filter_map(|action| match action {
            Action::Patch {
                kind: Kind::ReplicaSet,
                patch,
                ..
            } => Some(&patch["spec"]["replicas"]),
            _ => None,
        })
        .collect();
    assert_eq!(scaled, [&json!(3)], "one old pod may go, three stay available");
}

#[test]
fn a_deployment_reports_availability() {
    let mut view = Snapshot {
        deployments: vec![object(deployment(4, "web:1"))],
        ..Snapshot::default()
    };
    let mut set = made(&deployment::reconcile(&view, now())[0], "uid-set");
    for (available, wanted) in [(4, "True"), (3, "True"), (2, "False")] {
        set["status"] = json!({"replicas": 4, "readyReplicas": available, "availableReplicas": available});
        view.replica_sets = vec![object(set.clone())];
        let status = status_patch(&deployment::reconcile(&view, now()));
        assert_eq!(status["availableReplicas"], available);
        assert_eq!(
            status["conditions"][0]["status"], wanted,
            "{available} of 4, one may be unavailable"
        );
    }
}

fn stateful_set(replicas: i32, policy: &str) -> Value {
    json!({
        "metadata": meta("db", json!({})),
        "spec": {
            "replicas": replicas, "serviceName": "db", "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

/// A pod of the set as the controller labels it.
fn member(ordinal: i32, metadata: Value, ready: bool) -> Value {
    let view = Snapshot {
        stateful_sets: vec![object(stateful_set(1, "OrderedReady"))],
        ..Snapshot::default()
    };
    let actions = statefulset::reconcile(&view, now());
    let Action::Create { object: made, .. } = &actions[0] else {
        panic!("expected a pod")
    };
    let mut all = owned_by("StatefulSet", "db");
    all["labels"] = made["metadata"]["labels"].clone();
    json_patch::merge(&mut all, &metadata);
    pod(&format!("db-{ordinal}"), all, Some("n1"), ready)
}

#[test]
fn a_stateful_set_goes_in_order_and_never_past_a_pod_that_is_not_ready() {
    let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:50Z"});
    let cases: [(&str, &str, Vec<Value>, &[&str]); 6] = [
        (
            "nothing yet",
            "OrderedReady",
            vec![],
            &["create Pod default/db-0"],
        ),
        (
            "db-0 starts",
            "OrderedReady",
            vec![member(0, json!({}), false)],
            &[],
        ),
        (
            "db-0 is ready",
            "OrderedReady",
            vec![member(0, json!({}), true)],
            &["create Pod default/db-1"],
        ),
        (
            "db-1 is terminating on a dead node: its object still exists, so it is never made again",
            "OrderedReady",
            vec![
                member(0, json!({}), true),
                member(1, terminating.clone(), true),
                member(2, json!({}), true),
            ],
            &[],
        ),
        (
            "parallel",
            "Parallel",
            vec![],
            &[
                "create Pod default/db-0",
                "create Pod default/db-1",
                "create Pod default/db-2",
            ],
        ),
        (
            "parallel, too: a terminating pod is not made again",
            "Parallel",
            vec![
                member(0, json!({}), true),
                member(1, terminating, true),
                member(2, json!({}), true),
            ],
            &[],
        ),
    ];
    for (name, policy, pods, wanted) in cases {
        let view = Snapshot {
            stateful_sets: vec![object(stateful_set(3, policy))],
            pods: pods.into_iter().map(object).collect(),
            ..Snapshot::default()
        };
        assert_eq!(writes(&statefulset::reconcile(&view, now())), wanted, "{name}");
    }
}

#[test]
fn a_stateful_set_shrinks_from_the_highest_ordinal() {
    let view = Snapshot {
        stateful_sets: vec![object(stateful_set(1, "OrderedReady"))],
        pods: (0..3)
            .map(|ordinal| object(member(ordinal, json!({}), true)))
            .collect(),
        ..Snapshot::default()
    };
    assert_eq!(
        writes(&statefulset::reconcile(&view, now())),
        ["delete Pod default/db-2"]
    );
}

fn node(name: &str, taints: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"disk": "ssd"}},
        "spec": {"taints": taints}, "status": {"allocatable": {"pods": "2"}},
    })
}

#[test]
fn the_scheduler_spreads_siblings_and_respects_taints_and_capacity() {
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    let view = Snapshot {
        nodes: vec![
            object(node("n1", json!([]))),
            object(node("n2", json!([]))),
            object(node("n3", unreachable)),
        ],
        pods: vec![
            object(pod("placed", owned_by("ReplicaSet", "web"), Some("n1"), true)),
            object(pod("w1", owned_by("ReplicaSet", "web"), None, false)),
            object(pod("w2", owned_by("ReplicaSet", "web"), None, false)),
            object(pod("w3", owned_by("ReplicaSet", "web"), None, false)),
            object(pod("w4", owned_by("ReplicaSet", "web"), None, false)),
        ],
        ..Snapshot::default()
    };
    let actions = scheduler::reconcile(&view, now());
    assert_eq!(
        writes(&actions),
        [
            "bind Pod default/w1 to n2",
            "bind Pod default/w2 to n1",
            "bind Pod default/w3 to n2"
        ],
        "both nodes are full after that, the third is tainted"
    );
    assert_eq!(status_patch(&actions)["conditions"][1]["reason"], "Unschedulable");
}

fn service() -> Value {
    json!({
        "metadata": meta("web", json!({})),
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]},
    })
}

#[test]
fn endpoints_follow_readiness_termination_and_the_published_exception() {
    let label = json!({"labels": {"app": "web"}});
    let mut leaving = label.clone();
    leaving["deletionTimestamp"] = json!("2026-01-01T00:00:50Z");
    // pod, publishNotReadyAddresses, expected [ready, serving, terminating]
    let cases = [
        (
            pod("web", label.clone(), Some("n1"), true),
            false,
            [true, true, false],
        ),
        (
            pod("web", label.clone(), Some("n1"), false),
            false,
            [false, false, false],
        ),
        (
            pod("web", label.clone(), Some("n1"), false),
            true,
            [true, false, false],
        ),
        (
            pod("web", leaving.clone(), Some("n1"), true),
            false,
            [false, true, true],
        ),
        (pod("web", leaving, Some("n1"), true), true, [true, true, true]),
    ];
    for (pod, publish, wanted) in cases {
        let mut service = service();
        service["spec"]["publishNotReadyAddresses"] = json!(publish);
        let view = Snapshot {
            services: vec![object(service)],
            pods: vec![object(pod.clone())],
            ..Snapshot::default()
        };
        let actions = endpoints::slices(&view, now());
        let Action::Create { object, .. } = &actions[0] else {
            panic!("expected a slice")
        };
        let conditions = &object["endpoints"][0]["conditions"];
        let found = ["ready", "serving", "terminating"].map(|name| conditions[name].as_bool().unwrap());
        assert_eq!(found, wanted, "{pod} publish={publish}");
        assert_eq!(
            object["ports"][0]["port"], 8080,
            "the named port is resolved in the pod"
        );
    }
}

#[test]
fn pods_without_an_address_and_finished_pods_are_no_endpoints() {
    let mut finished = pod("done", json!({"labels": {"app": "web"}}), Some("n1"), true);
    finished["status"]["phase"] = json!("Failed");
    let view = Snapshot {
        services: vec![object(service())],
        pods: vec![
            object(finished),
            object(pod("new", json!({"labels": {"app": "web"}}), None, false)),
        ],
        ..Snapshot::default()
    };
    let actions = endpoints::slices(&view, now());
    let Action::Create { object, .. } = &actions[0] else {
        panic!("expected a placeholder slice")
    };
    assert_eq!(object["endpoints"], json!([]));
    assert_eq!(actions.len(), 1);
}

#[test]
fn an_address_keeps_its_slice_and_only_changed_slices_are_written() {
    let ready = pod("web", json!({"labels": {"app": "web"}}), Some("n1"), true);
    let mut view = Snapshot {
        services: vec![object(service())],
        pods: vec![object(ready)],
        ..Snapshot::default()
    };
    let actions = endpoints::slices(&view, now());
    let Action::Create { object: slice, .. } = &actions[0] else {
        panic!("expected a slice")
    };
    let mut slice = slice.clone();
    slice["metadata"]["name"] = json!("web-x");
    slice["metadata"]["namespace"] = json!("default");
    view.endpoint_slices = vec![object(slice)];
    assert_eq!(
        endpoints::slices(&view, now()),
        [],
        "nothing changed, nothing written"
    );

    view.pods = vec![object(pod(
        "web",
        json!({"labels": {"app": "web"}}),
        Some("n1"),
        false,
    ))];
    assert_eq!(
        writes(&endpoints::slices(&view, now())),
        ["patch EndpointSlice default/web-x"]
    );
}

#[test]
fn legacy_endpoints_part_ready_from_not_ready_and_leave_out_terminating() {
    let label = |extra: Value| {
        let mut label = json!({"labels": {"app": "web"}});
        json_patch::merge(&mut label, &extra);
        label
    };
    let view = Snapshot {
        services: vec![object(service())],
        pods: vec![
            object(pod("a", label(json!({})), Some("n1"), true)),
            object(pod("bb", label(json!({})), Some("n1"), false)),
            object(pod(
                "ccc",
                label(json!({"deletionTimestamp": "2026-01-01T00:00:50Z"})),
                Some("n1"),
                true,
            )),
        ],
        ..Snapshot::default()
    };
    let actions = endpoints::endpoints(&view, now());
    let Action::Create { object, .. } = &actions[0] else {
        panic!("expected endpoints")
    };
    let subset = &object["subsets"][0];
    assert_eq!(subset["addresses"].as_array().unwrap().len(), 1);
    assert_eq!(subset["notReadyAddresses"].as_array().unwrap().len(), 1);
}

#[test]
fn endpoints_that_are_stored_as_wanted_are_not_written_again() {
    let label = json!({"labels": {"app": "web"}});
    let mut unnamed = service();
    unnamed["spec"]["ports"] = json!([{"port": 80, "targetPort": 8080, "protocol": "TCP"}]);
    for service in [service(), unnamed] {
        let mut view = Snapshot {
            services: vec![object(service)],
            pods: vec![object(pod("web-a", label.clone(), Some("n1"), true))],
            ..Snapshot::default()
        };
        let actions = endpoints::endpoints(&view, now());
        let Action::Create { object: made, .. } = &actions[0] else {
            panic!("expected endpoints")
        };
        let mut stored = made.clone();
        stored["metadata"]["namespace"] = json!("default");
        // As the API server keeps it: empty names are left out.
        for port in stored["subsets"][0]["ports"].as_array_mut().unwrap() {
            if port["name"] == "" {
                port.as_object_mut().unwrap().remove("name");
            }
        }
        view.endpoints = vec![object(stored)];
        assert_eq!(endpoints::endpoints(&view, now()), []);
    }
}

#[test]
fn dependents_of_a_missing_owner_go_and_those_of_unknown_kinds_stay() {
    let view = Snapshot {
        pods: vec![
            object(pod("orphan", owned_by("ReplicaSet", "gone"), Some("n1"), true)),
            object(pod("foreign", owned_by("Tomcat", "cat"), Some("n1"), true)),
            object(pod("kept", owned_by("ReplicaSet", "web"), Some("n1"), true)),
        ],
        replica_sets: vec![object(replica_set("web", 1, json!({})))],
        nodes: vec![object(node("n1", json!([])))],
        ..Snapshot::default()
    };
    assert_eq!(
        writes(&collector::reconcile(&view, now())),
        ["delete Pod default/orphan"]
    );
}

#[test]
fn an_owner_in_foreground_deletion_waits_for_its_dependents() {
    let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:50Z", "finalizers": ["foregroundDeletion"]});
    let mut owner = owned_by("ReplicaSet", "web");
    owner["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    let mut view = Snapshot {
        replica_sets: vec![object(replica_set("web", 1, leaving))],
        pods: vec![object(pod("web-a", owner, Some("n1"), true))],
        nodes: vec![object(node("n1", json!([])))],
        ..Snapshot::default()
    };
    assert_eq!(
        writes(&collector::reconcile(&view, now())),
        ["delete Pod default/web-a"]
    );
    view.pods.clear();
    assert_eq!(
        writes(&collector::reconcile(&view, now())),
        ["patch ReplicaSet default/web"]
    );
}

#[test]
fn terminating_pods_of_an_out_of_service_node_are_removed_by_force_and_no_others() {
    let out =
        json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]);
    let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:50Z"});
    let view = Snapshot {
        nodes: vec![object(node("dead", out)), object(node("alive", json!([])))],
        pods: vec![
            object(pod("stuck", terminating.clone(), Some("dead"), true)),
            object(pod("running", json!({}), Some("dead"), true)),
            object(pod("slow", terminating, Some("alive"), true)),
        ],
        ..Snapshot::default()
    };
    let actions = collector::reconcile(&view, now());
    assert_eq!(writes(&actions), ["delete Pod default/stuck"]);
    assert!(matches!(
        &actions[0],
        Action::Delete {
            grace_seconds: Some(0),
            ..
        }
    ));
}

#[test]
fn every_active_namespace_gets_its_account_and_the_authority() {
    let view = Snapshot {
        namespaces: vec![
            object(json!({"metadata": {"name": "a"}})),
            object(json!({"metadata": {"name": "b", "deletionTimestamp": "2026-01-01T00:00:50Z"}})),
        ],
        ..Snapshot::default()
    };
    assert_eq!(
        writes(&accounts::reconcile(&view, now())),
        ["create ServiceAccount a/default"]
    );
    assert_eq!(
        writes(&accounts::missing_ca(&view, "PEM")),
        ["create ConfigMap a/kube-root-ca.crt"]
    );
}

#[test]
fn a_daemon_set_puts_one_pod_on_each_node_that_it_may_use() {
    let set = json!({
        "metadata": meta("agent", json!({})),
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    let dedicated = json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]);
    let view = Snapshot {
        daemon_sets: vec![object(set)],
        nodes: vec![
            object(node("n1", json!([]))),
            object(node("n2", unreachable)),
            object(node("n3", dedicated)),
        ],
        pods: vec![object(pod(
            "agent-a",
            owned_by("DaemonSet", "agent"),
            Some("n1"),
            true,
        ))],
        ..Snapshot::default()
    };
    let actions = daemonset::reconcile(&view, now());
    let created: Vec<&Value> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Create { object, .. } => Some(&object["spec"]["nodeName"]),
            _ => None,
        })
        .collect();
    assert_eq!(created, ["n2"], "n1 has its pod, n3 is not tolerated");
}
