//! What people write wrongly is named, and the rest goes on meanwhile.

use super::cluster::{Cluster, Setup, is_leaving, is_ready};
use super::zone::{roster_key, roster_of};
use evenkeel_api::crd::{FailoverPolicy, FailoverPolicyStatus, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_api::policy::{EndpointsPolicy, ModePolicy};
use evenkeel_api::zone::RosterSpec;
use evenkeel_testkit::log::Log;
use evenkeel_testkit::{SOON, eventually, until};
use evenkeel_zone::roster::{publish, report_object_name};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Takes the schema of FailoverPolicies away, or puts it back: objects of former versions were stored without
/// it.
async fn with_schema(cluster: &Cluster, strict: bool) {
    let crds = cluster.api::<CustomResourceDefinition>();
    let name = FailoverPolicy::crd_name();
    let mut crd = serde_json::to_value(FailoverPolicy::crd()).unwrap();
    if !strict {
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = anything;
    }
    let stored = crds.get(name).await.unwrap();
    crd["metadata"]["resourceVersion"] = json!(stored.metadata.resource_version);
    let crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
    crds.replace(name, &PostParams::default(), &crd).await.unwrap();
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "evenkeel.io/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": name}, "spec": spec})
}

/// Stores a policy past the schema.
async fn store(cluster: &Cluster, name: &str, spec: Value) {
    eventually("it can be stored without a schema", SOON, || async {
        let request = http::Request::post("/apis/evenkeel.io/v1alpha1/failoverpolicies")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&policy(name, &spec)).unwrap())
            .unwrap();
        cluster.client.request::<Value>(request).await.ok()
    })
    .await;
}

async fn eventually_told<T>(
    cluster: &Cluster,
    policy: &str,
    look: impl Fn(&FailoverPolicyStatus) -> Option<T>,
) -> T {
    cluster
        .until_some(policy, "is told", |policy: &FailoverPolicy| {
            look(policy.status.as_ref()?)
        })
        .await
}

