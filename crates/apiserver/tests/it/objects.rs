//! Create, read, update, patch.

use super::{code, config_map, create_node, pod, server};
use evenkeel_testkit::cluster::Objects as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test]
async fn a_fresh_server_has_what_a_fresh_cluster_has() {
    let client = server().client();
    let namespaces = Api::<Namespace>::all(client.clone())
        .list(&ListParams::default())
        .await
        .expect("a list");
    let names: Vec<String> = namespaces.iter().map(ResourceExt::name_any).collect();
    assert_eq!(
        names,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
    let service = Api::<Service>::namespaced(client, "default")
        .get("kubernetes")
        .await
        .expect("the API's own service");
    let address = service.spec.and_then(|spec| spec.cluster_ip);
    assert_eq!(address.as_deref(), Some("10.96.0.1"));
}

#[tokio::test]
async fn the_second_of_two_writers_is_told_to_read_again() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    let created = api.add(&config_map("a")).await;
    let mut first = created.clone();
    first.data = Some([("k".to_owned(), "first".to_owned())].into());
    api.replace("a", &PostParams::default(), &first)
        .await
        .expect("the newest state");
    let mut second = created;
    second.data = Some([("k".to_owned(), "second".to_owned())].into());
    assert_eq!(code(api.replace("a", &PostParams::default(), &second).await), 409);
    assert_eq!(
        code(api.create(&PostParams::default(), &config_map("a")).await),
        409
    );
}

#[tokio::test]
async fn pages_show_one_state_however_long_they_take() {
    let api = crate::config_maps(server().client()).await;
    for name in ["a", "b", "c", "d"] {
        api.add(&config_map(name)).await;
    }
    let params = ListParams::default().limit(2);
    let first = api.list(&params).await.expect("a page");
    assert_eq!(first.metadata.remaining_item_count, Some(2));
    api.add(&config_map("bb")).await;
    let token = first.metadata.continue_.expect("there is more");
    let second = api.list(&params.continue_token(&token)).await.expect("a page");
    let names: Vec<String> = second.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c", "d"]);
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let client = server().client();
    create_node(&client, "n").await;
    let api = Api::<Node>::all(client);
    let both = json!({"spec": {"unschedulable": true}, "status": {"phase": "Running"}});
    let params = PatchParams::default();
    let node = api
        .patch_status("n", &params, &Patch::Merge(&both))
        .await
        .expect("a status");
    assert_eq!(node.spec.expect("a spec").unschedulable, None);
    assert_eq!(node.status.expect("a status").phase.as_deref(), Some("Running"));
    let node = api
        .patch("n", &params, &Patch::Merge(&both))
        .await
        .expect("a spec");
    assert_eq!(node.spec.expect("a spec").unschedulable, Some(true));
}

#[tokio::test]
async fn a_strategic_merge_patch_merges_lists_by_their_keys() {
    let api = Api::<Pod>::default_namespaced(server().client());
    api.add(&pod("p", None)).await;
    let patch = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let pod = api
        .patch("p", &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .expect("a patch");
    let containers = pod.spec.expect("a spec").containers;
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0].image.as_deref(), Some("other"));
    assert_eq!(
        containers[0].termination_message_path.as_deref(),
        Some("/dev/termination-log")
    );
}

#[tokio::test]
async fn a_scale_changes_the_generation_of_what_it_scales() {
    let client = server().client();
    let api = Api::<Deployment>::default_namespaced(client);
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        }},
    }))
    .expect("a Deployment");
    let created = api.add(&deployment).await;
    assert_eq!(created.metadata.generation, Some(1));
    let scale: Scale = api
        .patch_scale(
            "d",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": 3}})),
        )
        .await
        .map(|scale| serde_json::from_value(serde_json::to_value(scale).expect("encodes")).expect("a Scale"))
        .expect("a scale");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(3));
    assert_eq!(
        api.get("d").await.expect("it exists").metadata.generation,
        Some(2)
    );
}

#[tokio::test]
async fn a_put_makes_a_lease_but_no_config_map() {
    let client = server().client();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "me"},
    }))
    .expect("a Lease");
    let leases = Api::<Lease>::default_namespaced(client.clone());
    leases
        .replace("l", &PostParams::default(), &lease)
        .await
        .expect("leases may be made so");
    let maps = Api::<ConfigMap>::default_namespaced(client);
    assert_eq!(
        code(maps.replace("a", &PostParams::default(), &config_map("a")).await),
        404
    );
}

#[tokio::test]
async fn a_user_without_a_role_may_read_nothing() {
    let server = server();
    let api = Api::<Pod>::default_namespaced(server.client_as("bob", &[]));
    assert_eq!(code(api.list(&ListParams::default()).await), 403);
}

#[tokio::test]
async fn writers_without_a_version_all_get_through() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    api.add(&config_map("a")).await;
    let patches = (0..8).map(|number| {
        let api = api.clone();
        async move {
            let patch = json!({"data": {format!("k{number}"): "v"}});
            api.patch("a", &PatchParams::default(), &Patch::Merge(patch))
                .await
        }
    });
    for result in futures::future::join_all(patches).await {
        result.expect("a patch that names no version");
    }
    let keys = api.get("a").await.expect("it exists").data.expect("data").len();
    assert_eq!(keys, 9);
}
