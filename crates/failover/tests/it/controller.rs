use super::cluster::{Cluster, Setup, condition, has_taint, is_leaving, is_ready, no_execute};
use super::stock;
use super::zone::{roster_key, roster_of};
use evenkeel_api::crd::{AgentStatus, FailoverPolicy, ZoneChallenge, ZoneHealth};
use evenkeel_api::names::{annotations, conditions, events, taints};
use evenkeel_api::zone::RosterSpec;
use evenkeel_judge::Profile;
use evenkeel_testkit::{SOON, eventually};
use evenkeel_zone::roster::publish;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use kube::ResourceExt as _;
use serde_json::json;

fn ready_of(node: &Node) -> &NodeCondition {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready")
        .expect("a node says Ready")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_death_takes_endpoints_and_nothing_that_cannot_be_undone() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    let _replica = cluster.controlled(Setup::with_webhook()).await;
    cluster.outside.kill("n3");
    cluster
        .until("web", "not ready", |pod: &Pod| !is_ready(pod))
        .await;
    let node = cluster
        .until("n3", "no new pods", |node: &Node| {
            has_taint(node, taints::DEAD, "NoSchedule")
        })
        .await;
    assert_eq!(
        ready_of(&node).status,
        "True",
        "the mark of the node waits for the confirmation"
    );
    assert!(!no_execute(&node));
    // The stock controller would evict a pod that tolerates nothing at once.
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule"]);
    let status = cluster.incident("n3").await.unwrap().status.unwrap();
    assert!(status.latch.first_dead_round_at.is_some(), "{:?}", status.latch);
    assert_eq!(status.latch.confirmed_at, None);
    assert!(!is_leaving(&cluster.get::<Pod>("web").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_deaths_pods_leave_endpoints_and_stateless_ones_are_deleted() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    cluster.pod("n3", "db-0", Some("StatefulSet"), None).await;
    cluster.pod("n3", "agent", Some("DaemonSet"), None).await;
    cluster.pod("n1", "elsewhere", Some("ReplicaSet"), None).await;
    let _replica = cluster.controlled(Setup::default()).await;
    let heartbeat = ready_of(&cluster.get::<Node>("n3").await)
        .last_heartbeat_time
        .clone();

    cluster.outside.kill("n3");
    for name in ["web", "db-0", "agent"] {
        let reason = cluster
            .until_some(name, "not ready", |pod: &Pod| {
                let ready = condition(pod, "Ready")?;
                (ready.status == "False").then(|| ready.reason.clone())
            })
            .await;
        assert_eq!(reason.as_deref(), Some(conditions::REASON_NODE_DEAD));
    }
    let node = cluster
        .until("n3", "tainted and Unknown", |node: &Node| {
            no_execute(node) && ready_of(node).status == "Unknown"
        })
        .await;
    let timed =
        |taint: &k8s_openapi::api::core::v1::Taint| taint.effect != "NoExecute" || taint.time_added.is_some();
    assert!(node.spec.as_ref().unwrap().taints.iter().flatten().all(timed));
    let ready = ready_of(&node);
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_deref()),
        ("Unknown", Some(conditions::REASON_CONFIRMED_DEAD))
    );
    assert_eq!(
        ready.last_heartbeat_time, heartbeat,
        "the heartbeat is the kubelet's"
    );
    let mut added: Vec<&str> = node.annotations()[annotations::ADDED_TAINTS].split(',').collect();
    added.sort_unstable();
    assert_eq!(
        added,
        [
            "evenkeel.io/dead:NoSchedule",
            "node.kubernetes.io/unreachable:NoExecute"
        ]
    );

    let pod = cluster.until("web", "deleted", is_leaving).await;
    let disruption = condition(&pod, conditions::DISRUPTION_TARGET).expect("it says why");
    assert_eq!(disruption.reason.as_deref(), Some(conditions::REASON_EVICTED));
    let missing = cluster
        .eventually_incident("an incident that says what is missing", "n3", |status| {
            let summed_up = status.timeline.iter().any(|row| row.event == events::EVICTED);
            (summed_up && status.tainted_at.is_some()).then(|| status.fence.missing.clone())
        })
        .await;
    assert!(missing.starts_with("not moved: no fence proof"), "{missing}");
    for name in ["db-0", "agent"] {
        assert!(!is_leaving(&cluster.get::<Pod>(name).await), "{name}");
    }
    assert!(is_ready(&cluster.get::<Pod>("elsewhere").await));
    let told = eventually("Events", SOON, || async {
        let told = cluster.told(events::NOT_MOVED).await;
        (!told.is_empty() && !cluster.told(events::DEAD).await.is_empty()).then_some(told)
    })
    .await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].involved_object.name.as_deref(), Some("db-0"));

    // It renews again, and its peers vouch for it in the rounds that the controller asks for.
    cluster.outside.revive("n3");
    cluster
        .until("n3", "clean again", |node: &Node| {
            !no_execute(node) && !has_taint(node, taints::DEAD, "NoSchedule")
        })
        .await;
    cluster
        .eventually_incident("the incident closed", "n3", |status| status.closed_at.clone())
        .await;
    let node = cluster.get::<Node>("n3").await;
    assert!(!node.annotations().contains_key(annotations::ADDED_TAINTS));
    assert_eq!(ready_of(&node).status, "Unknown", "only the kubelet says Ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_that_renews_is_isolated_until_its_peers_vouch_for_it() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.outside.kill("n3");
    cluster.eventually_state("n3", "Dead, announced").await;
    // It was listed; now nobody says anything of it any more. That acquits nobody, and the round that would
    // is asked for.
    cluster.outside.mute();
    cluster.renewed("n3").await;
    cluster.eventually_state("n3", "Isolated").await;
    let uid = cluster.get::<Node>("n3").await.uid().unwrap();
    cluster
        .until(
            "default",
            "asks for rounds about it",
            |challenge: &ZoneChallenge| challenge.spec.wanted.contains(&uid),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_cut_off_node_nothing_moves_and_what_stock_did_is_undone() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(0)).await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.cut("n3").await;

    // What the stock controllers do to it where the webhook is down.
    assert_eq!(stock::taint(&cluster, "n3").await, ["NoSchedule", "NoExecute"]);
    assert!(!is_ready(&stock::mark_pod(&cluster, "web").await));
    cluster
        .until("n3", "the taint stripped", |node: &Node| !no_execute(node))
        .await;
    let reason = cluster
        .until_some("web", "ready again", |pod: &Pod| {
            is_ready(pod).then(|| condition(pod, "Ready").and_then(|ready| ready.reason.clone()))
        })
        .await;
    assert_eq!(reason.as_deref(), Some(conditions::REASON_GIVEN_BACK));
    let pod = cluster.get::<Pod>("web").await;
    assert!(!is_leaving(&pod));
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_of_ours_are_given_back_once_peers_have_vouched_for_ten_seconds() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.outside.kill("n3");
    cluster
        .until("web", "not ready", |pod: &Pod| !is_ready(pod))
        .await;
    // It was a stall, and the node is cut off besides: its kubelet cannot say so.
    cluster.eventually_stale("n3").await;
    let vouched_from = Timestamp::now();
    cluster.cut("n3").await;
    let reason = cluster
        .until_some("web", "ready again", |pod: &Pod| {
            is_ready(pod).then(|| condition(pod, "Ready").and_then(|ready| ready.reason.clone()))
        })
        .await;
    assert_eq!(reason.as_deref(), Some(conditions::REASON_GIVEN_BACK));
    let waited = Timestamp::now().duration_since(vouched_from);
    assert!(
        waited >= SignedDuration::from_secs(10),
        "given back after {waited:?}"
    );
    cluster
        .until("n3", "the taint off", |node: &Node| {
            !has_taint(node, taints::DEAD, "NoSchedule")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_takes_over_in_mid_dead_keeps_the_deadline() {
    let cluster = Cluster::start().await;
    cluster.pod("n3", "web", Some("ReplicaSet"), Some(5)).await;
    let elected = |identity| Setup {
        identity,
        elect: true,
        ..Setup::default()
    };
    let first = cluster.controlled(elected("a")).await;
    cluster.outside.kill("n3");
    let tainted_at = cluster
        .eventually_incident("the deadline recorded", "n3", |status| status.tainted_at.clone())
        .await;
    cluster.kill(first).await;
    assert!(!is_leaving(&cluster.get::<Pod>("web").await), "not due yet");

    let _second = cluster.replica(elected("b")).await;
    cluster.until("web", "deleted", is_leaving).await;
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
async fn a_roster_settles_when_its_former_voters_have_acknowledged_it() {
    let cluster = Cluster::start().await;
    let _replica = cluster.controlled(Setup::default()).await;
    let zone: ZoneHealth = cluster.get("default").await;
    let roster = roster_of(&zone).unwrap();
    let voters = roster.members.iter().map(|member| member.uid.clone());
    let unsettled = RosterSpec {
        settled_voters: voters.take(2).collect(),
        ..roster.clone()
    };
    let unsettled = json!({ "spec": { "signedRoster": publish(&unsettled, Some(&roster_key())) } });
    cluster.merge::<ZoneHealth>("default", unsettled).await;
    for member in &roster.members[..2] {
        let zone: ZoneHealth = cluster.get("default").await;
        let known = roster_of(&zone).unwrap();
        assert_eq!(known.settled_voters.len(), 2, "not all of them have said so");
        let said = json!({
            "cell": "default", "cellUid": zone.uid(), "publicKey": member.public_key, "version": roster.version,
            "met": 2, "metVoters": 2,
        });
        let spec = json!({ "spec": { "roster": said } });
        cluster.merge::<AgentStatus>(&member.name, spec).await;
    }
    let settled = cluster
        .until("default", "is settled", |zone: &ZoneHealth| {
            roster_of(zone).is_some_and(|roster| roster.settled_voters.is_empty())
        })
        .await;
    let next = RosterSpec {
        version: roster.version + 1,
        ..roster
    };
    assert_eq!(
        roster_of(&settled),
        Some(next),
        "and nothing else of it has changed"
    );
}

/// As a former version wrote it, as somebody wrote it who has no key, without any, and deleted: who had a
/// vote has it, and versions go on from the last one that was signed.
#[tokio::test(flavor = "multi_thread")]
async fn a_roster_that_is_not_signed_is_published_anew_with_a_later_version() {
    let cluster = Cluster::start().await;
    let replica = cluster.controlled(Setup::default()).await;
    let zone: ZoneHealth = cluster.get("default").await;
    let roster = roster_of(&zone).unwrap();
    let former = RosterSpec {
        version: roster.version + 10,
        cell: String::new(),
        cell_uid: String::new(),
        ..roster.clone()
    };
    let of_nobody = RosterSpec {
        version: roster.version + 20,
        ..roster.clone()
    };
    for (spec, expected) in [
        (
            json!({ "roster": former, "signedRoster": null }),
            roster.version + 1,
        ),
        (
            json!({ "signedRoster": publish(&of_nobody, None) }),
            roster.version + 2,
        ),
        (json!({ "signedRoster": null }), roster.version + 3),
    ] {
        cluster
            .merge::<ZoneHealth>("default", json!({ "spec": spec }))
            .await;
        let signed = cluster
            .until("default", "is signed", |zone: &ZoneHealth| {
                roster_of(zone).is_some_and(|roster| roster.version == expected)
            })
            .await;
        assert_eq!(signed.spec.roster, None, "what the former version wrote is gone");
        assert_eq!(roster_of(&signed).unwrap().members, roster.members);
    }
    cluster.delete::<ZoneHealth>("default").await;
    cluster
        .until("default", "is made again", |zone: &ZoneHealth| {
            roster_of(zone)
                .is_some_and(|again| again.version == roster.version + 4 && again.members == roster.members)
        })
        .await;

    // Signatures are new to this cluster: no roster counts, and none is known.
    let unsigned = RosterSpec {
        version: 40,
        ..roster.clone()
    };
    replica.stop().await;
    let before: ZoneHealth = cluster.get("default").await;
    let spec = json!({ "spec": { "signedRoster": publish(&unsigned, None) } });
    cluster.merge::<ZoneHealth>("default", spec).await;
    let _replica = cluster.replica(Setup::default()).await;
    let anew = cluster
        .until("default", "is made anew", |zone: &ZoneHealth| {
            roster_of(zone).is_some_and(|anew| anew.members == roster.members)
        })
        .await;
    assert_ne!(anew.uid(), before.uid());
    assert_eq!(roster_of(&anew).unwrap().version, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_nobody_vouches_for_or_against_is_left_to_stock_and_that_is_recorded() {
    let cluster = Cluster::start().await;
    cluster
        .policy("p", |spec| spec.evict_after_seconds = Some(0))
        .await;
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    let _replica = cluster
        .controlled(Setup {
            profile: Profile::Builtin,
            ..Setup::default()
        })
        .await;
    // n2 dies by verdict, n3 falls silent without one: once n2 is dealt with, n3 had its chance to be
    // touched.
    cluster.pod("n2", "other", Some("ReplicaSet"), None).await;
    cluster.outside.kill("n2");
    cluster.outside.silence("n3");
    cluster.until("other", "deleted", is_leaving).await;
    let matched = cluster
        .until_some("p", "is told", |policy: &FailoverPolicy| {
            policy.status.as_ref().map(|status| status.matched_nodes)
        })
        .await;
    assert_eq!(matched, 3);
    let node = cluster.get::<Node>("n3").await;
    assert!(!no_execute(&node) && ready_of(&node).status == "True");
    assert!(is_ready(&cluster.get::<Pod>("web").await));
    // It is recorded, and nobody is woken for it.
    cluster.eventually_state("n3", "Unknown").await;
    assert!(cluster.told(events::UNKNOWN).await.is_empty());
}

/// The stock controller's turns are taken by a node whose taint is stripped again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_nobody_keeps_gets_its_taint_beside_one_that_is_kept() {
    let cluster = Cluster::start().await;
    cluster.node("alone").await;
    cluster.post_status("alone").await;
    cluster.renewed("alone").await;
    let _replica = cluster.controlled(Setup::default()).await;
    cluster.reports().await;
    cluster.cut("n3").await;
    cluster.eventually_state("alone", "Unknown").await;
    for node in ["n3", "alone"] {
        stock::mark_node(&cluster, node).await;
    }
    let node = cluster.until("alone", "is tainted", no_execute).await;
    assert!(
        !node.annotations().contains_key(annotations::ADDED_TAINTS),
        "the stock controller takes it off as its own"
    );
    assert!(!no_execute(&cluster.get::<Node>("n3").await));
}
