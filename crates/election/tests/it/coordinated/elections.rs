//! The coordinator with live candidates. Holders are played by the test where it matters what they do.

use super::{
    LEASE, NAMESPACE, Standing, candidacy, candidates, coordinate, coordinator, leases, until,
    until_candidate, until_held_by,
};
use evenkeel_election::coordinated::Candidacy;
use evenkeel_election::core::coordinated::{HIGHEST_WEIGHT, HighestWeight, Strategies, Timing};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{SOON, api_server, eventually};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::coordination::v1beta1::LeaseCandidate;
use kube::Client;
use serde_json::json;

const THIRD_PARTY: &str = "foo.com/bar";

/// A Lease of 10 s that somebody held.
async fn held(client: &Client, holder: &str, renewed_seconds_ago: i64) {
    let renewed = Timestamp::now() - SignedDuration::from_secs(renewed_seconds_ago);
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": LEASE}, "spec": {
        "holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": format!("{renewed:.6}"),
        "strategy": "OldestEmulationVersion"}}))
    .unwrap();
    leases(client).add(&lease).await;
}

#[tokio::test]
async fn single_candidate_leader_election() {
    let client = api_server().client();
    let _coordinator = coordinate(coordinator(&client));
    let _candidate = Standing::new(&client, candidacy("component-identity-1", "1.19.0"));
    let spec = until_held_by(&client, "component-identity-1").await;
    assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
    assert_eq!(
        (spec.lease_duration_seconds, spec.preferred_holder),
        (Some(5), None)
    );
    assert!(spec.renew_time.is_some());
}

#[tokio::test]
async fn multiple_candidate_leader_election() {
    let client = api_server().client();
    let emulating = |identity: &str, emulation: &str, binary: &str| Candidacy {
        emulation_version: Some(emulation.parse().unwrap()),
        ..candidacy(identity, binary)
    };
    let _standing = [
        Standing::new(&client, emulating("component-identity-3", "1.20.0", "1.20.0")),
        Standing::new(&client, emulating("component-identity-2", "1.19.0", "1.20.0")),
        Standing::new(&client, emulating("component-identity-1", "1.19.0", "1.19.0")),
    ];
    for identity in [
        "component-identity-1",
        "component-identity-2",
        "component-identity-3",
    ] {
        until_candidate(&client, identity, |_| true).await;
    }
    let _coordinator = coordinate(coordinator(&client));
    let first = until(&client, "elected", |spec| spec.holder_identity.is_some()).await;
    assert_eq!(first.holder_identity.as_deref(), Some("component-identity-1"));
}

#[tokio::test]
async fn deletion_of_lease_triggers_reelection() {
    let client = api_server().client();
    held(&client, "some-other-component", -1).await;
    let _candidate = Standing::new(&client, candidacy("component-identity-1", "1.19.0"));
    let _coordinator = coordinate(coordinator(&client));
    until(&client, "the candidate is preferred", |spec| {
        spec.preferred_holder.as_deref() == Some("component-identity-1")
    })
    .await;
    leases(&client).remove(LEASE).await;
    until_held_by(&client, "component-identity-1").await;
}

#[tokio::test]
async fn expired_lease_is_replaced() {
    let client = api_server().client();
    held(&client, "some-other-component", 11).await;
    let _candidate = Standing::new(&client, candidacy("component-identity-1", "1.19.0"));
    let _coordinator = coordinate(coordinator(&client));
    let spec = until_held_by(&client, "component-identity-1").await;
    assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(1), None));
    assert_eq!(
        (spec.lease_duration_seconds, spec.preferred_holder),
        (Some(5), None)
    );
}

#[tokio::test]
async fn better_candidate_triggers_reelection() {
    let client = api_server().client();
    held(&client, "component-identity-1", -1).await;
    let _holder = Standing::new(&client, candidacy("component-identity-1", "1.20.0"));
    let _coordinator = coordinate(coordinator(&client));
    until_candidate(&client, "component-identity-1", |_| true).await;
    let _better = Standing::new(&client, candidacy("component-identity-2", "1.19.0"));
    let asked = until(&client, "the holder is asked to let go", |spec| {
        spec.preferred_holder.is_some()
    })
    .await;
    assert_eq!(asked.preferred_holder.as_deref(), Some("component-identity-2"));
    assert_eq!(
        asked.holder_identity.as_deref(),
        Some("component-identity-1"),
        "the term goes on"
    );
    // The holder does as it is asked: nobody renews. Nobody else has it before its time is up.
    until_held_by(&client, "component-identity-2").await;
}

