//! DaemonSets: one pod on every node that its template may run on.

use super::{
    owned::{
        as_json, delete, difference, identity, is_active, is_available, is_controlled_by, is_finished,
        is_ready, node_of, owner_reference, pod_from, template_hash,
    },
    replicaset::zero_filled,
    scheduler::{selects_node, tolerates_all},
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, DaemonSetSpec},
    core::v1::{Node, Pod, PodSpec},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// What admission of taints a daemon pod gets beside its own tolerations: it stays through every node
/// condition.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// What to do for all DaemonSets.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    view.daemon_sets
        .iter()
        .flat_map(|set| one(set, view, now))
        .collect()
}

/// The pod that the set creates, as JSON and as a spec: its template with an owner and more tolerations.
fn pod_template(
    set: &DaemonSet,
    spec: &DaemonSetSpec,
    revision: &str,
) -> serde_json::Result<(Value, PodSpec)> {
    let mut template = pod_from(
        &spec.template,
        &[("controller-revision-hash", revision)],
        owner_reference("apps/v1", "DaemonSet", &set.metadata),
    );
    let mut tolerations = template["spec"]["tolerations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    tolerations
        .extend(TOLERATED.map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect})));
    template["spec"]["tolerations"] = json!(tolerations);
    let pod_spec = serde_json::from_value(template["spec"].clone())?;
    Ok((template, pod_spec))
}

fn one(set: &DaemonSet, view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let (namespace, name, uid) = identity(&set.metadata);
    let Some(spec) = &set.spec else { return Vec::new() };
    if set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let revision = template_hash(&spec.template);
    let (template, pod_spec) = match pod_template(set, spec, &revision) {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(%error, daemon_set = name, %namespace, "pod template cannot be read");
            return Vec::new();
        }
    };

    let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in view
        .pods
        .iter()
        .filter(|pod| is_controlled_by(&pod.metadata, uid))
    {
        by_node
            .entry(node_of(pod).unwrap_or_default())
            .or_default()
            .push(pod);
    }
    let eligible: Vec<&Arc<Node>> = view
        .nodes
        .iter()
        .filter(|node| selects_node(&pod_spec, node) && tolerates_all(&pod_spec, node))
        .collect();
    let mut actions = Vec::new();
    let (mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0);
    for node in &eligible {
        let node_name = node.metadata.name.as_deref().unwrap_or_default();
        let pods = by_node.remove(node_name).unwrap_or_default();
        if let Some(failed) = pods
            .iter()
            .find(|pod| is_finished(pod) && pod.metadata.deletion_timestamp.is_none())
        {
            actions.push(delete(Kind::Pod, &failed.metadata, None));
        }
        match pods.iter().find(|pod| is_active(pod)) {
            Some(pod) => {
                current += 1;
                ready += i32::from(is_ready(pod));
                available += i32::from(is_available(pod, spec.min_ready_seconds.unwrap_or(0), now));
                let label = pod
                    .metadata
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get("controller-revision-hash"));
                updated += i32::from(label == Some(&revision));
            }
            None if pods.is_empty() => {
                let mut pod: Value = template.clone();
                pod["metadata"]["generateName"] = json!(format!("{name}-"));
                // Upstream pins by affinity and lets the scheduler bind; binding at once ends in the same
                // place.
                pod["spec"]["nodeName"] = json!(node_name);
                actions.push(Action::Create {
                    kind: Kind::Pod,
                    namespace: namespace.to_owned(),
                    object: pod,
                });
            }
            None => {}
        }
    }
    let misplaced: Vec<&Arc<Pod>> = by_node
        .into_iter()
        .filter(|(node, _)| {
            view.nodes
                .iter()
                .any(|known| known.metadata.name.as_deref() == Some(*node))
        })
        .flat_map(|(_, pods)| pods)
        .filter(|pod| is_active(pod))
        .collect();
    actions.extend(misplaced.iter().map(|pod| delete(Kind::Pod, &pod.metadata, None)));

    let desired = i32::try_from(eligible.len()).unwrap_or(i32::MAX);
    let status = json!({
        "observedGeneration": set.metadata.generation.unwrap_or(0),
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": current,
        "numberMisscheduled": misplaced.len(),
        "numberReady": ready,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
        "updatedNumberScheduled": updated,
    });
    let counters = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "numberAvailable",
        "numberUnavailable",
        "updatedNumberScheduled",
    ];
    if let Some(patch) = difference(&zero_filled(as_json(&set.status), &counters), status) {
        actions.push(Action::Patch {
            kind: Kind::DaemonSet,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status: true,
            patch: json!({ "status": patch }),
        });
    }
    actions
}
