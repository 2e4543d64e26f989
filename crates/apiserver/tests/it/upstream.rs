//! What our programs meet on Kubernetes' own API server, and must meet here: what the server does by itself
//! with nodes, their tokens and Leases, with statuses, field selectors, events and pages.

use super::{code, config_map, create_node, pod, server};
use evenkeel_testkit::cluster::{Cluster, Objects as _};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenReview, UserInfo};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event as NewerEvent;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object of the kind")
}

#[tokio::test]
async fn a_node_registers_with_its_status_and_is_tainted_until_a_controller_says_that_it_is_ready() {
    let nodes = Api::<Node>::all(server().client());
    let node = nodes
        .add(&read(json!({
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "own", "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })))
        .await;
    let taints = node.spec.expect("a spec").taints.expect("taints");
    let taints: Vec<_> = taints
        .iter()
        .map(|taint| (taint.key.as_str(), taint.effect.as_str()))
        .collect();
    assert_eq!(
        taints,
        [
            ("own", "NoExecute"),
            ("node.kubernetes.io/not-ready", "NoSchedule")
        ]
    );
    let conditions = node.status.expect("a status").conditions.expect("conditions");
    assert_eq!(conditions[0].status, "True");
}

/// Pods go by the pod garbage collector, Leases by the garbage collector: by controllers, which come later or
/// not at all.
#[tokio::test]
async fn pods_and_lease_of_a_node_outlive_it() {
    let client = server().client();
    let node = create_node(&client, "n").await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.add(&pod("p", Some("n"))).await;
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    leases
        .add(&read(json!({"metadata": {"name": "n", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node.uid()},
        ]}})))
        .await;
    Api::<Node>::all(client).remove("n").await;
    let pod = pods.get("p").await.expect("it is there");
    assert_eq!(pod.metadata.deletion_timestamp, None);
    assert_eq!(
        leases
            .get("n")
            .await
            .expect("it is there")
            .owner_references()
            .len(),
        1
    );
}

/// Who renews a Lease that somebody deleted does not make it again by mistake: the UID is a precondition.
/// What names none is made, whatever version it names.
#[tokio::test]
async fn a_lease_is_replaced_by_those_who_have_seen_it() {
    let leases = Api::<Lease>::default_namespaced(server().client());
    let seen = leases.add(&read(json!({"metadata": {"name": "l"}}))).await;
    let params = PostParams::default();
    let mut blind = seen.clone();
    blind.metadata.resource_version = None;
    assert_eq!(code(leases.replace("l", &params, &blind).await), 422);
    leases.remove("l").await;
    assert_eq!(code(leases.replace("l", &params, &seen).await), 409);
    let mut fresh = seen.clone();
    fresh.metadata.uid = None;
    let made = leases.replace("l", &params, &fresh).await.expect("it is made");
    assert_ne!(made.metadata.uid, seen.metadata.uid);
}

#[tokio::test]
async fn who_may_update_leases_alone_makes_none() {
    let cluster = Cluster::of(&server());
    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]}]);
    cluster.grant("bob", rules).await;
    let lease: Lease = read(json!({"metadata": {"name": "l"}}));
    let leases = Api::<Lease>::default_namespaced(cluster.server().client_as("bob", &[]));
    assert_eq!(
        code(leases.replace("l", &PostParams::default(), &lease).await),
        403
    );
}

#[tokio::test]
async fn a_put_makes_no_endpoint_slice() {
    let slices = Api::<EndpointSlice>::default_namespaced(server().client());
    let slice = read(json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []}));
    assert_eq!(
        code(slices.replace("s", &PostParams::default(), &slice).await),
        404
    );
}

async fn user_of(client: &Client, token: &str) -> Option<UserInfo> {
    let review = read(json!({"metadata": {}, "spec": {"token": token}}));
    let reviewed = Api::<TokenReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await;
    let status = reviewed.expect("a review").status.expect("an answer");
    status
        .authenticated
        .unwrap_or_default()
        .then_some(status.user)
        .flatten()
}

