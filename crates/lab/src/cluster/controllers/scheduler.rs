//! The scheduler: every unbound pod goes to a node that takes it, spread by owner, then by load.

mod storage;

use super::{
    deployment::seconds,
    owned::{as_json, controller_uid, identity, is_active, is_finished, node_of},
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use evenkeel_kube_values::Quantity;
use evenkeel_stock_rules::tolerations::first_match;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, Node, NodeSelector, NodeSelectorRequirement, Pod, PodSpec, Taint,
};
use serde_json::json;
use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

/// Pods a node takes when it does not say.
const DEFAULT_POD_CAPACITY: i128 = 110;

/// Bindings for all pods that can be placed; a condition on those that cannot.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let mut load: BTreeMap<&str, Load<'_>> = BTreeMap::new();
    for pod in view.pods.iter().filter(|pod| !is_finished(pod)) {
        if let Some(node) = node_of(pod) {
            load.entry(node).or_default().add(pod);
        }
    }
    let mut waiting: Vec<&Pod> = view
        .pods
        .iter()
        .map(AsRef::as_ref)
        .filter(|pod| node_of(pod).is_none() && is_active(pod) && is_ours(pod))
        .collect();
    waiting.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));

    let empty = Load::default();
    let mut actions = Vec::new();
    for pod in waiting {
        let Some(spec) = &pod.spec else { continue };
        let (namespace, name, uid) = identity(&pod.metadata);
        let claims = match storage::needs(pod, view) {
            Ok(claims) => claims,
            Err(problem) => {
                let message = format!("0/{} nodes are available: {problem}. not found", view.nodes.len());
                actions.extend(waits(pod, &message, now));
                continue;
            }
        };
        let owner = controller_uid(&pod.metadata);
        let mut problems = Problems::default();
        let fitting: Vec<&Arc<Node>> = view
            .nodes
            .iter()
            .filter(|node| {
                let load = load.get(name_of(node)).unwrap_or(&empty);
                problems.add(obstacles(spec, node, load, &claims))
            })
            .collect();
        let best = fitting.into_iter().min_by_key(|node| {
            let pods = &load.get(name_of(node)).unwrap_or(&empty).owners;
            let siblings = pods
                .iter()
                .filter(|other| owner.is_some() && **other == owner)
                .count();
            (siblings, pods.len(), name_of(node))
        });
        let Some(node) = best else {
            let message = problems.text(view.nodes.len());
            actions.extend(waits(pod, &message, now));
            continue;
        };
        load.entry(name_of(node)).or_default().add(pod);
        // Volumes come first: the pod is bound when the binder has finished.
        let reserved = claims.reserve(node);
        if let Some(reserved) = reserved {
            actions.extend(reserved);
            continue;
        }
        actions.push(Action::Bind {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            node: name_of(node).to_owned(),
        });
    }
    actions
}

/// What is on a node.
#[derive(Default)]
struct Load<'a> {
    /// The controllers of its pods.
    owners: Vec<Option<&'a str>>,
    /// What they ask for together, in billionths.
    taken: BTreeMap<&'a str, i128>,
}

