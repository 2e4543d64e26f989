//! Printer columns.

mod autoscaling;
mod cells;
mod column;
mod event;
mod network;
mod node;
mod other;
mod pod;
mod storage;
#[cfg(test)]
mod tests;
pub mod usage;
mod workload;

use crate::gvk::Gvk;
use column::Printer;
use evenkeel_kube_values::duration;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The definition of a column (`TableColumnDefinition`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading of the column.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    /// `name` for the name column, else mostly empty.
    pub format: String,
    /// What the column shows, in words.
    pub description: String,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i64,
}

impl Column {
    /// As in `Table.columnDefinitions`.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority,
        })
    }
}

/// One row's own part of a `TableRow`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// One value per column.
    pub cells: Vec<Value>,
    /// `TableRow.conditions`, mostly empty.
    pub conditions: Vec<Value>,
}

/// Columns of a built-in kind (name and time of creation where there are no special ones).
pub fn columns(gvk: &Gvk) -> Vec<Column> {
    printers(gvk).iter().map(Printer::definition).collect()
}

/// The row of an object of a built-in kind.
pub fn row(gvk: &Gvk, object: &Value, now: Timestamp) -> Row {
    let is_pod = gvk.group.is_empty() && gvk.kind == "Pod";
    Row {
        cells: printers(gvk)
            .iter()
            .map(|printer| printer.cell(object, now))
            .collect(),
        conditions: if is_pod {
            pod::conditions(object)
        } else {
            Vec::new()
        },
    }
}

/// The columns of a kind, each with the rule of its cells.
fn printers(gvk: &Gvk) -> &'static [Printer] {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::POD,
        ("", "Node") => node::NODE,
        ("", "Service") => network::SERVICE,
        ("", "Endpoints") => network::ENDPOINTS,
        ("discovery.k8s.io", "EndpointSlice") => network::ENDPOINT_SLICE,
        ("networking.k8s.io", "Ingress") => network::INGRESS,
        ("networking.k8s.io", "IngressClass") => network::INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => network::NETWORK_POLICY,
        ("", "ReplicationController") => workload::REPLICATION_CONTROLLER,
        ("apps", "ReplicaSet") => workload::REPLICA_SET,
        ("apps", "Deployment") => workload::DEPLOYMENT,
        ("apps", "StatefulSet") => workload::STATEFUL_SET,
        ("apps", "DaemonSet") => workload::DAEMON_SET,
        ("apps", "ControllerRevision") => workload::CONTROLLER_REVISION,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::HORIZONTAL_POD_AUTOSCALER,
        ("batch", "Job") => workload::JOB,
        ("batch", "CronJob") => workload::CRON_JOB,
        ("", "PersistentVolume") => storage::PERSISTENT_VOLUME,
        ("", "PersistentVolumeClaim") => storage::PERSISTENT_VOLUME_CLAIM,
        ("storage.k8s.io", "StorageClass") => storage::CLASS,
        ("storage.k8s.io", "VolumeAttachment") => storage::VOLUME_ATTACHMENT,
        ("storage.k8s.io", "CSINode") => storage::CSI_NODE,
        ("" | "events.k8s.io", "Event") => event::EVENT,
        ("", "ConfigMap") => other::CONFIG_MAP,
        ("", "Secret") => other::SECRET,
        ("", "Namespace") => other::NAMESPACE,
        ("", "ServiceAccount") => other::SERVICE_ACCOUNT,
        ("policy", "PodDisruptionBudget") => other::POD_DISRUPTION_BUDGET,
        ("coordination.k8s.io", "Lease") => other::LEASE,
        ("coordination.k8s.io", "LeaseCandidate") => other::LEASE_CANDIDATE,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => other::ROLE_BINDING,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => other::WEBHOOK_CONFIGURATION,
        ("scheduling.k8s.io", "PriorityClass") => other::PRIORITY_CLASS,
        ("node.k8s.io", "RuntimeClass") => other::RUNTIME_CLASS,
        ("certificates.k8s.io", "CertificateSigningRequest") => other::CERTIFICATE_SIGNING_REQUEST,
        ("metrics.k8s.io", _) => usage::METRICS,
        _ => other::ANY,
    }
}

/// Time since a timestamp, `<unknown>` without one.
pub(crate) fn age(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => duration::human(now.as_second() - time.as_second()),
        None => "<unknown>".to_owned(),
    }
}
