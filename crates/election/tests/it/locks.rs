//! Locks at the embedded API server, and at servers that answer what they should not.
//!
//! Upstream's cases for a Lease lock, by their behaviour, and where they are:
//!
//! | case | test |
//! |---|---|
//! | get of a missing object; duplicate create; update before get or create; describe | [`a_lock_object_from_missing_to_deleted`] |
//! | get after create equal in all fields, raw is JSON | the same |
//! | record to Lease and back, with strategy and preferred holder | `lock::lease::tests::a_record_survives_the_lease` |
//! | event text; no recorder | [`changes_of_leadership_are_events_on_the_lease`], [`events_that_cannot_be_written_harm_nobody`] |
//! | update with no labels on the Lease, none on the lock, some on both | [`own_labels_are_put_back_and_those_of_others_stay`] |
//! | MultiLock: disagreement, missing secondary, order of writes | `lock::multi::tests` |
//!
//! Not here, because there is nothing to test:
//!
//! * *a failed update changes the cached object*: ours does not; the next update starts from what the server
//!   said;
//! * *identity of a lock*: the elector has it, the lock needs none (only a MultiLock does);
//! * *client from a kubeconfig, with the time-out of the renew deadline*: the caller makes the client, the
//!   elector bounds each request.

use evenkeel_election::core::{Observation, Record};
use evenkeel_election::lock::{
    AnnotationLock, LEADER_ANNOTATION, LeaseLock, Lock, LockError, MultiLock, UNKNOWN_LEADER,
};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, Cluster, api_server, ends};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "leader";

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

fn record() -> Record {
    Record {
        holder: "me".into(),
        lease_duration_seconds: 15,
        acquire_time: Some("2026-11-20T12:00:00.123456Z".parse().unwrap()),
        renew_time: Some("2026-11-20T12:00:02.000001Z".parse().unwrap()),
        transitions: 3,
        strategy: "OldestEmulationVersion".into(),
        preferred_holder: "you".into(),
    }
}

/// Without a preferred holder: with one, a Lease that nobody holds would be invalid.
fn held_by(holder: &str) -> Record {
    Record {
        holder: holder.into(),
        preferred_holder: String::new(),
        ..record()
    }
}

fn lease_lock(client: &Client) -> LeaseLock {
    LeaseLock::new(client.clone(), NAMESPACE, NAME).unwrap()
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Merges into the Lease, as somebody else.
async fn merge(client: &Client, patch: Value) -> Lease {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    leases(client).patch(NAME, &params, &patch).await.unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(own).collect()
}

/// The next change that is as wanted.
async fn change<T>(changes: &mut BoxStream<'static, T>, wanted: impl Fn(&T) -> bool) -> T {
    let found = async {
        loop {
            let change = changes.next().await.expect("changes do not end");
            if wanted(&change) {
                return change;
            }
        }
    };
    ends("a change", found).await
}

/// The three kinds of object that can be a lock.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Lease,
    ConfigMap,
    Endpoints,
}

fn lock(kind: Kind, client: &Client) -> Box<dyn Lock> {
    let client = client.clone();
    match kind {
        Kind::Lease => Box::new(LeaseLock::new(client, NAMESPACE, NAME).unwrap()),
        Kind::ConfigMap => Box::new(AnnotationLock::config_map(client, NAMESPACE, NAME).unwrap()),
        Kind::Endpoints => Box::new(AnnotationLock::endpoints(client, NAMESPACE, NAME).unwrap()),
    }
}

fn uninitialized(kind: Kind) -> &'static str {
    match kind {
        Kind::Lease => "lease not initialized, call get or create first",
        Kind::ConfigMap => "configmap not initialized, call get or create first",
        Kind::Endpoints => "endpoint not initialized, call get or create first",
    }
}

