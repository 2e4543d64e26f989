//! What all workload controllers share: owners, pod conditions, template hashes.

use crate::cluster::action::{Action, Kind};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

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

/// The Ready condition, if it is True.
fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Ten characters that change with the template, in the alphabet of generated names.
pub fn template_hash(template: &PodTemplateSpec) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = serde_json::to_string(template).expect("a pod template is plain data and always serialises");
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
