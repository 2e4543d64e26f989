use super::*;
use evenkeel_api::crd::NodeIncidentStatus;
use rstest::rstest;
use serde_json::{Value, json};

fn node_of(value: Value) -> NodeFacts {
    node(&serde_json::from_value(value).unwrap())
}

fn pod_of(value: Value) -> Option<PodFacts> {
    pod(&serde_json::from_value(value).unwrap()).map(|(_, facts)| facts)
}

#[test]
fn a_node_is_read() {
    let facts = node_of(json!({
        "metadata": {
            "name": "n1", "uid": "u1", "resourceVersion": "7", "labels": {"a": "b"},
            "annotations": {
                "evenkeel.io/added-taints": "node.kubernetes.io/unreachable:NoExecute",
                "superedgehealth/node-health": "false",
            },
        },
        "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }));
    assert_eq!(
        (facts.name.as_str(), facts.uid.as_str(), facts.version.as_str()),
        ("n1", "u1", "7")
    );
    assert_eq!(
        (facts.ready, facts.mirrored, facts.maintenance),
        (Status::False, Some(false), None)
    );
    assert_eq!(
        facts.added,
        [TaintRef::new("node.kubernetes.io/unreachable", "NoExecute")]
    );
    assert_eq!(facts.taints.len(), 1);
}

#[rstest]
#[case::plain(json!({}), None)]
#[case::cordoned(json!({"spec": {"unschedulable": true}}), Some("cordoned"))]
#[case::draining(
    json!({"status": {"conditions": [{"type": "DrainInProgress", "status": "True"}]}}),
    Some("condition DrainInProgress")
)]
#[case::drained_before(json!({"status": {"conditions": [{"type": "DrainInProgress", "status": "False"}]}}), None)]
fn maintenance_is_seen(#[case] node: Value, #[case] expected: Option<&str>) {
    assert_eq!(node_of(node).maintenance.as_deref(), expected);
}

#[rstest]
#[case::stock("Unknown", "NodeStatusUnknown", true)]
#[case::ours("Unknown", "EvenkeelConfirmedDead", false)]
#[case::kubelet("False", "KubeletNotReady", false)]
fn only_the_stock_controllers_own_mark_counts(
    #[case] status: &str,
    #[case] reason: &str,
    #[case] expected: bool,
) {
    let condition = json!({"type": "Ready", "status": status, "reason": reason});
    let node: Node = serde_json::from_value(json!({"status": {"conditions": [condition]}})).unwrap();
    assert_eq!(stock_marked(&node), expected);
}

#[rstest]
#[case::deployment("ReplicaSet", Owner::Other)]
#[case::stateful("StatefulSet", Owner::StatefulSet)]
#[case::daemon("DaemonSet", Owner::DaemonSet)]
#[case::node("Node", Owner::Static)]
fn the_owner_of_a_pod_is_its_controller(#[case] kind: &str, #[case] expected: Owner) {
    let owner = json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true});
    let facts = pod_of(
        json!({"metadata": {"ownerReferences": [owner]}, "spec": {"nodeName": "n", "containers": []}}),
    );
    assert_eq!(facts.unwrap().owner, expected);
}

#[test]
fn a_pod_without_a_controller_is_nobodys() {
    let owner = json!({"apiVersion": "v1", "kind": "ReplicaSet", "name": "o", "uid": "u"});
    let metadata = json!({"ownerReferences": [owner]});
    let facts = pod_of(json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}}));
    assert_eq!(facts.unwrap().owner, Owner::Nobody);
}

#[test]
fn tolerations_that_may_be_of_the_taint_that_evicts_are_kept_in_their_order() {
    let of = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    let all = [
        of("node.kubernetes.io/not-ready"),
        json!({"operator": "Exists"}),
        of("node.kubernetes.io/unreachable"),
        of(""),
    ];
    let facts = pod_of(json!({"spec": {"nodeName": "n", "containers": [], "tolerations": all}}));
    assert_eq!(json!(facts.unwrap().tolerations), json!(all[1..]));
}

#[rstest]
#[case(json!({}), false)]
#[case(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}), false)]
#[case(json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}), true)]
#[case(json!({"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}), true)]
#[case(json!({"phase": "Running"}), true)]
fn a_pod_is_acknowledged_when_its_kubelet_has_written_of_it(#[case] status: Value, #[case] expected: bool) {
    let facts = pod_of(json!({"spec": {"nodeName": "n", "containers": []}, "status": status}));
    assert_eq!(facts.unwrap().acknowledged, expected);
}

#[test]
fn a_mirror_pod_is_static() {
    let facts = pod_of(json!({
        "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": "n", "containers": []},
    }));
    assert_eq!(facts.unwrap().owner, Owner::Static);
}

#[test]
fn a_pod_that_is_bound_to_no_node_is_passed_over() {
    assert_eq!(pod_of(json!({"spec": {"containers": []}})), None);
    assert_eq!(pod_of(json!({"spec": {"nodeName": "", "containers": []}})), None);
}

fn with_conditions(conditions: Value, gates: Value) -> bool {
    let facts = pod_of(json!({
        "spec": {"nodeName": "n", "containers": [], "readinessGates": gates},
        "status": {"phase": "Running", "conditions": conditions},
    }));
    facts.unwrap().ready_by_itself
}

