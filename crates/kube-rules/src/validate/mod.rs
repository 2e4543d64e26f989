//! What Kubernetes refuses, with its texts.

mod address;
mod affinity;
mod aggregation;
mod autoscaling;
mod batch;
mod checks;
mod container;
mod control;
mod coordination;
mod cron_job;
mod drivers;
mod endpoints;
mod environment;
pub(crate) mod errors;
mod job_status;
mod key_pair;
mod kind_warnings;
#[cfg(test)]
mod kinds_tests;
mod meta;
mod network;
mod other;
mod persistent;
mod pod;
mod pod_security;
mod pod_status;
mod pod_update;
mod policy;
mod probe;
mod quota;
mod replication;
pub(crate) mod resources;
mod reviews;
mod schedule;
mod selector;
mod service;
mod signing;
mod storage;
#[cfg(test)]
mod tests;
mod volume;
mod warnings;

use crate::crd;
use crate::gvk::Gvk;
use crate::status::FieldError;
use errors::Errors;
use serde_json::Value;

pub use reviews::access_review;

/// Validates what an object, changed from `old`, asks of the cluster: the addresses of a Service. It is given
/// them before it is looked at as a whole.
pub fn allocation(gvk: &Gvk, old: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if gvk.group.is_empty() && gvk.kind == "Service" {
        service::allocation(old, object, &mut errors);
    }
    errors.list
}

/// Validates a new object of a built-in kind, after `strategy::prepare_create`.
pub fn create(gvk: &Gvk, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // Upstream looks at the metadata of these last, and only where nothing else is wrong.
    let is_event = served_by_two(gvk);
    let late = is_event || gvk.kind == "PodDisruptionBudget";
    if !late {
        meta::create(gvk, object, &mut errors);
    }
    content(gvk, None, object, &mut errors);
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::create(object, &mut errors),
        ("batch", "CronJob") => cron_job::check_new(object, &mut errors),
        ("networking.k8s.io", "Ingress") => network::new_ingress(object, &mut errors),
        _ => {}
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
    if late && !is_event && errors.list.is_empty() {
        meta::any_create(gvk, object, &mut errors);
    }
    errors.list
}

/// Validates the metadata of a new custom resource.
pub(crate) fn metadata(gvk: &Gvk, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::any_create(gvk, object, &mut errors);
    errors.list
}

/// The same for an update.
pub(crate) fn metadata_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors {
        list: any_update(old, new),
    };
    meta::any_update(old, new, &mut errors);
    errors.list
}

/// Warnings of a new state of a custom resource that is valid.
pub fn custom_warnings(old: Option<&Value>, new: &Value) -> Vec<String> {
    meta::finalizer_warnings(old, new)
}

/// What every update begins with, whatever its kind is checked for: the metadata as such, and what of them
/// may not change.
fn any_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::complete(&new["metadata"], &mut errors);
    meta::any_update(old, new, &mut errors);
    errors.list
}

/// Whether two API groups serve the kind, by rules of their own.
fn served_by_two(gvk: &Gvk) -> bool {
    gvk.kind == "Event"
}

/// What the API group that a write came through asks beyond [`create`] and [`update`], which see the stored
/// form. `old` is what was there, if anything.
pub fn through(served: &Gvk, old: Option<&Value>, stored: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if !served_by_two(served) {
        return errors.list;
    }
    let strict = served.group == "events.k8s.io";
    let reporter = if strict {
        "reportingController"
    } else {
        "reportingComponent"
    };
    other::event(stored, reporter, &mut errors);
    match old {
        None => {
            if strict {
                meta::create(served, stored, &mut errors);
                other::new_event(stored, &mut errors);
            }
            if errors.list.is_empty() {
                meta::any_create(served, stored, &mut errors);
            }
        }
        Some(old) if strict => {
            meta::update(served, old, stored, &mut errors);
            other::event_update(old, stored, &mut errors);
        }
        _ => {}
    }
    errors.list
}

/// Validates an update of the main resource, after `strategy::prepare_update`.
pub fn update(gvk: &Gvk, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut list = any_update(old, new);
    for pass in passes(gvk) {
        // Each begins anew: some rules look at nothing more where one before them is broken.
        let mut errors = Errors::default();
        match pass {
            Pass::Metadata => meta::update(gvk, old, new, &mut errors),
            Pass::Name => meta::create(gvk, new, &mut errors),
            Pass::Whole => content(gvk, Some(old), new, &mut errors),
            Pass::Fixed => fixed(gvk, old, new, &mut errors),
        }
        list.append(&mut errors.list);
    }
    list
}

