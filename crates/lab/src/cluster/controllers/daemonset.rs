//! DaemonSets: one pod on every node that its template may run on.

use super::{
    owned::{
        Claims, as_json, claim, delete, identity, is_active, is_available, is_finished, is_ready, node_of,
        owner_reference, pod_from, status_patch,
    },
    revisions::{self, Revisions},
    scheduler::{selects_node, tolerates_all},
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus},
        core::v1::{Node, Pod, PodSpec},
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

const HASH_LABEL: &str = "controller-revision-hash";
const GENERATION: &str = "deprecated.daemonset.template.generation";
const DEFAULT_HISTORY: i32 = 10;

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
fn pod_template(set: &DaemonSet, spec: &DaemonSetSpec, hash: &str) -> serde_json::Result<(Value, PodSpec)> {
    let annotations = set.metadata.annotations.as_ref();
    let generation = annotations.and_then(|all| all.get(GENERATION));
    let mut labels = vec![(HASH_LABEL, hash)];
    labels.extend(generation.map(|generation| ("pod-template-generation", generation.as_str())));
    let mut template = pod_from(
        &spec.template,
        &labels,
        owner_reference("apps/v1", "DaemonSet", &set.metadata),
    );
    let name = set.metadata.name.as_deref().unwrap_or_default();
    template["metadata"]["generateName"] = json!(format!("{name}-"));
    let mut tolerations = template["spec"]["tolerations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let tolerated = |(key, effect): (&str, &str)| json!({"key": key, "operator": "Exists", "effect": effect});
    tolerations.extend(TOLERATED.map(tolerated));
    if template["spec"]["hostNetwork"] == true {
        tolerations.push(tolerated((
            "node.kubernetes.io/network-unavailable",
            "NoSchedule",
        )));
    }
    template["spec"]["tolerations"] = json!(tolerations);
    let pod_spec = serde_json::from_value(template["spec"].clone())?;
    Ok((template, pod_spec))
}

/// Has the scheduler put the pod on this node and no other.
fn pinned(template: &Value, node: &str) -> Value {
    let mut pod = template.clone();
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    pod
}

/// The node that a pod is on, or is meant for.
fn target(pod: &Pod) -> Option<&str> {
    let pinned = || {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()?;
        let term = required.node_selector_terms.first()?;
        let field = term.match_fields.as_ref()?.first()?;
        field.values.as_ref()?.first().map(String::as_str)
    };
    node_of(pod).or_else(pinned)
}

fn revisions_of<'a>(set: &DaemonSet, spec: &DaemonSetSpec, view: &'a Snapshot) -> Revisions<'a> {
    let generation = set.metadata.annotations.as_ref();
    let generation = generation.and_then(|all| all.get(GENERATION));
    let generation = generation.map(|generation| (GENERATION.to_owned(), generation.clone()));
    let owner = revisions::Owner {
        kind: "DaemonSet",
        metadata: &set.metadata,
        selector: &spec.selector,
        template: &spec.template,
        hash_label: HASH_LABEL,
        annotations: generation.into_iter().collect(),
    };
    revisions::of(&owner, view)
}

/// Deletes revisions that no pod is of, beyond the limit of the history.
fn unused(spec: &DaemonSetSpec, revisions: &Revisions<'_>, pods: &[&Arc<Pod>]) -> Vec<Action> {
    let hash = |metadata: &ObjectMeta| metadata.labels.as_ref()?.get(HASH_LABEL).cloned();
    let in_use = |name: &str| {
        let mut all = revisions.all.iter();
        let revision = all.find(|revision| revision.metadata.name.as_deref() == Some(name));
        let revision = revision.and_then(|revision| hash(&revision.metadata));
        pods.iter().any(|pod| hash(&pod.metadata) == revision)
    };
    let limit = spec.revision_history_limit.unwrap_or(DEFAULT_HISTORY);
    revisions.surplus(in_use, limit)
}