impl<'a> Load<'a> {
    fn add(&mut self, pod: &'a Pod) {
        self.owners.push(controller_uid(&pod.metadata));
        for (resource, wanted) in pod.spec.iter().flat_map(requests) {
            *self.taken.entry(resource).or_default() += wanted;
        }
    }
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

/// Why a node does not take a pod, in upstream's words; and whether it would not even if it were empty.
struct Obstacles {
    reasons: Vec<String>,
    lasting: bool,
}

impl Obstacles {
    fn lasting(reason: impl Into<String>) -> Self {
        Self {
            reasons: vec![reason.into()],
            lasting: true,
        }
    }
}

/// The first filter that the node does not pass for the pod.
fn obstacles(spec: &PodSpec, node: &Node, load: &Load<'_>, claims: &storage::Needs<'_>) -> Option<Obstacles> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let unschedulable = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if cordoned && first_match(tolerations, &unschedulable).is_none() {
        return Some(Obstacles::lasting("node(s) were unschedulable"));
    }
    if let Some(taint) = untolerated(spec, node) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(Obstacles::lasting(format!(
            "node(s) had untolerated taint {{{}: {value}}}",
            taint.key
        )));
    }
    if !selects_node(spec, node) {
        return Some(Obstacles::lasting(
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    lacking(spec, node, load).or_else(|| claims.obstacle(node).map(Obstacles::lasting))
}

/// The resources that the node has too little of for the pod.
fn lacking(spec: &PodSpec, node: &Node, load: &Load<'_>) -> Option<Obstacles> {
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    let has = |resource: &str| {
        let quantity = allocatable.and_then(|all| all.get(resource));
        quantity.and_then(|quantity| Quantity::parse(&quantity.0).ok())
    };
    let mut found = Obstacles {
        reasons: Vec::new(),
        lasting: false,
    };
    let most = has("pods").map_or(DEFAULT_POD_CAPACITY, Quantity::value);
    if i128::try_from(load.owners.len()).unwrap_or(i128::MAX) >= most {
        found.reasons.push("Too many pods".to_owned());
    }
    for (resource, wanted) in requests(spec) {
        // A node that does not say has enough of what every node has.
        let basic = matches!(resource, "cpu" | "memory" | "ephemeral-storage");
        let whole = match has(resource) {
            None if basic => continue,
            whole => whole.map_or(0, Quantity::nanos),
        };
        let taken = load.taken.get(resource).copied().unwrap_or(0);
        if wanted > 0 && wanted > whole - taken {
            found.reasons.push(format!("Insufficient {resource}"));
            found.lasting |= wanted > whole;
        }
    }
    (!found.reasons.is_empty()).then_some(found)
}

/// What a pod asks for, in billionths: its containers together, or an initial one that asks for more.
fn requests(spec: &PodSpec) -> BTreeMap<&str, i128> {
    let mut total: BTreeMap<&str, i128> = BTreeMap::new();
    let initial = spec.init_containers.iter().flatten();
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    for container in spec.containers.iter().chain(initial.clone().filter(is_sidecar)) {
        for (resource, wanted) in asked(container) {
            *total.entry(resource).or_default() += wanted;
        }
    }
    for container in initial.filter(|container| !is_sidecar(container)) {
        for (resource, wanted) in asked(container) {
            let most = total.entry(resource).or_default();
            *most = wanted.max(*most);
        }
    }
    total
}

fn asked(container: &Container) -> impl Iterator<Item = (&str, i128)> {
    let resources = container.resources.iter();
    let requests = resources.flat_map(|all| all.requests.iter().flatten());
    requests.filter_map(|(name, quantity)| {
        let quantity = Quantity::parse(&quantity.0).ok()?;
        Some((name.as_str(), quantity.nanos()))
    })
}

/// `nodeSelector` and required node affinity of the pod against the node's labels.
pub fn selects_node(spec: &PodSpec, node: &Node) -> bool {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let selector = spec.node_selector.as_ref().unwrap_or(&none);
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref());
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && required.is_none_or(|required| selects(required, node))
}

/// Whether one of the terms selects the node. A term without requirements selects none.
pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let fields = BTreeMap::from([("metadata.name".to_owned(), name_of(node).to_owned())]);
    selector.node_selector_terms.iter().any(|term| {
        let (by_label, by_field) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
        let (by_label, by_field) = (by_label.unwrap_or_default(), by_field.unwrap_or_default());
        !(by_label.is_empty() && by_field.is_empty())
            && by_label.iter().all(|requirement| meets(requirement, labels))
            && by_field.iter().all(|requirement| meets(requirement, &fields))
    })
}

fn meets(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = labels.get(&requirement.key);
    let compared = || {
        let number: i64 = value?.parse().ok()?;
        Some(number.cmp(&values.first()?.parse().ok()?))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared() == Some(Ordering::Greater),
        "Lt" => compared() == Some(Ordering::Less),
        _ => false,
    }
}

/// Whether the pod tolerates every taint of the node that keeps pods away.
pub fn tolerates_all(spec: &PodSpec, node: &Node) -> bool {
    untolerated(spec, node).is_none()
}

fn untolerated<'a>(spec: &PodSpec, node: &'a Node) -> Option<&'a Taint> {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .find(|taint| first_match(tolerations, taint).is_none())
}

/// How many nodes do not take a pod, and why.
#[derive(Default)]
struct Problems {
    reasons: BTreeMap<String, usize>,
    lasting: usize,
    others: usize,
}

impl Problems {
    /// Adds a node's. Whether it has none.
    fn add(&mut self, obstacles: Option<Obstacles>) -> bool {
        let Some(obstacles) = obstacles else { return true };
        for reason in obstacles.reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
        if obstacles.lasting {
            self.lasting += 1;
        } else {
            self.others += 1;
        }
        false
    }

    /// Upstream's words. No pod makes room for another one here, as where no pod has a lower priority.
    fn text(&self, nodes: usize) -> String {
        if nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut reasons: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        reasons.sort();
        let preemption = [
            (self.others, "No preemption victims found for incoming pod"),
            (self.lasting, "Preemption is not helpful for scheduling"),
        ];
        let mut preemption: Vec<String> = preemption
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, text)| format!("{count} {text}"))
            .collect();
        preemption.sort();
        format!(
            "0/{nodes} nodes are available: {}. no new claims to deallocate, preemption: 0/{nodes} nodes are \
             available: {}.",
            reasons.join(", "),
            preemption.join(", ")
        )
    }
}

/// Says once on the pod why it waits.
fn waits(pod: &Pod, message: &str, now: Timestamp) -> Option<Action> {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let before = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled");
    if before.is_some_and(|before| before.message.as_deref() == Some(message)) {
        return None;
    }
    let since = before
        .filter(|before| before.status == "False")
        .and_then(|before| before.last_transition_time.as_ref());
    let mut all: Vec<_> = conditions
        .iter()
        .filter(|condition| condition.type_ != "PodScheduled")
        .map(as_json)
        .collect();
    all.push(json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "observedGeneration": pod.metadata.generation,
        "lastProbeTime": null, "lastTransitionTime": seconds(since.map_or(now, |since| since.0)),
    }));
    let (namespace, name, _) = identity(&pod.metadata);
    Some(Action::Patch {
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
