//! Streams of clients when another replica takes their node's slot.

use super::cluster::{Cluster, simulated};
use evenkeel_election::Config;
use evenkeel_testkit::SOON;
use evenkeel_testkit::cluster::Objects as _;
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

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_another_replica_takes_their_nodes_slot() {
    let cluster = Cluster::with(&["handover-90"], |options| {
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
    .await;
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
    until("the node is served again", async || {
        let answer = pods.logs("web", &LogParams::default()).await;
        answer.is_ok_and(|log| !log.is_empty())
    })
    .await;
    cluster.end().await;
}
