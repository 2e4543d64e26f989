//! The five properties that a distributed lock is asked for, each at the embedded API server.
//!
//! `docs/election/properties.md` maps each to these and further tests.

use crate::rivals::config;
use evenkeel_election::gate::is_gate_closed;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Election, Elector, FencingToken, State};
use evenkeel_testkit::{SOON, api_server, becomes, ends, eventually};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LEASE: &str = "lock";

/// A candidate with a cable of its own to the API server.
struct Candidate {
    election: Election,
    stop: CancellationToken,
    cable: Cable,
    /// Writes through the gate and the cable.
    writer: Client,
}

/// A connection that can be cut: requests then get no answer, and never will.
#[derive(Clone, Default)]
struct Cable {
    cut: Arc<AtomicBool>,
}

impl Cable {
    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }

    fn client(&self, client: &Client) -> Client {
        let (inner, cut) = (client.clone(), Arc::clone(&self.cut));
        let send = tower::service_fn(move |request| {
            let (client, cut) = (inner.clone(), Arc::clone(&cut));
            async move {
                if cut.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                client.send(request).await
            }
        });
        Client::new(send, client.default_namespace().to_owned())
    }
}

fn candidate(client: &Client, identity: &str) -> Candidate {
    candidate_with(client, config(identity))
}

fn candidate_with(client: &Client, config: Config) -> Candidate {
    let (stop, cable) = (CancellationToken::new(), Cable::default());
    let client = cable.client(client);
    let lock = LeaseLock::new(client.clone(), "default", LEASE).unwrap();
    let election = Elector::new(lock, config).unwrap().run(stop.clone());
    let writer = election.gate().client(&client);
    Candidate {
        election,
        stop,
        cable,
        writer,
    }
}

impl Candidate {
    fn token(&self) -> Option<FencingToken> {
        self.election.gate().token()
    }

    async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) -> State {
        becomes(what, SOON, self.election.watch(), wanted).await
    }

    async fn leads(&self) -> FencingToken {
        self.until("leads", State::leads).await.token().unwrap().clone()
    }

    async fn stop(self) {
        self.stop.cancel();
        ends("it stops", self.election.stopped()).await;
    }
}

/// The one that leads; two at once fail the test.
async fn the_leader(candidates: &[Candidate]) -> usize {
    eventually("somebody leads", SOON, || async { at_most_one(candidates) }).await
}

fn at_most_one(candidates: &[Candidate]) -> Option<usize> {
    let leading: Vec<usize> = (0..candidates.len())
        .filter(|number| candidates[*number].token().is_some())
        .collect();
    assert!(leading.len() <= 1, "{leading:?} lead at once");
    leading.first().copied()
}

async fn spec(client: &Client) -> LeaseSpec {
    lease(client).await.spec.unwrap()
}

async fn lease(client: &Client) -> Lease {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.get(LEASE).await.unwrap()
}

async fn patch(client: &Client, patch: serde_json::Value) -> kube::Result<Lease> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases
        .patch(LEASE, &PatchParams::default(), &Patch::Merge(patch))
        .await
}

/// Mutual exclusion: through hand-overs and cut cables nobody's gate is open while another's is, and what
/// passes the gates is stamped with tokens that only grow.
#[tokio::test]
async fn mutual_exclusion() {
    let client = api_server().client();
    let mut candidates: Vec<Candidate> = (0..4)
        .map(|number| candidate(&client, &format!("c{number}")))
        .collect();
    let mut last = None;
    for round in 0..4 {
        let leader = the_leader(&candidates).await;
        let token = candidates[leader].leads().await;
        assert!(
            last < Some(token.transitions),
            "round {round}: {last:?}, then {token}"
        );
        last = Some(token.transitions);
        // Only the leader's write goes through.
        let mark = json!({"metadata": {"annotations": {"written-by": format!("round-{round}")}}});
        for (number, candidate) in candidates.iter().enumerate() {
            match patch(&candidate.writer, mark.clone()).await {
                Ok(_) => assert_eq!(number, leader),
                Err(error) => {
                    assert!(is_gate_closed(&error), "{error}");
                    assert_ne!(number, leader);
                }
            }
        }
        if round % 2 == 0 {
            candidates.remove(leader).stop().await;
        } else {
            // It must close its gate by itself, before anybody else opens theirs.
            candidates[leader].cable.cut();
            eventually("the next one leads", SOON, || async {
                at_most_one(&candidates).filter(|next| *next != leader)
            })
            .await;
            candidates[leader].cable.mend();
        }
    }
    for candidate in candidates {
        candidate.stop().await;
    }
}

