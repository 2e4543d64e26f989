//! What Evenkeel puts on nodes, and how it is taken off when no controller does it any more. Pure.

use evenkeel_api::names::{annotations, taints};
use serde_json::{Value, json};

/// Annotations that are Evenkeel's on any object.
const ANNOTATIONS: [&str; 3] = [
    annotations::SUPEREDGE_NODE_HEALTH,
    annotations::ADDED_TAINTS,
    annotations::FENCING_TOKEN,
];
/// Keys of taints that are Evenkeel's.
const TAINTS: [&str; 2] = [taints::DEAD, taints::ISOLATED];

/// The merge patch that takes off a Node what Evenkeel has put there; `None`: there is nothing. It holds only
/// for the version of the Node that was read.
pub(crate) fn settlement(node: &Value) -> Option<Value> {
    let metadata = &node["metadata"];
    let carried = metadata["annotations"].as_object();
    let ours: Vec<&str> = ANNOTATIONS
        .into_iter()
        .filter(|name| carried.is_some_and(|carried| carried.contains_key(*name)))
        .collect();
    let added = metadata["annotations"][annotations::ADDED_TAINTS]
        .as_str()
        .unwrap_or_default();
    let added: Vec<&str> = added.split(',').map(str::trim).collect();
    let is_ours = |taint: &&Value| {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        TAINTS.contains(&text("key")) || added.contains(&&*format!("{}:{}", text("key"), text("effect")))
    };
    let all: Vec<&Value> = node["spec"]["taints"].as_array().into_iter().flatten().collect();
    let rest: Vec<&Value> = all.iter().copied().filter(|taint| !is_ours(taint)).collect();
    if ours.is_empty() && rest.len() == all.len() {
        return None;
    }
    let gone: serde_json::Map<String, Value> = ours
        .into_iter()
        .map(|name| (name.to_owned(), Value::Null))
        .collect();
    let mut patch = json!({"metadata": {
        "resourceVersion": metadata["resourceVersion"],
        "annotations": gone,
    }});
    if rest.len() < all.len() {
        patch["spec"] = json!({"taints": rest});
    }
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn node(annotations: Value, taints: Value) -> Value {
        json!({
            "metadata": {"name": "a", "resourceVersion": "7", "annotations": annotations},
            "spec": {"taints": taints},
        })
    }

    #[rstest]
    #[case(json!({}), json!([]))]
    #[case(json!({"superedgehealth/other": "x"}), json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]))]
    fn what_is_others_stays(#[case] annotations: Value, #[case] taints: Value) {
        assert_eq!(settlement(&node(annotations, taints)), None);
    }

    #[test]
    fn nothing_is_taken_off_a_node_without_fields() {
        assert_eq!(settlement(&json!({})), None);
    }

    #[test]
    fn its_own_taints_and_those_that_it_added_go() {
        let foreign = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"});
        let node = node(
            json!({"evenkeel.io/added-taints": "node.kubernetes.io/unreachable:NoExecute", "other": "x"}),
            json!([
                foreign,
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                {"key": "evenkeel.io/dead", "effect": "NoSchedule"},
            ]),
        );
        let expected = json!({
            "metadata": {"resourceVersion": "7", "annotations": {"evenkeel.io/added-taints": null}},
            "spec": {"taints": [foreign]},
        });
        assert_eq!(settlement(&node), Some(expected));
    }

    #[test]
    fn an_annotation_alone_goes_alone() {
        let node = node(
            json!({"superedgehealth/node-health": "true"}),
            json!([{"key": "x", "effect": "NoSchedule"}]),
        );
        let patch = settlement(&node).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({"superedgehealth/node-health": null})
        );
        assert_eq!(patch["spec"], Value::Null);
    }
}
