//! The scheduler: every unbound pod goes to a node that takes it, spread by owner, then by load.

use super::{
    deployment::seconds,
    owned::{controller_uid, identity, is_active, is_finished, node_of},
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint, Toleration};
use serde_json::json;
use std::collections::BTreeMap;

/// Pods a node takes when it does not say.
const DEFAULT_POD_CAPACITY: usize = 110;

/// Bindings for all pods that can be placed; a condition on those that cannot.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let mut load: BTreeMap<&str, Vec<Option<&str>>> = BTreeMap::new();
    for pod in view.pods.iter().filter(|pod| !is_finished(pod)) {
        if let Some(node) = node_of(pod) {
            load.entry(node).or_default().push(controller_uid(&pod.metadata));
        }
    }
    let mut waiting: Vec<&Pod> = view
        .pods
        .iter()
        .map(AsRef::as_ref)
        .filter(|pod| node_of(pod).is_none() && is_active(pod) && is_ours(pod))
        .collect();
    waiting.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));

    let mut actions = Vec::new();
    for pod in waiting {
        let Some(spec) = &pod.spec else { continue };
        let owner = controller_uid(&pod.metadata);
        let best = view
            .nodes
            .iter()
            .filter(|node| takes(spec, node, load.get(name_of(node)).map_or(0, Vec::len)))
            .min_by_key(|node| {
                let pods = load.get(name_of(node)).map(Vec::as_slice).unwrap_or_default();
                let siblings = pods
                    .iter()
                    .filter(|other| owner.is_some() && **other == owner)
                    .count();
                (siblings, pods.len(), name_of(node))
            });
        let (namespace, name, uid) = identity(&pod.metadata);
        if let Some(node) = best {
            load.entry(name_of(node)).or_default().push(owner);
            actions.push(Action::Bind {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
                node: name_of(node).to_owned(),
            });
        } else {
            actions.extend(unschedulable(pod, view.nodes.len(), now));
        }
    }
    actions
}

fn is_ours(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec
        .and_then(|spec| spec.scheduler_name.as_deref())
        .unwrap_or("default-scheduler");
    let gated = spec
        .and_then(|spec| spec.scheduling_gates.as_ref())
        .is_some_and(|gates| !gates.is_empty());
    scheduler == "default-scheduler" && !gated
}

fn takes(spec: &PodSpec, node: &Node, pods: usize) -> bool {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let capacity = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref()?.get("pods"));
    let capacity = capacity
        .and_then(|quantity| quantity.0.parse().ok())
        .unwrap_or(DEFAULT_POD_CAPACITY);
    !cordoned
        && node.metadata.deletion_timestamp.is_none()
        && pods < capacity
        && selects_node(spec, node)
        && tolerates_all(spec, node)
}

/// `nodeSelector` and `nodeName` of the pod against the node's labels.
pub fn selects_node(spec: &PodSpec, node: &Node) -> bool {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let selector = spec.node_selector.as_ref().unwrap_or(&none);
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether the pod tolerates every taint of the node that keeps pods away.
pub fn tolerates_all(spec: &PodSpec, node: &Node) -> bool {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || key.is_empty() && exists)
        && (exists
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

/// Says once on the pod why it waits.
fn unschedulable(pod: &Pod, nodes: usize, now: Timestamp) -> Option<Action> {
    let message =
        format!("0/{nodes} nodes are available: none fits the pod's selector, tolerations and count.");
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let said = conditions
        .iter()
        .any(|condition| condition.type_ == "PodScheduled" && condition.message.as_ref() == Some(&message));
    let mut all: Vec<_> = conditions
        .iter()
        .filter(|condition| condition.type_ != "PodScheduled")
        .cloned()
        .collect();
    all.truncate(32);
    let mut all = serde_json::to_value(all).ok()?;
    all.as_array_mut()?.push(json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": seconds(now),
    }));
    let (namespace, name, _) = identity(&pod.metadata);
    (!said).then(|| Action::Patch {
        kind: Kind::Pod,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: true,
        patch: json!({"status": {"conditions": all}}),
    })
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}
