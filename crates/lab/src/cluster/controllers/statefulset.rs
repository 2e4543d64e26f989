//! StatefulSets: at most one pod per ordinal, in order.

use super::{
    owned::{
        as_json, delete, difference, identity, is_active, is_available, is_controlled_by, is_finished,
        is_ready, owner_reference, pod_from, template_hash,
    },
    replicaset::zero_filled,
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetSpec},
    core::v1::Pod,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

const REVISION_LABEL: &str = "controller-revision-hash";

/// What to do for all StatefulSets.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    view.stateful_sets
        .iter()
        .flat_map(|set| one(set, view, now))
        .collect()
}

fn one(set: &StatefulSet, view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let (_, name, uid) = identity(&set.metadata);
    let Some(spec) = &set.spec else { return Vec::new() };
    if set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let update_revision = format!("{name}-{}", template_hash(&spec.template));
    let pods: BTreeMap<i32, &Arc<Pod>> = view
        .pods
        .iter()
        .filter(|pod| is_controlled_by(&pod.metadata, uid))
        .filter_map(|pod| Some((ordinal(name, pod)?, pod)))
        .collect();
    let mut actions = move_on(set, spec, &pods, &update_revision, view, now);
    actions.extend(status(set, spec, &pods, &update_revision, now));
    actions
}

/// The next steps towards the wanted ordinals. With `OrderedReady` one step at a time, and nothing past a pod
/// that is missing, terminating or not ready: two live pods of one identity must never be.
fn move_on(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pods: &BTreeMap<i32, &Arc<Pod>>,
    revision: &str,
    view: &Snapshot,
    now: Timestamp,
) -> Vec<Action> {
    let ordered = spec.pod_management_policy.as_deref() != Some("Parallel");
    let start = spec
        .ordinals
        .as_ref()
        .and_then(|ordinals| ordinals.start)
        .unwrap_or(0);
    let wanted = start..start.saturating_add(spec.replicas.unwrap_or(1).max(0));
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let mut actions = Vec::new();
    for ordinal in wanted.clone() {
        match pods.get(&ordinal) {
            None => {
                actions.extend(claims(set, spec, ordinal, view));
                actions.push(create(set, spec, ordinal, revision));
            }
            Some(pod) if is_finished(pod) && pod.metadata.deletion_timestamp.is_none() => {
                actions.push(delete(Kind::Pod, &pod.metadata, None));
            }
            Some(pod) if is_active(pod) && is_available(pod, min_ready, now) => continue,
            Some(_) => {}
        }
        if ordered {
            return actions;
        }
    }
    let mut surplus: Vec<&&Arc<Pod>> = pods
        .iter()
        .filter(|(ordinal, pod)| !wanted.contains(ordinal) && pod.metadata.deletion_timestamp.is_none())
        .map(|(_, pod)| pod)
        .collect();
    let leaving = pods
        .iter()
        .any(|(ordinal, pod)| !wanted.contains(ordinal) && pod.metadata.deletion_timestamp.is_some());
    if ordered {
        surplus = if leaving {
            Vec::new()
        } else {
            surplus.pop().into_iter().collect()
        };
    }
    if !surplus.is_empty() || leaving {
        actions.extend(
            surplus
                .into_iter()
                .map(|pod| delete(Kind::Pod, &pod.metadata, None)),
        );
        return actions;
    }
    // Rolling update: from the highest ordinal down, one at a time, and only while everything is ready.
    let strategy = spec.update_strategy.as_ref();
    let rolling = strategy
        .and_then(|strategy| strategy.type_.as_deref())
        .unwrap_or("RollingUpdate")
        == "RollingUpdate";
    let partition = strategy
        .and_then(|strategy| strategy.rolling_update.as_ref()?.partition)
        .unwrap_or(0)
        .saturating_add(start);
    let whole = wanted.clone().all(|ordinal| {
        pods.get(&ordinal)
            .is_some_and(|pod| is_active(pod) && is_ready(pod))
    });
    let outdated = wanted
        .rev()
        .take_while(|ordinal| *ordinal >= partition)
        .filter_map(|ordinal| pods.get(&ordinal))
        .find(|pod| revision_of(pod) != Some(revision));
    if rolling && actions.is_empty() && whole {
        actions.extend(outdated.map(|pod| delete(Kind::Pod, &pod.metadata, None)));
    }
    actions
}

