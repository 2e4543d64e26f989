//! The pause: Evenkeel decides, records, and changes nothing.

use super::cluster::{Cluster, Setup, has_taint, is_leaving, is_ready};
use super::stock;
use evenkeel_api::names::taints;
use evenkeel_api::policy::ModePolicy;
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::{Node, Pod};

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_in_mid_cut_settles_debts_and_its_end_brings_protection_back() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let _replica = cluster.controlled(Setup::with_webhook()).await;
    cluster.cut("n3").await;
    stock::mark_node(&cluster, "n3").await;
    assert!(is_ready(&stock::mark_pod(&cluster, "web").await));

    cluster.pause(Some("we move the switches")).await;
    cluster
        .until("web", "marked, as stock would have done", |pod: &Pod| {
            !is_ready(pod)
        })
        .await;
    cluster
        .eventually_incident("decisions go on being recorded", "n3", |status| {
            (status.decision.state == "Disconnected" && status.decision.observed_only).then_some(())
        })
        .await;
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule", "NoExecute"]);

    cluster.pause(None).await;
    cluster
        .until("n3", "stripped again", |node: &Node| {
            !has_taint(node, taints::UNREACHABLE, "NoExecute")
        })
        .await;
    cluster.ready::<Pod>("web").await;
    until("kept ready", async || {
        is_ready(&stock::would_mark_pod(&cluster, "web").await)
    })
    .await;
    let status = cluster.incident("n3").await.unwrap().status.unwrap();
    assert!(!status.decision.observed_only);
}

/// Nothing is changed on a dead node while Evenkeel only observes, however that was asked for.
async fn only_observes(cluster: &Cluster) {
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    let before = cluster.get::<Node>("n3").await;
    cluster.outside.kill("n3");
    cluster.eventually_state("n3", "Dead, confirmed").await;
    let status = cluster.incident("n3").await.unwrap().status.unwrap();
    assert!(status.decision.observed_only);
    let after = cluster.get::<Node>("n3").await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    let pod = cluster.get::<Pod>("web").await;
    assert!(is_ready(&pod) && !is_leaving(&pod));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_is_paused_a_death_is_recorded_and_nothing_is_changed() {
    let cluster = Cluster::start().await;
    cluster.pause(Some("")).await;
    let _replica = cluster.controlled(Setup::default()).await;
    only_observes(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_mode_observe_a_death_is_recorded_and_nothing_is_changed() {
    let cluster = Cluster::start().await;
    let _replica = cluster
        .controlled(Setup {
            mode: ModePolicy::Observe,
            ..Setup::default()
        })
        .await;
    only_observes(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_observes_holds_for_the_nodes_that_it_selects() {
    let cluster = Cluster::start().await;
    cluster
        .policy("careful", |spec| spec.mode = Some(ModePolicy::Observe))
        .await;
    let _replica = cluster.controlled(Setup::default()).await;
    only_observes(&cluster).await;
}