/// A part of an update's validation.
#[derive(Clone, Copy)]
enum Pass {
    /// What of the metadata may change.
    Metadata,
    /// The metadata as those of a new object.
    Name,
    /// What the object holds.
    Whole,
    /// What may not change.
    Fixed,
}

/// What may not change.
fn fixed(gvk: &Gvk, old: &Value, new: &Value, errors: &mut Errors) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod_update::update(old, new, errors),
        ("apps", "ControllerRevision") => errors.immutable("data", &old["data"], &new["data"]),
        ("apps", kind) => replication::update(kind, old, new, errors),
        ("batch", "Job") => {
            // Upstream looks at the spec of an updated job twice.
            batch::whole_spec(&new["spec"], errors);
            batch::job_update(old, new, errors);
        }
        ("", "Service") => service::update(old, new, errors),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice_update(old, new, errors),
        ("", "ConfigMap") => other::immutable_data(old, new, errors),
        ("", "Secret") => {
            errors.immutable("type", &old["type"], &new["type"]);
            other::immutable_data(old, new, errors);
        }
        ("node.k8s.io", "RuntimeClass") => {
            errors.immutable("handler", &old["handler"], &new["handler"]);
        }
        ("networking.k8s.io", "IngressClass") => {
            let controller = |object: &Value| {
                object["spec"]["controller"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            errors.immutable(
                "spec.controller",
                &controller(old).into(),
                &controller(new).into(),
            );
        }
        ("", "Node") => other::node_update(old, new, errors),
        ("", "PersistentVolumeClaim") => storage::claim_update(old, new, errors),
        ("", "PersistentVolume") => persistent::update(old, new, errors),
        ("storage.k8s.io", "StorageClass") => storage::storage_class_update(old, new, errors),
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment_update(old, new, errors),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            control::role_binding_update(old, new, errors);
        }
        ("scheduling.k8s.io", "PriorityClass") => other::priority_class_update(old, new, errors),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            signing::request(new, Some(old), errors);
            signing::update(signing::Way::Main, old, new, errors);
        }
        ("storage.k8s.io", "CSIDriver") => drivers::driver_update(old, new, errors),
        ("storage.k8s.io", "CSINode") => drivers::node_update(old, new, errors),
        ("storage.k8s.io", "CSIStorageCapacity") => drivers::capacity_update(old, new, errors),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            drivers::attributes_class_update(old, new, errors);
        }
        ("", "ResourceQuota") => quota::quota_update(old, new, errors),
        ("networking.k8s.io", "IPAddress") => {
            let parent = |object: &Value| object["spec"]["parentRef"].clone();
            errors.immutable("spec.parentRef", &parent(old), &parent(new));
        }
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr_update(old, new, errors),
        ("coordination.k8s.io", "LeaseCandidate") => {
            coordination::candidate_update(old, new, errors);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            errors.list.extend(crd::validate_definition_update(old, new));
        }
        _ => {}
    }
}

/// What upstream looks at in which order, for some kinds more than once; all that is found is reported.
fn passes(gvk: &Gvk) -> &'static [Pass] {
    use Pass::{Fixed, Metadata, Name, Whole};
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("policy", "PodDisruptionBudget") | ("", "Event") => &[Whole],
        ("", "PersistentVolume") => &[Name, Whole, Name, Whole, Fixed],
        ("storage.k8s.io", "VolumeAttachment" | "CSINode")
        | ("discovery.k8s.io", "EndpointSlice")
        | ("", "LimitRange")
        | ("networking.k8s.io", "IPAddress")
        | (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding",
        ) => &[Name, Whole, Fixed],
        ("", "Namespace" | "Node")
        | ("batch", "Job")
        | ("rbac.authorization.k8s.io", _)
        | ("storage.k8s.io", "StorageClass" | "CSIStorageCapacity")
        | ("node.k8s.io", "RuntimeClass") => &[Name, Whole, Metadata, Fixed],
        ("", "PersistentVolumeClaim" | "ServiceAccount" | "Endpoints" | "Pod")
        | ("apps", "ControllerRevision")
        | ("networking.k8s.io", "Ingress")
        | ("apiregistration.k8s.io", "APIService") => &[Metadata, Name, Whole, Fixed],
        ("", "ConfigMap" | "Secret")
        | ("networking.k8s.io", "IngressClass")
        | ("storage.k8s.io", "VolumeAttributesClass") => &[Metadata, Fixed, Name, Whole],
        ("", "Service") | ("apps", "DaemonSet") => &[Metadata, Fixed, Whole],
        _ => &[Metadata, Whole, Fixed],
    }
}

