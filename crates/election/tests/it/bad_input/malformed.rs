//! Records that say what no candidate writes.

use super::stage::{Guard, MachineClock, secs, stand, the_leader};
use evenkeel_election::State;
use evenkeel_election::core::Record;
use evenkeel_election::lock::{AnnotationLock, LEADER_ANNOTATION, LeaseLock, MemoryLock};
use evenkeel_testkit::api_server;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::log::Log;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "leader";

fn annotation_lock(client: &Client) -> AnnotationLock {
    AnnotationLock::config_map(client.clone(), NAMESPACE, NAME).unwrap()
}

fn lease_lock(client: &Client) -> LeaseLock {
    LeaseLock::new(client.clone(), NAMESPACE, NAME).unwrap()
}

/// Puts a text where the record stands, making the object if needed.
async fn annotate(client: &Client, text: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    if maps.get_opt(NAME).await.unwrap().is_none() {
        let map = serde_json::from_value(json!({"metadata": {"name": NAME}})).unwrap();
        maps.add(&map).await;
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {LEADER_ANNOTATION: text}}}));
    maps.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
}

async fn annotated(client: &Client) -> Record {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let annotations = maps.get(NAME).await.unwrap().metadata.annotations.unwrap();
    serde_json::from_str(&annotations[LEADER_ANNOTATION]).unwrap()
}

const TOLD: &[&str] = &[
    "WARN",
    "cannot get the lock; trying again every retry period",
    "lease=\"kube-system/leader\"",
    "ConfigMap kube-system/leader: its annotation control-plane.alpha.kubernetes.io/leader is no election record (",
    "correct it, or delete it while no candidate leads: then it is made anew",
];

/// What cannot be read is told once, left alone, and used once it is repaired.
#[rstest]
#[case::broken_json("{broken")]
#[case::cut_off(r#"{"holderIdentity":"x","leaseDurationSeconds":1"#)]
#[case::empty("")]
#[case::null("null")]
#[case::a_text(r#""leader""#)]
#[case::holder_is_a_number(r#"{"holderIdentity":5}"#)]
#[case::holder_is_null(r#"{"holderIdentity":null}"#)]
#[case::duration_is_a_text(r#"{"leaseDurationSeconds":"15"}"#)]
#[case::duration_is_a_fraction(r#"{"leaseDurationSeconds":1.5}"#)]
#[case::duration_beyond_int32(r#"{"holderIdentity":"x","leaseDurationSeconds":2147483648}"#)]
#[case::transitions_beyond_int32(r#"{"leaderTransitions":2147483648}"#)]
#[case::transitions_are_a_list(r#"{"leaderTransitions":[1]}"#)]
#[case::time_is_a_word(r#"{"renewTime":"yesterday"}"#)]
#[case::year_ten_thousand(r#"{"acquireTime":"10000-01-01T00:00:00Z"}"#)]
#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_read_is_named_and_used_once_repaired(#[case] text: &str) {
    let (log, client) = (Log::capture(), api_server().client());
    annotate(&client, text).await;
    let candidates = [stand(annotation_lock(&client), "one")];
    let [one] = &candidates;
    tokio::time::sleep(secs(30)).await;
    assert_eq!(one.election.state(), State::Following { leader: None });
    assert_eq!(one.token(), None);
    log.says_once(TOLD);
    assert_eq!(log.warnings().len(), 1, "{:#?}", log.lines());
    annotate(&client, r#"{"holderIdentity":"","leaderTransitions":4}"#).await;
    assert_eq!(one.leads().await.transitions, 5);
    log.says_once(&["the lock can be reached again"]);
    for candidate in candidates {
        candidate.stop().await;
    }
}

