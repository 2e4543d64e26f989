//! What the stock controllers write when a node's Lease stops, under their own names.

use super::cluster::Cluster;
use evenkeel_api::names::conditions;
use evenkeel_api::names::taints::UNREACHABLE;
use evenkeel_testkit::read;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

pub(crate) const NODE_CONTROLLER: &str = "system:serviceaccount:kube-system:node-controller";
pub(crate) const SLICE_CONTROLLER: &str = "system:serviceaccount:kube-system:endpointslice-controller";

/// The mark on a node: `Ready=Unknown`.
pub(crate) async fn mark_node(cluster: &Cluster, node: &str) {
    let nodes: Api<Node> = Api::all(cluster.client_of(NODE_CONTROLLER));
    let silent = json!({"status": {"conditions": [{
        "type": "Ready", "status": "Unknown", "reason": conditions::REASON_STOCK_UNKNOWN,
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": Timestamp::now().to_string(),
    }]}});
    nodes
        .patch_status(node, &PatchParams::default(), &Patch::Strategic(silent))
        .await
        .unwrap();
}

/// The mark on a pod of such a node: `Ready=False`. Returns the pod as it is then.
pub(crate) async fn mark_pod(cluster: &Cluster, pod: &str) -> Pod {
    patch_pod(cluster, pod, &PatchParams::default()).await
}

/// What the pod would be after that mark.
pub(crate) async fn would_mark_pod(cluster: &Cluster, pod: &str) -> Pod {
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    patch_pod(cluster, pod, &dry_run).await
}

async fn patch_pod(cluster: &Cluster, pod: &str, params: &PatchParams) -> Pod {
    let patch = json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": Timestamp::now().to_string()},
    ]}});
    let pods: Api<Pod> = Api::namespaced(cluster.client_of(NODE_CONTROLLER), "shop");
    pods.patch_status(pod, params, &Patch::Strategic(patch))
        .await
        .unwrap()
}

/// The taints `unreachable`; returns the effects of that key as they are then.
pub(crate) async fn taint(cluster: &Cluster, node: &str) -> Vec<String> {
    let list: Vec<Taint> = read(json!([
        {"key": UNREACHABLE, "effect": "NoSchedule"},
        {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": Timestamp::now().to_string()},
    ]));
    let nodes: Api<Node> = Api::all(cluster.client_of(NODE_CONTROLLER));
    let patch = Patch::Strategic(json!({"spec": {"taints": list}}));
    let node = nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    let unreachable = taints.into_iter().filter(|taint| taint.key == UNREACHABLE);
    unreachable.map(|taint| taint.effect).collect()
}
