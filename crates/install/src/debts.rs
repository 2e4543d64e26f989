//! What Evenkeel puts on nodes, and how it is taken off when no controller does it any more. Pure.

use evenkeel_api::names::{annotations, taints};
use serde_json::{Value, json};

/// Annotations that are Evenkeel's on any object; the last one is SuperEdge's as well.
const ANNOTATIONS: [&str; 3] = [
    annotations::ADDED_TAINTS,
    annotations::FENCING_TOKEN,
    annotations::SUPEREDGE_NODE_HEALTH,
];

/// The merge patch that takes off a Node what Evenkeel has put there; `None`: there is nothing. It holds only
/// for the version of the Node that was read. Where Evenkeel was not installed, SuperEdge's annotation is
/// SuperEdge's.
pub(crate) fn settlement(node: &Value, was_installed: bool) -> Option<Value> {
    let metadata = &node["metadata"];
    let carried = metadata["annotations"].as_object();
    let ours: Vec<&str> = ANNOTATIONS
        .into_iter()
        .filter(|name| was_installed || *name != annotations::SUPEREDGE_NODE_HEALTH)
        .filter(|name| carried.is_some_and(|carried| carried.contains_key(*name)))
        .collect();
    let added = metadata["annotations"][annotations::ADDED_TAINTS]
        .as_str()
        .unwrap_or_default();
    let added: Vec<&str> = added.split(',').map(str::trim).collect();
    let is_ours = |taint: &&Value| {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        let (key, effect) = (text("key"), text("effect"));
        taints::OWN.contains(&key)
            || taints::ADDED.contains(&(key, effect)) && added.contains(&&*format!("{key}:{effect}"))
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
        assert_eq!(settlement(&node(annotations, taints), true), None);
    }

    #[test]
    fn nothing_is_taken_off_a_node_without_fields() {
        assert_eq!(settlement(&json!({}), true), None);
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
        assert_eq!(settlement(&node, true), Some(expected));
    }

    /// Whoever may annotate a node has no taint removed with our rights that Evenkeel never adds.
    #[test]
    fn a_taint_of_others_that_the_annotation_names_stays() {
        let theirs = json!({"key": "nvidia.com/gpu", "effect": "NoSchedule"});
        let other_effect = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"});
        let node = node(
            json!({"evenkeel.io/added-taints": "nvidia.com/gpu:NoSchedule,node.kubernetes.io/unreachable:NoSchedule"}),
            json!([theirs, other_effect]),
        );
        let patch = settlement(&node, true).unwrap();
        assert_eq!(patch["spec"], Value::Null);
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({"evenkeel.io/added-taints": null})
        );
    }

    #[test]
    fn an_annotation_alone_goes_alone() {
        let node = node(
            json!({"superedgehealth/node-health": "true"}),
            json!([{"key": "x", "effect": "NoSchedule"}]),
        );
        assert_eq!(settlement(&node, false), None, "it is SuperEdge's there");
        let patch = settlement(&node, true).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({"superedgehealth/node-health": null})
        );
        assert_eq!(patch["spec"], Value::Null);
    }
}
