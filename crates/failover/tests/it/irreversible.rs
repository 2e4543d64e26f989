//! What cannot be undone: one more look before it, whose word it carries, and what it costs.

use super::cluster::{Cluster, Setup, condition, is_leaving, is_ready, no_execute};
use super::stock;
use evenkeel_api::crd::AgentStatus;
use evenkeel_api::names::{self, annotations};
use evenkeel_testkit::log::Log;
use evenkeel_testkit::{RecordedRequest, until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::json;
use std::time::Instant;

/// Whether a request is work on a failure, and not what runs all the time: watches, audits of quiet ones, the
/// Leases of the election and of the replicas. Events are for people, and none of the work waits for them.
fn is_work(asked: &RecordedRequest) -> bool {
    let own_leases = format!("/namespaces/{}/leases", names::NAMESPACE);
    let accept = asked
        .headers
        .get("accept")
        .and_then(|accept| accept.to_str().ok());
    // Names and versions alone: the audit of a quiet watch.
    let audits = accept.is_some_and(|accept| accept.contains("PartialObjectMetadata"));
    asked.verb != "watch" && !audits && !asked.path.contains(&own_leases) && !asked.path.ends_with("/events")
}

#[tokio::test(flavor = "multi_thread")]
async fn evicting_n_pods_costs_at_most_2_n_and_5_requests() {
    const PODS: usize = 30;
    let cluster = Cluster::start().await;
    for number in 0..PODS {
        cluster
            .pod("n3", &format!("web-{number}"), Some("ReplicaSet"), None)
            .await;
    }
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.outside.kill("n3");
    let mut untainted = Instant::now();
    until("the node is tainted", async || {
        let asked = Instant::now();
        let tainted = no_execute(&cluster.get::<Node>("n3").await);
        if !tainted {
            untainted = asked;
        }
        tainted
    })
    .await;
    until("every pod is deleted", async || {
        cluster.list::<Pod>().await.iter().all(is_leaving)
    })
    .await;
    let took = untainted.elapsed();
    cluster
        .eventually_incident("the eviction is summed up", "n3", |status| {
            let told = status
                .timeline
                .iter()
                .any(|row| row.event == names::events::EVICTED);
            told.then_some(())
        })
        .await;
    let mut work = cluster.asked();
    work.retain(is_work);
    // The node's status is written beside its NoExecute taint, and the taint's row in the incident after it.
    // On a busy machine both come after the first eviction; they are no part of what evictions cost.
    let is_taint = |asked: &RecordedRequest| asked.method == "PATCH" && asked.path == "/api/v1/nodes/n3";
    let taint = work.iter().rposition(is_taint).expect("the node was tainted");
    let is_row = |asked: &RecordedRequest| asked.path.contains("/nodeincidents/");
    let row = work.iter().skip(taint).position(is_row).map(|row| taint + row);
    let mut evicting = work.split_off(taint + 1);
    evicting.remove(row.expect("the taint is recorded") - taint - 1);
    // A mark that met the taint's version is made again, after a look of its own.
    let before = evicting.len();
    evicting.retain(|asked| asked.path != "/api/v1/nodes/n3/status");
    let marks = before - evicting.len();
    // Where the watch shows the status late, the node is looked at once more for it. What is read after the
    // last eviction cost none of them.
    let is_delete = |asked: &RecordedRequest| asked.method == "DELETE";
    let last = evicting.iter().rposition(is_delete).expect("pods were evicted");
    let after = evicting.split_off(last + 1);
    evicting.extend(after.into_iter().filter(|asked| asked.method != "GET"));
    let deletes = evicting.iter().filter(|asked| asked.method == "DELETE").count();
    assert_eq!(deletes, PODS, "{evicting:#?}");
    // One look at the node, of three requests, holds for all evictions that begin within 5 s of it. A machine
    // that takes longer has to look again.
    let looks = 1 + marks + usize::try_from(took.as_secs() / 5).unwrap();
    let most = 2 * PODS + 3 * looks + 2;
    let count = evicting.len();
    assert!(
        count <= most,
        "{count} requests in {took:?}, {most} at most: {evicting:#?}"
    );
}

/// The neighbours vouch for the node while the API server takes its time with an eviction.
#[tokio::test]
async fn life_that_is_heard_during_an_eviction_ends_it() {
    let log = Log::capture();
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.outside.kill("n3");
    cluster
        .eventually_incident("the pod is out of its endpoints", "n3", |status| {
            let mut rows = status.timeline.iter();
            rows.find(|row| row.event == names::events::ENDPOINTS_OUT)
                .cloned()
        })
        .await;
    let held = cluster.held_write("web").await;
    cluster.outside.cut("n3");
    cluster.eventually_state("n3", "Disconnected").await;
    drop(held);
    until("the log says why the pod stays", async || {
        !log.with(&["not done", "evict", "node n3 is not confirmed dead any more"])
            .is_empty()
    })
    .await;
    assert!(!is_leaving(&cluster.get::<Pod>("web").await));
}

/// The Lease is renewed, or the status written, at the API server, and the watch does not show it yet.
async fn a_sign_of_life_that_the_watch_does_not_show(resource: &str, why: &str) {
    let log = Log::capture();
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.outside.kill("n3");
    cluster.eventually_state("n3", "Dead, announced").await;
    let _withheld = cluster.withhold(resource, "n3");
    match resource {
        "leases" => cluster.renewed("n3").await,
        "agentstatuses" => {
            let proof = json!({"spec": {"linkProofs": 1}});
            cluster.merge::<AgentStatus>("n3", proof).await;
        }
        _ => cluster.post_status("n3").await,
    }
    // By all that the watches show, the death is confirmed 12 s later.
    cluster
        .eventually_incident("the death is confirmed", "n3", |status| {
            status.latch.confirmed_at.clone()
        })
        .await;
    until("the log says why the taint was refused", async || {
        !log.with(&["not done", "taint", why]).is_empty()
    })
    .await;
    let node = cluster.get::<Node>("n3").await;
    assert!(!no_execute(&node));
    let ready = node.status.unwrap().conditions.unwrap_or_default();
    let unknown = ready.iter().any(|condition| condition.status == "Unknown");
    assert!(
        !unknown,
        "the stock controllers would answer with NoExecute: {ready:?}"
    );
    assert!(!is_leaving(&cluster.get::<Pod>("web").await));
    let asked = cluster.asked();
    assert!(
        asked
            .iter()
            .all(|asked| asked.method != "DELETE" || !asked.path.contains("/pods/"))
    );
}

#[tokio::test]
async fn a_lease_renewed_behind_a_stale_watch_stops_the_taint() {
    a_sign_of_life_that_the_watch_does_not_show("leases", "its Lease changed since the decision").await;
}

#[tokio::test]
async fn an_agents_write_behind_a_stale_watch_stops_the_taint() {
    a_sign_of_life_that_the_watch_does_not_show("agentstatuses", "its agent wrote since the decision").await;
}

#[tokio::test]
async fn a_heartbeat_written_behind_a_stale_watch_stops_the_taint() {
    a_sign_of_life_that_the_watch_does_not_show(
        "nodes",
        "its kubelet wrote a newer status since the decision",
    )
    .await;
}

#[tokio::test]
async fn a_lease_renewed_behind_a_stale_watch_stops_evictions_that_are_due() {
    let log = Log::capture();
    let cluster = Cluster::start().await;
    // Due some seconds after the taint.
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(6)).await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.outside.kill("n3");
    cluster.until("n3", "tainted", no_execute).await;
    let _withheld = cluster.withhold("leases", "n3");
    cluster.renewed("n3").await;
    until("the log says why the eviction was refused", async || {
        let why = "its Lease changed since the decision";
        !log.with(&["not done", "evict", why]).is_empty()
    })
    .await;
    assert!(!is_leaving(&cluster.get::<Pod>("web").await));
}

