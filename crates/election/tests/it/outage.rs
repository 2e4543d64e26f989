//! The API fails under a candidate.

use crate::fake::{FakeApi, Mood};
use crate::rivals::{config, leads, start, until};
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Elector, State};
use evenkeel_testkit::SOON;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_leader_whose_requests_hang_stops_by_itself_and_comes_back() {
    let api = FakeApi::default();
    let (mut leader, stop) = start(&api.client(), "me");
    until(&mut leader, "leads", leads).await;
    api.set(Mood::Silent);
    // No request ends in the meantime: it is the clock that ends it.
    until(&mut leader, "leaves", |state| !leads(state)).await;
    assert_eq!(leader.gate().token(), None);
    api.set(Mood::Well);
    until(&mut leader, "leads again", leads).await;
    stop.cancel();
    leader.stopped().await;
    assert_eq!(api.holder().as_deref(), Some(""));
}

#[tokio::test]
async fn a_proof_ends_even_if_nobody_runs_the_task() {
    let api = FakeApi::default();
    let (mut leader, _stop) = start(&api.client(), "me");
    until(&mut leader, "leads", leads).await;
    assert!(leader.gate().token().is_some());
    // The single-threaded runtime stands still, like a process that was stopped.
    std::thread::sleep(Duration::from_millis(1_100));
    assert!(leads(&leader.state()), "no task has run");
    assert_eq!(leader.gate().token(), None);
}

#[tokio::test]
async fn without_rights_a_candidate_goes_on_asking_and_stops_when_told() {
    let api = FakeApi::default();
    api.set(Mood::Forbidden);
    let (mut candidate, stop) = start(&api.client(), "me");
    let end = Instant::now() + SOON;
    while api.requests() < 3 {
        assert!(Instant::now() < end, "it stopped asking");
        tokio::task::yield_now().await;
    }
    assert_eq!(candidate.state(), State::Following { leader: None });
    api.set(Mood::Well);
    until(&mut candidate, "leads", leads).await;
    api.set(Mood::Silent);
    stop.cancel();
    // The release is given up at the renew deadline.
    evenkeel_testkit::ends("it stops", candidate.stopped()).await;
}

#[tokio::test]
async fn a_broken_configuration_is_refused() {
    let config = Config {
        identity: String::new(),
        ..config("me")
    };
    let lock = LeaseLock::new(FakeApi::default().client(), "default", "leader").unwrap();
    let refused = Elector::new(lock, config);
    assert_eq!(refused.err().unwrap().to_string(), "Lock identity is empty");
}
