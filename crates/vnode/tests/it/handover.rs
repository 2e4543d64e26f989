//! Streams of clients when another replica takes their node's slot.

use super::cluster::{Cluster, simulated};
use evenkeel_election::Config;
use evenkeel_testkit::SOON;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::objects::{container_status, pod_condition};
use evenkeel_testkit::until;
use evenkeel_vnode::ownership::Sharing;
use futures::AsyncReadExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess, LogParams};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Waits for the end of something that a client reads.
async fn ends<T>(what: &str, reading: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(SOON, reading).await;
    ended.unwrap_or_else(|_| panic!("{what} does not end"))
}

/// Another replica takes the only slot, and says nothing more.
async fn is_taken(cluster: &Cluster) {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "default");
    let taken =
        json!({"spec": {"holderIdentity": "another", "renewTime": format!("{:.6}", Timestamp::now())}});
    leases.merge("fleet-0", taken).await;
}

/// A fleet with one slot.
async fn sharing(node: &str) -> Cluster {
    Cluster::with(&[node], |options| {
        options.sharing = Sharing::Slots {
            terms: None,
            slots: 1,
            namespace: "default".to_owned(),
            name: "fleet".to_owned(),
            election: Config {
                lease_duration: Duration::from_secs(3),
                renew_deadline: Duration::from_secs(2),
                retry_period: Duration::from_millis(250),
                ..Config::new("this")
            },
        };
    })
    .await
}

/// The pod's node is served, again.
async fn is_served(pods: &Api<Pod>, name: &str) {
    until("the node is served again", async || {
        let answer = pods.logs(name, &LogParams::default()).await;
        answer.is_ok_and(|log| !log.is_empty())
    })
    .await;
}

/// In every outage of the API server slots are lost and come back, and the prober, which is older than its
/// containers, meets them anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_slot_comes_back_neither_loses_its_readiness_nor_begins_anew() {
    let cluster = sharing("handover-91").await;
    let probe = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1});
    let mut more = json!({"spec": {"containers": [{"name": "app", "image": "registry.example.com/app:1",
        "startupProbe": probe, "readinessProbe": probe}]}});
    let simulation = [("serve", "8080"), ("log", "{n}"), ("log-interval", "10ms")];
    more["metadata"] = json!({"annotations": simulated("app", &simulation)});
    cluster.pod("web", "handover-91", more).await;
    let before = cluster.ready::<Pod>("web").await;
    let pods = cluster.streaming_pods().await;
    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let mut log = pods.log_stream("web", &follow).await.unwrap();
    is_taken(&cluster).await;
    let _ = ends("the log", log.read_to_end(&mut Vec::new())).await;
    is_served(&pods, "web").await;
    let made = || cluster.probes(&before, "app", "Readiness", "successful");
    let already = made();
    until("it is probed again", async || made() >= already + 3).await;
    let after = pods.get("web").await.unwrap();
    assert_eq!(pod_condition(&after, "Ready"), pod_condition(&before, "Ready"));
    assert_eq!(container_status(&after, "app"), container_status(&before, "app"));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_another_replica_takes_their_nodes_slot() {
    let cluster = sharing("handover-90").await;
    let more = json!({"metadata": {"annotations": simulated("app", &[("serve", "8080"), ("log", "{n}"), ("log-interval", "10ms")])}});
    cluster.pod("web", "handover-90", more).await;
    cluster.ready::<Pod>("web").await;
    let pods = cluster.streaming_pods().await;

    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let mut log = pods.log_stream("web", &follow).await.unwrap();
    assert!(log.read(&mut [0]).await.unwrap() > 0);
    let streams = AttachParams::default().stdin(true).stdout(true).stderr(false);
    let mut command = pods.exec("web", ["cat"], &streams).await.unwrap();
    command.stdin().unwrap().write_all(b"one").await.unwrap();
    let mut echo = command.stdout().unwrap();
    echo.read_exact(&mut [0; 3]).await.unwrap();
    let mut joined: AttachedProcess = pods
        .attach("web", &AttachParams::default().stdout(true).stderr(false))
        .await
        .unwrap();
    let mut output = joined.stdout().unwrap();
    assert!(output.read(&mut [0]).await.unwrap() > 0);
    let mut forward = pods.portforward("web", &[8080]).await.unwrap();
    let mut connection = forward.take_stream(8080).unwrap();
    connection
        .write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n")
        .await
        .unwrap();
    assert!(connection.read(&mut [0]).await.unwrap() > 0);

    is_taken(&cluster).await;
    // However it is told: a connection may be cut where nobody reads on.
    let mut rest = Vec::new();
    let _ = ends("the log", log.read_to_end(&mut rest)).await;
    let _ = ends("the command's output", echo.read_to_end(&mut rest)).await;
    let _ = ends("the command", command.join()).await;
    let _ = ends("the container's output", output.read_to_end(&mut rest)).await;
    let _ = ends("the forwarded connection", connection.read_to_end(&mut rest)).await;

    // The other one is silent, and so the node comes back; clients may come again.
    is_served(&pods, "web").await;
    cluster.end().await;
}
