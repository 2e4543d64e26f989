//! ReplicaSets: as many active pods as asked for.

use super::owned::{
    as_json, delete, difference, identity, is_active, is_available, is_controlled_by, is_ready, node_of,
    owner_reference, pod_from,
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use serde_json::json;
use std::sync::Arc;

/// What to do for all ReplicaSets.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    view.replica_sets
        .iter()
        .flat_map(|set| one(set, view, now))
        .collect()
}

fn one(set: &ReplicaSet, view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let (namespace, name, uid) = identity(&set.metadata);
    let Some(spec) = &set.spec else { return Vec::new() };
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let active: Vec<&Arc<Pod>> = view
        .pods
        .iter()
        .filter(|pod| is_controlled_by(&pod.metadata, uid) && is_active(pod))
        .collect();

    let mut actions = Vec::new();
    if set.metadata.deletion_timestamp.is_none()
        && let Some(template) = &spec.template
    {
        for _ in active.len()..wanted {
            let mut pod = pod_from(
                template,
                &[],
                owner_reference("apps/v1", "ReplicaSet", &set.metadata),
            );
            pod["metadata"]["generateName"] = json!(format!("{name}-"));
            actions.push(Action::Create {
                kind: Kind::Pod,
                namespace: namespace.to_owned(),
                object: pod,
            });
        }
        let mut surplus = active.clone();
        surplus.sort_by_key(|pod| keep_rank(pod));
        for pod in surplus.into_iter().take(active.len().saturating_sub(wanted)) {
            actions.push(delete(Kind::Pod, &pod.metadata, None));
        }
    }

    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let available = active
        .iter()
        .filter(|pod| is_available(pod, min_ready, now))
        .count();
    let status = json!({
        "replicas": active.len(),
        "fullyLabeledReplicas": active.len(),
        "readyReplicas": ready,
        "availableReplicas": available,
        "observedGeneration": set.metadata.generation.unwrap_or(0),
    });
    let current = as_json(&set.status);
    let current = zero_filled(
        current,
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
        ],
    );
    if let Some(patch) = difference(&current, status) {
        actions.push(Action::Patch {
            kind: Kind::ReplicaSet,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status: true,
            patch: json!({ "status": patch }),
        });
    }
    actions
}

/// Counters that the API leaves out when they are 0.
pub fn zero_filled(mut status: serde_json::Value, counters: &[&str]) -> serde_json::Value {
    if !status.is_object() {
        status = json!({});
    }
    for counter in counters {
        if status.get(*counter).is_none_or(serde_json::Value::is_null) {
            status[*counter] = json!(0);
        }
    }
    status
}

/// Lowest goes first when there are too many: unbound, then not ready, then the youngest.
fn keep_rank(pod: &Pod) -> (bool, bool, std::cmp::Reverse<Option<Timestamp>>) {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (node_of(pod).is_some(), is_ready(pod), std::cmp::Reverse(created))
}
