//! ReplicaSets: as many active pods as asked for.

use super::owned::{
    Claims, as_json, claim, controller_uid, delete, identity, is_active, is_available, is_controlled_by,
    is_finished, is_ready, node_of, owner_reference, phase, pod_from, ready_since, status_patch,
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::json;
use std::{cmp::Reverse, sync::Arc};

const FAILURE: &str = "ReplicaFailure";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

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
    let owner = ("apps/v1", "ReplicaSet", &set.metadata);
    let candidates = view.pods.iter().filter(|pod| is_active(pod));
    let Claims {
        owned: active,
        writes,
    } = claim(Kind::Pod, owner, &spec.selector, candidates);
    if !writes.is_empty() {
        return writes;
    }

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
        if active.len() > wanted {
            let related = related(set, view);
            let mut surplus = active.clone();
            surplus.sort_by_key(|pod| keep_rank(pod, &related, now));
            for pod in surplus.into_iter().take(active.len() - wanted) {
                actions.push(delete(Kind::Pod, &pod.metadata, None));
            }
        }
    }

    let leaving = view.pods.iter().filter(|pod| {
        is_controlled_by(&pod.metadata, uid) && pod.metadata.deletion_timestamp.is_some() && !is_finished(pod)
    });
    let status = status(set, &active, leaving.count(), view, now);
    actions.extend(status_patch(
        Kind::ReplicaSet,
        &set.metadata,
        &as_json(&set.status),
        as_json(&status),
    ));
    actions
}

fn status(
    set: &ReplicaSet,
    active: &[&Arc<Pod>],
    leaving: usize,
    view: &Snapshot,
    now: Timestamp,
) -> ReplicaSetStatus {
    let spec = set.spec.as_ref();
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let template = spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.as_ref());
    let is_labelled = |pod: &Pod| {
        template.into_iter().flatten().all(|(key, value)| {
            let labels = pod.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(key)) == Some(value)
        })
    };
    let count = |test: &dyn Fn(&Pod) -> bool| number(active.iter().filter(|pod| test(pod)).count());
    let some = |number: i32| (number != 0).then_some(number);
    ReplicaSetStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: some(count(&is_labelled)),
        ready_replicas: some(count(&is_ready)),
        available_replicas: some(count(&|pod| is_available(pod, min_ready, now))),
        terminating_replicas: Some(number(leaving)),
        observed_generation: set.metadata.generation,
        conditions: failure(set, active.len(), view, now).map(|condition| vec![condition]),
    }
}

/// What the set says while its pods cannot be made. The first message stays until one can be.
fn failure(set: &ReplicaSet, active: usize, view: &Snapshot, now: Timestamp) -> Option<ReplicaSetCondition> {
    let (_, _, uid) = identity(&set.metadata);
    let message = view.refused.get(uid)?;
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    if number(active) >= wanted {
        return None;
    }
    let known = set
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let known = known.into_iter().find(|condition| condition.type_ == FAILURE);
    Some(known.cloned().unwrap_or_else(|| ReplicaSetCondition {
        type_: FAILURE.to_owned(),
        status: "True".to_owned(),
        reason: Some("FailedCreate".to_owned()),
        message: Some(message.clone()),
        last_transition_time: Some(Time(now)),
    }))
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The active pods of all sets with the same controller, or of this one where it has none.
fn related<'a>(set: &ReplicaSet, view: &'a Snapshot) -> Vec<&'a Arc<Pod>> {
    let controller = controller_uid(&set.metadata);
    let siblings: Vec<&str> = view
        .replica_sets
        .iter()
        .filter(|other| match controller {
            Some(uid) => is_controlled_by(&other.metadata, uid),
            None => other.metadata.uid == set.metadata.uid,
        })
        .filter_map(|other| other.metadata.uid.as_deref())
        .collect();
    let pods = view.pods.iter().filter(|pod| is_active(pod));
    pods.filter(|pod| controller_uid(&pod.metadata).is_some_and(|uid| siblings.contains(&uid)))
        .collect()
}

/// Lowest goes first when there are too many, by upstream's order: unbound, not yet running, not ready, cheap
/// to delete, on a node with many ready siblings, young.
fn keep_rank(pod: &Pod, related: &[&Arc<Pod>], now: Timestamp) -> impl Ord + use<> {
    let node = node_of(pod);
    let crowd = related
        .iter()
        .filter(|other| node.is_some() && node_of(other) == node && is_ready(other))
        .count();
    let phase = match phase(pod) {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let cost = pod.metadata.annotations.as_ref();
    let cost: i32 = cost
        .and_then(|all| all.get(DELETION_COST)?.parse().ok())
        .unwrap_or(0);
    let restarts = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let restarts = restarts.map(|status| status.restart_count).max().unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // Ages count by their magnitude alone, so that it is not always the youngest that goes.
    let age = |since: Option<Timestamp>| {
        since.map_or(0, |since| {
            let seconds = now.duration_since(since).as_secs().max(0);
            1 + seconds.checked_ilog2().unwrap_or(0)
        })
    };
    (
        node.is_some(),
        phase,
        is_ready(pod),
        cost,
        Reverse(crowd),
        age(ready_since(pod)),
        Reverse(restarts),
        age(created),
        pod.metadata.uid.clone(),
    )
}
