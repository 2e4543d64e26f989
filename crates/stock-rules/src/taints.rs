//! Which taints and labels a node must have.

use evenkeel_api::names::taints::{NOT_READY, UNREACHABLE};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

use super::tolerations::{NO_EXECUTE, NO_SCHEDULE};

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition, status, and the NoSchedule taint that goes with it.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
    ),
];
/// Labels and their former beta names, which must have the same values.
const MIRRORED_LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// The taints of a node.
pub fn of(node: &Node) -> &[Taint] {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

/// The NoExecute taints of a node.
pub fn no_execute(node: &Node) -> Vec<Taint> {
    of(node)
        .iter()
        .filter(|taint| taint.effect == NO_EXECUTE)
        .cloned()
        .collect()
}

/// Whether the NoExecute taint `key` is on the node.
pub fn evicts_by(node: &Node, key: &str) -> bool {
    of(node)
        .iter()
        .any(|taint| taint.effect == NO_EXECUTE && taint.key == key)
}

/// The node's taints with NoExecute `add` and without NoExecute `remove`; `None` if they are so already. A
/// taint that is there keeps its `timeAdded`.
pub fn swapped(node: &Node, add: &str, remove: &str, now: Timestamp) -> Option<Vec<Taint>> {
    if evicts_by(node, add) && !evicts_by(node, remove) {
        return None;
    }
    let mut taints: Vec<Taint> = of(node)
        .iter()
        .filter(|taint| taint.effect != NO_EXECUTE || taint.key != remove)
        .cloned()
        .collect();
    if !evicts_by(node, add) {
        taints.push(taint(add, NO_EXECUTE, now));
    }
    Some(taints)
}

/// The node's taints without both NoExecute taints of the node lifecycle; `None` if it has neither.
pub fn reachable(node: &Node) -> Option<Vec<Taint>> {
    let ours =
        |taint: &Taint| taint.effect == NO_EXECUTE && (taint.key == NOT_READY || taint.key == UNREACHABLE);
    of(node)
        .iter()
        .any(ours)
        .then(|| of(node).iter().filter(|taint| !ours(taint)).cloned().collect())
}

/// The node's taints with the NoSchedule taints that its conditions and `spec.unschedulable` ask for, and
/// without the others of those keys; `None` if they are so already. Taints of other keys and effects are left
/// alone.
pub fn by_condition(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let managed = |taint: &&Taint| taint.effect == NO_SCHEDULE && is_managed(&taint.key);
    let wanted = wanted_keys(node);
    let current: Vec<&str> = of(node)
        .iter()
        .filter(managed)
        .map(|taint| taint.key.as_str())
        .collect();
    let surplus = current.iter().any(|key| !wanted.contains(key));
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|key| !current.contains(key))
        .copied()
        .collect();
    if !surplus && missing.is_empty() {
        return None;
    }
    let mut taints: Vec<Taint> = of(node)
        .iter()
        .filter(|taint| !managed(taint) || wanted.contains(&taint.key.as_str()))
        .cloned()
        .collect();
    taints.extend(missing.into_iter().map(|key| taint(key, NO_SCHEDULE, now)));
    Some(taints)
}

/// The beta labels that differ from their GA labels, with the values they must have.
pub fn labels_to_set(node: &Node) -> BTreeMap<&'static str, String> {
    let labels = node.metadata.labels.as_ref();
    MIRRORED_LABELS
        .into_iter()
        .filter_map(|(primary, secondary)| {
            let value = labels?.get(primary)?;
            (labels?.get(secondary) != Some(value)).then(|| (secondary, value.clone()))
        })
        .collect()
}

fn wanted_keys(node: &Node) -> Vec<&'static str> {
    let conditions = || {
        node.status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
    };
    let mut keys: Vec<&str> = BY_CONDITION
        .into_iter()
        .filter(|(kind, status, _)| {
            conditions().any(|condition| condition.type_ == *kind && condition.status == *status)
        })
        .map(|(_, _, key)| key)
        .collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        keys.push(UNSCHEDULABLE);
    }
    keys
}

fn is_managed(key: &str) -> bool {
    key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, managed)| *managed == key)
}

fn taint(key: &str, effect: &str, now: Timestamp) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        time_added: Some(Time(now)),
        value: None,
    }
}
