#![expect(
    clippy::unnecessary_wraps,
    reason = "the fields are optional, and these are written into them"
)]

use super::*;
use evenkeel_api::names::vnode::{LAST_APPLIED_META, LAST_APPLIED_STATUS};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

fn at(seconds: i64) -> Option<Time> {
    Some(Time(jiff::Timestamp::from_second(seconds).unwrap()))
}

fn is(kind: &str, status: &str, seconds: i64) -> NodeCondition {
    NodeCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some("R".into()),
        message: Some("m".into()),
        last_heartbeat_time: at(seconds),
        last_transition_time: at(seconds),
    }
}

fn address(kind: &str, address: &str) -> NodeAddress {
    NodeAddress {
        type_: kind.into(),
        address: address.into(),
    }
}

fn map(pairs: &[(&str, &str)]) -> Option<Strings> {
    Some(
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    )
}

fn quantities(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, Quantity>> {
    let pairs = pairs.iter();
    Some(
        pairs
            .map(|(key, value)| ((*key).to_owned(), Quantity((*value).to_owned())))
            .collect(),
    )
}

fn wanted() -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some("n".into()),
            labels: map(&[("ours", "1"), ("type", "virtual-kubelet")]),
            annotations: map(&[("note", "x")]),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus {
            conditions: Some(vec![is("Ready", "True", 100), is("DiskPressure", "False", 100)]),
            addresses: Some(vec![address("InternalIP", "10.0.0.1"), address("Hostname", "n")]),
            capacity: quantities(&[("cpu", "4"), ("memory", "1024Mi")]),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}

/// The Node as the server has it after its creation.
fn stored() -> Node {
    let mut node = creation(&wanted());
    node.metadata.uid = Some("u1".into());
    node.metadata.resource_version = Some("7".into());
    node
}

fn status_of(node: &mut Node) -> &mut NodeStatus {
    node.status.as_mut().unwrap()
}

#[test]
fn a_node_that_is_as_wanted_is_not_written() {
    let mut later = wanted();
    for condition in status_of(&mut later).conditions.as_mut().unwrap() {
        condition.last_heartbeat_time = at(200);
        condition.last_transition_time = at(200);
    }
    let mut node = stored();
    status_of(&mut node).capacity = quantities(&[("cpu", "4"), ("memory", "1Gi")]);
    assert_eq!(patch(&node, &later), None);
}

#[test]
fn what_others_put_on_a_node_stays() {
    let mut node = stored();
    node.metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("theirs".into(), "1".into());
    node.metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("theirs".into(), "1".into());
    let status = status_of(&mut node);
    status.conditions.as_mut().unwrap().push(is("Theirs", "True", 50));
    status
        .addresses
        .as_mut()
        .unwrap()
        .push(address("ExternalIP", "1.2.3.4"));
    status
        .capacity
        .as_mut()
        .unwrap()
        .insert("theirs".into(), Quantity("1".into()));
    assert_eq!(patch(&node, &wanted()), None);
    let mut other = wanted();
    status_of(&mut other).addresses = Some(vec![address("InternalIP", "10.0.0.2")]);
    let patch = patch(&node, &other).unwrap();
    assert_eq!(
        patch["status"]["addresses"],
        json!([
            {"$patch": "replace"},
            {"type": "InternalIP", "address": "10.0.0.2"},
            {"type": "ExternalIP", "address": "1.2.3.4"},
        ])
    );
}

#[test]
fn what_was_ours_and_is_not_wanted_any_more_is_removed() {
    let mut less = wanted();
    less.metadata.labels = map(&[("type", "virtual-kubelet")]);
    less.metadata.annotations = None;
    let status = status_of(&mut less);
    status.conditions.as_mut().unwrap().pop();
    status.capacity = quantities(&[("cpu", "4")]);
    let patch = patch(&stored(), &less).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({"ours": null}));
    assert_eq!(patch["metadata"]["annotations"]["note"], Value::Null);
    assert!(patch["metadata"]["annotations"][LAST_APPLIED_META].is_string());
    assert_eq!(patch["status"]["capacity"], json!({"memory": null}));
    assert_eq!(
        patch["status"]["conditions"][1],
        json!({"$patch": "delete", "type": "DiskPressure"})
    );
    assert_eq!(patch["metadata"]["uid"], "u1");
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
}

