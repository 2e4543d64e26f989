//! Several candidates on one Lease.

use crate::fake::FakeApi;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Election, Elector, State, StopReason};
use evenkeel_testkit::{SOON, becomes};
use kube::Client;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A fast clockwork: 2 s on the wire, loss after 1 s.
pub(crate) fn config(identity: &str) -> Config {
    Config {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_secs(1),
        retry_period: Duration::from_millis(300),
        ..Config::new(identity)
    }
}

pub(crate) fn start(client: &Client, identity: &str) -> (Election, CancellationToken) {
    start_with(client, config(identity))
}

pub(crate) fn start_with(client: &Client, config: Config) -> (Election, CancellationToken) {
    let shutdown = CancellationToken::new();
    let lock = LeaseLock::new(client.clone(), "default", "leader").unwrap();
    let election = Elector::new(lock, config).unwrap().run(shutdown.clone());
    (election, shutdown)
}

pub(crate) async fn until(candidate: &mut Election, what: &str, wanted: impl Fn(&State) -> bool) -> State {
    becomes(what, SOON, candidate.watch(), wanted).await
}

pub(crate) fn leads(state: &State) -> bool {
    state.leads()
}

fn follows(leader: &str) -> impl Fn(&State) -> bool {
    move |state| {
        *state
            == State::Following {
                leader: Some(leader.to_owned()),
            }
    }
}

fn transitions(state: &State) -> i32 {
    state.token().expect("a leader").transitions
}

pub(crate) async fn a_crash_is_taken_over_when_the_lease_expires(client: Client) {
    let (mut first, _keep) = start(&client, "first");
    assert_eq!(transitions(&until(&mut first, "first leads", leads).await), 0);
    let (mut second, stop) = start(&client, "second");
    until(&mut second, "second follows", follows("first")).await;
    assert_eq!(second.gate().token(), None);

    first.abort();
    let crash = Instant::now();
    let state = until(&mut second, "second takes over", leads).await;
    let after = crash.elapsed();
    assert_eq!(transitions(&state), 1);
    assert!(second.gate().token().is_some());
    // The last renewal was at most the deadline of 1 s before the crash, and is left alone for 2 s.
    assert!(after > Duration::from_millis(950), "{after:?}");
    stop.cancel();
    second.stopped().await;
}

pub(crate) async fn a_clean_stop_hands_over_without_waiting_for_the_expiry(client: Client) {
    let patient = |identity: &str| Config {
        lease_duration: Duration::from_secs(60),
        ..config(identity)
    };
    let (mut first, stop_first) = start_with(&client, patient("first"));
    until(&mut first, "first leads", leads).await;
    let (mut second, stop_second) = start_with(&client, patient("second"));
    until(&mut second, "second follows", follows("first")).await;

    stop_first.cancel();
    let stopped = Instant::now();
    let gate = first.gate().clone();
    let reason = first.stopped().await;
    assert_eq!(reason, Some(StopReason::Cancelled { drained: true }));
    assert_eq!(gate.token(), None);
    let state = until(&mut second, "second takes over", leads).await;
    let after = stopped.elapsed();
    assert_eq!(transitions(&state), 1);
    // One wait of a follower at most, 2.2 periods; the expiry would be a minute away.
    assert!(after < Duration::from_secs(10), "{after:?}");
    stop_second.cancel();
    second.stopped().await;
}

pub(crate) async fn many_candidates_never_lead_together(client: Client) {
    let mut candidates: Vec<_> = (0..4).map(|i| start(&client, &format!("c{i}"))).collect();
    for round in 0..3 {
        let leader = loop {
            let leading: Vec<usize> = (0..candidates.len())
                .filter(|i| candidates[*i].0.gate().token().is_some())
                .collect();
            assert!(leading.len() <= 1, "round {round}: {leading:?} lead");
            if let [leader] = leading[..] {
                break leader;
            }
            let changes = candidates
                .iter_mut()
                .map(|(candidate, _)| Box::pin(candidate.next()));
            let change = futures::future::select_all(changes);
            let (state, ..) = evenkeel_testkit::ends("somebody leads", change).await;
            assert!(state.is_some(), "a candidate ended");
        };
        let (candidate, stop) = candidates.remove(leader);
        stop.cancel();
        candidate.stopped().await;
    }
}

#[tokio::test]
async fn crash_without_a_watch() {
    a_crash_is_taken_over_when_the_lease_expires(FakeApi::default().client()).await;
}

#[tokio::test]
async fn release_without_a_watch() {
    a_clean_stop_hands_over_without_waiting_for_the_expiry(FakeApi::default().client()).await;
}

#[tokio::test]
async fn many_without_a_watch() {
    many_candidates_never_lead_together(FakeApi::default().client()).await;
}