// Upstream's table for a resource lock. An annotation keeps whole seconds, so its times are compared as raw
// text.
#[rstest]
#[case(Kind::Lease)]
#[case(Kind::ConfigMap)]
#[case(Kind::Endpoints)]
#[tokio::test]
async fn a_lock_object_from_missing_to_deleted(#[case] kind: Kind) {
    let client = api_server().client();
    let (mine, other) = (lock(kind, &client), lock(kind, &client));
    assert_eq!(mine.describe(), "kube-system/leader");
    assert_eq!(mine.get().await, Ok(None), "missing");
    let early = mine.update(record(), "1".into()).await;
    assert_eq!(early, Err(LockError::Refused(uninitialized(kind).into())));

    let made = mine.create(record()).await.unwrap();
    assert_eq!(made.raw, record().raw());
    let json: Record = serde_json::from_str(&made.raw).unwrap();
    assert_eq!((json.holder, json.transitions), ("me".into(), 3));
    if matches!(kind, Kind::Lease) {
        assert_eq!(made.record, record());
    }
    assert!(!made.uid.is_empty() && !made.version.is_empty());
    assert_eq!(other.get().await.unwrap(), Some(made.clone()));
    assert_eq!(other.create(held_by("you")).await, Err(LockError::Conflict));

    let renewed = mine
        .update(held_by("me again"), made.version.clone())
        .await
        .unwrap();
    assert_ne!(renewed.version, made.version);
    assert_eq!(renewed.uid, made.uid);
    let late = other.update(held_by("you"), made.version).await;
    assert_eq!(late, Err(LockError::Conflict), "somebody wrote in between");
    let taken = other.get().await.unwrap().unwrap();
    assert_eq!(taken, renewed);
    // Without reading it again: the version is that of the answer.
    assert!(mine.update(held_by("me"), renewed.version).await.is_ok());

    delete(kind, &client).await;
    let gone = mine.update(held_by("me"), taken.version).await;
    assert_eq!(gone, Err(LockError::Conflict), "deleted in between");
    assert_eq!(mine.get().await, Ok(None));
    let anew = mine.create(record()).await.unwrap();
    assert_ne!(anew.uid, made.uid);
}

async fn delete(kind: Kind, client: &Client) {
    let params = DeleteParams::default();
    match kind {
        Kind::Lease => drop(leases(client).delete(NAME, &params).await.unwrap()),
        Kind::ConfigMap => {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
            drop(api.delete(NAME, &params).await.unwrap());
        }
        Kind::Endpoints => {
            let api: Api<Endpoints> = Api::namespaced(client.clone(), NAMESPACE);
            drop(api.delete(NAME, &params).await.unwrap());
        }
    }
}

// Own labels are held, others' are left; with none on either side, too.
#[rstest]
#[case::none(&[], &[], &[])]
#[case::only_theirs(&[], &[("team", "blue")], &[("team", "blue")])]
#[case::only_ours(&[("custom-key", "ours")], &[], &[("custom-key", "ours")])]
#[case::both(
    &[("custom-key", "ours")],
    &[("custom-key", "theirs"), ("custom-key-2", "theirs")],
    &[("custom-key", "ours"), ("custom-key-2", "theirs")]
)]
#[tokio::test]
async fn own_labels_are_put_back_and_those_of_others_stay(
    #[case] ours: &[(&str, &str)],
    #[case] theirs: &[(&str, &str)],
    #[case] expected: &[(&str, &str)],
) {
    let client = api_server().client();
    let lock = lease_lock(&client).with_labels(labels(ours));
    lock.create(record()).await.unwrap();
    let made = leases(&client).get(NAME).await.unwrap();
    assert_eq!(made.metadata.labels.unwrap_or_default(), labels(ours));
    merge(&client, json!({"metadata": {"labels": labels(theirs)}})).await;
    let seen = lock.get().await.unwrap().unwrap();
    lock.update(record(), seen.version).await.unwrap();
    let lease = leases(&client).get(NAME).await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap_or_default(), labels(expected));
}

#[tokio::test]
async fn what_others_write_while_only_the_watch_looks_stays() {
    let client = api_server().client();
    let lock = lease_lock(&client);
    let mut version = lock.create(record()).await.unwrap().version;
    let mut changes = lock.changes();
    // More than are remembered, so that the last ones are found neither there.
    for turn in 0..6 {
        let key = format!("note-{turn}");
        let noted = merge(&client, json!({"metadata": {"annotations": {key: "x"}}})).await;
        version = noted.metadata.resource_version.unwrap();
        let is_noted =
            |change: &Option<Observation>| change.as_ref().is_some_and(|seen| seen.version == version);
        change(&mut changes, is_noted).await;
    }
    lock.update(held_by("you"), version).await.unwrap();
    let lease = leases(&client).get(NAME).await.unwrap();
    assert_eq!(lease.metadata.annotations.unwrap().len(), 6);
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("you"));
}

