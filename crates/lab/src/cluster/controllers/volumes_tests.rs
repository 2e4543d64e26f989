//! Which volume a claim gets, and what becomes of both.

use super::*;
use rstest::rstest;
use serde_json::{Value, from_value};

fn claim(change: Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": "c", "namespace": "default", "uid": "uid-c", "resourceVersion": "7"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "k",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut claim, &change);
    from_value(claim).unwrap()
}

fn volume(name: &str, change: Value) -> PersistentVolume {
    let mut volume = json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "3"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "k", "capacity": {"storage": "2Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"},
        },
        "status": {"phase": "Available"},
    });
    json_patch::merge(&mut volume, &change);
    from_value(volume).unwrap()
}

fn class(mode: &str, provisioner: &str) -> StorageClass {
    from_value(json!({"metadata": {"name": "k"}, "provisioner": provisioner, "volumeBindingMode": mode}))
        .unwrap()
}

fn view(claims: Vec<PersistentVolumeClaim>, volumes: Vec<PersistentVolume>) -> Snapshot {
    Snapshot {
        claims: claims.into_iter().map(Arc::new).collect(),
        volumes: volumes.into_iter().map(Arc::new).collect(),
        ..Snapshot::default()
    }
}

/// What is written, as text and as patches.
fn written(view: &Snapshot) -> Vec<(String, Value)> {
    let actions = reconcile(view, Timestamp::UNIX_EPOCH);
    let each = actions.into_iter().map(|action| {
        let text = action.to_string();
        match action {
            Action::Patch { patch, .. } => (text, patch),
            _ => (text, Value::Null),
        }
    });
    each.collect()
}

#[test]
fn a_claim_and_its_volume_are_bound_to_each_other_the_volume_first() {
    let written = written(&view(vec![claim(json!({}))], vec![volume("v", json!({}))]));
    let texts: Vec<&str> = written.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "patch PersistentVolume /v",
            "patch PersistentVolume /v status",
            "patch PersistentVolumeClaim default/c",
            "patch PersistentVolumeClaim default/c status",
        ]
    );
    let annotations = |index: usize| &written[index].1["metadata"]["annotations"];
    assert_eq!(written[0].1["spec"]["claimRef"]["uid"], "uid-c");
    assert_eq!(*annotations(0), json!({BOUND_BY_CONTROLLER: "yes"}));
    assert_eq!(written[1].1["status"]["phase"], "Bound");
    assert_eq!(written[2].1["spec"]["volumeName"], "v");
    assert_eq!(
        *annotations(2),
        json!({BOUND_BY_CONTROLLER: "yes", BIND_COMPLETED: "yes"})
    );
    let status = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}});
    assert_eq!(written[3].1["status"], status);
}

#[rstest]
#[case::the_smallest(json!({}), vec![volume("big", json!({"spec": {"capacity": {"storage": "9Gi"}}})), volume("v", json!({}))], Some("v"))]
#[case::too_small(json!({}), vec![volume("v", json!({"spec": {"capacity": {"storage": "1Mi"}}}))], None)]
#[case::another_class(json!({}), vec![volume("v", json!({"spec": {"storageClassName": "z"}}))], None)]
#[case::another_mode(json!({}), vec![volume("v", json!({"spec": {"volumeMode": "Block"}}))], None)]
#[case::not_so_shared(json!({"spec": {"accessModes": ["ReadWriteMany"]}}), vec![volume("v", json!({}))], None)]
#[case::more_shared(json!({}), vec![volume("v", json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}))], Some("v"))]
#[case::goes(json!({}), vec![volume("v", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))], None)]
#[case::not_free(json!({}), vec![volume("v", json!({"status": {"phase": "Released"}}))], None)]
#[case::reserved_for_it(
    json!({}),
    vec![volume("a", json!({})), volume("v", json!({"spec": {"claimRef": {"name": "c", "namespace": "default"}}}))],
    Some("v"),
)]
#[case::another_ones(json!({}), vec![volume("v", json!({"spec": {"claimRef": {"name": "d", "namespace": "default"}}}))], None)]
#[case::by_labels(
    json!({"spec": {"selector": {"matchLabels": {"tier": "ssd"}}}}),
    vec![volume("a", json!({})), volume("v", json!({"metadata": {"labels": {"tier": "ssd"}}}))],
    Some("v"),
)]
#[case::by_name(json!({"spec": {"volumeName": "v"}}), vec![volume("a", json!({})), volume("v", json!({}))], Some("v"))]
#[case::by_a_name_that_does_not_fit(
    json!({"spec": {"volumeName": "v"}}),
    vec![volume("v", json!({"spec": {"capacity": {"storage": "1Mi"}}}))],
    None,
)]
fn a_claim_gets_the_smallest_volume_that_fits(
    #[case] change: Value,
    #[case] volumes: Vec<PersistentVolume>,
    #[case] wanted: Option<&str>,
) {
    let written = written(&view(vec![claim(change)], volumes));
    let bound = written
        .iter()
        .find(|(_, patch)| patch["spec"]["claimRef"]["uid"] == "uid-c")
        .map(|(text, _)| text.rsplit('/').next().unwrap());
    assert_eq!(bound, wanted);
}

