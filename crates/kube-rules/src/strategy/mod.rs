//! What a create, an update, a status update may change.
//!
//! `metadata` that the server owns (uid, resourceVersion, creationTimestamp, deletion, managedFields, name
//! generation) is the caller's, and is filled in before these functions run; `metadata.generation` is set
//! here.

mod create;
mod pod;
mod qos;
mod service;
#[cfg(test)]
mod tests;

use crate::gvk::Gvk;
use crate::schema;
use crate::strict::zero;
use serde_json::{Value, json};

pub(crate) use create::TEMPLATE_GENERATION;
pub(crate) use pod::{APPARMOR_OF, apparmor_profile};
pub(crate) use qos::qos_class;
pub use service::{needs_health_port, needs_node_ports};

/// What makes a kind's generation grow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// The kind has none.
    None,
    /// A change of `spec`.
    Spec,
    /// A change of `spec` or of annotations.
    SpecOrAnnotations,
    /// A change of `spec`; a new object has none.
    SpecLater,
    /// A change of `template`.
    Template,
    /// A change of `webhooks`.
    Webhooks,
    /// A change of anything but metadata, or of labels.
    Content,
    /// It stays 1.
    Constant,
}

fn generation(gvk: &Gvk) -> Generation {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment") => Generation::SpecOrAnnotations,
        ("", "Pod" | "ReplicationController")
        | ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job" | "CronJob")
        | ("policy", "PodDisruptionBudget")
        | ("networking.k8s.io", "Ingress" | "NetworkPolicy" | "IngressClass")
        | (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding"
            | "MutatingAdmissionPolicy"
            | "MutatingAdmissionPolicyBinding",
        )
        | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => Generation::Spec,
        ("storage.k8s.io", "CSIDriver") => Generation::SpecLater,
        ("", "PodTemplate") => Generation::Template,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => Generation::Webhooks,
        ("discovery.k8s.io", "EndpointSlice") => Generation::Content,
        ("scheduling.k8s.io", "PriorityClass") => Generation::Constant,
        _ => Generation::None,
    }
}

/// The items of a member that is a list.
pub(crate) fn items<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object
        .get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Removes a member; whether it was there.
fn remove(object: &mut Value, name: &str) -> bool {
    object
        .as_object_mut()
        .is_some_and(|members| members.remove(name).is_some())
}

/// Before a create is validated: drops status where the kind has the subresource, sets initial status and
/// generation. Includes what upstream's admission plugins do that need nothing but the object: protection
/// finalizers of volumes, the `not-ready` taint of new nodes, the finalizer of namespaces.
pub fn prepare_create(gvk: &Gvk, object: &mut Value) {
    if has_status(gvk) && !keeps_status_on_create(gvk) {
        reset_status(gvk, object);
    }
    create::prepare(gvk, object);
    pod::drop_disabled(gvk, object);
    if gvk.group.is_empty() && gvk.kind == "Pod" {
        pod::prepare(object);
    }
    // Other kinds keep what the client wrote, as upstream does.
    if !matches!(generation(gvk), Generation::None | Generation::SpecLater) {
        object["metadata"]["generation"] = json!(1);
    }
}

/// Before an update of the main resource is validated: keeps the old status, bumps the generation.
pub fn prepare_update(gvk: &Gvk, old: &Value, new: &mut Value) {
    if has_status(gvk) {
        restore(old, new, "status");
    }
    pod::drop_disabled(gvk, new);
    create::prepare_update(gvk, old, new);
    let changed = match generation(gvk) {
        Generation::None | Generation::Constant => false,
        Generation::Spec | Generation::SpecLater => old["spec"] != new["spec"],
        Generation::SpecOrAnnotations => {
            old["spec"] != new["spec"] || old["metadata"]["annotations"] != new["metadata"]["annotations"]
        }
        Generation::Template => old["template"] != new["template"],
        Generation::Webhooks => old["webhooks"] != new["webhooks"],
        Generation::Content => {
            old["metadata"]["labels"] != new["metadata"]["labels"] || content(old) != content(new)
        }
    };
    set_generation(old, new, changed);
}

/// Before an update of `/status` is validated: keeps everything else as it was. Labels and annotations are
/// kept, too, for those kinds for which upstream does.
pub fn prepare_status_update(gvk: &Gvk, old: &Value, new: &mut Value) {
    let members: Vec<String> = [old, new as &Value]
        .iter()
        .filter_map(|object| object.as_object())
        .flat_map(|members| members.keys())
        .filter(|name| !matches!(name.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
        .cloned()
        .collect();
    for name in members {
        restore(old, new, &name);
    }
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment") => restore(&old["metadata"], &mut new["metadata"], "labels"),
        ("apps", "DaemonSet") => create::keep_template_generation(old, new),
        ("", "Pod") => restore(&old["metadata"], &mut new["metadata"], "ownerReferences"),
        ("", "Node") => create::drop_node_configuration(new),
        (
            "apiextensions.k8s.io"
            | "storage.k8s.io"
            | "certificates.k8s.io"
            | "resource.k8s.io"
            | "admissionregistration.k8s.io",
            _,
        ) => {
            reset_metadata(&old["metadata"], &mut new["metadata"]);
        }
        _ => {}
    }
    if gvk.kind == "Pod" && gvk.group.is_empty() {
        pod::prepare_status(old, new);
    }
    set_generation(old, new, false);
}

/// What a status update of custom resources (and some kinds) keeps of the metadata.
pub(super) fn reset_metadata(old: &Value, new: &mut Value) {
    for name in [
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "deletionTimestamp",
    ] {
        restore(old, new, name);
    }
}

/// Whether the kind has a `/status` subresource.
pub(crate) fn has_status(gvk: &Gvk) -> bool {
    let excluded = matches!(
        gvk.group.as_str(),
        "authentication.k8s.io" | "authorization.k8s.io" | "meta.k8s.io"
    ) || matches!(gvk.kind.as_str(), "Scale" | "Status" | "ComponentStatus");
    !excluded
        && !gvk.kind.ends_with("List")
        && schema::kind(gvk).is_some_and(|definition| definition.field("status").is_some())
}

/// Nodes register with their status; the API of namespaces sets it whole below.
fn keeps_status_on_create(gvk: &Gvk) -> bool {
    gvk.group.is_empty() && gvk.kind == "Node"
}

fn reset_status(gvk: &Gvk, object: &mut Value) {
    let field = schema::kind(gvk).and_then(|definition| definition.field("status"));
    let Some(members) = object.as_object_mut() else {
        return;
    };
    match field.and_then(|field| Some((field, field.ty.definition()?))) {
        Some((field, definition)) if !field.pointer => {
            members.insert("status".to_owned(), zero(definition));
        }
        _ => {
            members.remove("status");
        }
    }
}

/// Sets a member as it was in `old`, absent if it was absent.
pub(super) fn restore(old: &Value, new: &mut Value, name: &str) {
    match old.get(name) {
        Some(value) => new[name] = value.clone(),
        None => {
            if let Some(members) = new.as_object_mut() {
                members.remove(name);
            }
        }
    }
}

/// The generation is the old one, plus one after a change.
pub(super) fn set_generation(old: &Value, new: &mut Value, changed: bool) {
    match old["metadata"]["generation"].as_i64() {
        Some(generation) => new["metadata"]["generation"] = json!(generation + i64::from(changed)),
        None if changed => new["metadata"]["generation"] = json!(1),
        None => drop_generation(new),
    }
}

fn drop_generation(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
}

fn content(object: &Value) -> Vec<(&String, &Value)> {
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "metadata")
        .collect()
}