/// Everything else goes on: a death is found and acted upon.
async fn the_rest_goes_on(cluster: &Cluster) {
    cluster.pod("n3", "web", Some("ReplicaSet"), None).await;
    cluster.outside.kill("n3");
    cluster.until("web", "evicted", is_leaving).await;
    assert!(!is_ready(&cluster.get::<Pod>("web").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_refuses_values_that_nothing_acts_upon() {
    let cluster = Cluster::start().await;
    for (field, value) in [
        ("endpoints", json!("keep-local")),
        ("fencing", json!("enforce")),
        ("statefulFailover", json!(true)),
        ("evictAfterSeconds", json!(-1)),
        ("mode", json!("sometimes")),
    ] {
        let request = http::Request::post("/apis/evenkeel.io/v1alpha1/failoverpolicies")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&policy("p", &json!({ field: value }))).unwrap())
            .unwrap();
        let refused = cluster.client.request::<Value>(request).await.unwrap_err();
        let kube::Error::Api(status) = &refused else {
            panic!("{field}: {refused}");
        };
        assert_eq!(status.code, 422, "{field}: {status:?}");
        assert!(
            status.message.contains(&format!("spec.{field}")),
            "{}",
            status.message
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_values_that_nothing_acts_upon_are_named_in_the_status() {
    let cluster = Cluster::start().await;
    with_schema(&cluster, false).await;
    let spec = json!({
        "endpoints": "keep-local", "fencing": "enforce", "statefulFailover": true,
        "autonomySeconds": -5, "evictAfterSeconds": 0,
    });
    store(&cluster, "old", spec).await;
    with_schema(&cluster, true).await;
    let _replica = cluster.controlled(Setup::default()).await;
    let refused = eventually_told(&cluster, "old", |status| {
        (!status.refused.is_empty()).then(|| status.refused.clone())
    })
    .await;
    for field in [
        "endpoints: keep-local is refused",
        "fencing: enforce is refused",
        "statefulFailover: true is refused",
        "autonomySeconds: -5 is refused",
    ] {
        assert!(
            refused.iter().any(|text| text.starts_with(field)),
            "{field}: {refused:?}"
        );
    }
    assert_eq!(refused.len(), 4);
    the_rest_goes_on(&cluster).await;
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_is_named_and_the_others_hold() {
    let log = Log::capture();
    let cluster = Cluster::start().await;
    with_schema(&cluster, false).await;
    store(&cluster, "garbled", json!({"evictAfterSeconds": "soon"})).await;
    store(&cluster, "good", json!({"evictAfterSeconds": 0})).await;
    let _replica = cluster.controlled(Setup::default()).await;
    eventually_told(&cluster, "good", |status| {
        (status.matched_nodes == 3).then_some(())
    })
    .await;
    log.says_once(&["FailoverPolicy", "garbled", "cannot be read"]);
    the_rest_goes_on(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_policies_that_contradict_each_other_the_more_cautious_holds_and_the_other_is_told() {
    let cluster = Cluster::start().await;
    cluster
        .policy("bold", |spec| {
            spec.mode = Some(ModePolicy::Act);
            spec.endpoints = Some(EndpointsPolicy::Keep);
        })
        .await;
    cluster
        .policy("careful", |spec| spec.mode = Some(ModePolicy::Observe))
        .await;
    let _replica = cluster.controlled(Setup::default()).await;
    let told = eventually_told(&cluster, "bold", |status| {
        (!status.conflicts.is_empty()).then(|| status.conflicts.clone())
    })
    .await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("mode") && told[0].contains("careful"),
        "{told:?}"
    );
    let careful = cluster.get::<FailoverPolicy>("careful").await.status.unwrap();
    assert_eq!(careful.conflicts, Vec::<String>::new());
}

#[tokio::test]
async fn a_zone_that_no_node_is_in_and_a_verdict_that_nobody_signed_are_named_and_change_nothing() {
    let log = Log::capture();
    let cluster = Cluster::start().await;
    let _replica = cluster.controlled(Setup::default()).await;
    let mut atlantis = ZoneHealth::new("atlantis", Default::default());
    atlantis.spec.zone = "atlantis".to_owned();
    let roster = RosterSpec {
        version: 1,
        ..RosterSpec::default()
    };
    atlantis.spec.signed_roster = Some(publish(&roster, None));
    cluster.add(&atlantis).await;
    // Somebody writes by hand that a healthy node is dead, in a zone of its own making.
    let rounds = json!([{ "ageMs": 20, "request": "Zm9yZ2Vk", "ballots": ["Zm9yZ2Vk", "Zm9yZ2Vk"] }]);
    for (zone, reporter) in [("default", "n2"), ("default", "a stranger")] {
        let spec = json!({ "zone": zone, "reporter": reporter, "rounds": rounds, "summary": "n2 dead" });
        let name = report_object_name(zone, 0, "n2");
        let forged = json!({
            "apiVersion": "evenkeel.io/v1alpha1", "kind": "ZoneReport",
            "metadata": { "name": name }, "spec": spec,
        });
        let forged: ZoneReport = serde_json::from_value(forged).unwrap();
        if cluster.find::<ZoneReport>(&name).await.is_some() {
            cluster
                .merge::<ZoneReport>(&name, json!({ "spec": forged.spec }))
                .await;
        } else {
            cluster.add(&forged).await;
        }
        // A report in another's name is passed over; one in its own is refused for what it says.
        let what: &[&str] = if reporter == "n2" {
            &["evidence refused", "default.0.n2"]
        } else {
            &["passed over", "stranger"]
        };
        until("it is named", async || !log.with(what).is_empty()).await;
    }
    until("the zone without nodes is named", async || {
        !log.with(&["ZoneHealth atlantis", "no node with an agent"])
            .is_empty()
    })
    .await;
    the_rest_goes_on(&cluster).await;
    assert!(cluster.incident("n2").await.is_none());
}

#[tokio::test]
async fn an_agent_that_gives_no_usable_address_is_named_and_its_node_is_left_to_stock() {
    let log = Log::capture();
    let cluster = Cluster::start().await;
    let node = cluster.node("n4").await;
    cluster
        .create_any(json!({
            "apiVersion": "evenkeel.io/v1alpha1", "kind": "AgentStatus", "metadata": {"name": "n4"},
            "spec": {"nodeUid": node.metadata.uid, "publicKey": "not a key", "address": "nowhere", "version": "0.1.0"},
        }))
        .await;
    let _replica = cluster.controlled(Setup::default()).await;
    until("it is named", async || !log.with(&["WARN", "n4"]).is_empty()).await;
    the_rest_goes_on(&cluster).await;
    assert!(cluster.incident("n4").await.is_none());
}

#[tokio::test]
async fn a_second_object_that_claims_a_zone_is_named_and_changes_neither_its_roster_nor_its_verdicts() {
    let log = Log::capture();
    let cluster = Cluster::start().await;
    let _replica = cluster.controlled(Setup::default()).await;
    let before = roster_of(&cluster.get("default").await).unwrap();
    // With a roster of its own, by which two strangers convict n2.
    let mut copy = ZoneHealth::new("copy", Default::default());
    copy.spec.zone = "default".to_owned();
    let mut of_copy = before.clone();
    of_copy.version += 1000;
    for member in &mut of_copy.members {
        member.public_key = super::zone::key("x9").public().to_base64();
    }
    copy.spec.signed_roster = Some(publish(&of_copy, Some(&roster_key())));
    cluster.add(&copy).await;
    until("it is named", async || {
        !log.with(&["WARN", "ZoneHealth", "copy"]).is_empty()
    })
    .await;
    the_rest_goes_on(&cluster).await;
    let after = roster_of(&cluster.get("default").await).unwrap();
    assert_eq!(
        after.version, before.version,
        "nobody follows a stranger's version"
    );
    cluster.delete::<ZoneHealth>("copy").await;
    cluster.outside.revive("n3");
    cluster
        .eventually_incident("the incident closed", "n3", |status| status.closed_at.clone())
        .await;
    cluster
        .until("default", "asks for no more rounds", |asked: &ZoneChallenge| {
            asked.spec.wanted.is_empty()
        })
        .await;
}