/// Freedom from deadlock: a holder that is gone for good does not block the others for ever, not even if
/// everybody was.
#[tokio::test]
async fn freedom_from_deadlock() {
    let client = api_server().client();
    let (first, second) = (candidate(&client, "first"), candidate(&client, "second"));
    let both = [first, second];
    let leader = the_leader(&both).await;
    let before = both[leader].leads().await;
    both[leader].election.abort();
    let after = both[1 - leader].leads().await;
    assert!(after.transitions > before.transitions);
    // The record of the dead is all that is left.
    both[1 - leader].election.abort();
    let held = spec(&client).await.holder_identity.unwrap();
    assert!(!held.is_empty(), "nothing was released");
    let third = candidate(&client, "third");
    assert!(third.leads().await.transitions > after.transitions);
    third.stop().await;
}

/// Fault tolerance: with a minority of the candidates gone there is a leader; with the API gone there is
/// none, but nobody acts either; when it is back there is one again.
#[tokio::test]
async fn fault_tolerance() {
    let client = api_server().client();
    let mut candidates: Vec<Candidate> = (0..5)
        .map(|number| candidate(&client, &format!("c{number}")))
        .collect();
    for _ in 0..2 {
        let leader = the_leader(&candidates).await;
        candidates.remove(leader).election.abort();
    }
    let leader = the_leader(&candidates).await;
    assert_eq!(candidates.len(), 3);
    for candidate in &candidates {
        candidate.cable.cut();
    }
    candidates[leader]
        .until("it gives up", |state| !state.leads())
        .await;
    assert_eq!(at_most_one(&candidates), None);
    let renewed = spec(&client).await.renew_time;
    for candidate in &candidates {
        candidate.cable.mend();
    }
    let leader = the_leader(&candidates).await;
    candidates[leader].leads().await;
    assert!(spec(&client).await.renew_time > renewed);
    for candidate in candidates {
        candidate.stop().await;
    }
}

/// Only the holder releases: neither a follower's end, nor that of somebody who held it once, frees another's
/// lock.
#[tokio::test]
async fn only_the_holder_releases() {
    let client = api_server().client();
    let holder = candidate(&client, "holder");
    let token = holder.leads().await;
    let follower = candidate(&client, "follower");
    follower
        .until("follows", |state| {
            *state
                == State::Following {
                    leader: Some("holder".into()),
                }
        })
        .await;
    follower.stop().await;
    assert_eq!(holder.token(), Some(token), "the same term goes on");
    assert_eq!(spec(&client).await.holder_identity.as_deref(), Some("holder"));

    // Stopped in the very moment in which somebody else got it: whether it has noticed or not.
    let other = json!({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}});
    patch(&client, other).await.unwrap();
    holder.stop().await;
    let spec = spec(&client).await;
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_duration_seconds),
        (Some("other"), Some(3600))
    );
}

/// Only the holder releases, and not before the work has ended: the lock stays taken as long as a share is
/// held.
#[tokio::test]
async fn only_the_holder_releases_once_its_work_has_ended() {
    let client = api_server().client();
    let patient = Config {
        lease_duration: Duration::from_secs(60),
        ..config("holder")
    };
    let holder = candidate_with(&client, patient);
    holder.leads().await;
    let work = holder.election.work().unwrap();
    let rival = candidate(&client, "rival");
    holder.stop.cancel();
    ends("the work is told", work.stopped()).await;
    // It may still finish what it is about, because nobody else has begun.
    assert_eq!(spec(&client).await.holder_identity.as_deref(), Some("holder"));
    assert_eq!(rival.token(), None);
    drop(work);
    rival.leads().await;
    assert_eq!(holder.token(), None);
    holder.stop().await;
    rival.stop().await;
}

/// Re-entrance: to renew is not to take anew. Term, token and work stay, and a share can be taken within a
/// share.
#[tokio::test]
async fn re_entrance() {
    let client = api_server().client();
    let mut holder = candidate(&client, "holder");
    let token = holder.leads().await;
    let first = spec(&client).await;
    let outer = holder.election.work().unwrap();
    let mut seen = first.renew_time.clone();
    for _ in 0..5 {
        seen = eventually("a renewal", SOON, || async {
            let renewed = spec(&client).await.renew_time;
            (renewed > seen).then_some(renewed)
        })
        .await;
    }
    let last = spec(&client).await;
    assert!(last.renew_time > first.renew_time);
    let of = |spec: &LeaseSpec| {
        (
            spec.holder_identity.clone(),
            spec.acquire_time.clone(),
            spec.lease_transitions,
        )
    };
    assert_eq!(of(&last), of(&first));
    let inner = holder.election.work().expect("a share within a share");
    assert_eq!((outer.token(), inner.token()), (&token, &token));
    assert_eq!(holder.token(), Some(token));
    // What others were told: one term, begun once.
    holder.stop.cancel();
    drop((outer, inner));
    let mut terms = 0;
    while let Some(state) = holder.election.next().await {
        terms += usize::from(matches!(state, State::Leading { .. }));
    }
    assert_eq!(terms, 1);
}