#[test]
fn two_claims_never_get_one_volume() {
    let other = claim(json!({"metadata": {"name": "d", "uid": "uid-d"}}));
    let written = written(&view(vec![claim(json!({})), other], vec![volume("v", json!({}))]));
    let bound = written
        .iter()
        .filter(|(_, patch)| patch["spec"]["claimRef"].is_object());
    assert_eq!(bound.count(), 1);
}

#[rstest]
#[case::told_whom_it_waits_for("Immediate", "example.com/p", json!({}), true)]
#[case::nobody_provisions("Immediate", "kubernetes.io/no-provisioner", json!({}), false)]
#[case::waits_for_its_pod("WaitForFirstConsumer", "example.com/p", json!({}), false)]
#[case::its_pod_has_a_node(
    "WaitForFirstConsumer", "example.com/p", json!({"metadata": {"annotations": {SELECTED_NODE: "n"}}}), true,
)]
fn a_claim_waits_as_its_class_says(
    #[case] mode: &str,
    #[case] provisioner: &str,
    #[case] change: Value,
    #[case] told: bool,
) {
    let mut view = view(vec![claim(change)], Vec::new());
    view.storage_classes = vec![Arc::new(class(mode, provisioner))];
    let annotated = |written: &[(String, Value)]| {
        written.iter().any(|(_, patch)| {
            let annotations = &patch["metadata"]["annotations"];
            PROVISIONERS.iter().all(|key| annotations[key] == provisioner)
        })
    };
    assert_eq!(annotated(&written(&view)), told);
    view.volumes = vec![Arc::new(volume("v", json!({})))];
    let bound = written(&view)
        .iter()
        .any(|(_, patch)| patch["spec"]["claimRef"].is_object());
    assert_eq!(bound, mode == "Immediate");
}

#[rstest]
#[case::kept("Retain", json!({}), "Released", Value::Null, "")]
#[case::not_to_be_wiped("Delete", json!({}), "Released", json!("Failed"), "host_path deleter only supports /tmp/.+ but received provided /x")]
#[case::of_a_provisioner("Delete", json!({"metadata": {"annotations": {PROVISIONED_BY: "example.com/p"}}}), "Released", Value::Null, "")]
#[case::just_let_go("Delete", json!({}), "Bound", json!("Released"), "")]
fn a_volume_whose_claim_is_gone_is_released(
    #[case] policy: &str,
    #[case] change: Value,
    #[case] before: &str,
    #[case] phase: Value,
    #[case] message: &str,
) {
    let mut of = json!({
        "spec": {
            "persistentVolumeReclaimPolicy": policy,
            "claimRef": {"name": "c", "namespace": "default", "uid": "uid-gone"},
        },
        "status": {"phase": before},
    });
    json_patch::merge(&mut of, &change);
    let written = written(&view(Vec::new(), vec![volume("v", of)]));
    let status = written
        .first()
        .map_or(Value::Null, |(_, patch)| patch["status"].clone());
    assert_eq!(status["phase"], phase);
    assert_eq!(status["message"].as_str().unwrap_or_default(), message);
}

#[test]
fn a_claim_whose_volume_is_gone_is_lost() {
    let bound = json!({
        "metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"},
    });
    let written = written(&view(vec![claim(bound)], Vec::new()));
    assert_eq!(written[0].1["status"]["phase"], "Lost");
}

#[rstest]
#[case::used(json!({"spec": {"nodeName": "n"}}), None)]
#[case::not_on_a_node_yet(json!({}), Some(json!([])))]
#[case::in_another_namespace(json!({"metadata": {"namespace": "other"}, "spec": {"nodeName": "n"}}), Some(json!([])))]
fn a_claim_that_goes_stays_while_a_pod_uses_it(#[case] change: Value, #[case] finalizers: Option<Value>) {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    });
    json_patch::merge(&mut pod, &change);
    let going = json!({"metadata": {
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"],
    }});
    let mut view = view(vec![claim(going)], Vec::new());
    view.pods = vec![Arc::new(from_value(pod).unwrap())];
    let actions = protect_claims(&view, Timestamp::UNIX_EPOCH);
    let left = actions.first().map(|action| match action {
        Action::Patch { patch, .. } => patch["metadata"]["finalizers"].clone(),
        other => panic!("unexpected: {other}"),
    });
    assert_eq!(left, finalizers);
}
