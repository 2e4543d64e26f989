//! A replica that stops: the last one settles what it kept from stock Kubernetes.

use super::cluster::{Cluster, Setup, has_taint, is_ready};
use super::stock;
use evenkeel_api::names::{self, annotations, taints};
use evenkeel_testkit::{Fault, until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

/// A node in mid-Disconnected whose pod the stock controller would have marked.
async fn kept_from_stock(cluster: &Cluster) {
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    cluster.cut("n3").await;
    stock::mark_node(cluster, "n3").await;
    assert!(is_ready(&stock::mark_pod(cluster, "web").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_that_stops_marks_the_pods_that_stock_would_have_marked() {
    let cluster = Cluster::start().await;
    let last = cluster.controlled(Setup::elected("a")).await;
    kept_from_stock(&cluster).await;
    // At once: the stock controller marked the node a moment ago, and marks its pods no more.
    last.stop().await;
    assert!(!is_ready(&cluster.get::<Pod>("web").await));
    assert_eq!(cluster.replicas().await, Vec::<String>::new());
    assert_eq!(cluster.leader().await, "", "the Lease was given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_that_stops_takes_its_taints_off() {
    let cluster = Cluster::start().await;
    let last = cluster.controlled(Setup::elected("a")).await;
    cluster.outside.kill("n3");
    cluster
        .until("n3", "no new pods", |node: &Node| {
            has_taint(node, taints::DEAD, "NoSchedule")
        })
        .await;
    last.stop().await;
    let node = cluster.get::<Node>("n3").await;
    assert!(!has_taint(&node, taints::DEAD, "NoSchedule"));
    assert!(!node.annotations().contains_key(annotations::ADDED_TAINTS));
}

/// S3: the eviction that nobody answered may be carried out yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stops_with_a_write_under_way_does_not_give_the_lease_back() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let last = cluster.controlled(Setup::elected("a")).await;
    cluster.outside.kill("n3");
    cluster
        .until("web", "not ready", |pod: &Pod| !is_ready(pod))
        .await;
    let _held = cluster.held_write("web").await;
    last.stop().await;
    assert_eq!(cluster.leader().await, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_replicas_that_stop_together_the_last_one_settles() {
    let cluster = Cluster::start().await;
    let first = cluster.controlled(Setup::elected("a")).await;
    cluster.eventually_led_by("a").await;
    let second = cluster.replica(Setup::elected("b")).await;
    kept_from_stock(&cluster).await;
    tokio::join!(first.stop(), second.stop());
    assert!(!is_ready(&cluster.get::<Pod>("web").await));
    assert_eq!(cluster.replicas().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_settles_though_it_did_not_lead() {
    let cluster = Cluster::start().await;
    let first = cluster.controlled(Setup::elected("a")).await;
    cluster.eventually_led_by("a").await;
    let last = cluster.replica(Setup::elected("b")).await;
    kept_from_stock(&cluster).await;
    first.stop().await;
    last.stop().await;
    assert!(!is_ready(&cluster.get::<Pod>("web").await));
    assert_eq!(cluster.leader().await, "", "the Lease was given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stops_while_another_one_works_leaves_everything_to_it() {
    let cluster = Cluster::start().await;
    let first = cluster.controlled(Setup::elected("a")).await;
    cluster.eventually_led_by("a").await;
    let _other = cluster.replica(Setup::elected("b")).await;
    kept_from_stock(&cluster).await;
    let readiness = cluster.watch_readiness("web").await;
    first.stop().await;
    assert_eq!(cluster.replicas().await, ["b"]);
    cluster.eventually_led_by("b").await;
    cluster
        .eventually_incident("the other replica leads on", "n3", |status| {
            (status.decision.by == "b" && !status.decision.observed_only).then_some(())
        })
        .await;
    assert!(is_ready(&stock::mark_pod(&cluster, "web").await));
    readiness.never_lost();
}

/// It did not know of the other one when it began to stop: the API server was away, or its watch lagged.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_learns_of_another_one_while_it_settles_leaves_the_rest_to_it() {
    let cluster = Cluster::start().await;
    let first = cluster.controlled(Setup::elected("a")).await;
    cluster.eventually_led_by("a").await;
    kept_from_stock(&cluster).await;
    let lease = format!("{}b", names::REPLICA_LEASE_PREFIX);
    let unseen = cluster.withhold("leases", &lease);
    let _other = cluster.replica(Setup::elected("b")).await;
    until("the other replica works", async || {
        cluster.replicas().await == ["a", "b"]
    })
    .await;
    let readiness = cluster.watch_readiness("web").await;
    let marks = cluster.fault_writes("pods/status", "web", Fault::status(500, "InternalError"));
    let stopping = tokio::spawn(first.stop());
    until("it has begun to settle", async || marks.hits() > 0).await;
    drop(unseen);
    let renewed = async || cluster.home().get::<Lease>(&lease).await.spec.unwrap().renew_time;
    for _ in 0..2 {
        let before = renewed().await;
        until("the other replica shows that it works", async || {
            renewed().await != before
        })
        .await;
    }
    // By now the one that stops knows, and marks nothing though it could.
    drop(marks);
    stopping.await.unwrap();
    cluster.eventually_led_by("b").await;
    assert!(is_ready(&stock::mark_pod(&cluster, "web").await));
    readiness.never_lost();
}
