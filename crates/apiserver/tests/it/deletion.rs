//! Deletion.

use super::{code, config_map, pod, server};
use evenkeel_testkit::cluster::Objects as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions, PropagationPolicy};
use serde_json::json;

#[tokio::test]
async fn a_pod_on_a_node_waits_for_its_kubelet() {
    let api = Api::<Pod>::default_namespaced(server().client());
    api.add(&pod("p", Some("n"))).await;
    let marked = api
        .delete("p", &DeleteParams::default())
        .await
        .expect("it exists")
        .left()
        .expect("it is still there");
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(30));
    let forced = DeleteParams::default().grace_period(0);
    api.delete("p", &forced).await.expect("it exists");
    assert!(api.get_opt("p").await.expect("an answer").is_none());
}

#[tokio::test]
async fn a_pod_without_a_node_goes_at_once() {
    let api = Api::<Pod>::default_namespaced(server().client());
    api.add(&pod("p", None)).await;
    api.remove("p").await;
    assert!(api.get_opt("p").await.expect("an answer").is_none());
}

#[tokio::test]
async fn an_object_goes_with_its_last_finalizer() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    let mut map = config_map("a");
    map.metadata.finalizers = Some(vec!["example.com/x".to_owned()]);
    api.add(&map).await;
    api.remove("a").await;
    assert!(
        api.get("a")
            .await
            .expect("held")
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let free = json!({"metadata": {"finalizers": null}});
    api.merge("a", free).await;
    assert!(api.get_opt("a").await.expect("an answer").is_none());
}

#[tokio::test]
async fn another_object_of_that_name_is_not_deleted() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    api.add(&config_map("a")).await;
    let other = DeleteParams::default().preconditions(Preconditions {
        uid: Some("00000000-0000-0000-0000-000000000001".to_owned()),
        resource_version: None,
    });
    assert_eq!(code(api.delete("a", &other).await), 409);
}

#[tokio::test]
async fn propagation_is_left_to_a_garbage_collector() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    api.add(&config_map("a")).await;
    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    api.delete("a", &foreground).await.expect("it exists");
    let held = api.get("a").await.expect("held");
    assert_eq!(
        held.metadata.finalizers,
        Some(vec!["foregroundDeletion".to_owned()])
    );
}

#[tokio::test]
async fn a_collection_is_deleted_by_its_labels() {
    let api = crate::config_maps(server().client()).await;
    for (name, group) in [("a", "1"), ("b", "2")] {
        let mut map = config_map(name);
        map.metadata.labels = Some([("g".to_owned(), group.to_owned())].into());
        api.add(&map).await;
    }
    let ones = ListParams::default().labels("g=1");
    api.delete_collection(&DeleteParams::default(), &ones)
        .await
        .expect("a selection");
    let left = api.list(&ListParams::default()).await.expect("a list");
    assert_eq!(left.items.len(), 1);
}

#[tokio::test]
async fn nothing_new_comes_into_a_namespace_that_goes() {
    let client = server().client();
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "t"}})).expect("a Namespace");
    namespaces.add(&namespace).await;
    namespaces.remove("t").await;
    let phase = namespaces
        .get("t")
        .await
        .expect("held")
        .status
        .and_then(|status| status.phase);
    assert_eq!(phase.as_deref(), Some("Terminating"));
    let maps = Api::<ConfigMap>::namespaced(client, "t");
    assert_eq!(
        code(maps.create(&PostParams::default(), &config_map("a")).await),
        403
    );
}
