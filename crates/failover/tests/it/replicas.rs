//! Several replicas: one leads, all protect, and each starts from what is recorded.

use super::cluster::{Cluster, Setup, is_leaving, is_ready, no_execute};
use super::stock;
use evenkeel_api::names::events;
use evenkeel_testkit::{until, until_within};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_dies_in_mid_disconnected_and_no_endpoint_is_lost() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    let readiness = cluster.watch_readiness("web").await;
    let leader = cluster.controlled(Setup::elected("a")).await;
    cluster.eventually_led_by("a").await;
    // The API server asks the webhook of the replica that came last.
    let _other = cluster.replica(Setup::elected("b")).await;
    cluster.cut("n3").await;
    until("the other replica keeps the pod ready", async || {
        is_ready(&stock::would_mark_pod(&cluster, "web").await)
    })
    .await;
    cluster.kill(leader).await;

    // Nobody leads; the stock controllers begin now.
    stock::mark_node(&cluster, "n3").await;
    assert!(is_ready(&stock::mark_pod(&cluster, "web").await));
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule"]);
    cluster.eventually_led_by("b").await;
    cluster
        .eventually_incident("the new leader says so, too", "n3", |status| {
            (status.decision.by == "b").then_some(())
        })
        .await;
    assert!(is_ready(&stock::mark_pod(&cluster, "web").await));
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule"]);

    let status = cluster.incident("n3").await.unwrap().status.unwrap();
    assert_eq!(status.decision.state, "Disconnected");
    let told = status
        .timeline
        .iter()
        .filter(|row| row.event == events::DISCONNECTED);
    assert_eq!(told.count(), 1, "one incident, told once: {:?}", status.timeline);
    readiness.never_lost();
    assert!(!is_leaving(&cluster.get::<Pod>("web").await));
    assert!(!no_execute(&cluster.get::<Node>("n3").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_replica_protects_by_the_incident_before_it_has_evidence_of_its_own() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    let readiness = cluster.watch_readiness("web").await;
    let first = cluster.controlled(Setup::elected("a")).await;
    cluster.cut("n3").await;
    let before = cluster.incident("n3").await.unwrap();
    cluster.kill(first).await;
    // Nothing new comes from the zone: all that the next replica can know of the node stands in the incident.
    cluster.outside.mute();

    let _second = cluster.replica(Setup::elected("b")).await;
    until("the pod is kept ready", async || {
        is_ready(&stock::would_mark_pod(&cluster, "web").await)
    })
    .await;
    assert!(is_ready(&stock::mark_pod(&cluster, "web").await));
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule"]);
    let after = cluster.incident("n3").await.unwrap();
    assert_eq!(after.uid(), before.uid());
    let since =
        |incident: &evenkeel_api::crd::NodeIncident| incident.status.as_ref().unwrap().state_since.clone();
    assert_eq!(since(&after), since(&before));
    readiness.never_lost();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_replica_does_not_take_an_isolated_node_for_dead() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    let first = cluster.controlled(Setup::elected("a")).await;
    // Its peers cannot reach it, the API server can: it renews while they go on saying that it is dead.
    cluster.outside.kill("n3");
    cluster.eventually_state("n3", "Dead, announced").await;
    cluster.renewed("n3").await;
    cluster.eventually_state("n3", "Isolated").await;
    cluster.kill(first).await;

    let _second = cluster.replica(Setup::elected("b")).await;
    cluster
        .eventually_incident("the new leader has looked", "n3", |status| {
            (status.decision.by == "b").then_some(())
        })
        .await;
    let status = cluster.incident("n3").await.unwrap().status.unwrap();
    assert_eq!(status.decision.state, "Isolated", "{:?}", status.timeline);
    assert!(!is_leaving(&cluster.get::<Pod>("web").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_sees_nothing_for_a_minute_hands_over_to_a_replica_that_does() {
    let cluster = Cluster::start().await;
    let blind = cluster.controlled(Setup::elected("a")).await;
    cluster.eventually_led_by("a").await;
    let _other = cluster.replica(Setup::elected("b")).await;
    let _held = cluster.hold_of(&blind, "zonereports");
    until_within("the other replica leads", Duration::from_secs(120), async || {
        cluster.leader().await == "b"
    })
    .await;
    cluster.cut("n3").await;
    cluster
        .eventually_incident("the new leader decides", "n3", |status| {
            (status.decision.by == "b").then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_replicas_that_are_long_gone_are_removed_by_the_next_one_that_starts() {
    let cluster = Cluster::start().await;
    for (replica, hours) in [("gone", 2), ("killed-lately", 0)] {
        let renewed = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
        let lease = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("evenkeel-controller-replica-{replica}"), "namespace": "evenkeel-system"},
            "spec": {"holderIdentity": replica, "renewTime": format!("{renewed:.6}")},
        });
        cluster.create_any(lease).await;
    }
    let _replica = cluster.replica(Setup::elected("a")).await;
    until("it shows that it works", async || {
        cluster.replicas().await == ["a", "killed-lately"]
    })
    .await;
}