#[tokio::test]
async fn a_version_seen_elsewhere_is_looked_up_first() {
    let client = api_server().client();
    let lock = lease_lock(&client);
    let made = lock.create(record()).await.unwrap();
    let noted = merge(&client, json!({"metadata": {"annotations": {"note": "x"}}})).await;
    // Known to the caller, not to the lock.
    let version = noted.metadata.resource_version.unwrap();
    let renewed = lock.update(held_by("me again"), version.clone()).await.unwrap();
    let lease = leases(&client).get(NAME).await.unwrap();
    assert_eq!(lease.metadata.annotations.unwrap()["note"], "x");
    for old in [made.version, version] {
        assert_eq!(lock.update(held_by("me"), old).await, Err(LockError::Conflict));
    }
    assert_eq!(lock.get().await, Ok(Some(renewed)));
    let empty = lock.update(held_by("me"), String::new()).await.unwrap_err();
    assert!(
        matches!(&empty, LockError::Refused(text) if text.contains("no resourceVersion")),
        "{empty}"
    );
}

#[tokio::test]
async fn the_whole_spec_is_replaced() {
    let client = api_server().client();
    let lock = lease_lock(&client);
    let made = lock.create(record()).await.unwrap();
    let plain = Record {
        strategy: String::new(),
        preferred_holder: String::new(),
        ..record()
    };
    lock.update(plain, made.version).await.unwrap();
    let spec = leases(&client).get(NAME).await.unwrap().spec.unwrap();
    assert_eq!((spec.strategy, spec.preferred_holder), (None, None));
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
}

#[rstest]
#[case(Kind::Lease)]
#[case(Kind::ConfigMap)]
#[tokio::test]
async fn changes_come_without_asking(#[case] kind: Kind) {
    let client = api_server().client();
    let (mine, other) = (lock(kind, &client), lock(kind, &client));
    let mut changes = mine.changes();
    assert_eq!(change(&mut changes, |_| true).await, None, "there is none");
    let made = other.create(record()).await.unwrap();
    assert_eq!(change(&mut changes, Option::is_some).await, Some(made.clone()));
    let renewed = other.update(held_by("you"), made.version.clone()).await.unwrap();
    let newer = |change: &Option<_>| change.as_ref() != Some(&made);
    assert_eq!(change(&mut changes, newer).await, Some(renewed));
    delete(kind, &client).await;
    assert_eq!(change(&mut changes, Option::is_none).await, None);
}

#[tokio::test]
async fn what_else_is_in_an_annotated_object_stays_and_a_broken_annotation_is_named() {
    let client = api_server().client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = serde_json::from_value(json!({"metadata": {"name": NAME, "annotations": {"a": "b"}},
        "data": {"key": "value"}}));
    maps.add(&map.unwrap()).await;

    let lock = lock(Kind::ConfigMap, &client);
    let mut changes = lock.changes();
    let seen = lock.get().await.unwrap().unwrap();
    assert_eq!((seen.record, seen.raw.as_str()), (Record::default(), ""));
    let written = lock.update(record(), seen.version).await.unwrap();
    let map = maps.get(NAME).await.unwrap();
    assert_eq!(map.data, Some(labels(&[("key", "value")])));
    let annotations = map.metadata.annotations.unwrap();
    assert_eq!(
        (annotations["a"].as_str(), &annotations[LEADER_ANNOTATION]),
        ("b", &written.raw)
    );

    let annotate = async |text: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {LEADER_ANNOTATION: text}}}));
        maps.patch(NAME, &PatchParams::default(), &patch).await.unwrap()
    };
    annotate("{broken").await;
    let LockError::Malformed(text) = lock.get().await.unwrap_err() else {
        panic!("it is read")
    };
    let start = "ConfigMap kube-system/leader: its annotation control-plane.alpha.kubernetes.io/leader is no \
        election record (";
    assert!(text.starts_with(start), "{text}");
    assert!(
        text.ends_with("; correct it, or delete it while no candidate leads: then it is made anew"),
        "{text}"
    );
    // The watch passes over it and goes on.
    annotate(r#"{"holderIdentity":"repaired"}"#).await;
    let repaired = |change: &Option<_>| holder(change.as_ref()) == Some("repaired");
    change(&mut changes, repaired).await;
}

fn holder(seen: Option<&Observation>) -> Option<&str> {
    seen.map(|seen| seen.record.holder.as_str())
}