#[test]
fn a_node_of_virtual_kubelet_is_taken_over_with_what_it_wrote() {
    let mut node = stored();
    let meta = json!({"name": "n", "uid": "u1", "creationTimestamp": null,
        "labels": {"type": "virtual-kubelet", "vk-only": "1"}, "annotations": {}});
    let status = json!({"capacity": {"cpu": "4", "gpu": "1"}, "conditions":
        [{"type": "OutOfDisk", "status": "False", "lastHeartbeatTime": "2024-01-01T00:00:00Z", "lastTransitionTime": null}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": {"machineID": ""}});
    let annotations = node.metadata.annotations.as_mut().unwrap();
    annotations.insert(LAST_APPLIED_META.into(), meta.to_string());
    annotations.insert(LAST_APPLIED_STATUS.into(), status.to_string());
    node.metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("vk-only".into(), "1".into());
    let old = status_of(&mut node);
    old.capacity
        .as_mut()
        .unwrap()
        .insert("gpu".into(), Quantity("1".into()));
    old.conditions.as_mut().unwrap().push(is("OutOfDisk", "False", 1));
    let patch = patch(&node, &wanted()).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({"vk-only": null}));
    assert_eq!(patch["status"]["capacity"], json!({"gpu": null}));
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    assert!(conditions.contains(&json!({"$patch": "delete", "type": "OutOfDisk"})));
}

#[test]
fn without_readable_annotations_nothing_is_removed() {
    let mut node = stored();
    let mut less = wanted();
    less.metadata.labels = map(&[]);
    let annotations = node.metadata.annotations.as_mut().unwrap();
    annotations.insert(LAST_APPLIED_STATUS.into(), "{".into());
    let patch = patch(&node, &less).unwrap();
    assert!(patch["metadata"].get("labels").is_none());
    assert!(
        patch["metadata"]["annotations"][LAST_APPLIED_STATUS].is_string(),
        "it is repaired"
    );
}

#[test]
fn a_transition_is_of_the_status_alone_and_later_than_others_writes() {
    let mut node = stored();
    status_of(&mut node).conditions =
        Some(vec![is("Ready", "Unknown", 150), is("DiskPressure", "False", 20)]);
    let mut later = wanted();
    for condition in status_of(&mut later).conditions.as_mut().unwrap() {
        condition.message = Some("other".into());
        condition.last_heartbeat_time = at(200);
    }
    let patch = patch(&node, &later).unwrap();
    let times = |index: usize| {
        let condition: NodeCondition =
            serde_json::from_value(patch["status"]["conditions"][index].clone()).unwrap();
        (condition.last_transition_time, condition.last_heartbeat_time)
    };
    assert_eq!(times(0), (at(200), at(200)), "somebody wrote Unknown between");
    assert_eq!(times(1), (at(20), at(200)));
}

#[test]
fn two_addresses_of_one_type_are_kept_apart() {
    let mut two = wanted();
    let addresses = vec![
        address("InternalIP", "10.0.0.1"),
        address("InternalIP", "fd00::1"),
    ];
    status_of(&mut two).addresses = Some(addresses.clone());
    let mut node = creation(&two);
    assert_eq!(patch(&node, &two), None);
    status_of(&mut node).addresses.as_mut().unwrap().pop();
    let patch = patch(&node, &two).unwrap();
    assert_eq!(patch["status"]["addresses"][1], json!(addresses[0]));
    assert_eq!(patch["status"]["addresses"][2], json!(addresses[1]));
}

#[test]
fn what_is_written_down_is_small_and_does_not_change_with_values() {
    let first = own_annotations(&wanted());
    let mut other = wanted();
    status_of(&mut other).conditions.as_mut().unwrap()[0].status = "False".into();
    status_of(&mut other)
        .capacity
        .as_mut()
        .unwrap()
        .insert("cpu".into(), Quantity("9".into()));
    assert_eq!(first, own_annotations(&other));
    assert!(first.iter().map(|(_, text)| text.len()).sum::<usize>() < 500);
}

#[rstest::rstest]
#[case("1024Mi", "1Gi", true)]
#[case("a lot", "a lot", true)]
#[case("a lot", "1", false)]
#[case("", "0", false)]
#[case(".", "0", false)]
fn what_is_no_quantity_is_the_same_as_its_own_text_alone(
    #[case] one: &str,
    #[case] other: &str,
    #[case] same: bool,
) {
    assert_eq!(is_same(one, other), same);
}

proptest::proptest! {
    #[test]
    fn any_text_is_the_same_as_itself(text in ".{0,24}") {
        proptest::prop_assert!(is_same(&text, &text));
    }
}
