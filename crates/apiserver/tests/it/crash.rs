//! The server goes down and comes back.

use super::{code, config_map, server};
use evenkeel_net::pki::ServerNames;
use evenkeel_testkit::{ends, eventually};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);

async fn add(api: &Api<ConfigMap>, name: &str) -> String {
    let created = api.create(&PostParams::default(), &config_map(name)).await;
    let created = created.expect("a new name");
    created.metadata.resource_version.expect("a version")
}

/// The first event of a watch.
async fn first(api: &Api<ConfigMap>, version: &str) -> WatchEvent<ConfigMap> {
    let events = api.watch(&WatchParams::default(), version).await;
    let mut events = events.expect("a watch").boxed();
    events.try_next().await.expect("an event").expect("an event")
}

#[tokio::test]
async fn clients_in_the_process_fail_while_the_server_is_down_and_their_watches_end() {
    let server = server();
    let api = Api::<ConfigMap>::default_namespaced(server.client());
    let version = add(&api, "a").await;
    let mut events = api
        .watch(&WatchParams::default(), &version)
        .await
        .expect("a watch")
        .boxed();
    assert!(server.crash() && !server.is_up());
    assert!(!server.crash(), "it is down already");
    let ended = tokio::time::timeout(SOON, events.try_next()).await;
    assert!(ended.expect("the watch ends").ok().flatten().is_none());
    let refused = api.get("a").await.expect_err("nobody answers");
    assert!(matches!(refused, kube::Error::Service(_)), "{refused}");
    assert!(server.come_back() && server.is_up());
    assert!(!server.come_back(), "it is up already");
    api.get("a").await.expect("the objects are kept");
}

#[tokio::test]
async fn a_server_that_came_back_knows_no_past() {
    let server = server();
    let api = Api::<ConfigMap>::default_namespaced(server.client());
    let old = add(&api, "a").await;
    add(&api, "b").await;
    server.crash();
    server.come_back();
    let WatchEvent::Error(status) = first(&api, &old).await else {
        panic!("the past was told")
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    let listed = api.list(&Default::default()).await.expect("a list");
    let now = listed.metadata.resource_version.expect("a version");
    add(&api, "c").await;
    assert!(matches!(first(&api, &now).await, WatchEvent::Added(_)));
}

#[tokio::test]
async fn a_client_that_follows_kubernetes_rules_lists_again() {
    let server = server();
    let api = crate::config_maps(server.client()).await;
    add(&api, "a").await;
    let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
    let mut lists = 0;
    let mut seen = Vec::new();
    while lists < 2 {
        match events.next().await.expect("watchers do not end") {
            Ok(watcher::Event::Init) => seen.clear(),
            Ok(watcher::Event::InitApply(map)) => seen.push(map.metadata.name.expect("a name")),
            Ok(watcher::Event::InitDone) if lists == 0 => {
                lists += 1;
                // Written after the list, and forgotten before the watch.
                add(&api, "b").await;
                server.crash();
                server.come_back();
            }
            Ok(watcher::Event::InitDone) => lists += 1,
            // A failed request, or what changed before it noticed.
            Ok(_) | Err(_) => {}
        }
    }
    assert_eq!(seen, ["a", "b"]);
}

#[tokio::test]
async fn an_observer_goes_on_across_a_crash() {
    let server = server();
    let seen = Api::<ConfigMap>::default_namespaced(server.observer());
    let api = Api::<ConfigMap>::default_namespaced(server.client());
    let version = add(&api, "a").await;
    let mut events = seen
        .watch(&WatchParams::default(), &version)
        .await
        .expect("a watch")
        .boxed();
    // Something else is written last: the observer has not moved past it when history is forgotten.
    super::create_node(&server.client(), "n").await;
    server.crash();
    seen.get("a").await.expect("an observer is answered");
    server.come_back();
    add(&api, "b").await;
    let event = events.try_next().await.expect("an event").expect("an event");
    assert!(matches!(event, WatchEvent::Added(_)), "{event:?}");
}

#[tokio::test]
async fn connections_are_cut_and_refused_and_the_address_is_the_same_afterwards() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let (server, shutdown) = (server.clone(), shutdown.clone());
        async move { server.serve(listener, &ServerNames::default(), shutdown).await }
    });
    let kubeconfig = server
        .kubeconfig(&format!("https://{address}"), "admin", &["system:masters"])
        .expect("a certificate");
    let api = Api::<ConfigMap>::default_namespaced(super::served::client(&kubeconfig).await);
    let version = add(&api, "a").await;
    let mut events = api
        .watch(&WatchParams::default(), &version)
        .await
        .expect("a watch")
        .boxed();
    let mut idle = TcpStream::connect(address).await.expect("it listens");
    server.crash();
    let ended = async { while let Ok(Some(_)) = events.try_next().await {} };
    ends("the watch is cut", ended).await;
    eventually("connections are refused", SOON, || async {
        let refused = TcpStream::connect(address).await.err()?;
        (refused.kind() == std::io::ErrorKind::ConnectionRefused).then_some(())
    })
    .await;
    let mut byte = [0; 1];
    let read = tokio::io::AsyncReadExt::read(&mut idle, &mut byte);
    let read = ends("it was cut", read).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    server.come_back();
    eventually("the same address answers", SOON, || async {
        api.get("a").await.ok().map(|_| ())
    })
    .await;
    assert_eq!(code(api.get("b").await), 404);
    shutdown.cancel();
    let stopped = tokio::time::timeout(SOON, running).await;
    stopped
        .expect("it stops")
        .expect("no panic")
        .expect("an orderly end");
}

#[tokio::test]
async fn a_server_that_is_down_can_be_stopped() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let shutdown = CancellationToken::new();
    server.crash();
    let running = tokio::spawn({
        let (server, shutdown) = (server.clone(), shutdown.clone());
        async move { server.serve(listener, &ServerNames::default(), shutdown).await }
    });
    shutdown.cancel();
    let stopped = tokio::time::timeout(SOON, running).await;
    stopped
        .expect("it stops")
        .expect("no panic")
        .expect("an orderly end");
}
