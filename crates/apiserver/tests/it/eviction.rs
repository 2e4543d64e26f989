//! Binding and eviction.

use super::{code, pod, server};
use evenkeel_testkit::cluster::Objects as _;
use k8s_openapi::api::core::v1::{Binding, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, EvictParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

#[tokio::test]
async fn a_pod_is_bound_once() {
    let client = server().client();
    let api = Api::<Pod>::default_namespaced(client);
    api.add(&pod("p", None)).await;
    let bind = |node: &str| {
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
        serde_json::from_value::<Binding>(binding).expect("a Binding")
    };
    let params = PostParams::default();
    let _: Value = api
        .create_subresource("binding", "p", &params, &bind("n"))
        .await
        .expect("a pod without a node");
    let bound = api.get("p").await.expect("it exists");
    assert_eq!(bound.spec.and_then(|spec| spec.node_name).as_deref(), Some("n"));
    let again = api
        .create_subresource::<Binding, Value>("binding", "p", &params, &bind("m"))
        .await;
    assert_eq!(code(again), 409);
}

#[tokio::test]
async fn a_budget_holds_a_running_pod() {
    let client = server().client();
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.add(&pod("p", Some("n"))).await;
    let running =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let params = PatchParams::default();
    pods.patch_status("p", &params, &Patch::Merge(running))
        .await
        .expect("a status");
    let budgets = Api::<PodDisruptionBudget>::default_namespaced(client);
    let budget = serde_json::from_value(json!({
        "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }))
    .expect("a PodDisruptionBudget");
    budgets.add(&budget).await;
    assert_eq!(code(pods.evict("p", &EvictParams::default()).await), 429);
    let allowed = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    budgets
        .patch_status("b", &params, &Patch::Merge(allowed))
        .await
        .expect("a status");
    pods.evict("p", &EvictParams::default())
        .await
        .expect("one disruption");
    let evicted = pods.get("p").await.expect("its kubelet has to confirm");
    assert!(evicted.metadata.deletion_timestamp.is_some());
    let charged = budgets
        .get("b")
        .await
        .expect("it exists")
        .status
        .expect("a status");
    assert_eq!(charged.disruptions_allowed, 0);
}