/// Broken under a leader: nobody leads on what nobody can read.
#[tokio::test(start_paused = true)]
async fn an_annotation_broken_under_its_leader_leaves_nobody_leading_until_repaired() {
    let (log, client) = (Log::capture(), api_server().client());
    let one = stand(annotation_lock(&client), "one");
    let old = one.leads().await;
    let two = stand(annotation_lock(&client), "two");
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    annotate(&client, "{broken").await;
    one.until("it is lost", |state| matches!(state, State::Lost { .. }))
        .await;
    tokio::time::sleep(secs(30)).await;
    assert!(one.token().is_none() && two.token().is_none());
    assert_eq!(log.with(TOLD).len(), 2, "once of each: {:#?}", log.lines());
    log.says_once(&[
        "stopped leading",
        "no renewal succeeded within the renew deadline",
    ]);
    annotate(
        &client,
        r#"{"holderIdentity":"gone","leaseDurationSeconds":5,"leaderTransitions":7}"#,
    )
    .await;
    let next = the_leader(&[&one, &two]).await;
    let new = [&one, &two][next].token().unwrap();
    assert_eq!(new.transitions, 8);
    assert_eq!(new.lease_uid, old.lease_uid);
    tokio::time::sleep(secs(10)).await;
    guard.saw_no_two();
    one.stop().await;
    two.stop().await;
}

/// What can be read though no candidate writes it is taken over, and what we write is sound again.
#[rstest]
#[case::empty_object("{}", secs(0), 1)]
#[case::duration_negative(r#"{"holderIdentity":"x","leaseDurationSeconds":-15}"#, secs(5), 1)]
#[case::duration_smallest(r#"{"holderIdentity":"x","leaseDurationSeconds":-2147483648}"#, secs(5), 1)]
#[case::duration_zero(r#"{"holderIdentity":"x","leaseDurationSeconds":0}"#, secs(5), 1)]
#[case::duration_absent(r#"{"holderIdentity":"x"}"#, secs(5), 1)]
#[case::year_zero(
    r#"{"holderIdentity":"x","leaseDurationSeconds":3,"acquireTime":"0000-01-01T00:00:00Z","renewTime":"0000-01-01T00:00:00Z"}"#,
    secs(3),
    1
)]
#[case::gos_zero_time(
    r#"{"holderIdentity":"x","leaseDurationSeconds":3,"acquireTime":"0001-01-01T00:00:00Z","renewTime":null}"#,
    secs(3),
    1
)]
#[case::renewed_in_the_future(
    r#"{"holderIdentity":"x","leaseDurationSeconds":3,"renewTime":"2126-11-20T12:00:00Z"}"#,
    secs(3),
    1
)]
#[case::transitions_negative(
    r#"{"holderIdentity":"x","leaseDurationSeconds":3,"leaderTransitions":-7}"#,
    secs(3),
    0
)]
#[case::transitions_smallest(r#"{"leaderTransitions":-2147483648}"#, secs(0), 0)]
#[case::transitions_largest(r#"{"leaderTransitions":2147483647}"#, secs(0), i32::MAX)]
#[case::unknown_fields(r#"{"holderIdentity":"","shoeSize":44}"#, secs(0), 1)]
#[tokio::test(start_paused = true)]
async fn an_odd_annotation_is_taken_over_and_put_right(
    #[case] text: &str,
    #[case] left_alone: Duration,
    #[case] transitions: i32,
) {
    let client = api_server().client();
    annotate(&client, text).await;
    let start = Instant::now();
    let candidates = [
        stand(annotation_lock(&client), "one"),
        stand(annotation_lock(&client), "two"),
    ];
    let [one, two] = &candidates;
    let guard = Guard::over(&[one, two]);
    let leader = the_leader(&[one, two]).await;
    let waited = start.elapsed();
    assert!(
        waited >= left_alone && waited <= left_alone + secs(3),
        "{waited:?}"
    );
    let token = [one, two][leader].token().unwrap();
    assert_eq!(token.transitions, transitions);
    assert_eq!(token.to_string().parse(), Ok(token));
    tokio::time::sleep(secs(10)).await;
    let record = annotated(&client).await;
    assert_eq!(
        (record.lease_duration_seconds, record.transitions),
        (5, transitions)
    );
    assert_eq!(record.holder, ["one", "two"][leader]);
    guard.saw_no_two();
    for candidate in candidates {
        candidate.stop().await;
    }
}

