//! The same scenarios at the embedded API server, whose watch tells followers at once.

use crate::rivals::{
    a_clean_stop_hands_over_without_waiting_for_the_expiry, a_crash_is_taken_over_when_the_lease_expires,
    config, leads, many_candidates_never_lead_together, start, start_with, until,
};
use evenkeel_election::{Config, State};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{SOON, api_server};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::{Duration, Instant};

fn server() -> Client {
    api_server().client()
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "default")
}

#[tokio::test]
async fn crash() {
    a_crash_is_taken_over_when_the_lease_expires(server()).await;
}

#[tokio::test]
async fn release() {
    a_clean_stop_hands_over_without_waiting_for_the_expiry(server()).await;
}

#[tokio::test]
async fn a_release_is_seen_without_asking() {
    let client = server();
    let slow = |identity: &str| Config {
        lease_duration: Duration::from_secs(120),
        renew_deadline: Duration::from_secs(90),
        retry_period: Duration::from_secs(40),
        ..config(identity)
    };
    let (mut first, stop_first) = start_with(&client, slow("first"));
    until(&mut first, "first leads", leads).await;
    let (mut second, stop_second) = start_with(&client, slow("second"));
    until(&mut second, "second follows", |state| {
        *state
            == State::Following {
                leader: Some("first".into()),
            }
    })
    .await;
    stop_first.cancel();
    first.stopped().await;
    // Its next question would be 40 s away, more than `until` waits; a tenth of that is the spread of rivals.
    until(&mut second, "second takes over", leads).await;
    stop_second.cancel();
    second.stopped().await;
}

#[tokio::test]
async fn many() {
    many_candidates_never_lead_together(server()).await;
}

#[tokio::test]
async fn what_stands_in_the_lease_is_what_others_expect() {
    let client = server();
    let (mut me, stop) = start(&client, "me");
    let State::Leading { token, .. } = until(&mut me, "leads", leads).await else {
        panic!("not leading")
    };
    let lease = leases(&client).get("leader").await.unwrap();
    assert_eq!(lease.metadata.uid, Some(token.lease_uid));
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(2), Some(0))
    );
    assert!(spec.acquire_time.is_some() && spec.renew_time.is_some());
    stop.cancel();
    me.stopped().await;
    let spec = leases(&client).get("leader").await.unwrap().spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_duration_seconds),
        (Some(""), Some(1))
    );
}

#[tokio::test]
async fn labels_that_others_put_on_the_lease_stay() {
    let client = server();
    let (mut me, stop) = start(&client, "me");
    until(&mut me, "leads", leads).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "blue"}}}));
    leases(&client)
        .patch("leader", &PatchParams::default(), &patch)
        .await
        .unwrap();
    stop.cancel();
    me.stopped().await;
    let lease = leases(&client).get("leader").await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["team"], "blue");
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
}

#[tokio::test]
async fn a_lease_deleted_under_its_leader_means_a_new_token() {
    let client = server();
    let (mut me, _stop) = start(&client, "me");
    let State::Leading { token: old, .. } = until(&mut me, "leads", leads).await else {
        panic!("not leading")
    };
    leases(&client).remove("leader").await;
    let state = until(
        &mut me,
        "leads anew",
        |state| matches!(state, State::Leading { token, .. } if token.lease_uid != old.lease_uid),
    )
    .await;
    assert!(leads(&state));
}

#[tokio::test]
async fn an_administrator_can_take_the_lease_away() {
    let client = server();
    let (mut me, _stop) = start(&client, "me");
    until(&mut me, "leads", leads).await;
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": "operator", "leaseDurationSeconds": 3600}}));
    leases(&client)
        .patch("leader", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let took = Instant::now();
    until(&mut me, "leaves", |state| {
        *state
            == State::Following {
                leader: Some("operator".into()),
            }
    })
    .await;
    assert!(took.elapsed() < SOON);
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
    leases(&client)
        .patch("leader", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let given = Instant::now();
    until(&mut me, "leads again", leads).await;
    assert!(given.elapsed() < Duration::from_secs(10), "{:?}", given.elapsed());
}
