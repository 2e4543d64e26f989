//! What Kubernetes refuses, with its texts.

mod affinity;
mod checks;
mod container;
mod control;
mod coordination;
mod environment;
pub(crate) mod errors;
mod meta;
mod network;
mod other;
mod pod;
mod pod_security;
mod pod_status;
mod pod_update;
mod policy;
mod probe;
mod replication;
pub(crate) mod resources;
mod selector;
mod service;
mod signing;
mod storage;
#[cfg(test)]
mod tests;
mod volume;
mod warnings;
mod workload;

use crate::crd;
use crate::gvk::Gvk;
use crate::status::FieldError;
use errors::Errors;
use serde_json::Value;

/// Validates a new object of a built-in kind, after `strategy::prepare_create`.
pub fn create(gvk: &Gvk, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::create(gvk, object, &mut errors);
    content(gvk, object, None, &mut errors);
    if is_pod(gvk) {
        pod::create(object, &mut errors);
    }
    if gvk.kind == "CustomResourceDefinition" {
        errors.list.extend(crd::validate_definition(object));
    }
    if is_signing_request(gvk) {
        signing::request(object, None, &mut errors);
    }
    if gvk.group.is_empty() && gvk.kind == "Namespace" {
        other::namespace(object, &mut errors);
    }
    errors.list
}

/// What the API group that a create came through asks beyond [`create`], which sees the stored form.
pub fn create_through(served: &Gvk, stored: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if served.group == "events.k8s.io" && served.kind == "Event" {
        other::new_event(stored, &mut errors);
    }
    errors.list
}

/// Validates an update of the main resource, after `strategy::prepare_update`.
pub fn update(gvk: &Gvk, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // Upstream checks the metadata of every update twice, for all kinds and for this kind, and reports it
    // twice.
    meta::update(old, new, &mut errors);
    meta::update(old, new, &mut errors);
    if is_pod(gvk) {
        meta::create(gvk, new, &mut errors);
    }
    content(gvk, new, Some(old), &mut errors);
    let errors_of = &mut errors;
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod_update::update(old, new, errors_of),
        ("apps", "ControllerRevision") => errors_of.immutable("data", &old["data"], &new["data"]),
        ("apps", kind) => replication::update(kind, old, new, errors_of),
        ("batch", "Job") => workload::job_update(old, new, errors_of),
        ("", "Service") => service::update(old, new, errors_of),
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice_update(old, new, errors_of),
        ("", "ConfigMap") => other::immutable_data(old, new, errors_of),
        ("", "Secret") => {
            errors_of.immutable("type", &old["type"], &new["type"]);
            other::immutable_data(old, new, errors_of);
        }
        ("node.k8s.io", "RuntimeClass") => {
            errors_of.immutable("handler", &old["handler"], &new["handler"]);
        }
        ("networking.k8s.io", "IngressClass") => {
            let controller = |object: &Value| object["spec"]["controller"].clone();
            errors_of.immutable("spec.controller", &controller(old), &controller(new));
        }
        ("", "Node") => other::node_update(old, new, errors_of),
        ("", "PersistentVolumeClaim") => storage::claim_update(old, new, errors_of),
        ("", "PersistentVolume") => storage::volume_update(old, new, errors_of),
        ("storage.k8s.io", "StorageClass") => storage::storage_class_update(old, new, errors_of),
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment_update(old, new, errors_of),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            control::role_binding_update(old, new, errors_of);
        }
        ("scheduling.k8s.io", "PriorityClass") => other::priority_class_update(old, new, errors_of),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            signing::request(new, Some(old), errors_of);
            signing::update(signing::Way::Main, old, new, errors_of);
        }
        ("coordination.k8s.io", "LeaseCandidate") => {
            coordination::candidate_update(old, new, errors_of);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            errors.list.extend(crd::validate_definition_update(old, new));
        }
        _ => {}
    }
    errors.list
}

/// Validates an update of `/status`, after `strategy::prepare_status_update`.
pub fn status_update(gvk: &Gvk, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::update(old, new, &mut errors);
    meta::update(old, new, &mut errors);
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod_status::update(old, new, &mut errors),
        ("apps", kind) | ("", kind @ "ReplicationController") => {
            replication::status(kind, old, new, &mut errors);
        }
        _ => {}
    }
    if is_signing_request(gvk) {
        signing::request(new, Some(old), &mut errors);
        signing::update(signing::Way::Status, old, new, &mut errors);
    }
    errors.list
}

