//! The three-way merge by which a Node is written without touching what is not ours. Pure.
//!
//! What is ours is written down on the Node itself, in virtual-kubelet's two annotations: the keys of labels,
//! annotations, conditions, addresses and resources that were written last. A key that is there and is no
//! longer wanted is removed; keys that are not there are others' and stay. The annotations are read and
//! written in virtual-kubelet's form, so that a Node can be taken over from it and given back; values are
//! left empty, since nobody reads them, and so the annotations change only when keys do.
//!
//! A patch made here belongs to the Node that it was made for: it carries its UID and resourceVersion.

mod applied;

#[cfg(test)]
mod tests;

use applied::{Applied, own_annotations};
use evenkeel_api::names::vnode::{LAST_APPLIED_META, LAST_APPLIED_STATUS, is_virtual};
use evenkeel_kube_values as kube_values;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

type Strings = BTreeMap<String, String>;

/// The Node as it is created: what is wanted of it, taints included, and what is ours written down.
pub fn creation(wanted: &Node) -> Node {
    let mut node = wanted.clone();
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.extend(own_annotations(wanted));
    node
}

/// Whether a Node is another kubelet's: one reports on it, and nothing says that it is a virtual one. It is
/// not to be written, nor deleted. One on which nobody reports, made by hand perhaps, is anybody's.
pub fn is_foreign(node: &Node) -> bool {
    let meta = &node.metadata;
    let labels = meta.labels.as_ref();
    let is_virtual = labels.is_some_and(is_virtual);
    let annotations = meta.annotations.iter().flatten();
    let was_written = annotations
        .into_iter()
        .any(|(key, _)| matches!(key.as_str(), LAST_APPLIED_META | LAST_APPLIED_STATUS));
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let is_reported = info.is_some_and(|info| !info.kubelet_version.is_empty());
    is_reported && !was_written && !is_virtual
}

/// The strategic merge patch, for the `status` subresource, that makes of `current` what is wanted; `None`
/// when it is that already. Conditions keep the time of their last transition while their status stays, and
/// times of heartbeats alone are no difference. Taints and the rest of the specification are set at creation
/// and are others' afterwards.
pub fn patch(current: &Node, wanted: &Node) -> Option<Value> {
    let before = Applied::read(current);
    let mut annotations = wanted.metadata.annotations.clone().unwrap_or_default();
    annotations.extend(own_annotations(wanted));
    let mut metadata = Map::new();
    let empty = Strings::new();
    put(
        &mut metadata,
        "labels",
        strings(
            current.metadata.labels.as_ref().unwrap_or(&empty),
            wanted.metadata.labels.as_ref().unwrap_or(&empty),
            &before.labels,
        ),
    );
    put(
        &mut metadata,
        "annotations",
        strings(
            current.metadata.annotations.as_ref().unwrap_or(&empty),
            &annotations,
            &before.annotations,
        ),
    );
    let none = NodeStatus::default();
    let status = status(
        current.status.as_ref().unwrap_or(&none),
        wanted.status.as_ref().unwrap_or(&none),
        &before,
    );
    if metadata.is_empty() && status.is_empty() {
        return None;
    }
    metadata.insert("uid".to_owned(), json!(current.metadata.uid));
    metadata.insert(
        "resourceVersion".to_owned(),
        json!(current.metadata.resource_version),
    );
    let mut patch = json!({ "metadata": metadata });
    if !status.is_empty() {
        patch["status"] = Value::Object(status);
    }
    Some(patch)
}

/// A condition of the patch: as wanted, and since when. A member that is to go is `null`.
pub fn condition(wanted: &NodeCondition, current: Option<&NodeCondition>) -> Value {
    let since = match current {
        Some(current) if current.status == wanted.status && current.last_transition_time.is_some() => {
            &current.last_transition_time
        }
        // Somebody else wrote another status after the transition that we know of: this is a new one.
        Some(_) => &wanted.last_heartbeat_time,
        None => &wanted.last_transition_time,
    };
    json!({
        "type": wanted.type_,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastHeartbeatTime": wanted.last_heartbeat_time,
        "lastTransitionTime": since,
    })
}

