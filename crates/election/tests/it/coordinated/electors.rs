//! Candidates as they are used: a LeaseCandidate and an elector under one identity.

use super::{
    LEASE, NAMESPACE, Standing, candidacy, candidates, coordinate, coordinator, leases, until,
    until_candidate,
};
use crate::rivals::config;
use evenkeel_election::coordinated::Candidacy;
use evenkeel_election::core::coordinated::COORDINATOR_LEASE;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Election, Elector, FencingToken, State};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{SOON, api_server, becomes, ends};
use kube::Client;
use serde_json::json;
use std::cmp::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

struct Replica {
    standing: Standing,
    election: Election,
    stop: CancellationToken,
}

fn replica(client: &Client, candidacy: Candidacy) -> Replica {
    let stop = CancellationToken::new();
    let lock = LeaseLock::new(client.clone(), NAMESPACE, LEASE).unwrap();
    let config = Config {
        coordinated: true,
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(500),
        ..Config::new(&candidacy.identity)
    };
    let election = Elector::new(lock, config).unwrap().run(stop.clone());
    Replica {
        standing: Standing::new(client, candidacy),
        election,
        stop,
    }
}

impl Replica {
    async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) -> State {
        becomes(what, SOON, self.election.watch(), wanted).await
    }

    async fn leads(&self) -> FencingToken {
        let state = self.until("leads", State::leads).await;
        state.token().unwrap().clone()
    }

    fn writes(&self) -> bool {
        self.election.gate().is_open()
    }

    async fn stop(self) {
        self.stop.cancel();
        self.election.stopped().await;
        self.standing.withdraw().await;
    }

    fn crash(self) {
        self.election.abort();
        self.standing.crash();
    }
}

#[tokio::test]
async fn single_candidate() {
    let client = api_server().client();
    let one = replica(&client, candidacy("one", "1.19.0"));
    let _coordinator = coordinate(coordinator(&client));
    one.leads().await;
    let spec = leases(&client).get(LEASE).await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("one"));
    assert_eq!(
        spec.strategy.as_deref(),
        Some("OldestEmulationVersion"),
        "renewals keep it"
    );
    one.stop().await;
}

#[tokio::test]
async fn a_candidate_does_not_lead_without_a_coordinator() {
    let client = api_server().client();
    let one = replica(&client, candidacy("one", "1.19.0"));
    until_candidate(&client, "one", |_| true).await;
    assert!(
        leases(&client).get_opt(LEASE).await.unwrap().is_none(),
        "it makes no Lease"
    );
    assert!(!one.writes());
    let _coordinator = coordinate(coordinator(&client));
    one.leads().await;
    one.stop().await;
}

#[tokio::test]
async fn multiple_candidates_are_led_by_the_oldest_emulation_version() {
    let client = api_server().client();
    let emulating = |identity: &str, emulation: &str| Candidacy {
        emulation_version: Some(emulation.parse().unwrap()),
        ..candidacy(identity, "1.20.0")
    };
    let (new, old, skewed) = (
        replica(&client, emulating("a-new", "1.20.0")),
        replica(&client, candidacy("b-old", "1.19.0")),
        replica(&client, emulating("c-skewed", "1.19.0")),
    );
    for identity in ["a-new", "b-old", "c-skewed"] {
        until_candidate(&client, identity, |_| true).await;
    }
    let _coordinator = coordinate(coordinator(&client));
    old.leads().await;
    assert!(!new.writes() && !skewed.writes());
    // Upgrade skew: the next oldest emulation version follows, whatever its own version.
    old.stop().await;
    skewed.leads().await;
    assert!(!new.writes());
    skewed.stop().await;
    new.leads().await;
    new.stop().await;
}