#[tokio::test]
async fn endpoints_and_a_lease_are_one_lock() {
    let client = api_server().client();
    let both = |identity: &str| {
        let endpoints = AnnotationLock::endpoints(client.clone(), NAMESPACE, NAME).unwrap();
        MultiLock::new(endpoints, lease_lock(&client), identity)
    };
    let (me, you) = (both("me"), both("you"));
    assert_eq!(me.get().await, Ok(None));
    let made = me.create(held_by("me")).await.unwrap();
    assert_eq!(you.create(held_by("you")).await, Err(LockError::Conflict));
    let seen = you.get().await.unwrap().unwrap();
    assert_eq!(
        (seen.uid, seen.raw, seen.version),
        (made.uid, made.raw, made.version.clone())
    );
    me.update(held_by(""), made.version.clone()).await.unwrap();
    assert_eq!(
        me.update(held_by("me"), made.version).await,
        Err(LockError::Conflict)
    );
    let free = you.get().await.unwrap().unwrap();
    you.update(held_by("you"), free.version).await.unwrap();
    merge(&client, json!({"spec": {"holderIdentity": "lease-only"}})).await;
    assert_eq!(holder(me.get().await.unwrap().as_ref()), Some(UNKNOWN_LEADER));
}

/// A user that may do this to Leases in the namespace.
async fn user(server: &ApiServer, verbs: &[&str]) -> Client {
    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]);
    Cluster::of(server)
        .namespaced(NAMESPACE)
        .grant_here("elector", rules)
        .await;
    server.client_as("elector", &[])
}

#[rstest]
#[case("get", &["create", "update"])]
#[case("create", &["get", "update"])]
#[case("update", &["get", "create"])]
#[tokio::test]
async fn each_missing_right_is_named(#[case] missing: &str, #[case] verbs: &[&str]) {
    let server = api_server();
    let lock = lease_lock(&user(&server, verbs).await);
    let admin = lease_lock(&server.client());
    let answer = match missing {
        "get" => lock.get().await.map(|_| ()),
        "create" => lock.create(record()).await.map(|_| ()),
        _ => {
            let version = admin.create(record()).await.unwrap().version;
            lock.get().await.unwrap();
            lock.update(record(), version).await.map(|_| ())
        }
    };
    let Err(LockError::Refused(text)) = answer else {
        panic!("not refused: {answer:?}")
    };
    assert!(
        text.starts_with(&format!("cannot {missing} Lease kube-system/leader: forbidden (")),
        "{text}"
    );
    let advice = "allow get, create and update on leases.coordination.k8s.io in namespace `kube-system` to this \
        account (list and watch are optional";
    assert!(text.contains(advice), "{text}");
}

