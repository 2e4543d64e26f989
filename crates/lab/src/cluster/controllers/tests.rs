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
    json!({
        "labels": {"app": name},
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true,
        }],
    })
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

/// The set with the revision of its template, and these pods.
fn stateful_view(set: Value, pods: Vec<Value>) -> Snapshot {
    let mut view = Snapshot {
        stateful_sets: vec![object(set)],
        pods: pods.into_iter().map(object).collect(),
        ..Snapshot::default()
    };
    add_revisions(&mut view, statefulset::reconcile);
    view
}

/// Stores the revisions that a controller makes before anything else.
fn add_revisions(view: &mut Snapshot, reconcile: Reconcile) {
    for action in reconcile(view, now()) {
        if let Action::Create {
            kind: Kind::ControllerRevision,
            mut object,
            ..
        } = action
        {
            let number = view.revisions.len();
            object["metadata"]["namespace"] = json!("default");
            object["metadata"]["uid"] = json!(format!("uid-revision-{number}"));
            view.revisions
                .push(Arc::new(serde_json::from_value(object).unwrap()));
        }
    }
}

/// A pod of the set as the controller labels it.
fn member(ordinal: i32, metadata: Value, ready: bool) -> Value {
    let view = stateful_view(stateful_set(1, "OrderedReady"), Vec::new());
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
        let view = stateful_view(stateful_set(3, policy), pods);
        assert_eq!(writes(&statefulset::reconcile(&view, now())), wanted, "{name}");
    }
}

#[test]
fn a_stateful_set_shrinks_from_the_highest_ordinal() {
    let pods = (0..3).map(|ordinal| member(ordinal, json!({}), true)).collect();
    let view = stateful_view(stateful_set(1, "OrderedReady"), pods);
    assert_eq!(
        writes(&statefulset::reconcile(&view, now())),
        ["delete Pod default/db-2"]
    );
}

/// The set with another image, and both revisions.
fn with_new_template(change: Value, pods: Vec<Value>) -> Snapshot {
    let mut view = stateful_view(stateful_set(3, "OrderedReady"), pods);
    let mut set = stateful_set(3, "OrderedReady");
    set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("new");
    json_patch::merge(&mut set, &change);
    set["status"] = json!({"replicas": 3, "currentRevision": view.revisions[0].metadata.name});
    view.stateful_sets = vec![object(set)];
    add_revisions(&mut view, statefulset::reconcile);
    view
}

#[test]
fn a_stateful_set_rolls_out_from_the_highest_ordinal_down_to_its_partition() {
    let all = || {
        (0..3)
            .map(|ordinal| member(ordinal, json!({}), true))
            .collect::<Vec<_>>()
    };
    let rolling = |partition: i32| json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}}});
    let missing = |ordinal: usize| {
        let mut pods = all();
        pods.remove(ordinal);
        pods
    };
    let unready = vec![
        member(0, json!({}), true),
        member(1, json!({}), false),
        member(2, json!({}), true),
    ];
    let cases: [(&str, Value, Vec<Value>, &[&str]); 5] = [
        ("all are old", rolling(0), all(), &["delete Pod default/db-2"]),
        ("below the partition", rolling(3), all(), &[]),
        (
            "until deleted",
            json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}),
            all(),
            &[],
        ),
        ("while one is not ready", rolling(0), unready, &[]),
        (
            "a missing one",
            rolling(2),
            missing(0),
            &["create Pod default/db-0"],
        ),
    ];
    for (name, change, pods, wanted) in cases {
        let view = with_new_template(change, pods);
        assert_eq!(writes(&statefulset::reconcile(&view, now())), wanted, "{name}");
    }
}

#[test]
fn a_pod_below_the_partition_is_made_again_of_the_old_template() {
    for (partition, image) in [(1, "i"), (0, "new")] {
        let change = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}});
        let view = with_new_template(
            change,
            vec![member(1, json!({}), true), member(2, json!({}), true)],
        );
        let actions = statefulset::reconcile(&view, now());
        let Action::Create { object, .. } = &actions[0] else {
            panic!("expected a pod: {actions:?}")
        };
        assert_eq!(object["spec"]["containers"][0]["image"], image);
        assert_eq!(object["metadata"]["generateName"], "db-");
        let revision = &view.revisions[usize::from(partition == 0)].metadata.name;
        assert_eq!(
            object["metadata"]["labels"]["controller-revision-hash"],
            json!(revision)
        );
    }
}

