//! Pods that no kubelet will ever end: they are deleted by force.

use super::owned::{delete, is_finished, node_of};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Deletes pods of nodes that are gone or out of service, and terminating ones without a node.
pub fn reconcile(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    view.pods
        .iter()
        .filter(|pod| is_abandoned(pod, view))
        .map(|pod| delete(Kind::Pod, &pod.metadata, Some(0)))
        .collect()
}

/// A pod that no kubelet will ever end: terminating and unbound, bound to a node that is gone, or terminating
/// on a node that is out of service.
fn is_abandoned(pod: &Pod, view: &Snapshot) -> bool {
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let Some(node) = node_of(pod) else {
        return terminating;
    };
    let Some(node) = view
        .nodes
        .iter()
        .find(|candidate| candidate.metadata.name.as_deref() == Some(node))
    else {
        return !is_finished(pod);
    };
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    terminating && !ready && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}