/// 64 KiB of a name, and a duration of 68 years: somebody leads, so we follow, until it is put right.
#[rstest]
#[case::long_name(&"x".repeat(64 * 1024), 3600)]
#[case::long_duration("x", i32::MAX)]
#[tokio::test(start_paused = true)]
async fn an_immoderate_holder_is_followed_until_it_gives_way(#[case] holder: &str, #[case] duration: i32) {
    let (log, client) = (Log::capture(), api_server().client());
    let record = json!({"holderIdentity": holder, "leaseDurationSeconds": duration});
    annotate(&client, &record.to_string()).await;
    let one = stand(annotation_lock(&client), "one");
    one.follows(holder).await;
    tokio::time::sleep(secs(120)).await;
    assert_eq!(one.token(), None);
    assert_eq!(log.with(&["new leader"]).len(), 1);
    annotate(&client, r#"{"holderIdentity":""}"#).await;
    one.leads().await;
    one.stop().await;
}

/// An annotation can say of a live leader that it leads for no time at all. Nobody takes it from it for that.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_duration_of_nothing_written_under_a_leader_makes_no_second_one(
    #[values(0, -1)] duration: i32,
    #[values(true, false)] watched: bool,
) {
    let lock = MemoryLock::new(MachineClock::new(), "one");
    let way = |lock: MemoryLock| if watched { lock } else { lock.without_watch() };
    let one = stand(way(lock.clone()), "one");
    let token = one.leads().await;
    let two = stand(way(lock.peer("two")), "two");
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    // At every moment between two renewals.
    for turn in 0..40 {
        tokio::time::sleep(Duration::from_millis(900 + 5 * turn)).await;
        let record = lock.peek().unwrap().record;
        lock.put(Record {
            lease_duration_seconds: duration,
            ..record
        });
    }
    tokio::time::sleep(secs(5)).await;
    assert_eq!(one.token(), Some(token), "the same term");
    guard.saw_no_two();
    one.stop().await;
    two.stop().await;
}

/// A Lease can be made without a spec, or with parts of one.
#[rstest]
#[case::none(json!(null), secs(0), 1)]
#[case::empty(json!({}), secs(0), 1)]
#[case::only_a_holder(json!({"holderIdentity": "x"}), secs(5), 1)]
#[case::no_holder(json!({"leaseDurationSeconds": 3600, "leaseTransitions": 4}), secs(0), 5)]
#[case::year_zero(json!({"holderIdentity": "x", "leaseDurationSeconds": 3,
    "renewTime": "0000-01-01T00:00:00.000000Z"}), secs(3), 1)]
#[case::transitions_largest(json!({"leaseTransitions": i32::MAX}), secs(0), i32::MAX)]
#[tokio::test(start_paused = true)]
async fn an_incomplete_lease_is_taken_over_and_completed(
    #[case] spec: Value,
    #[case] left_alone: Duration,
    #[case] transitions: i32,
) {
    let client = api_server().client();
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": spec})).unwrap();
    leases.add(&lease).await;
    let start = Instant::now();
    let one = stand(lease_lock(&client), "one");
    assert_eq!(one.leads().await.transitions, transitions);
    let waited = start.elapsed();
    assert!(
        waited >= left_alone && waited <= left_alone + secs(3),
        "{waited:?}"
    );
    let spec = leases.get(NAME).await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("one"));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(5), Some(transitions))
    );
    assert!(spec.acquire_time.is_some() && spec.renew_time.is_some());
    one.stop().await;
}

/// The count of terms stays at its end, and whoever relies on growing tokens is told.
#[tokio::test(start_paused = true)]
async fn terms_that_cannot_be_counted_any_further_are_told() {
    let (log, client) = (Log::capture(), api_server().client());
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = json!({"leaseTransitions": i32::MAX - 1});
    let lease = serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": spec})).unwrap();
    leases.add(&lease).await;
    for name in ["one", "two"] {
        let candidate = stand(lease_lock(&client), name);
        assert_eq!(candidate.leads().await.transitions, i32::MAX);
        candidate.stop().await;
    }
    let told = log.with(&[
        "WARN",
        "the lock cannot count its terms any further",
        "lease=\"kube-system/leader\"",
        "delete it while no candidate runs",
    ]);
    assert_eq!(told.len(), 2, "{:#?}", log.lines());
}