/// Pods that were bound to a node in its first seconds without a link, before stock Kubernetes marked it.
#[tokio::test]
async fn a_pod_that_never_started_on_a_cut_off_node_goes_unless_its_kubelet_has_written() {
    let log = Log::from(tracing::Level::DEBUG);
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.cut("n3").await;
    for name in ["late", "started"] {
        cluster.bound_pod("n3", name, Some("ReplicaSet"), Some(0)).await;
    }
    stock::mark_node(&cluster, "n3").await;
    let held = cluster.held_write("started").await;
    cluster.pod_runs("started").await;
    drop(held);
    let late = cluster.until("late", "evicted", is_leaving).await;
    let why = condition(&late, names::conditions::DISRUPTION_TARGET).and_then(|it| it.message.clone());
    assert!(
        why.unwrap_or_default()
            .contains("its kubelet has never written of the pod")
    );
    until("the eviction is refused", async || {
        !log.with(&["the object changed meanwhile", "evict-from-kept"])
            .is_empty()
    })
    .await;
    for name in ["started", "web"] {
        assert!(!is_leaving(&cluster.get::<Pod>(name).await), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_undone_carries_the_fencing_token_of_its_term() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let _replica = cluster
        .controlled(Setup {
            elect: true,
            ..Setup::default()
        })
        .await;
    let lease = cluster.home().get::<Lease>(names::CONTROLLER_LEASE).await;
    let terms = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_transitions)
        .unwrap_or_default();
    let token = format!("{}/{terms}", lease.uid().unwrap());
    cluster.outside.kill("n3");
    let node = cluster.until("n3", "tainted", no_execute).await;
    assert_eq!(node.annotations()[annotations::FENCING_TOKEN], token);
    let pod = cluster.until("web", "evicted", is_leaving).await;
    assert_eq!(pod.annotations()[annotations::FENCING_TOKEN], token);
    assert!(!is_ready(&pod));
}