#[tokio::test]
async fn leadership_is_swapped_when_a_better_candidate_appears() {
    let client = api_server().client();
    let _coordinator = coordinate(coordinator(&client));
    let first = replica(&client, candidacy("first", "1.20.0"));
    let before = first.leads().await;
    let better = replica(&client, candidacy("better", "1.19.0"));
    let after = better.leads().await;
    assert!(!first.writes(), "the first one let go before");
    assert_eq!(
        after.compare(&before),
        Some(Ordering::Greater),
        "{before}, then {after}"
    );
    let spec = leases(&client).get(LEASE).await.unwrap().spec.unwrap();
    assert_eq!(spec.preferred_holder, None);
    better.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn a_third_party_chooses_among_candidates() {
    let client = api_server().client();
    let third = |identity: &str| Candidacy {
        strategy: "foo.com/bar".to_owned(),
        ..candidacy(identity, "1.19.0")
    };
    let (one, two) = (replica(&client, third("one")), replica(&client, third("two")));
    let _coordinator = coordinate(coordinator(&client));
    until(&client, "labelled", |spec| spec.strategy.is_some()).await;
    assert!(!one.writes() && !two.writes());
    let choice = json!({"spec": {"holderIdentity": "two", "leaseDurationSeconds": 5,
        "renewTime": format!("{:.6}", jiff::Timestamp::now())}});
    leases(&client).merge(LEASE, choice).await;
    two.leads().await;
    assert!(!one.writes());
    two.stop().await;
    one.stop().await;
}

#[tokio::test]
async fn the_lease_is_transferred_when_its_holder_crashes_and_the_dead_candidate_is_passed_over() {
    let client = api_server().client();
    let _coordinator = coordinate(coordinator(&client));
    let best = replica(&client, candidacy("best", "1.19.0"));
    let before = best.leads().await;
    let other = replica(&client, candidacy("other", "1.20.0"));
    until_candidate(&client, "other", |_| true).await;
    best.crash();
    let after = other.leads().await;
    assert_eq!(
        after.compare(&before),
        Some(Ordering::Greater),
        "{before}, then {after}"
    );
    let dead = candidates(&client).get("best").await.unwrap().spec.unwrap();
    assert!(dead.ping_time > dead.renew_time, "it was asked: {dead:?}");
    other.stop().await;
}

#[tokio::test]
async fn a_coordinator_works_only_while_it_leads_its_own_election() {
    let client = api_server().client();
    let start = |identity: &str| {
        let stop = CancellationToken::new();
        let lock = LeaseLock::new(client.clone(), NAMESPACE, COORDINATOR_LEASE).unwrap();
        let election = Elector::new(lock, config(identity)).unwrap().run(stop.clone());
        let states = election.watch();
        let task = tokio::spawn(coordinator(&client).run_while_leading(election));
        (stop, states, task)
    };
    let (stop, mut states, task) = start("coordinator-1");
    ends("it ends", states.wait_for(State::leads)).await.unwrap();
    let (_keep, mut standby, second) = start("coordinator-2");
    let one = replica(&client, candidacy("one", "1.19.0"));
    let before = one.leads().await;
    // Without a coordinator a deleted Lease stays deleted.
    stop.cancel();
    ends("it ends", task).await.unwrap();
    ends("it ends", standby.wait_for(State::leads)).await.unwrap();
    leases(&client).remove(LEASE).await;
    let again = one
        .until("leads anew", |state| {
            state
                .token()
                .is_some_and(|token| token.lease_uid != before.lease_uid)
        })
        .await;
    assert!(again.leads());
    one.stop().await;
    second.abort();
}

#[tokio::test]
async fn a_candidate_that_stops_hands_over_and_cleans_up() {
    let client = api_server().client();
    let _coordinator = coordinate(coordinator(&client));
    let one = replica(&client, candidacy("one", "1.19.0"));
    one.leads().await;
    let two = replica(&client, candidacy("two", "1.20.0"));
    until_candidate(&client, "two", |_| true).await;
    one.stop().await;
    two.leads().await;
    evenkeel_testkit::until("the object is gone", async || {
        candidates(&client).get_opt("one").await.unwrap().is_none()
    })
    .await;
    two.stop().await;
}