/// Validates an update of `/approval`.
pub fn approval_update(gvk: &Gvk, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::update(old, new, &mut errors);
    if is_signing_request(gvk) {
        signing::request(new, Some(old), &mut errors);
        signing::update(signing::Way::Approval, old, new, &mut errors);
    }
    errors.list
}

/// Validates an update of `/ephemeralcontainers` or `/resize` of a pod.
pub fn pod_update(gvk: &Gvk, part: PodPart, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::update(old, new, &mut errors);
    meta::update(old, new, &mut errors);
    meta::create(gvk, new, &mut errors);
    pod::pod(new, Some(old), &mut errors);
    match part {
        PodPart::EphemeralContainers => pod_update::ephemeral_containers(old, new, &mut errors),
        PodPart::Resize => pod_update::resize(old, new, &mut errors),
    }
    errors.list
}

/// What a subresource of pods may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPart {
    /// Containers for debugging.
    EphemeralContainers,
    /// Resources of containers.
    Resize,
}

/// What Kubernetes accepts and warns of in a new object, after `strategy::prepare_create`.
pub fn create_warnings(gvk: &Gvk, object: &Value) -> Vec<String> {
    warnings::create(gvk, object)
}

/// The same, of what `strategy::prepare_create` takes away.
pub fn early_warnings(gvk: &Gvk, object: &Value) -> Vec<String> {
    warnings::before_create(gvk, object)
}

/// What Kubernetes accepts and warns of in an update of the main resource.
pub fn update_warnings(gvk: &Gvk, old: &Value, new: &Value) -> Vec<String> {
    warnings::update(gvk, old, new)
}

/// The same of an update of `/status`.
pub fn status_warnings(gvk: &Gvk, new: &Value) -> Vec<String> {
    warnings::status(gvk, new)
}

fn is_pod(gvk: &Gvk) -> bool {
    gvk.group.is_empty() && gvk.kind == "Pod"
}

fn is_signing_request(gvk: &Gvk) -> bool {
    gvk.group == "certificates.k8s.io" && gvk.kind == "CertificateSigningRequest"
}

/// What is checked of every version of an object.
fn content(gvk: &Gvk, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::pod(object, old, errors),
        ("", "PodTemplate") => {
            let old = old.map(|old| &old["template"]);
            pod::template_after(&object["template"], old, "template", errors);
        }
        ("apps", kind @ ("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet"))
        | ("", kind @ "ReplicationController") => replication::content(kind, object, old, errors),
        ("batch", "Job") => workload::job(&object["spec"], "spec", errors),
        ("batch", "CronJob") => workload::cron_job(object, errors),
        ("", "Service") => service::create(object, errors),
        ("", "Endpoints") => service::endpoints(object, errors),
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice(object, errors),
        ("", "ConfigMap") => other::config_map(object, errors),
        ("", "Secret") => other::secret(object, errors),
        ("", "Node") => other::node(object, errors),
        ("", "Event") => other::event(object, errors),
        ("coordination.k8s.io", "Lease") => coordination::lease(object, errors),
        ("coordination.k8s.io", "LeaseCandidate") => coordination::candidate(object, errors),
        ("policy", "PodDisruptionBudget") => other::budget(object, errors),
        ("", "PersistentVolumeClaim") => storage::claim(object, errors),
        ("", "PersistentVolume") => storage::volume(object, errors),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(object, errors),
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment(object, errors),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => control::role(object, errors),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            control::role_binding(object, errors);
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            control::webhooks(object, errors);
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policy::policy(object, errors),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            policy::binding(object, errors);
        }
        ("scheduling.k8s.io", "PriorityClass") => other::priority_class(object, errors),
        ("", "ResourceQuota") => other::quota(object, errors),
        ("node.k8s.io", "RuntimeClass") => other::runtime_class(object, errors),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(object, errors),
        ("networking.k8s.io", "Ingress") => network::ingress(object, errors),
        ("networking.k8s.io", "NetworkPolicy") => network::policy(object, errors),
        _ => {}
    }
}