#[tokio::test]
async fn without_the_right_to_watch_a_lock_works_and_tells_no_changes() {
    let server = api_server();
    let client = user(&server, &["get", "create", "update"]).await;
    let lock = lease_lock(&client);
    let mut version = lock.create(record()).await.unwrap().version;
    let (mut silent, mut allowed) = (lock.changes(), lease_lock(&server.client()).changes());
    for turn in 0..10 {
        let holder = format!("holder-{turn}");
        version = lock.update(held_by(&holder), version).await.unwrap().version;
        let seen = |change: &Option<Observation>| change.as_ref().is_some_and(|seen| seen.version == version);
        tokio::select! {
            biased;
            change = silent.next() => panic!("watched without the right to: {change:?}"),
            _ = change(&mut allowed, seen) => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_that_may_not_watch_asks_for_it_every_five_minutes() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let forbid = move || {
        count.fetch_add(1, Relaxed);
        let status = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"});
        std::future::ready((axum::http::StatusCode::FORBIDDEN, axum::Json(status)))
    };
    let client = Client::new(axum::Router::new().fallback(forbid), "default");
    let mut changes = lease_lock(&client).changes();
    for (minutes, expected) in [(4, 1), (5, 2), (5, 3)] {
        let wait = Duration::from_secs(minutes * 60);
        assert!(tokio::time::timeout(wait, changes.next()).await.is_err());
        assert_eq!(asked.load(Relaxed), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_to_watch_that_is_given_later_is_used() {
    let server = api_server();
    let lock = lease_lock(&server.client_as("elector", &[]));
    let mut changes = lock.changes();
    assert!(tokio::time::timeout(DEADLINE, changes.next()).await.is_err());
    user(&server, &["list", "watch"]).await;
    let made = lease_lock(&server.client()).create(record()).await.unwrap();
    let change = tokio::time::timeout(Duration::from_secs(600), changes.next()).await;
    assert_eq!(change, Ok(Some(Some(made))));
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_named() {
    let lock = LeaseLock::new(api_server().client(), "nowhere", NAME).unwrap();
    assert_eq!(lock.get().await, Ok(None));
    let LockError::Refused(text) = lock.create(record()).await.unwrap_err() else {
        panic!("not refused")
    };
    let start = "cannot create Lease nowhere/leader: namespace `nowhere` does not exist (";
    assert!(text.starts_with(start), "{text}");
    assert!(
        text.ends_with("; create it, or put the lock into another"),
        "{text}"
    );
}

#[tokio::test]
async fn an_invalid_record_is_refused_with_the_field() {
    let lock = lease_lock(&api_server().client());
    let record = Record {
        lease_duration_seconds: -1,
        ..record()
    };
    let text = lock.create(record).await.unwrap_err().to_string();
    assert!(
        text.starts_with("cannot create Lease kube-system/leader: invalid ("),
        "{text}"
    );
    assert!(text.contains("leaseDurationSeconds"), "{text}");
}

#[tokio::test]
async fn changes_of_leadership_are_events_on_the_lease() {
    let server = api_server();
    let client = server.client();
    let lock = lease_lock(&client).with_events_of(client.clone(), "my-controller");
    let made = lock.create(record()).await.unwrap();
    for message in ["me became leader", "me stopped leading", "me became leader"] {
        lock.announce(message.into()).await;
    }
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let mut events = events.list(&ListParams::default()).await.unwrap().items;
    events.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
    let notes: Vec<_> = events.iter().filter_map(|event| event.note.as_deref()).collect();
    assert_eq!(
        notes,
        ["me became leader", "me stopped leading", "me became leader"]
    );
    let event = &events[0];
    assert_eq!(event.reason.as_deref(), Some("LeaderElection"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.reporting_controller.as_deref(), Some("my-controller"));
    let about = event.regarding.clone().unwrap();
    assert_eq!(
        (about.kind.as_deref(), about.name.as_deref()),
        (Some("Lease"), Some(NAME))
    );
    assert_eq!(about.api_version.as_deref(), Some("coordination.k8s.io/v1"));
    assert_eq!(
        (about.namespace.as_deref(), about.uid),
        (Some(NAMESPACE), Some(made.uid))
    );
}

#[tokio::test]
async fn events_that_cannot_be_written_harm_nobody() {
    let server = api_server();
    let client = server.client();
    lease_lock(&client).announce("nobody is told".into()).await;
    let nobody = server.client_as("nobody", &[]);
    lease_lock(&client)
        .with_events(nobody)
        .announce("not allowed".into())
        .await;
    let events: Api<Event> = Api::namespaced(client, NAMESPACE);
    assert_eq!(events.list(&ListParams::default()).await.unwrap().items, []);
}

/// A server that answers everything alike.
fn answering(code: u16, body: Value) -> Client {
    let code = axum::http::StatusCode::from_u16(code).unwrap();
    let answer = move || std::future::ready((code, axum::Json(body.clone())));
    Client::new(axum::Router::new().fallback(answer), "default")
}

fn lease(spec: Value) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
        "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": "u", "resourceVersion": "1"}})
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_is_named() {
    let lock = lease_lock(&answering(200, lease(json!({"leaseTransitions": "many"}))));
    let LockError::Malformed(text) = lock.get().await.unwrap_err() else {
        panic!("it is read")
    };
    assert!(
        text.starts_with("Lease kube-system/leader: its spec is not that of a Lease ("),
        "{text}"
    );
    // It can be repaired by whoever takes it over.
    assert!(matches!(
        lock.update(record(), "1".into()).await,
        Err(LockError::Malformed(_))
    ));
}

#[tokio::test]
async fn answers_that_are_none_are_told_from_refusals() {
    let lock = lease_lock(&answering(200, json!(["not an object"])));
    assert!(matches!(lock.get().await, Err(LockError::Malformed(_))));
    let unavailable = json!({"kind": "Status", "status": "Failure", "code": 503, "message": "etcd is away"});
    let lock = lease_lock(&answering(503, unavailable));
    let expected = "cannot get Lease kube-system/leader: the API server cannot serve it now (status 503: etcd is \
        away)";
    assert_eq!(lock.get().await, Err(LockError::Unreachable(expected.into())));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = kube::Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
    evenkeel_net::init_crypto();
    let lock = lease_lock(&Client::try_from(config).unwrap());
    let LockError::Unreachable(text) = lock.get().await.unwrap_err() else {
        panic!("it was reached")
    };
    assert!(
        text.starts_with("cannot get Lease kube-system/leader: "),
        "{text}"
    );
    assert!(text.to_lowercase().contains("connection refused"), "{text}");
}
