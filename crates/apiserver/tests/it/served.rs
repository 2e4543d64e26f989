//! The server over TLS.

use super::{config_map, server};
use evenkeel_net::pki::ServerNames;
use evenkeel_testkit::cluster::Objects as _;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) async fn client(kubeconfig: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("our own kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("our own kubeconfig");
    kube::Client::try_from(config).expect("a client")
}

#[tokio::test]
async fn a_certificate_says_who_asks_and_a_stop_ends_watches() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("bound"));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let (server, shutdown) = (server.clone(), shutdown.clone());
        async move { server.serve(listener, &ServerNames::default(), shutdown).await }
    });
    let admin = server
        .kubeconfig(&url, "admin", &["system:masters"])
        .expect("a certificate");
    let admin = Api::<ConfigMap>::default_namespaced(client(&admin).await);
    let mut events = admin
        .watch(&WatchParams::default(), "0")
        .await
        .expect("a watch")
        .boxed();
    admin.add(&config_map("a")).await;
    let event = events.try_next().await.expect("an event").expect("an event");
    assert!(matches!(event, WatchEvent::Added(_)), "{event:?}");
    let bob = server.kubeconfig(&url, "bob", &[]).expect("a certificate");
    let bob = Api::<ConfigMap>::default_namespaced(client(&bob).await);
    assert_eq!(super::code(bob.get("a").await), 403);
    shutdown.cancel();
    while let Ok(Some(_)) = events.try_next().await {}
    tokio::time::timeout(Duration::from_secs(10), running)
        .await
        .expect("streams do not hold the server")
        .expect("no panic")
        .expect("an orderly end");
}

#[tokio::test]
async fn health_and_metrics_are_served_beside_the_api() {
    let server = server();
    let client = server.client();
    let get = |path: &str| http::Request::get(path.to_owned()).body(Vec::new()).unwrap();
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(client.request_text(get(path)).await.unwrap(), "ok", "{path}");
    }
    let metrics = client.request_text(get("/metrics")).await.unwrap();
    assert!(metrics.contains("evenkeel_build_info"), "{metrics}");
    let stranger = server.client_as("stranger", &[]);
    let refused = stranger.request_text(get("/metrics")).await.unwrap_err();
    assert!(
        matches!(refused, kube::Error::Api(status) if status.code == 403),
        "metrics need a right"
    );
}
