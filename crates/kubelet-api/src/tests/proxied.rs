//! Through the API server, as kubectl asks.

use super::super::auth::{Auth, Memory};
use super::super::fake::{Fake, Mood};
use super::super::listeners::{Listeners, Settings as At};
use super::super::tls::signed::{self, follow};
use super::super::{Settings, router};
use super::peer::connects;
use evenkeel_net::serve::ServerTls;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, Options, api_server_with, until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{LogParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A node `n` with its kubelet at a listener whose certificate the API server signs, and pod `default/web` on
/// it.
async fn served(api: &ApiServer, shutdown: &CancellationToken) {
    let tls = ServerTls::without_certificate().unwrap();
    tls.trust(Some(api.ca().certificate_pem())).unwrap();
    let settings = signed::Settings {
        poll: Duration::from_millis(20),
        ..signed::Settings::new("vnode-0")
    };
    let (_, addresses) = watch::channel(BTreeSet::from(["127.0.0.1".parse().unwrap()]));
    tokio::spawn(follow(
        settings,
        api.client(),
        tls.clone(),
        addresses,
        shutdown.clone(),
    ));
    let auth = Auth::new(api.client(), Memory::default());
    let app = router(Fake::new(Mood::Good), Settings::default(), auth);
    let at = At {
        address: "127.0.0.1".parse().unwrap(),
        first_port: 0,
    };
    let address = Listeners::new(at, tls, app, shutdown.clone()).open("n").unwrap();

    let nodes: Api<Node> = Api::all(api.client());
    let node = json!({"metadata": {"name": "n"}});
    nodes.add(&serde_json::from_value(node).unwrap()).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
    }});
    nodes
        .patch_status("n", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(api.client(), "default");
    let pod = json!({
        "metadata": {"name": "web"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}, {"name": "new", "image": "i"}]},
    });
    pods.add(&serde_json::from_value(pod).unwrap()).await;
    until("the certificate is served", async || {
        connects(address, api.ca()).await
    })
    .await;
}

#[tokio::test]
async fn logs_come_by_the_api_server_that_signed_the_certificate() {
    let api = api_server_with(Options {
        approve_kubelet_serving: true,
        ..Options::default()
    });
    let shutdown = CancellationToken::new();
    served(&api, &shutdown).await;
    let pods: Api<Pod> = Api::namespaced(api.client(), "default");
    let logs = async |container: &str, limit_bytes| {
        let params = LogParams {
            container: Some(container.to_owned()),
            limit_bytes,
            ..LogParams::default()
        };
        pods.logs("web", &params).await
    };
    assert_eq!(logs("c", None).await.unwrap(), "one\ntwo\n");
    assert_eq!(logs("c", Some(5)).await.unwrap(), "one\nt");
    let error = logs("new", None).await.unwrap_err().to_string();
    let expected = "container \"new\" in pod \"web\" is waiting to start: ContainerCreating";
    assert!(error.contains(expected), "{error}");
    shutdown.cancel();
}
