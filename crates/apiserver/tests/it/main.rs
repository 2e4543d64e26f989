//! The API server as its clients see it.

mod apply;
mod clients;
mod crash;
mod custom;
mod decoders;
mod deletion;
mod eviction;
mod kubelet;
mod limits;
mod objects;
mod protobuf;
mod served;
mod signing;
mod test_server;
mod upstream;
mod watches;

use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_testkit::cluster::Objects as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::Api;
use serde_json::json;

fn server() -> ApiServer {
    evenkeel_net::init_crypto();
    ApiServer::new(Options::default()).expect("a server without sockets needs nothing")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).expect("a ConfigMap")
}

/// ConfigMaps of a namespace that has none: the namespaces from the start hold the server's authority.
async fn config_maps(client: kube::Client) -> Api<ConfigMap> {
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "empty"}})).expect("a Namespace");
    Api::<Namespace>::all(client.clone()).add(&namespace).await;
    Api::namespaced(client, "empty")
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    serde_json::from_value(pod).expect("a Pod")
}

async fn create_node(client: &kube::Client, name: &str) -> Node {
    let node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a Node");
    Api::<Node>::all(client.clone()).add(&node).await
}

/// The HTTP status of a refusal.
fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result.expect_err("a refusal") {
        kube::Error::Api(status) => status.code,
        other => unreachable!("in the process every answer is the server's: {other}"),
    }
}
