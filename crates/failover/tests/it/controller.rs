use super::cluster::{Cluster, SOON, Said};
use evenkeel_api::names::{annotations, conditions, events, taints};
use evenkeel_failover::core::policy::Profile;
use evenkeel_testkit::eventually;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, PodCondition, Taint};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

fn ready_of(node: &Node) -> &NodeCondition {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready")
        .expect("a node says Ready")
}

fn no_execute(node: &Node) -> Option<&Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints
        .into_iter()
        .flatten()
        .find(|taint| taint.key == taints::UNREACHABLE && taint.effect == "NoExecute")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_nodes_pods_leave_endpoints_and_stateless_ones_are_deleted() {
    let mut cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    cluster.pod("n3", "db-0", Some("StatefulSet"), None).await;
    cluster.pod("n3", "agent", Some("DaemonSet"), None).await;
    cluster.pod("n1", "elsewhere", Some("ReplicaSet"), None).await;
    cluster.control(Profile::Edge, false);
    cluster.ready().await;
    let heartbeat = ready_of(&cluster.nodes().get("n3").await.unwrap())
        .last_heartbeat_time
        .clone();

    cluster.silence("n3");
    cluster.say("n3", Said::Dead);
    for name in ["web", "db-0", "agent"] {
        let reason = cluster
            .eventually_pod("not ready", name, |pod| {
                let ready = condition(pod, "Ready")?;
                (ready.status == "False").then(|| ready.reason.clone())
            })
            .await;
        assert_eq!(reason.as_deref(), Some(conditions::REASON_NODE_DEAD));
    }
    let node = cluster
        .eventually_node("tainted and Unknown", "n3", |node| {
            let both = no_execute(node).is_some() && ready_of(node).status == "Unknown";
            both.then(|| node.clone())
        })
        .await;
    assert!(no_execute(&node).unwrap().time_added.is_some());
    let ready = ready_of(&node);
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_deref()),
        ("Unknown", Some(conditions::REASON_CONFIRMED_DEAD))
    );
    assert_eq!(
        ready.last_heartbeat_time, heartbeat,
        "the heartbeat is the kubelet's"
    );
    assert_eq!(
        node.annotations()[annotations::ADDED_TAINTS],
        "node.kubernetes.io/unreachable:NoExecute"
    );

    let pod = cluster
        .eventually_pod("deleted", "web", |pod| {
            pod.metadata.deletion_timestamp.is_some().then(|| pod.clone())
        })
        .await;
    let disruption = condition(&pod, conditions::DISRUPTION_TARGET).expect("it says why");
    assert_eq!(disruption.reason.as_deref(), Some(conditions::REASON_EVICTED));
    let missing = eventually("an incident that says what is missing", SOON, || async {
        let status = cluster.incident("n3").await?.status?;
        let summed_up = status.timeline.iter().any(|row| row.event == events::EVICTED);
        (summed_up && status.tainted_at.is_some()).then_some(status.fence.missing)
    })
    .await;
    assert!(missing.starts_with("not moved: no fence proof"), "{missing}");
    for name in ["db-0", "agent"] {
        assert_eq!(
            cluster
                .pods()
                .get(name)
                .await
                .unwrap()
                .metadata
                .deletion_timestamp,
            None,
            "{name}"
        );
    }
    assert!(is_ready(&cluster.pods().get("elsewhere").await.unwrap()));
    let told = eventually("Events", SOON, || async {
        let told = cluster.events(events::NOT_MOVED).await;
        (!told.is_empty() && !cluster.events(events::DEAD).await.is_empty()).then_some(told)
    })
    .await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].involved_object.name.as_deref(), Some("db-0"));

    cluster.revive("n3");
    cluster
        .eventually_node("clean again", "n3", |node| {
            no_execute(node).is_none().then_some(())
        })
        .await;
    eventually("the incident closed", SOON, || async {
        cluster.incident("n3").await?.status?.closed_at.map(|_| ())
    })
    .await;
    let node = cluster.nodes().get("n3").await.unwrap();
    assert!(!node.annotations().contains_key(annotations::ADDED_TAINTS));
    assert_eq!(ready_of(&node).status, "Unknown", "only the kubelet says Ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_cut_off_node_nothing_moves_and_what_stock_did_is_undone() {
    let mut cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    cluster.control(Profile::Edge, false);
    cluster.ready().await;
    cluster.say("n3", Said::CutOff);
    cluster.silence("n3");
    eventually("Disconnected", SOON, || async {
        let status = cluster.incident("n3").await?.status?;
        (status.state == "Disconnected").then_some(())
    })
    .await;

    // What the stock controllers would do to it, had the webhook been down.
    let taint = json!({"key": taints::UNREACHABLE, "effect": "NoExecute"});
    let patch = Patch::Strategic(json!({"spec": {"taints": [taint]}}));
    cluster
        .nodes()
        .patch("n3", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let ready = json!({"type": "Ready", "status": "False"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
    cluster
        .pods()
        .patch_status("web", &PatchParams::default(), &patch)
        .await
        .unwrap();

    cluster
        .eventually_node("the taint stripped", "n3", |node| {
            no_execute(node).is_none().then_some(())
        })
        .await;
    cluster
        .eventually_pod("ready again", "web", |pod| is_ready(pod).then_some(()))
        .await;
    let pod = cluster.pods().get("web").await.unwrap();
    assert_eq!(
        (
            pod.metadata.deletion_timestamp,
            pod.spec.unwrap().node_name.as_deref()
        ),
        (None, Some("n3"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_takes_over_in_mid_dead_keeps_the_deadline() {
    let mut cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(5)).await;
    cluster.control(Profile::Edge, true);
    cluster.ready().await;
    cluster.silence("n3");
    cluster.say("n3", Said::Dead);
    let tainted_at = eventually("the deadline recorded", SOON, || async {
        cluster.incident("n3").await?.status?.tainted_at
    })
    .await;
    cluster.stop_controller().await;
    assert_eq!(
        cluster
            .pods()
            .get("web")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp,
        None,
        "not due yet"
    );

    cluster.control(Profile::Edge, true);
    cluster
        .eventually_pod("deleted", "web", |pod| {
            pod.metadata.deletion_timestamp.is_some().then_some(())
        })
        .await;
    let waited = Timestamp::now().duration_since(tainted_at.0);
    assert!(
        waited >= SignedDuration::from_secs(5),
        "due 5 s after the taint, deleted after {waited:?}"
    );
    let status = cluster.incident("n3").await.unwrap().status.unwrap();
    assert_eq!(status.tainted_at, Some(tainted_at), "the timer was taken over");
    let deaths = status
        .timeline
        .iter()
        .filter(|row| row.event == events::DEAD)
        .count();
    assert_eq!(deaths, 1, "the incident was taken over: {:?}", status.timeline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_nobody_vouches_for_or_against_is_left_to_stock() {
    let mut cluster = Cluster::start().await;
    cluster.policy(|spec| spec.evict_after_seconds = Some(0)).await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    cluster.control(Profile::Builtin, false);
    cluster.ready().await;
    // n2 dies by verdict, n3 falls silent without one: once n2 is dealt with, n3 had its chance to be touched.
    cluster.pod("n2", "other", Some("ReplicaSet"), None).await;
    for node in ["n2", "n3"] {
        cluster.silence(node);
    }
    cluster.say("n2", Said::Dead);
    cluster
        .eventually_pod("deleted", "other", |pod| {
            pod.metadata.deletion_timestamp.is_some().then_some(())
        })
        .await;
    let policies: kube::Api<evenkeel_api::FailoverPolicy> = kube::Api::all(cluster.client.clone());
    let matched = eventually("the policy told", Duration::from_secs(30), || async {
        policies
            .get("p")
            .await
            .unwrap()
            .status
            .map(|status| status.matched_nodes)
    })
    .await;
    assert_eq!(matched, 3);
    let node = cluster.nodes().get("n3").await.unwrap();
    assert!(no_execute(&node).is_none() && ready_of(&node).status == "True");
    assert!(is_ready(&cluster.pods().get("web").await.unwrap()));
    assert!(cluster.incident("n3").await.is_none());
}
