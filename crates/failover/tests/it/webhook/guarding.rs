//! What stock controllers write about a node that is only disconnected, and about others.

use crate::cluster::{Cluster, NODE_CONTROLLER, PATIENCE, SLICE_CONTROLLER, create, ready};
use evenkeel_testkit::eventually;
use k8s_openapi::api::core::v1::{Endpoints, Node, Taint};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// As the stock node controller: taints a node; its taints as they are then.
async fn taint(cluster: &Cluster, node: &str) -> Vec<Taint> {
    let taints = json!([
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-02T00:00:00Z"},
    ]);
    let nodes: Api<Node> = Api::all(cluster.stock(NODE_CONTROLLER));
    let patch = Patch::Strategic(json!({"spec": {"taints": taints}}));
    let node = nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    node.spec.unwrap().taints.unwrap_or_default()
}

fn effects(taints: &[Taint]) -> Vec<&str> {
    taints.iter().map(|taint| taint.effect.as_str()).collect()
}

#[tokio::test]
async fn a_disconnected_nodes_pods_stay_ready_and_a_healthy_nodes_pods_are_marked() {
    let mut cluster = Cluster::start().await;
    let _webhook = cluster.webhook().await;
    let (cut, healthy) = (
        cluster.pod("a", "shore-2").await,
        cluster.pod("b", "shore-1").await,
    );
    cluster.cut_shore_2().await;
    let after = cluster.mark(&cut, false).await;
    assert_eq!(after.status, cut.status, "nothing changed at all");
    assert_eq!(ready(&cluster.mark(&healthy, false).await), "False");
    cluster.heal().await;
    assert_eq!(ready(&cluster.mark(&cut, false).await), "False");
}

#[tokio::test]
async fn a_disconnected_node_is_not_tainted_for_eviction() {
    let mut cluster = Cluster::start().await;
    let _webhook = cluster.webhook().await;
    cluster.cut_shore_2().await;
    assert_eq!(effects(&taint(&cluster, "shore-2").await), ["NoSchedule"]);
    assert_eq!(
        effects(&taint(&cluster, "shore-1").await),
        ["NoSchedule", "NoExecute"]
    );
}

fn slice(ready: bool) -> Value {
    json!({
        "metadata": {"name": "web-1"}, "addressType": "IPv4", "ports": [],
        "endpoints": [{
            "addresses": ["10.0.0.9"], "nodeName": "shore-2",
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "a", "uid": "pod-a"},
            "conditions": {"ready": ready, "serving": ready, "terminating": false},
        }],
    })
}

#[tokio::test]
async fn endpoints_of_a_disconnected_node_stay_once_the_node_is_marked_silent() {
    let mut cluster = Cluster::start().await;
    let _webhook = cluster.webhook().await;
    cluster.cut_shore_2().await;
    create::<EndpointSlice>(&cluster.admin, "default", slice(true)).await;
    let address = json!([{"ip": "10.0.0.9", "nodeName": "shore-2",
        "targetRef": {"kind": "Pod", "namespace": "default", "name": "a", "uid": "pod-a"}}]);
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let endpoints = json!({"metadata": {"name": "web"}, "subsets": [{"addresses": address, "ports": ports}]});
    create::<Endpoints>(&cluster.admin, "default", endpoints).await;

    let slices: Api<EndpointSlice> = Api::namespaced(cluster.stock(SLICE_CONTROLLER), "default");
    let withdraw = Patch::Merge(slice(false));
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let is_ready = |slice: &EndpointSlice| {
        let slice = serde_json::to_value(slice).unwrap();
        slice["endpoints"][0]["conditions"]["ready"].as_bool()
    };
    // The Lease is not known to be stale: the endpoint controller's write alone proves nothing.
    let unmarked = slices.patch("web-1", &dry_run, &withdraw).await.unwrap();
    assert_eq!(is_ready(&unmarked), Some(false));

    let nodes: Api<Node> = Api::all(cluster.stock(NODE_CONTROLLER));
    let silent = json!({"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
    ]}});
    nodes
        .patch_status("shore-2", &PatchParams::default(), &Patch::Strategic(silent))
        .await
        .unwrap();
    eventually("the slice keeps its endpoint", PATIENCE, || async {
        let after = slices.patch("web-1", &dry_run, &withdraw).await.unwrap();
        (is_ready(&after) == Some(true)).then_some(())
    })
    .await;
    let kept = slices
        .patch("web-1", &PatchParams::default(), &withdraw)
        .await
        .unwrap();
    assert_eq!(is_ready(&kept), Some(true));

    let legacy: Api<Endpoints> = Api::namespaced(cluster.stock(SLICE_CONTROLLER), "default");
    let withdraw = json!({"subsets": [{"notReadyAddresses": address, "ports": ports}]});
    let kept = legacy
        .patch("web", &PatchParams::default(), &Patch::Merge(withdraw))
        .await
        .unwrap();
    let subsets = kept.subsets.unwrap();
    assert_eq!(subsets[0].addresses.as_ref().unwrap()[0].ip, "10.0.0.9");
    assert_eq!(subsets[0].not_ready_addresses, None);
}

#[tokio::test]
async fn without_the_webhook_everything_is_stock() {
    let mut cluster = Cluster::start().await;
    let webhook = cluster.webhook().await;
    let pod = cluster.pod("a", "shore-2").await;
    cluster.cut_shore_2().await;
    webhook.stop.cancel();
    webhook.task.await.unwrap().unwrap();
    assert_eq!(ready(&cluster.mark(&pod, false).await), "False");
    assert_eq!(
        effects(&taint(&cluster, "shore-2").await),
        ["NoSchedule", "NoExecute"]
    );
}
