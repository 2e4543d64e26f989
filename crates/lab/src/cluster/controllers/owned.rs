//! What all workload controllers share: owners, pod conditions, template hashes.

use crate::cluster::action::{Action, Kind};
use jiff::Timestamp;
use k8s_openapi::{
    Metadata,
    api::core::v1::{Pod, PodCondition, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time},
};
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, sync::Arc};

/// What a controller owns, and what it has to write before it does.
pub struct Claims<'a, K> {
    pub owned: Vec<&'a Arc<K>>,
    /// Adoptions of objects that match and have no controller, and releases of those that match no more.
    pub writes: Vec<Action>,
}

/// Claims those of `objects` that belong to `owner` (apiVersion, kind, metadata) by upstream's rules.
pub fn claim<'a, K>(
    kind: Kind,
    owner: (&str, &str, &ObjectMeta),
    selector: &LabelSelector,
    objects: impl IntoIterator<Item = &'a Arc<K>>,
) -> Claims<'a, K>
where
    K: Metadata<Ty = ObjectMeta>,
{
    let (api_version, owner_kind, owner) = owner;
    let (mut owned, mut writes) = (Vec::new(), Vec::new());
    let (_, _, uid) = identity(owner);
    let (leaving, none) = (owner.deletion_timestamp.is_some(), BTreeMap::new());
    // The API server lets no other selector in.
    let Ok(selector) = Selector::try_from(selector.clone()) else {
        return Claims { owned, writes };
    };
    for object in objects {
        let metadata = object.metadata();
        if metadata.namespace != owner.namespace {
            continue;
        }
        let matches = || selector.matches(metadata.labels.as_ref().unwrap_or(&none));
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        match controller_uid(metadata) {
            Some(controller) if controller != uid => {}
            Some(_) if matches() => owned.push(object),
            Some(_) if leaving => {}
            Some(_) => {
                let kept: Vec<_> = owners.iter().filter(|owner| owner.uid != uid).collect();
                let change = json!({"metadata": {"uid": metadata.uid, "ownerReferences": kept}});
                writes.push(patch(kind, metadata, change));
            }
            None if !leaving && metadata.deletion_timestamp.is_none() && matches() => {
                let mut all: Vec<Value> = owners.iter().map(as_json).collect();
                if let Value::Array(one) = owner_reference(api_version, owner_kind, owner) {
                    all.extend(one);
                }
                let change = json!({"metadata": {"uid": metadata.uid, "ownerReferences": all}});
                writes.push(patch(kind, metadata, change));
            }
            None => {}
        }
    }
    Claims { owned, writes }
}

/// Whether the object's controller is the one with this UID.
pub fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    controller_uid(metadata) == Some(uid)
}

/// UID of the object's controller.
pub fn controller_uid(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.as_str())
}

/// The owner reference by which `owner` controls what it creates.
pub fn owner_reference(api_version: &str, kind: &str, owner: &ObjectMeta) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": owner.name, "uid": owner.uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Neither finished nor on its way out: counts towards replicas.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Succeeded or Failed.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Phase of the pod, empty if unknown.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Node of the pod, if it is bound.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .filter(|name| !name.is_empty())
}

/// Whether the Ready condition is True.
pub fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Ready for at least `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    ready_condition(pod).is_some_and(|ready| {
        let long_enough =
            |since: &Time| now.duration_since(since.0).as_secs() >= i64::from(min_ready_seconds);
        min_ready_seconds <= 0 || ready.last_transition_time.as_ref().is_some_and(long_enough)
    })
}

/// Since when the pod is ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let since = ready_condition(pod)?.last_transition_time.as_ref()?;
    Some(since.0)
}

/// The Ready condition, if it is True.
fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Ten characters that change with the template and the number of collisions, in the alphabet of generated
/// names.
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut text =
        serde_json::to_string(template).expect("a pod template is plain data and always serialises");
    text.extend(collisions.map(|number| number.to_string()));
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(10)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

/// A pod made from a template, with more labels and an owner.
pub fn pod_from(template: &PodTemplateSpec, labels: &[(&str, &str)], owner: Value) -> Value {
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut all = metadata.labels.unwrap_or_default();
    all.extend(
        labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    json!({
        "metadata": {
            "labels": all,
            "annotations": metadata.annotations.unwrap_or_default(),
            "ownerReferences": owner,
        },
        "spec": template.spec,
    })
}

/// Name, namespace and UID of an object that the API server has stored.
pub fn identity(metadata: &ObjectMeta) -> (&str, &str, &str) {
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
        metadata.uid.as_deref().unwrap_or_default(),
    )
}

/// The members of `wanted` whose values differ in `current`; `None` if there are none.
pub fn difference(current: &Value, wanted: Value) -> Option<Value> {
    let Value::Object(wanted) = wanted else {
        return None;
    };
    let changed: serde_json::Map<String, Value> = wanted
        .into_iter()
        .filter(|(key, value)| match current.get(key) {
            None => !value.is_null(),
            Some(now) => now != value,
        })
        .collect();
    (!changed.is_empty()).then_some(Value::Object(changed))
}

/// The change that makes of `current` what `wanted` is; `None` if it is that. An empty list is none at all.
pub fn replacement(current: &Value, wanted: Value) -> Option<Value> {
    let is_there = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    let Value::Object(mut wanted) = wanted else {
        return None;
    };
    wanted.retain(|_, value| is_there(value));
    let mut change = serde_json::Map::new();
    for (key, value) in current.as_object().into_iter().flatten() {
        if is_there(value) && !wanted.contains_key(key) {
            change.insert(key.clone(), Value::Null);
        }
    }
    change.extend(
        wanted
            .into_iter()
            .filter(|(key, value)| current.get(key) != Some(value)),
    );
    (!change.is_empty()).then_some(Value::Object(change))
}

/// The merge patch of an object that is there.
pub fn patch(kind: Kind, metadata: &ObjectMeta, patch: Value) -> Action {
    let (namespace, name, _) = identity(metadata);
    Action::Patch {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: false,
        patch,
    }
}

/// The change of an object's status that makes it `wanted`, if it is another one.
pub fn status_patch(kind: Kind, metadata: &ObjectMeta, current: &Value, wanted: Value) -> Option<Action> {
    let (namespace, name, _) = identity(metadata);
    Some(Action::Patch {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: true,
        patch: json!({"status": replacement(current, wanted)?}),
    })
}

/// An object as JSON.
pub fn as_json(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("Kubernetes objects are plain data and always serialise")
}

/// The deletion of exactly this object, by its UID; without `grace_seconds` with the object's own grace
/// period.
pub fn delete(kind: Kind, metadata: &ObjectMeta, grace_seconds: Option<u32>) -> Action {
    let (namespace, name, uid) = identity(metadata);
    Action::Delete {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        grace_seconds,
    }
}