fn one(set: &DaemonSet, view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let (namespace, name, _) = identity(&set.metadata);
    let Some(spec) = &set.spec else { return Vec::new() };
    if set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let owner = ("apps/v1", "DaemonSet", &set.metadata);
    let Claims { owned, writes } = claim(Kind::Pod, owner, &spec.selector, &view.pods);
    let revisions = revisions_of(set, spec, view);
    if !writes.is_empty() || !revisions.writes.is_empty() {
        return writes.into_iter().chain(revisions.writes).collect();
    }
    let (template, pod_spec) = match pod_template(set, spec, &revisions.hash) {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(%error, daemon_set = name, %namespace, "pod template cannot be read");
            return Vec::new();
        }
    };

    let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in &owned {
        by_node
            .entry(target(pod).unwrap_or_default())
            .or_default()
            .push(pod);
    }
    let eligible: Vec<&Arc<Node>> = view
        .nodes
        .iter()
        .filter(|node| selects_node(&pod_spec, node) && tolerates_all(&pod_spec, node))
        .collect();
    let desired = i32::try_from(eligible.len()).unwrap_or(i32::MAX);
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        desired_number_scheduled: desired,
        ..DaemonSetStatus::default()
    };
    let mut actions = Vec::new();
    // Pods of an older template: those that serve nobody go at once, others as far as pods may be missing.
    let (mut useless, mut replaceable, mut missing) = (Vec::new(), Vec::new(), 0);
    let (mut available, mut updated) = (0, 0);
    for node in &eligible {
        let node_name = node.metadata.name.as_deref().unwrap_or_default();
        let pods = by_node.remove(node_name).unwrap_or_default();
        if let Some(failed) = pods
            .iter()
            .find(|pod| is_finished(pod) && pod.metadata.deletion_timestamp.is_none())
        {
            actions.push(delete(Kind::Pod, &failed.metadata, None));
        }
        let Some(pod) = pods.iter().find(|pod| is_active(pod)) else {
            missing += 1;
            if pods.is_empty() {
                actions.push(Action::Create {
                    kind: Kind::Pod,
                    namespace: namespace.to_owned(),
                    object: pinned(&template, node_name),
                });
            }
            continue;
        };
        let serves = is_available(pod, spec.min_ready_seconds.unwrap_or(0), now);
        let labels = pod.metadata.labels.as_ref();
        let is_new = labels.and_then(|labels| labels.get(HASH_LABEL)) == Some(&revisions.hash);
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(is_ready(pod));
        available += i32::from(serves);
        updated += i32::from(is_new);
        missing += i32::from(!serves);
        match (is_new, serves) {
            (true, _) => {}
            (false, true) => replaceable.push(*pod),
            (false, false) => useless.push(*pod),
        }
    }
    if let Some(most) = rolls(spec, desired) {
        let more = usize::try_from(most - missing).unwrap_or(0);
        let gone = useless.into_iter().chain(replaceable.into_iter().take(more));
        actions.extend(gone.map(|pod| delete(Kind::Pod, &pod.metadata, None)));
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

    let some = |number: i32| (number != 0).then_some(number);
    status.number_misscheduled = i32::try_from(misplaced.len()).unwrap_or(i32::MAX);
    status.number_available = some(available);
    status.number_unavailable = some(desired - available);
    status.updated_number_scheduled = some(updated);
    actions.extend(unused(spec, &revisions, &owned));
    actions.extend(status_patch(
        Kind::DaemonSet,
        &set.metadata,
        &as_json(&set.status),
        as_json(&status),
    ));
    actions
}

/// How many pods may be missing while the set rolls out; `None` if old pods stay until somebody deletes them.
fn rolls(spec: &DaemonSetSpec, desired: i32) -> Option<i32> {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return None;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    Some(
        match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
            None => 1,
            Some(IntOrString::Int(number)) => *number,
            Some(IntOrString::String(text)) => {
                let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
                let part = i64::from(desired).saturating_mul(percent).saturating_add(99) / 100;
                i32::try_from(part).unwrap_or(i32::MAX).max(1)
            }
        },
    )
}