#[tokio::test]
async fn a_token_says_of_which_node_it_is_as_long_as_that_node_is_there() {
    let client = server().client();
    let node = create_node(&client, "n").await;
    let accounts = Api::<ServiceAccount>::default_namespaced(client.clone());
    accounts.add(&read(json!({"metadata": {"name": "agent"}}))).await;
    let request: TokenRequest = read(
        json!({"metadata": {}, "spec": {"audiences": [], "boundObjectRef": {
            "apiVersion": "v1", "kind": "Node", "name": "n", "uid": node.uid(),
        }}}),
    );
    let issued = accounts
        .create_token_request("agent", &PostParams::default(), &request)
        .await
        .expect("a token");
    let token = issued.status.expect("it is issued").token;
    let user = user_of(&client, &token).await.expect("a user");
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:default:agent")
    );
    let extra = user.extra.expect("claims");
    let claim = |name: &str| extra[&format!("authentication.kubernetes.io/{name}")].clone();
    assert_eq!(claim("node-name"), ["n"]);
    assert_eq!(claim("node-uid"), [node.uid().expect("a UID")]);

    let nodes = Api::<Node>::all(client.clone());
    nodes.remove("n").await;
    assert_eq!(user_of(&client, &token).await, None);
    create_node(&client, "n").await;
    assert_eq!(user_of(&client, &token).await, None, "it was of another node");
}

/// Where upstream differs: there the Node authorizer lets a kubelet get its own node alone, and
/// NodeRestriction lets it write that one alone. Neither is built.
#[tokio::test]
async fn the_rights_of_a_kubelet_are_not_those_of_its_node_alone() {
    let server = server();
    create_node(&server.client(), "n1").await;
    create_node(&server.client(), "n2").await;
    let kubelet = server.client_as("system:node:n1", &["system:nodes", "system:authenticated"]);
    let nodes = Api::<Node>::all(kubelet);
    assert_eq!(
        nodes
            .list(&ListParams::default())
            .await
            .expect("a list")
            .items
            .len(),
        2
    );
    nodes
        .merge("n2", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
}

#[tokio::test]
async fn an_event_is_one_object_in_both_apis() {
    let client = server().client();
    let events = Api::<Event>::default_namespaced(client.clone());
    events
        .add(&read(json!({
            "metadata": {"name": "e"}, "reason": "Because", "message": "hello", "type": "Normal",
            "involvedObject": {"kind": "Node", "name": "n", "uid": "u"}, "count": 2,
        })))
        .await;
    let newer = Api::<NewerEvent>::default_namespaced(client);
    let found = newer.get("e").await.expect("it is there");
    assert_eq!(
        (found.note.as_deref(), found.deprecated_count),
        (Some("hello"), Some(2))
    );
    assert_eq!(found.regarding.and_then(|about| about.name).as_deref(), Some("n"));
    let about = ListParams::default().fields("involvedObject.name=n,reason=Because");
    assert_eq!(events.list(&about).await.expect("a list").items.len(), 1);
    newer.remove("e").await;
    assert_eq!(events.get_opt("e").await.expect("an answer"), None);
}

#[tokio::test]
async fn pods_are_found_by_their_node_and_nothing_by_a_field_that_is_not_indexed() {
    let client = server().client();
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.add(&pod("here", Some("n"))).await;
    pods.add(&pod("waits", None)).await;
    let on = |fields: &str| ListParams::default().fields(fields);
    let names = |list: kube::core::ObjectList<Pod>| -> Vec<String> {
        list.iter().map(ResourceExt::name_any).collect()
    };
    let found = pods.list(&on("spec.nodeName=n,status.phase!=Failed")).await;
    assert_eq!(names(found.expect("a list")), ["here"]);
    let unbound = pods.list(&on("spec.nodeName=")).await;
    assert_eq!(names(unbound.expect("a list")), ["waits"]);
    assert_eq!(code(pods.list(&on("spec.priority=0")).await), 400);
    let nodes = Api::<Node>::all(client);
    assert_eq!(code(nodes.list(&on("spec.podCIDR=x")).await), 400);
}

#[tokio::test]
async fn a_page_of_a_state_that_was_compacted_is_gone() {
    let server = server();
    let maps = crate::config_maps(server.client()).await;
    for name in ["a", "b", "c"] {
        maps.add(&config_map(name)).await;
    }
    let params = ListParams::default().limit(2);
    let token = maps.list(&params).await.expect("a page").metadata.continue_;
    maps.remove("c").await;
    server.forget_history();
    let next = params.continue_token(&token.expect("there is more"));
    assert_eq!(code(maps.list(&next).await), 410);
}