/// Validates an update of `/status`, after `strategy::prepare_status_update`.
pub fn status_update(gvk: &Gvk, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors {
        list: any_update(old, new),
    };
    if !matches!(gvk.kind.as_str(), "CronJob" | "PodDisruptionBudget") {
        meta::update(gvk, old, new, &mut errors);
    }
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod_status::update(old, new, &mut errors),
        ("apps", kind) | ("", kind @ "ReplicationController") => {
            replication::status(kind, old, new, &mut errors);
        }
        ("", "Namespace") => other::namespace_status(new, &mut errors),
        ("", "Node") => other::node_update(old, new, &mut errors),
        ("", "PersistentVolumeClaim") => storage::claim_status(new, &mut errors),
        ("", "ResourceQuota") => quota::quota_status(new, &mut errors),
        ("", "Service") => service::status(new, &mut errors),
        ("autoscaling", _) => autoscaling::status(new, &mut errors),
        ("batch", "Job") => job_status::update(old, new, &mut errors),
        ("policy", "PodDisruptionBudget") => other::budget_status(new, &mut errors),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            policy::status(&new["status"], &mut errors);
        }
        ("networking.k8s.io", "Ingress") => network::ingress_status(new, &mut errors),
        ("apiregistration.k8s.io", _) => aggregation::status(new, &mut errors),
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
    meta::update(gvk, old, new, &mut errors);
    if is_signing_request(gvk) {
        signing::request(new, Some(old), &mut errors);
        signing::update(signing::Way::Approval, old, new, &mut errors);
    }
    errors.list
}

/// Validates an update of `/ephemeralcontainers` or `/resize` of a pod.
pub fn pod_update(gvk: &Gvk, part: PodPart, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors {
        list: any_update(old, new),
    };
    meta::update(gvk, old, new, &mut errors);
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

fn is_signing_request(gvk: &Gvk) -> bool {
    gvk.group == "certificates.k8s.io" && gvk.kind == "CertificateSigningRequest"
}

/// What is checked of every version of an object, which was `old` before.
fn content(gvk: &Gvk, old: Option<&Value>, object: &Value, errors: &mut Errors) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::pod(object, old, errors),
        ("", "PodTemplate") => {
            let old = old.map(|old| &old["template"]);
            pod::template_after(&object["template"], old, "template", errors);
        }
        ("apps", kind @ ("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet"))
        | ("", kind @ "ReplicationController") => replication::content(kind, object, old, errors),
        ("apps", "ControllerRevision") => {
            // Of an update upstream tells that the data may not change, and no more of them.
            if old.is_none() && !errors::has(object, "data") {
                errors.required("data", "data is mandatory");
            } else if old.is_none() && !object["data"].is_object() {
                errors.required("data", "data must be a valid JSON object");
            }
            errors.non_negative("revision", &object["revision"]);
        }
        ("batch", "Job") => {
            batch::job(object, errors);
        }
        ("batch", "CronJob") => cron_job::check(object, old, errors),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(object, errors),
        ("apiregistration.k8s.io", "APIService") => aggregation::service(object, errors),
        ("", "LimitRange") => quota::limit_range(object, errors),
        ("storage.k8s.io", "CSIDriver") => drivers::driver(object, errors),
        ("storage.k8s.io", "CSINode") => drivers::node(object, errors),
        ("storage.k8s.io", "CSIStorageCapacity") => drivers::capacity(object, errors),
        ("storage.k8s.io", "VolumeAttributesClass") => drivers::attributes_class(object, errors),
        ("networking.k8s.io", "IPAddress") => network::ip_address(object, errors),
        ("networking.k8s.io", "ServiceCIDR") if old.is_none() => network::service_cidr(object, errors),
        ("", "Service") => service::service(object, errors),
        ("", "Endpoints") => endpoints::endpoints(old, object, errors),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice(old, object, errors),
        ("", "ConfigMap") => other::config_map(object, errors),
        ("", "Secret") => other::secret(object, errors),
        ("", "Node") => other::node(object, errors),
        ("coordination.k8s.io", "Lease") => coordination::lease(object, errors),
        ("coordination.k8s.io", "LeaseCandidate") => coordination::candidate(object, errors),
        ("policy", "PodDisruptionBudget") => other::budget(object, errors),
        ("", "PersistentVolumeClaim") => storage::claim(object, errors),
        ("", "PersistentVolume") => persistent::whole(object, errors),
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
        ("scheduling.k8s.io", "PriorityClass") if old.is_none() => other::priority_class(object, errors),
        ("", "ResourceQuota") => quota::quota(object, errors),
        ("node.k8s.io", "RuntimeClass") => other::runtime_class(object, errors),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(object, errors),
        ("networking.k8s.io", "Ingress") => network::ingress(object, errors),
        ("networking.k8s.io", "NetworkPolicy") => network::policy(object, errors),
        _ => {}
    }
}