#[test]
fn claims_go_with_the_set_or_with_the_pod_that_is_too_many_as_the_policy_says() {
    let template = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    // when deleted, when scaled, owners of the claim of a pod that stays and of one that goes
    let cases = [
        ("Retain", "Retain", None, None),
        ("Delete", "Retain", Some("uid-db"), Some("uid-db")),
        ("Retain", "Delete", None, Some("uid-db-1")),
        ("Delete", "Delete", Some("uid-db"), Some("uid-db-1")),
    ];
    for (deleted, scaled, stays, goes) in cases {
        let mut set = stateful_set(1, "OrderedReady");
        set["spec"]["volumeClaimTemplates"] = template.clone();
        set["spec"]["persistentVolumeClaimRetentionPolicy"] =
            json!({"whenDeleted": deleted, "whenScaled": scaled});
        let mut view = stateful_view(
            set,
            (0..2).map(|ordinal| member(ordinal, json!({}), true)).collect(),
        );
        let claim = |ordinal: i32| json!({"metadata": meta(&format!("data-db-{ordinal}"), json!({}))});
        view.claims = vec![object(claim(0)), object(claim(1))];
        let actions = statefulset::reconcile(&view, now());
        let owner = |name: &str| {
            actions.iter().find_map(|action| match action {
                Action::Patch {
                    kind: Kind::PersistentVolumeClaim,
                    name: claim,
                    patch,
                    ..
                } if claim == name => patch["metadata"]["ownerReferences"][0]["uid"].as_str(),
                _ => None,
            })
        };
        assert_eq!(
            (owner("data-db-0"), owner("data-db-1")),
            (stays, goes),
            "{deleted} {scaled}"
        );
        assert!(writes(&actions).contains(&"delete Pod default/db-1".to_owned()));
    }
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
    let condition = &status_patch(&actions)["conditions"][1];
    assert_eq!(condition["reason"], "Unschedulable");
    assert_eq!(
        condition["message"],
        "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 2 Too many \
         pods. no new claims to deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for \
         scheduling, 2 No preemption victims found for incoming pod."
    );
}

#[test]
fn the_scheduler_says_which_nodes_lack_what() {
    let in_words = |nodes: &str, why: &str| {
        format!(
            "0/2 nodes are available: {nodes}. no new claims to deallocate, preemption: 0/2 nodes are available: {why}."
        )
    };
    let never = "2 Preemption is not helpful for scheduling";
    let requests = |cpu: &str| json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]});
    let affinity = |key: &str, operator: &str, values: Value| {
        let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        }}})
    };
    let elsewhere = in_words("2 node(s) didn't match Pod's node affinity/selector", never);
    let cases = [
        (requests("1500m"), None),
        (requests("3"), Some(in_words("2 Insufficient cpu", never))),
        (
            requests("1600m"),
            Some(in_words(
                "2 Insufficient cpu",
                "2 No preemption victims found for incoming pod",
            )),
        ),
        (json!({"nodeSelector": {"disk": "hdd"}}), Some(elsewhere.clone())),
        (affinity("disk", "In", json!(["ssd", "nvme"])), None),
        (affinity("disk", "NotIn", json!(["ssd"])), Some(elsewhere.clone())),
        (
            affinity("disk", "DoesNotExist", json!(null)),
            Some(elsewhere.clone()),
        ),
        (affinity("size", "Gt", json!(["2"])), Some(elsewhere)),
    ];
    for (spec, wanted) in cases {
        let machine = |name: &str| {
            let mut node = node(name, json!([]));
            node["status"]["allocatable"] = json!({"pods": "10", "cpu": "2"});
            node["metadata"]["labels"]["size"] = json!("2");
            object(node)
        };
        let mut placed = pod("placed", json!({}), Some("n1"), true);
        json_patch::merge(&mut placed["spec"], &requests("500m"));
        let mut other = pod("other", json!({}), Some("n2"), true);
        json_patch::merge(&mut other["spec"], &requests("500m"));
        let mut waiting = pod("waiting", json!({}), None, false);
        json_patch::merge(&mut waiting["spec"], &spec);
        let view = Snapshot {
            nodes: vec![machine("n1"), machine("n2")],
            pods: vec![object(placed), object(other), object(waiting)],
            ..Snapshot::default()
        };
        let actions = scheduler::reconcile(&view, now());
        match wanted {
            None => assert_eq!(writes(&actions), ["bind Pod default/waiting to n1"], "{spec}"),
            Some(message) => {
                assert_eq!(
                    status_patch(&actions)["conditions"][1]["message"],
                    message,
                    "{spec}"
                );
            }
        }
    }
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
    let actions = podgc::reconcile(&view, now());
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
    let mut view = Snapshot {
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
    add_revisions(&mut view, daemonset::reconcile);
    let actions = daemonset::reconcile(&view, now());
    let created: Vec<&Value> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Create { object, .. } => {
                let affinity = &object["spec"]["affinity"]["nodeAffinity"];
                Some(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0])
            }
            _ => None,
        })
        .collect();
    let pinned = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]});
    assert_eq!(created, [&pinned], "n1 has its pod, n3 is not tolerated");
    let deleted = writes(&actions).contains(&"delete Pod default/agent-a".to_owned());
    assert!(
        !deleted,
        "its template is an older one, but only one pod may be missing, and one is"
    );
}
