//! PodDisruptionBudgets: how many pods may be evicted now.

use super::deployment::seconds;
use super::owned::{as_json, controller_uid, difference, identity, is_ready};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Seconds after which an eviction that removed no pod counts no more; upstream's number.
const EVICTION_LASTS: i64 = 120;

/// What to do for all budgets.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    view.budgets
        .iter()
        .filter_map(|budget| one(budget, view, now))
        .collect()
}

fn one(budget: &PodDisruptionBudget, view: &Snapshot, now: Timestamp) -> Option<Action> {
    let (namespace, name, _) = identity(&budget.metadata);
    let pods = covered(budget, view);
    let old = budget.status.clone().unwrap_or_default();
    let evicted: BTreeMap<String, Value> = old
        .disrupted_pods
        .iter()
        .flatten()
        .filter(|(name, since)| {
            let recent = now.duration_since(since.0).as_secs() <= EVICTION_LASTS;
            let is_it = |pod: &&Arc<Pod>| {
                pod.metadata.name.as_ref() == Some(name) && pod.metadata.deletion_timestamp.is_none()
            };
            recent && pods.iter().any(is_it)
        })
        .map(|(name, since)| (name.clone(), json!(seconds(since.0))))
        .collect();
    let is_healthy = |pod: &&Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none() && is_ready(pod) && !evicted.contains_key(name)
    };
    let counted = wanted(budget, &pods, view);
    // Where the pods cannot be counted nothing may go, and the former counts stay.
    let (expected, desired, healthy) = match &counted {
        Ok((expected, desired)) => {
            let healthy = count(pods.iter().filter(|pod| is_healthy(pod)).count());
            (*expected, *desired, healthy)
        }
        Err(_) => (old.expected_pods, old.desired_healthy, old.current_healthy),
    };
    let allowed = if counted.is_ok() && expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    let generation = match &counted {
        Ok(_) => budget.metadata.generation,
        Err(_) => old.observed_generation,
    };
    let (value, reason, message) = match counted {
        Err(message) => ("False", "SyncFailed", message),
        Ok(_) if allowed > 0 => ("True", "SufficientPods", String::new()),
        Ok(_) => ("False", "InsufficientPods", String::new()),
    };
    let before = old
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "DisruptionAllowed");
    let since = before
        .filter(|condition| condition.status == value)
        .map_or(now, |condition| condition.last_transition_time.0);
    let mut status = json!({
        "observedGeneration": generation,
        "expectedPods": expected,
        "desiredHealthy": desired,
        "currentHealthy": healthy,
        "disruptionsAllowed": allowed,
        "conditions": [{
            "type": "DisruptionAllowed", "status": value, "reason": reason, "message": message,
            "observedGeneration": generation, "lastTransitionTime": seconds(since),
        }],
    });
    if !evicted.is_empty() || old.disrupted_pods.is_some() {
        status["disruptedPods"] = if evicted.is_empty() {
            Value::Null
        } else {
            json!(evicted)
        };
    }
    let patch = difference(&as_json(&budget.status), status)?;
    Some(Action::Patch {
        kind: Kind::PodDisruptionBudget,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: true,
        patch: json!({ "status": patch }),
    })
}

/// The pods that a budget covers. One without a selector covers none.
fn covered<'a>(budget: &PodDisruptionBudget, view: &'a Snapshot) -> Vec<&'a Arc<Pod>> {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    let Some(Ok(selector)) = selector.map(Selector::try_from) else {
        return Vec::new();
    };
    let of_namespace = view
        .pods
        .iter()
        .filter(|pod| pod.metadata.namespace == budget.metadata.namespace);
    let empty = BTreeMap::new();
    of_namespace
        .filter(|pod| selector.matches(pod.metadata.labels.as_ref().unwrap_or(&empty)))
        .collect()
}

/// Pods that there should be, and how many of them must stay healthy.
fn wanted(budget: &PodDisruptionBudget, pods: &[&Arc<Pod>], view: &Snapshot) -> Result<(i32, i32), String> {
    let spec = budget.spec.as_ref();
    let least = spec.and_then(|spec| spec.min_available.as_ref());
    let most_gone = spec.and_then(|spec| spec.max_unavailable.as_ref());
    match (most_gone, least) {
        (Some(gone), _) => {
            let expected = scale(pods, view)?;
            Ok((expected, (expected - share(gone, expected)).max(0)))
        }
        (None, Some(IntOrString::Int(least))) => Ok((count(pods.len()), *least)),
        (None, Some(least)) => {
            let expected = scale(pods, view)?;
            Ok((expected, share(least, expected)))
        }
        (None, None) => Ok((count(pods.len()), 0)),
    }
}

/// Replicas that the controllers of pods are asked for.
fn scale(pods: &[&Arc<Pod>], view: &Snapshot) -> Result<i32, String> {
    let mut scales: BTreeMap<&str, i32> = BTreeMap::new();
    for pod in pods {
        // Pods that nobody controls add nothing.
        let Some(uid) = controller_uid(&pod.metadata) else {
            continue;
        };
        let Some((controller, replicas)) = scale_of(uid, view) else {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            return Err(format!("found no controllers for pod \"{name}\""));
        };
        scales.insert(controller, replicas);
    }
    Ok(scales.into_values().sum())
}

/// The controller of this UID, or the Deployment that controls it, with its replicas.
fn scale_of<'a>(uid: &'a str, view: &'a Snapshot) -> Option<(&'a str, i32)> {
    let is_it = |metadata: &ObjectMeta| metadata.uid.as_deref() == Some(uid);
    let stateful = view.stateful_sets.iter().find(|set| is_it(&set.metadata));
    if let Some(set) = stateful {
        return Some((uid, set.spec.as_ref()?.replicas.unwrap_or(1)));
    }
    let set = view.replica_sets.iter().find(|set| is_it(&set.metadata))?;
    let above = set.metadata.owner_references.iter().flatten();
    let above = above.into_iter().find(|owner| owner.controller == Some(true));
    let Some(above) = above.filter(|owner| owner.kind == "Deployment") else {
        return Some((uid, set.spec.as_ref()?.replicas.unwrap_or(1)));
    };
    let deployment = view
        .deployments
        .iter()
        .find(|one| one.metadata.uid.as_deref() == Some(above.uid.as_str()))?;
    Some((
        above.uid.as_str(),
        deployment.spec.as_ref()?.replicas.unwrap_or(1),
    ))
}

/// A number, or a percentage of the pods rounded up.
fn share(value: &IntOrString, expected: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(100);
            i32::try_from((i64::from(expected) * percent + 99) / 100).unwrap_or(i32::MAX)
        }
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "disruption_tests.rs"]
mod tests;
