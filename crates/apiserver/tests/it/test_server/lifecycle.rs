//! Start and end.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where something is not as it should be"
)]

use super::{Way, next, start, watch};
use crate::{code, config_map};
use evenkeel_apiserver::{Fault, Options, RequestFilter, TestServer, TestServerError};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ends, until};
use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::runtime::Handle;

#[tokio::test]
async fn servers_in_one_process_share_nothing() {
    let servers: Vec<TestServer> = join_all((0..20).map(|_| start())).await;
    let use_it = async |number: usize, api: &TestServer| {
        let way = [Way::Process, Way::Socket][number % 2];
        let maps = way.maps(api).await;
        maps.add(&config_map(&format!("of-{number}"))).await;
        let list = maps.list(&Default::default()).await.unwrap();
        list.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>()
    };
    let seen = join_all(
        servers
            .iter()
            .enumerate()
            .map(|(number, api)| use_it(number, api)),
    )
    .await;
    for (number, (api, names)) in servers.iter().zip(seen).enumerate() {
        assert_eq!(names, ["kube-root-ca.crt".to_owned(), format!("of-{number}")]);
        assert_eq!(api.requests().len(), 2);
    }
    let _outage = servers[0].outage();
    let others = servers[1..]
        .iter()
        .map(|api| async { api.client().apiserver_version().await });
    assert!(join_all(others).await.iter().all(Result::is_ok));
    assert!(servers[0].client().apiserver_version().await.is_err());
}

/// Everything that a server can have tasks for, and a client that outlives it.
async fn busy_server() -> Client {
    let api = start().await;
    let survivor = api.client();
    for way in [Way::Process, Way::Socket] {
        let client = way.client(&api).await;
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let (mut events, _) = watch(&maps).await;
        maps.add(&config_map(&format!("{way:?}").to_lowercase())).await;
        next(&mut events).await;
        let watching = tokio::spawn(async move { while let Some(Ok(_)) = events.next().await {} });
        let fault = api.intercept(RequestFilter::any(), Fault::hold());
        let held = tokio::spawn(async move { maps.list(&Default::default()).await });
        ends("both are held", fault.wait_for_hits(2)).await;
        if matches!(way, Way::Socket) {
            drop(api);
            ends("the watch ends", watching).await.unwrap();
            assert!(ends("the request fails", held).await.unwrap().is_err());
            break;
        }
        drop(fault);
        ends("it goes on", held).await.unwrap().unwrap();
    }
    survivor
}

#[tokio::test]
async fn dropping_a_server_ends_its_tasks_and_its_clients_fail() {
    let metrics = Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let survivor = busy_server().await;
    let error = survivor.apiserver_version().await.expect_err("it is gone");
    assert!(!matches!(error, kube::Error::Api(_)), "{error}");
    drop(survivor);
    until("all tasks have ended", async || {
        metrics.num_alive_tasks() == before
    })
    .await;
}

#[tokio::test]
async fn an_outage_does_not_bring_a_dropped_server_back() {
    let api = start().await;
    let client = api.client();
    let outage = api.outage();
    drop(api);
    outage.end().await;
    assert!(client.apiserver_version().await.is_err());
}

#[tokio::test]
async fn objects_are_there_from_the_start() {
    evenkeel_net::init_crypto();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let manifest = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
---
apiVersion: example.com/v1
kind: Boat
metadata: {name: ark}
";
    let map = ConfigMap {
        metadata: config_map("typed").metadata,
        ..ConfigMap::default()
    };
    let api = TestServer::builder()
        .options(Options {
            rbac: false,
            ..Options::default()
        })
        .object(node)
        .object(map)
        .manifest(manifest)
        .start()
        .await
        .unwrap();
    assert_eq!(api.requests().len(), 0, "what the test sets up is not recorded");
    let client = api.client_as("anybody", &[]);
    let node = Api::<Node>::all(client.clone()).get("n").await.unwrap();
    assert_eq!(node.status.unwrap().conditions.unwrap()[0].status, "True");
    let boat =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Boat"), "boats");
    let boats: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &boat);
    assert_eq!(boats.get("ark").await.unwrap().name_any(), "ark");
    Api::<ConfigMap>::default_namespaced(client)
        .get("typed")
        .await
        .unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_created_is_named() {
    let failed = async |builder: evenkeel_apiserver::TestServerBuilder| {
        let error = builder.start().await.expect_err("it does not start");
        (error.to_string(), error)
    };
    let of_no_kind = TestServer::builder().object(json!({"kind": "Boat"}));
    let (text, _) = failed(of_no_kind).await;
    assert_eq!(text, "no such kind: apiVersion \"\", kind \"Boat\"");
    let refused = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A"}});
    let (text, error) = failed(TestServer::builder().object(refused)).await;
    assert_eq!(text, "cannot create ConfigMap \"A\"");
    let TestServerError::Create { source, .. } = error else {
        panic!("the server refuses it")
    };
    assert_eq!(code(Err::<(), _>(*source)), 422);
    let (text, _) = failed(TestServer::builder().manifest("a: [")).await;
    assert!(text.starts_with("the manifest is not YAML: "), "{text}");
}