#[test]
fn a_pod_is_ready_by_itself_when_containers_and_gates_are() {
    let containers = json!({"type": "ContainersReady", "status": "True"});
    let gate = |status: &str| json!({"type": "lb", "status": status});
    assert!(with_conditions(json!([containers]), json!([])));
    assert!(with_conditions(
        json!([containers, gate("True")]),
        json!([{"conditionType": "lb"}])
    ));
    assert!(!with_conditions(
        json!([containers, gate("False")]),
        json!([{"conditionType": "lb"}])
    ));
    assert!(!with_conditions(
        json!([containers]),
        json!([{"conditionType": "lb"}])
    ));
    assert!(!with_conditions(json!([]), json!([])));
}

#[test]
fn only_claims_that_outlive_the_pod_count() {
    let facts = pod_of(json!({"spec": {"nodeName": "n", "containers": [], "volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {}},
        {"name": "c", "emptyDir": {}},
    ]}}));
    assert_eq!(facts.unwrap().claims, ["data"]);
}

#[rstest]
#[case::iscsi(json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.x", "lun": 0}}), true)]
#[case::fc(json!({"fc": {"targetWWNs": ["5"], "readOnly": false}}), true)]
#[case::vsphere(json!({"vsphereVolume": {"volumePath": "[a] b"}}), true)]
#[case::only_read(json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.x", "lun": 0, "readOnly": true}}), false)]
#[case::shared(json!({"nfs": {"server": "nfs", "path": "/"}}), false)]
#[case::made_for_the_pod(json!({"csi": {"driver": "secrets-store.csi.k8s.io"}}), false)]
#[case::of_the_node(json!({"hostPath": {"path": "/var"}}), false)]
fn a_disk_that_the_pod_names_itself_has_one_writer(#[case] volume: Value, #[case] expected: bool) {
    let mut volume = volume;
    volume["name"] = json!("disk");
    let pod = json!({"spec": {"nodeName": "n", "containers": [], "volumes": [volume]}});
    let facts = pod_of(pod).unwrap();
    assert_eq!(crate::world::Cluster::default().is_stateful(&facts), expected);
}

#[rstest]
#[case::once(json!({"spec": {"accessModes": ["ReadWriteOnce"]}}), Access::SingleWriter)]
#[case::pod(json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}), Access::SingleWriter)]
#[case::many(json!({"spec": {"accessModes": ["ReadWriteMany"]}}), Access::Shared)]
#[case::mixed(json!({"spec": {"accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}), Access::SingleWriter)]
#[case::nothing(json!({}), Access::SingleWriter)]
#[case::as_bound(
    json!({"spec": {"accessModes": ["ReadWriteMany"]}, "status": {"accessModes": ["ReadWriteOnce"]}}),
    Access::SingleWriter
)]
fn a_claim_is_shared_only_if_all_its_modes_are(#[case] value: Value, #[case] expected: Access) {
    assert_eq!(claim(&serde_json::from_value(value).unwrap()), expected);
}

#[test]
fn an_annotation_that_names_foreign_taints_gives_no_right_to_remove_them() {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n", "uid": "u", "annotations": {
            "evenkeel.io/added-taints":
                "dedicated:NoSchedule,node.kubernetes.io/unreachable:NoSchedule,node.kubernetes.io/unreachable:NoExecute",
        }},
    }))
    .unwrap();
    let added = super::node(&node).added;
    assert_eq!(
        added,
        [TaintRef::new("node.kubernetes.io/unreachable", "NoExecute")]
    );
}

/// Somebody removed the annotation, or wrote it for one taint alone.
#[test]
fn a_taint_with_a_key_of_ours_is_ours_without_the_annotation() {
    let node = |annotation: &str| -> Node {
        let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
        serde_json::from_value(json!({
            "metadata": {"name": "n", "annotations": {"evenkeel.io/added-taints": annotation}},
            "spec": {"taints": [taint("evenkeel.io/dead"), taint("node.kubernetes.io/unreachable"), taint("mine")]},
        }))
        .unwrap()
    };
    let ours = [TaintRef::new("evenkeel.io/dead", "NoSchedule")];
    assert_eq!(super::node(&node("")).added, ours);
    assert_eq!(super::node(&node("evenkeel.io/dead:NoSchedule")).added, ours);
}

#[test]
fn a_mark_of_ours_is_none_of_the_stock_controllers() {
    let marked = |reason: &str| -> Node {
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": reason});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": [ready]}})).unwrap()
    };
    let (ours, stock) = (marked("EvenkeelConfirmedDead"), marked("NodeStatusUnknown"));
    assert!(super::node(&ours).marked_by_us && !super::stock_marked(&ours));
    assert!(!super::node(&stock).marked_by_us && super::stock_marked(&stock));
}

/// They would differ from what we write for ever.
#[test]
fn fractions_of_seconds_in_an_incident_are_read_as_they_would_be_written() {
    let incident: NodeIncident = serde_json::from_value(json!({
        "metadata": {"name": "i"},
        "spec": {"nodeName": "n", "nodeUid": "u", "zone": "z"},
        "status": {"stateSince": "2026-01-01T00:00:15.123Z"},
    }))
    .unwrap();
    let read = super::incident(&incident).status;
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written["stateSince"], "2026-01-01T00:00:15Z");
    assert_eq!(
        serde_json::from_value::<NodeIncidentStatus>(written).unwrap(),
        read
    );
}