fn create(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i32, revision: &str) -> Action {
    let (namespace, name, _) = identity(&set.metadata);
    let pod_name = format!("{name}-{ordinal}");
    let index = ordinal.to_string();
    let labels = [
        (REVISION_LABEL, revision),
        ("statefulset.kubernetes.io/pod-name", pod_name.as_str()),
        ("apps.kubernetes.io/pod-index", index.as_str()),
    ];
    let mut pod = pod_from(
        &spec.template,
        &labels,
        owner_reference("apps/v1", "StatefulSet", &set.metadata),
    );
    pod["metadata"]["name"] = json!(pod_name);
    pod["spec"]["hostname"] = json!(pod_name);
    if let Some(service) = spec.service_name.as_deref().filter(|service| !service.is_empty()) {
        pod["spec"]["subdomain"] = json!(service);
    }
    let templates = spec.volume_claim_templates.as_deref().unwrap_or_default();
    if !templates.is_empty() {
        let mut volumes: Vec<Value> = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        for template in templates {
            let volume = template.metadata.name.clone().unwrap_or_default();
            volumes.retain(|existing| existing["name"] != json!(volume));
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": format!("{volume}-{pod_name}")}}));
        }
        pod["spec"]["volumes"] = json!(volumes);
    }
    Action::Create {
        kind: Kind::Pod,
        namespace: namespace.to_owned(),
        object: pod,
    }
}

/// The claims of a pod that do not exist yet.
fn claims(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i32, view: &Snapshot) -> Vec<Action> {
    let (namespace, name, _) = identity(&set.metadata);
    let templates = spec.volume_claim_templates.as_deref().unwrap_or_default();
    templates
        .iter()
        .filter_map(|template| {
            let claim = format!(
                "{}-{name}-{ordinal}",
                template.metadata.name.as_deref().unwrap_or_default()
            );
            let exists = view.claims.iter().any(|existing| {
                existing.metadata.name.as_deref() == Some(claim.as_str())
                    && existing.metadata.namespace.as_deref() == Some(namespace)
            });
            let labels = spec.selector.match_labels.clone().unwrap_or_default();
            (!exists).then(|| Action::Create {
                kind: Kind::PersistentVolumeClaim,
                namespace: namespace.to_owned(),
                object: json!({"metadata": {"name": claim, "labels": labels}, "spec": template.spec}),
            })
        })
        .collect()
}

fn status(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pods: &BTreeMap<i32, &Arc<Pod>>,
    revision: &str,
    now: Timestamp,
) -> Option<Action> {
    let (namespace, name, _) = identity(&set.metadata);
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let count = |test: &dyn Fn(&Pod) -> bool| pods.values().filter(|pod| test(pod)).count();
    let updated = count(&|pod| is_active(pod) && revision_of(pod) == Some(revision));
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let all_ready = count(&|pod| is_active(pod) && is_ready(pod)) == wanted;
    let before = set
        .status
        .as_ref()
        .and_then(|status| status.current_revision.clone());
    // A roll-out is complete when every replica runs the new revision and is ready.
    let current = match before {
        Some(before) if !(updated == wanted && all_ready) => before,
        _ => revision.to_owned(),
    };
    let status = json!({
        "observedGeneration": set.metadata.generation.unwrap_or(0),
        "replicas": pods.len(),
        "readyReplicas": count(&is_ready),
        "availableReplicas": count(&|pod| is_available(pod, min_ready, now)),
        "currentReplicas": count(&|pod| is_active(pod) && revision_of(pod) == Some(current.as_str())),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    });
    let counters = [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "currentReplicas",
        "updatedReplicas",
        "collisionCount",
    ];
    let patch = difference(&zero_filled(as_json(&set.status), &counters), status)?;
    Some(Action::Patch {
        kind: Kind::StatefulSet,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: true,
        patch: json!({ "status": patch }),
    })
}

fn ordinal(set: &str, pod: &Pod) -> Option<i32> {
    pod.metadata
        .name
        .as_deref()?
        .strip_prefix(set)?
        .strip_prefix('-')?
        .parse()
        .ok()
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata
        .labels
        .as_ref()?
        .get(REVISION_LABEL)
        .map(String::as_str)
}
