//! What stock controllers write about a node that is only disconnected, and about others.

use crate::cluster::{Cluster, Setup, is_ready};
use crate::stock::{self, SLICE_CONTROLLER};
use crate::zone::Said;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{Fault, until};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Endpoints, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// The zone vouches for `n3` while its Lease is still renewed; returns when the webhook believes it: the mark
/// of the stock controller itself says that the Lease is stale.
async fn vouch_for_n3(cluster: &Cluster) {
    cluster.outside.say("n3", Said::CutOff);
    cluster.pod("n3", "probe", None, None).await;
    until("the webhook believes the zone", async || {
        is_ready(&stock::would_mark_pod(cluster, "probe").await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_nodes_pods_stay_ready_and_a_healthy_nodes_pods_are_marked() {
    let cluster = Cluster::start().await;
    let _replica = cluster.controlled(Setup::with_webhook()).await;
    cluster.pod("n3", "cut", None, None).await;
    cluster.pod("n1", "healthy", None, None).await;
    vouch_for_n3(&cluster).await;
    let before = cluster.get::<Pod>("cut").await;
    let after = stock::mark_pod(&cluster, "cut").await;
    assert_eq!(after.status, before.status, "nothing changed at all");
    assert!(!is_ready(&stock::mark_pod(&cluster, "healthy").await));
    // Nobody vouches for it any more: 15 s later its pods are stock Kubernetes' own.
    cluster.outside.mute();
    until("the evidence ran out", async || {
        !is_ready(&stock::would_mark_pod(&cluster, "cut").await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_node_is_not_tainted_for_eviction() {
    let cluster = Cluster::start().await;
    let _replica = cluster.controlled(Setup::with_webhook()).await;
    vouch_for_n3(&cluster).await;
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule"]);
    assert_eq!(stock::taint(&cluster, "n1").await, ["NoSchedule", "NoExecute"]);
}

fn slice(pod: &Pod, ready: bool) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "namespace": "shop"}, "addressType": "IPv4", "ports": [],
        "endpoints": [{
            "addresses": ["10.0.0.9"], "nodeName": "n3",
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": pod.uid()},
            "conditions": {"ready": ready, "serving": ready, "terminating": false},
        }],
    })
}

/// The mark on a pod that stock Kubernetes makes while no webhook corrects it.
async fn mark_without_webhook(cluster: &Cluster, pod: &str, ready_containers: bool) {
    let condition = |kind: &str, is_true: bool| {
        let (status, now) = (
            if is_true { "True" } else { "False" },
            Timestamp::now().to_string(),
        );
        json!({"type": kind, "status": status, "lastTransitionTime": now})
    };
    let conditions = [
        condition("ContainersReady", ready_containers),
        condition("Ready", false),
    ];
    cluster
        .merge_status::<Pod>(pod, json!({"conditions": conditions}))
        .await;
}

/// Until the planner has given the pods their readiness back, which it cannot here, the stock endpoint
/// controllers' writes are corrected. A pod that its own kubelet calls not ready is in no endpoints any more,
/// also where that was written before the kubelet's Lease.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_a_disconnected_node_stay_while_their_pods_are_marked() {
    let cluster = Cluster::start().await;
    let _replica = cluster.controlled(Setup::with_webhook()).await;
    cluster.pod("n3", "a", None, None).await;
    let pod = cluster.get::<Pod>("a").await;
    vouch_for_n3(&cluster).await;
    cluster.fault_writes("pods/status", "a", Fault::hold()).keep();
    cluster.create_any(slice(&pod, true)).await;
    let address = json!([{"ip": "10.0.0.9", "nodeName": "n3",
        "targetRef": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": pod.uid()}}]);
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": "shop"},
        "subsets": [{"addresses": address, "ports": ports}],
    });
    cluster.create_any(endpoints).await;

    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client_of(SLICE_CONTROLLER), "shop");
    let unready = slice(&pod, false);
    let withdraw = Patch::Merge(&unready);
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

    cluster.outside.silence("n3");
    stock::mark_node(&cluster, "n3").await;
    mark_without_webhook(&cluster, "a", true).await;
    until("the slice keeps its endpoint", async || {
        let after = slices.patch("web-1", &dry_run, &withdraw).await.unwrap();
        is_ready(&after) == Some(true)
    })
    .await;
    let kept = slices
        .patch("web-1", &PatchParams::default(), &withdraw)
        .await
        .unwrap();
    assert_eq!(is_ready(&kept), Some(true));

    let legacy: Api<Endpoints> = Api::namespaced(cluster.client_of(SLICE_CONTROLLER), "shop");
    let unready = json!({"subsets": [{"notReadyAddresses": address, "ports": ports}]});
    let kept = legacy.merge("web", unready).await;
    let subsets = kept.subsets.unwrap();
    assert_eq!(subsets[0].addresses.as_ref().unwrap()[0].ip, "10.0.0.9");
    assert_eq!(subsets[0].not_ready_addresses, None);

    mark_without_webhook(&cluster, "a", false).await;
    until("the slice lets the endpoint go", async || {
        let after = slices.patch("web-1", &dry_run, &withdraw).await.unwrap();
        is_ready(&after) == Some(false)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_webhook_everything_is_stock() {
    let cluster = Cluster::start().await;
    let replica = cluster.controlled(Setup::with_webhook()).await;
    cluster.pod("n3", "a", None, None).await;
    vouch_for_n3(&cluster).await;
    replica.stop().await;
    assert!(!is_ready(&stock::mark_pod(&cluster, "a").await));
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule", "NoExecute"]);
}
