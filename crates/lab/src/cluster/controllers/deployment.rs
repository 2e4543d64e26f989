//! Deployments: one ReplicaSet per pod template, rolled over within surge and unavailability.

use super::{
    owned::{as_json, delete, difference, identity, is_controlled_by, owner_reference, template_hash},
    replicaset::zero_filled,
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet},
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde_json::{Value, json};
use std::{cmp::Reverse, sync::Arc};

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH_LABEL: &str = "pod-template-hash";
const DEFAULT_REVISION_HISTORY: i32 = 10;

/// What to do for all Deployments.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    view.deployments
        .iter()
        .flat_map(|deployment| one(deployment, view, now))
        .collect()
}

fn one(deployment: &Deployment, view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let (namespace, name, uid) = identity(&deployment.metadata);
    let Some(spec) = &deployment.spec else {
        return Vec::new();
    };
    if deployment.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut sets: Vec<&Arc<ReplicaSet>> = view
        .replica_sets
        .iter()
        .filter(|set| is_controlled_by(&set.metadata, uid))
        .collect();
    sets.sort_by_key(|set| Reverse(revision(set)));
    let hash = template_hash(&spec.template);
    let current = sets.iter().find(|set| label(set) == Some(hash.as_str())).copied();

    let mut actions = Vec::new();
    let mut noted = None;
    let newest = sets.first().map_or(0, |set| revision(set));
    match current {
        None if spec.paused != Some(true) => {
            actions.push(new_set(deployment, spec, &hash, newest + 1, &sets));
        }
        Some(set) => {
            if revision(set) < newest {
                actions.push(annotate(Kind::ReplicaSet, namespace, set_name(set), newest + 1));
            }
            let revision = revision(set).max(newest).to_string();
            let shown = deployment
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(REVISION));
            noted = (shown != Some(&revision)).then_some(revision);
            if spec.paused != Some(true) || sets.len() == 1 {
                actions.extend(scale(spec, set, &sets));
            }
            actions.extend(old_history(spec, set, &sets));
        }
        None => {}
    }
    // The annotation is written with the status, so that it makes no new generation.
    let status = status(deployment, spec, current, &sets, now);
    if noted.is_some() || status.is_some() {
        let mut patch = json!({});
        if let Some(status) = status {
            patch["status"] = status;
        }
        if let Some(revision) = noted {
            patch["metadata"] = json!({"annotations": {REVISION: revision}});
        }
        actions.push(Action::Patch {
            kind: Kind::Deployment,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            status: true,
            patch,
        });
    }
    actions
}

fn annotate(kind: Kind, namespace: &str, name: &str, revision: i64) -> Action {
    Action::Patch {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: false,
        patch: json!({"metadata": {"annotations": {REVISION: revision.to_string()}}}),
    }
}

fn new_set(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    hash: &str,
    revision: i64,
    sets: &[&Arc<ReplicaSet>],
) -> Action {
    let (namespace, name, _) = identity(&deployment.metadata);
    let mut template = as_json(&spec.template);
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let mut selector = as_json(&spec.selector);
    selector["matchLabels"][HASH_LABEL] = json!(hash);
    let labels = template["metadata"]["labels"].clone();
    // The first set starts whole; a later one is scaled up step by step.
    let wanted = spec.replicas.unwrap_or(1);
    let running: i32 = sets.iter().map(|set| replicas(set)).sum();
    let recreate = strategy(spec) == "Recreate";
    let start = if recreate {
        if running == 0 { wanted } else { 0 }
    } else {
        (wanted + surge(spec) - running).clamp(0, wanted)
    };
    Action::Create {
        kind: Kind::ReplicaSet,
        namespace: namespace.to_owned(),
        object: json!({
            "metadata": {
                "name": format!("{name}-{hash}"),
                "labels": labels,
                "annotations": {
                    REVISION: revision.to_string(),
                    "deployment.kubernetes.io/desired-replicas": wanted.to_string(),
                },
                "ownerReferences": owner_reference("apps/v1", "Deployment", &deployment.metadata),
            },
            "spec": {
                "replicas": start,
                "minReadySeconds": spec.min_ready_seconds,
                "selector": selector,
                "template": template,
            },
        }),
    }
}

/// Scales the current set up and the old ones down, within surge and unavailability.
fn scale(spec: &DeploymentSpec, current: &Arc<ReplicaSet>, sets: &[&Arc<ReplicaSet>]) -> Vec<Action> {
    let wanted = spec.replicas.unwrap_or(1);
    let old: Vec<&Arc<ReplicaSet>> = sets
        .iter()
        .filter(|set| !Arc::ptr_eq(set, current) && replicas(set) > 0)
        .copied()
        .collect();
    let mut actions = Vec::new();
    if old.is_empty() {
        actions.extend(set_replicas(current, wanted));
        return actions;
    }
    if strategy(spec) == "Recreate" {
        actions.extend(old.iter().filter_map(|set| set_replicas(set, 0)));
        let left: i32 = old
            .iter()
            .map(|set| set.status.as_ref().map_or(0, |status| status.replicas))
            .sum();
        if left == 0 {
            actions.extend(set_replicas(current, wanted));
        }
        return actions;
    }
    let total: i32 = sets.iter().map(|set| replicas(set)).sum();
    let room = wanted + surge(spec) - total;
    let up = replicas(current) + room.clamp(0, (wanted - replicas(current)).max(0));
    actions.extend(set_replicas(current, up));
    let available: i32 = sets
        .iter()
        .map(|set| counter(set, |status| status.available_replicas))
        .sum();
    let mut spare = available - (wanted - unavailable(spec));
    for set in old.iter().rev() {
        // Pods that are not available cost nothing when they go.
        let idle = replicas(set) - counter(set, |status| status.available_replicas);
        let step = (idle.max(0) + spare.max(0)).min(replicas(set));
        spare -= (step - idle.max(0)).max(0);
        actions.extend(set_replicas(set, replicas(set) - step));
    }
    actions
}