#[tokio::test]
async fn a_third_party_strategy_gets_a_label_and_no_holder() {
    let client = api_server().client();
    let third = |identity: &str| Candidacy {
        strategy: THIRD_PARTY.to_owned(),
        ..candidacy(identity, "1.19.0")
    };
    let _coordinator = coordinate(coordinator(&client));
    let _standing = [
        Standing::new(&client, third("component-identity-1")),
        Standing::new(&client, third("component-identity-2")),
    ];
    let spec = until(&client, "labelled", |spec| {
        spec.strategy.as_deref() == Some(THIRD_PARTY)
    })
    .await;
    assert_eq!(spec.holder_identity, None);
    // The third party chooses, and is not contradicted: the other candidate's Lease is elected after that.
    let choice = json!({"spec": {"holderIdentity": "component-identity-2", "leaseDurationSeconds": 3600}});
    leases(&client).merge(LEASE, choice).await;
    let witness = Candidacy {
        lease_name: "witness".to_owned(),
        ..candidacy("witness-1", "1.0.0")
    };
    let _witness = Standing::new(&client, witness);
    eventually("a later election", SOON, || async {
        leases(&client).get_opt("witness").await.unwrap()
    })
    .await;
    let spec = leases(&client).get(LEASE).await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("component-identity-2"));
    assert_eq!(spec.preferred_holder, None);
}

#[tokio::test]
async fn a_strategy_that_is_plugged_in_follows_the_weights() {
    let client = api_server().client();
    let weighing = |identity: &str, weight: i64| Candidacy {
        strategy: HIGHEST_WEIGHT.to_owned(),
        weight: Some(weight),
        ..candidacy(identity, "1.19.0")
    };
    let _standing = [
        Standing::new(&client, weighing("far", 1)),
        Standing::new(&client, weighing("near", 10)),
    ];
    for identity in ["far", "near"] {
        until_candidate(&client, identity, |_| true).await;
    }
    let _coordinator =
        coordinate(coordinator(&client).with_strategies(Strategies::default().with(HighestWeight)));
    let spec = until(&client, "elected", |spec| spec.holder_identity.is_some()).await;
    assert_eq!(spec.holder_identity.as_deref(), Some("near"));
    assert_eq!(spec.strategy.as_deref(), Some(HIGHEST_WEIGHT));
}

#[tokio::test]
async fn a_crashed_candidate_is_asked_in_vain_and_passed_over() {
    let client = api_server().client();
    let better = Standing::new(&client, candidacy("component-identity-0", "1.0.0"));
    until_candidate(&client, "component-identity-0", |_| true).await;
    better.crash();
    // Its last sign of life is old enough to be asked for another.
    let old = Timestamp::now() - SignedDuration::from_secs(60);
    let aged = json!({"spec": {"renewTime": format!("{old:.6}")}});
    candidates(&client).merge("component-identity-0", aged).await;
    let _alive = Standing::new(&client, candidacy("component-identity-1", "1.19.0"));
    let _coordinator = coordinate(coordinator(&client));
    let spec = until(&client, "elected", |spec| spec.holder_identity.is_some()).await;
    assert_eq!(spec.holder_identity.as_deref(), Some("component-identity-1"));
    let asked = candidates(&client)
        .get("component-identity-0")
        .await
        .unwrap()
        .spec
        .unwrap();
    assert!(asked.ping_time > asked.renew_time, "{asked:?}");
}

#[tokio::test]
async fn expired_candidates_are_deleted_and_others_stay() {
    let client = api_server().client();
    let alive = Standing::new(&client, candidacy("alive", "1.19.0"));
    until_candidate(&client, "alive", |_| true).await;
    let old = Timestamp::now() - SignedDuration::from_secs(31 * 60);
    for (name, lease) in [("dead-1", LEASE), ("dead-2", "component-b")] {
        let object: LeaseCandidate = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"leaseName": lease, "binaryVersion": "1.0.0",
            "emulationVersion": "1.0.0", "strategy": "OldestEmulationVersion", "renewTime": format!("{old:.6}")}}))
        .unwrap();
        candidates(&client).add(&object).await;
    }
    let _coordinator = coordinate(coordinator(&client).with_timing(Timing::default()));
    evenkeel_testkit::until("the dead are gone", async || {
        let left = candidates(&client)
            .list(&kube::api::ListParams::default())
            .await
            .unwrap();
        left.items.len() == 1
    })
    .await;
    assert!(candidates(&client).get_opt("alive").await.unwrap().is_some());
    until_held_by(&client, "alive").await;
    alive.withdraw().await;
}

#[tokio::test]
async fn a_lease_without_candidates_is_left_alone() {
    let client = api_server().client();
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "classic"}, "spec": {
        "holderIdentity": "", "leaseDurationSeconds": 1}}))
    .unwrap();
    let before = leases(&client).add(&lease).await;
    let _coordinator = coordinate(coordinator(&client));
    let _candidate = Standing::new(&client, candidacy("component-identity-1", "1.19.0"));
    until_held_by(&client, "component-identity-1").await;
    let after = leases(&client).get("classic").await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
}
