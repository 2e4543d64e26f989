//! No namespace, no rights.

use super::stage::{Candidate, Guard, secs, stand};
use evenkeel_election::State;
use evenkeel_election::lock::LeaseLock;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::log::Log;
use evenkeel_testkit::{ApiServer, Cluster, api_server};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;

const NAMESPACE: &str = "kube-system";

fn lock(client: &Client, namespace: &str) -> LeaseLock {
    LeaseLock::new(client.clone(), namespace, "leader").unwrap()
}

/// A user without rights, but for these on Leases.
async fn user(server: &ApiServer, verbs: &[&str]) -> Client {
    Cluster::of(server)
        .namespaced(NAMESPACE)
        .grant_here("elector", rules(verbs))
        .await;
    server.client_as("elector", &[])
}

fn rules(verbs: &[&str]) -> serde_json::Value {
    if verbs.is_empty() {
        return json!([]);
    }
    json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}])
}

/// From now on the user has these rights and no others.
async fn allow(server: &ApiServer, verbs: &[&str]) {
    let roles: Api<Role> = Api::namespaced(server.client(), NAMESPACE);
    let patch = Patch::Merge(json!({"rules": rules(verbs)}));
    roles
        .patch("elector", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

const ALL: &[&str] = &["get", "create", "update", "list", "watch"];

fn follows_nobody(candidate: &Candidate) {
    assert_eq!(candidate.election.state(), State::Following { leader: None });
    assert_eq!(candidate.token(), None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_named_and_used_once_it_does() {
    let (log, client) = (Log::capture(), api_server().client());
    let candidates = [
        stand(lock(&client, "later"), "one"),
        stand(lock(&client, "later"), "two"),
    ];
    let [one, two] = &candidates;
    let guard = Guard::over(&[one, two]);
    tokio::time::sleep(secs(60)).await;
    follows_nobody(one);
    let told = log.warnings();
    // One line of each candidate in a minute, and no word of a lock that could be reached meanwhile.
    assert_eq!(told.len(), 2, "{:#?}", log.lines());
    for line in told {
        assert!(
            line.contains("cannot create the lock; trying again every retry period"),
            "{line}"
        );
        assert!(line.contains("lease=\"later/leader\""), "{line}");
        assert!(
            line.contains("cannot create Lease later/leader: namespace `later` does not exist ("),
            "{line}"
        );
        assert!(line.contains("create it, or put the lock into another"), "{line}");
    }
    assert!(log.with(&["reached again"]).is_empty());
    Cluster::by(client)
        .create::<Namespace>(json!({"metadata": {"name": "later"}}))
        .await;
    let leader = super::stage::the_leader(&[one, two]).await;
    log.says_once(&["the lock can be reached again"]);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(super::stage::the_leader(&[one, two]).await, leader);
    guard.saw_no_two();
    for candidate in candidates {
        candidate.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_under_a_leader_ends_its_term_and_is_named() {
    let (log, client) = (Log::capture(), api_server().client());
    let cluster = Cluster::by(client.clone());
    cluster
        .create::<Namespace>(json!({"metadata": {"name": "doomed"}}))
        .await;
    let leader = stand(lock(&client, "doomed"), "me");
    leader.leads().await;
    // Terminating: what is in it goes, and nothing new comes in.
    cluster.delete::<Namespace>("doomed").await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(client, "doomed");
    leases.remove("leader").await;
    leader.until("it leads no more", |state| !state.leads()).await;
    tokio::time::sleep(secs(30)).await;
    follows_nobody(&leader);
    log.says_once(&["stopped leading", "the lease was deleted"]);
    log.says_once(&[
        "cannot create Lease doomed/leader: namespace `doomed` is being deleted (",
        "put the lock into another, or wait and create it anew",
    ]);
    leader.stop().await;
}

/// Verb, resource, namespace and the rights that are needed, once; rights given later are used.
#[tokio::test(start_paused = true)]
async fn an_account_without_rights_is_told_which_and_leads_once_it_has_them() {
    let (log, server) = (Log::capture(), api_server());
    let candidate = stand(lock(&user(&server, &[]).await, NAMESPACE), "me");
    tokio::time::sleep(secs(60)).await;
    follows_nobody(&candidate);
    log.says_once(&[
        "WARN",
        "cannot get the lock; trying again every retry period",
        "lease=\"kube-system/leader\"",
        "cannot get Lease kube-system/leader: forbidden (",
        "allow get, create and update on leases.coordination.k8s.io in namespace `kube-system` to this account",
    ]);
    allow(&server, ALL).await;
    candidate.leads().await;
    log.says_once(&["the lock can be reached again"]);
    candidate.stop().await;
}

/// The lock exists, or not; the one right that is missing is the one that is named, and once.
#[rstest]
#[case::get("get", &["create", "update"])]
#[case::create("create", &["get", "update"])]
#[case::update("update", &["get", "create"])]
#[tokio::test(start_paused = true)]
async fn the_one_right_that_is_missing_is_named(#[case] missing: &str, #[case] verbs: &[&str]) {
    let (log, server) = (Log::capture(), api_server());
    let client = user(&server, verbs).await;
    let candidates = [
        stand(lock(&client, NAMESPACE), "one"),
        stand(lock(&client, NAMESPACE), "two"),
    ];
    let [one, two] = &candidates;
    let guard = Guard::over(&[one, two]);
    // More writes are refused than are remembered: the record stays known as the candidate's own.
    tokio::time::sleep(secs(120)).await;
    let named = format!("cannot {missing} Lease kube-system/leader: forbidden (");
    let told = log.with(&["WARN", "trying again every retry period"]);
    assert!((1..=2).contains(&told.len()), "{:#?}", log.lines());
    assert!(told.iter().all(|line| line.contains(&named)), "{told:#?}");
    assert!(one.token().is_none() && two.token().is_none());
    allow(&server, ALL).await;
    super::stage::the_leader(&[one, two]).await;
    tokio::time::sleep(secs(10)).await;
    guard.saw_no_two();
    for candidate in candidates {
        candidate.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_rights_are_taken_away_stops_in_time_and_another_leads() {
    let (log, server) = (Log::capture(), api_server());
    let one = stand(lock(&user(&server, ALL).await, NAMESPACE), "one");
    one.leads().await;
    let two = stand(lock(&server.client(), NAMESPACE), "two");
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    allow(&server, &[]).await;
    one.until("it is lost", |state| matches!(state, State::Lost { .. }))
        .await;
    two.leads().await;
    log.says_once(&["WARN", "cannot update Lease kube-system/leader: forbidden ("]);
    log.says_once(&[
        "stopped leading",
        "no renewal succeeded within the renew deadline",
    ]);
    allow(&server, ALL).await;
    one.follows("two").await;
    guard.saw_no_two();
    one.stop().await;
    two.stop().await;
}

/// Asking is enough: told once, with the rights that would spare it.
#[tokio::test(start_paused = true)]
async fn without_list_and_watch_changes_are_noticed_by_asking() {
    let (log, server) = (Log::capture(), api_server());
    let first = stand(lock(&server.client(), NAMESPACE), "first");
    first.leads().await;
    let second = stand(
        lock(&user(&server, &["get", "create", "update"]).await, NAMESPACE),
        "second",
    );
    second.follows("first").await;
    let guard = Guard::over(&[&first, &second]);
    tokio::time::sleep(secs(60)).await;
    first.stop().await;
    let released = tokio::time::Instant::now();
    second.leads().await;
    // At most two retry periods and a fifth.
    assert!(released.elapsed() <= secs(3), "{:?}", released.elapsed());
    log.says_once(&[
        "not allowed to list and watch the lock; changes are noticed by asking every retry period",
        "kube-system/leader",
        "allow list and watch on leases.coordination.k8s.io in namespace `kube-system`",
    ]);
    guard.saw_no_two();
    second.stop().await;
}
