//! What Kubernetes fills in.
//!
//! Objects are in canonical form here (see [`crate::strict`]): structs that Go always encodes are there,
//! empty optional fields are not.

mod image;
mod other;
mod pod;
mod service;
mod storage;
#[cfg(test)]
mod tests;
mod workload;

use crate::gvk::Gvk;
use crate::strategy::{self, items};
use serde_json::{Map, Value, json};

/// Sets the defaults of a built-in kind. Idempotent. (Custom resources: `crd::CustomKind::apply_defaults`.)
pub fn apply(gvk: &Gvk, object: &mut Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(&mut object["template"]),
        ("", "ReplicationController") => workload::replication_controller(object),
        ("apps", "ReplicaSet") => workload::replica_set(object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "DaemonSet") => {
            workload::daemon_set(object);
            // Upstream writes the number of the template's version back with each object that it reads.
            default(&mut object["metadata"], "annotations", json!({}));
            default(
                &mut object["metadata"]["annotations"],
                strategy::TEMPLATE_GENERATION,
                json!("0"),
            );
        }
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("batch", "Job") => workload::job(object),
        ("batch", "CronJob") => workload::cron_job(object),
        ("", "Service") => service::service(object),
        ("", "Endpoints") => service::endpoints(object),
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice(object),
        ("networking.k8s.io", "NetworkPolicy") => service::network_policy(object),
        ("networking.k8s.io", "IngressClass") => service::ingress_class(object),
        ("", "PersistentVolume") => storage::volume(object),
        ("", "PersistentVolumeClaim") => storage::claim(object),
        ("storage.k8s.io", "StorageClass") => storage::class(object),
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment(object),
        ("storage.k8s.io", "CSIDriver") => storage::driver(object),
        ("", "Namespace") => other::namespace(object),
        ("", "Node") => other::node(object),
        ("", "Secret") => other::secret(object),
        ("", "LimitRange") => other::limit_range(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => other::role_binding(object),
        ("scheduling.k8s.io", "PriorityClass") => {
            default(object, "preemptionPolicy", json!("PreemptLowerPriority"));
        }
        ("autoscaling", "HorizontalPodAutoscaler") => other::autoscaler(object),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => other::webhooks(object, true),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => other::webhooks(object, false),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") => {
            other::admission_policy(object);
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => other::admission_binding(object),
        ("apiregistration.k8s.io", "APIService") => {
            if let Some(service) = present(&mut object["spec"], "service") {
                default(service, "port", json!(443));
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => other::custom_resource_definition(object),
        ("authentication.k8s.io", "TokenRequest") => {
            default(&mut object["spec"], "expirationSeconds", json!(3600));
        }
        _ => {}
    }
}

/// Sets a member that is absent or null.
fn default(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = members(object) {
        let slot = members.entry(name).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value;
        }
    }
}

/// Sets a member that is absent, null, empty or zero.
fn default_zero(object: &mut Value, name: &str, value: Value) {
    let empty = match object.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        _ => false,
    };
    if empty && let Some(members) = members(object) {
        members.insert(name.to_owned(), value);
    }
}

/// The members of an object; null becomes one.
fn members(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// A member that is there and not null.
fn present<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    object.get_mut(name).filter(|value| !value.is_null())
}

/// The text of a member.
fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}