fn status(current: &NodeStatus, wanted: &NodeStatus, before: &Applied) -> Map<String, Value> {
    let mut status = Map::new();
    put(
        &mut status,
        "conditions",
        conditions(
            current.conditions.as_deref().unwrap_or_default(),
            wanted.conditions.as_deref().unwrap_or_default(),
            &before.conditions,
        ),
    );
    put(
        &mut status,
        "addresses",
        addresses(
            current.addresses.as_deref().unwrap_or_default(),
            wanted.addresses.as_deref().unwrap_or_default(),
            &before.addresses,
        ),
    );
    let empty = BTreeMap::new();
    for (name, current, wanted, before) in [
        ("capacity", &current.capacity, &wanted.capacity, &before.capacity),
        (
            "allocatable",
            &current.allocatable,
            &wanted.allocatable,
            &before.allocatable,
        ),
    ] {
        let (current, wanted) = (
            current.as_ref().unwrap_or(&empty),
            wanted.as_ref().unwrap_or(&empty),
        );
        put(&mut status, name, resources(current, wanted, before));
    }
    if wanted.node_info.is_some() && current.node_info != wanted.node_info {
        status.insert("nodeInfo".to_owned(), json!(wanted.node_info));
    }
    let port = |status: &NodeStatus| {
        let endpoints = status.daemon_endpoints.as_ref()?;
        Some(endpoints.kubelet_endpoint.as_ref()?.port)
    };
    if port(current) != port(wanted) && (port(wanted).is_some() || before.has_endpoint) {
        status.insert("daemonEndpoints".to_owned(), json!(wanted.daemon_endpoints));
    }
    status
}

fn put(map: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(name.to_owned(), value);
    }
}

fn strings(current: &Strings, wanted: &Strings, before: &BTreeSet<String>) -> Option<Value> {
    let mut changes = Map::new();
    for (key, value) in wanted {
        if current.get(key) != Some(value) {
            changes.insert(key.clone(), json!(value));
        }
    }
    for key in before {
        if !wanted.contains_key(key) && current.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

fn resources(
    current: &BTreeMap<String, Quantity>,
    wanted: &BTreeMap<String, Quantity>,
    before: &BTreeSet<String>,
) -> Option<Value> {
    let mut changes = Map::new();
    for (key, value) in wanted {
        let is_same = |current: &Quantity| is_same(&current.0, &value.0);
        if !current.get(key).is_some_and(is_same) {
            changes.insert(key.clone(), json!(value));
        }
    }
    for key in before {
        if !wanted.contains_key(key) && current.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// Whether two quantities are one amount: the API server rewrites `1024Mi` to `1Gi`. What cannot be read is
/// the same as its own text alone.
fn is_same(one: &str, other: &str) -> bool {
    let read = kube_values::Quantity::parse;
    one == other || matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}

fn conditions(
    current: &[NodeCondition],
    wanted: &[NodeCondition],
    before: &BTreeSet<String>,
) -> Option<Value> {
    let find = |kind: &str| current.iter().find(|one| one.type_ == kind);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let is_same = |wanted: &NodeCondition| {
        find(&wanted.type_).is_some_and(|current| {
            current.status == wanted.status
                && text(&current.reason) == text(&wanted.reason)
                && text(&current.message) == text(&wanted.message)
        })
    };
    let gone: Vec<Value> = before
        .iter()
        .filter(|kind| wanted.iter().all(|one| one.type_ != **kind) && find(kind).is_some())
        .map(|kind| json!({"$patch": "delete", "type": kind}))
        .collect();
    if gone.is_empty() && wanted.iter().all(is_same) {
        return None;
    }
    // All of ours, so that they beat together.
    let mut items: Vec<Value> = wanted
        .iter()
        .map(|wanted| condition(wanted, find(&wanted.type_)))
        .collect();
    items.extend(gone);
    Some(Value::Array(items))
}

/// Addresses are replaced as a whole: two of one type, as on a node of two families, cannot be merged by
/// their type. The resourceVersion of the patch keeps others' from being lost.
fn addresses(current: &[NodeAddress], wanted: &[NodeAddress], before: &BTreeSet<String>) -> Option<Value> {
    let is_ours = |one: &NodeAddress| {
        before.contains(&one.type_) || wanted.iter().any(|wanted| wanted.type_ == one.type_)
    };
    let mut result: Vec<&NodeAddress> = wanted.iter().collect();
    result.extend(current.iter().filter(|one| !is_ours(one)));
    let has = |one: &&NodeAddress| current.contains(one);
    if result.len() == current.len() && result.iter().all(has) {
        return None;
    }
    let mut items = vec![json!({"$patch": "replace"})];
    items.extend(result.into_iter().map(|one| json!(one)));
    Some(Value::Array(items))
}