fn set_replicas(set: &ReplicaSet, wanted: i32) -> Option<Action> {
    let (namespace, name, _) = identity(&set.metadata);
    (replicas(set) != wanted).then(|| Action::Patch {
        kind: Kind::ReplicaSet,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: false,
        patch: json!({"spec": {"replicas": wanted}}),
    })
}

/// Empty old sets beyond the history limit.
fn old_history(spec: &DeploymentSpec, current: &Arc<ReplicaSet>, sets: &[&Arc<ReplicaSet>]) -> Vec<Action> {
    let keep = usize::try_from(spec.revision_history_limit.unwrap_or(DEFAULT_REVISION_HISTORY)).unwrap_or(0);
    sets.iter()
        .filter(|set| {
            !Arc::ptr_eq(set, current)
                && replicas(set) == 0
                && counter(set, |status| Some(status.replicas)) == 0
                && set.metadata.deletion_timestamp.is_none()
        })
        .skip(keep)
        .map(|set| delete(Kind::ReplicaSet, &set.metadata, None))
        .collect()
}

fn status(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    current: Option<&Arc<ReplicaSet>>,
    sets: &[&Arc<ReplicaSet>],
    now: Timestamp,
) -> Option<Value> {
    let wanted = spec.replicas.unwrap_or(1);
    let total: i32 = sets
        .iter()
        .map(|set| counter(set, |status| Some(status.replicas)))
        .sum();
    let ready: i32 = sets
        .iter()
        .map(|set| counter(set, |status| status.ready_replicas))
        .sum();
    let available: i32 = sets
        .iter()
        .map(|set| counter(set, |status| status.available_replicas))
        .sum();
    let updated = current.map_or(0, |set| counter(set, |status| Some(status.replicas)));
    let enough = available >= wanted - unavailable(spec);
    let complete = updated == wanted && total == wanted && available == wanted;
    let set = current.map_or_else(String::new, |set| set_name(set).to_owned());
    let (progress, progress_text) = if complete {
        (
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{set}\" has successfully progressed."),
        )
    } else {
        (
            "ReplicaSetUpdated",
            format!("ReplicaSet \"{set}\" is progressing."),
        )
    };
    let (reason, text) = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        (
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    let old = deployment
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let condition = |kind: &str, value: &str, reason: &str, message: &str| {
        let same = old.iter().find(|condition| condition.type_ == kind);
        let kept = same
            .filter(|condition| condition.status == value)
            .and_then(|c| c.last_transition_time.clone());
        let unchanged = same.filter(|c| c.status == value && c.reason.as_deref() == Some(reason));
        let updated = unchanged.and_then(|condition| condition.last_update_time.clone());
        json!({
            "type": kind, "status": value, "reason": reason, "message": message,
            "lastTransitionTime": kept.map_or_else(|| seconds(now), |time| seconds(time.0)),
            "lastUpdateTime": updated.map_or_else(|| seconds(now), |time| seconds(time.0)),
        })
    };
    let status = json!({
        "observedGeneration": deployment.metadata.generation.unwrap_or(0),
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": (wanted.max(total) - available).max(0),
        "conditions": [
            condition("Available", if enough { "True" } else { "False" }, reason, text),
            condition("Progressing", "True", progress, &progress_text),
        ],
    });
    let counters = [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ];
    difference(&zero_filled(as_json(&deployment.status), &counters), status)
}

/// RFC 3339 without fractions, as `metav1.Time` has it.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn label(set: &ReplicaSet) -> Option<&str> {
    set.metadata.labels.as_ref()?.get(HASH_LABEL).map(String::as_str)
}

fn set_name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

fn revision(set: &ReplicaSet) -> i64 {
    let text = set
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(REVISION));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn counter(
    set: &ReplicaSet,
    of: impl Fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> Option<i32>,
) -> i32 {
    set.status.as_ref().and_then(of).unwrap_or(0)
}

fn strategy(spec: &DeploymentSpec) -> &str {
    spec.strategy
        .as_ref()
        .and_then(|strategy| strategy.type_.as_deref())
        .unwrap_or("RollingUpdate")
}

fn surge(spec: &DeploymentSpec) -> i32 {
    let rolling = spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = share(
        rolling.and_then(|rolling| rolling.max_surge.as_ref()),
        spec.replicas.unwrap_or(1),
        true,
    );
    // Both zero would never get anywhere; upstream resolves it the same way.
    if surge == 0 && raw_unavailable(spec) == 0 {
        1
    } else {
        surge
    }
}

fn unavailable(spec: &DeploymentSpec) -> i32 {
    if strategy(spec) == "Recreate" {
        spec.replicas.unwrap_or(1)
    } else {
        raw_unavailable(spec)
    }
}

fn raw_unavailable(spec: &DeploymentSpec) -> i32 {
    let rolling = spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.rolling_update.as_ref());
    share(
        rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
        spec.replicas.unwrap_or(1),
        false,
    )
}

/// A number, or a percentage of the replicas rounded up (surge) or down (unavailable). Default 25 %.
fn share(value: Option<&IntOrString>, replicas: i32, round_up: bool) -> i32 {
    let percent = match value {
        Some(IntOrString::Int(number)) => return *number,
        Some(IntOrString::String(text)) => text.trim_end_matches('%').parse().unwrap_or(25),
        None => 25,
    };
    let part = i64::from(replicas) * percent;
    let rounded = if round_up { (part + 99) / 100 } else { part / 100 };
    i32::try_from(rounded).unwrap_or(i32::MAX)
}
