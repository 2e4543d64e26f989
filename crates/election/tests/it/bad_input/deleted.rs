//! A lease deleted under its leader.

use super::stage::{Candidate, Guard, MachineClock, config, secs, stand, stand_with, stopping, the_leader};
use evenkeel_election::clock::Clock;
use evenkeel_election::lock::{Fault, LeaseLock, MemoryLock, Rule};
use evenkeel_election::{Loss, State, StopReason};
use evenkeel_testkit::api_server;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::log::Log;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rstest::rstest;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After the deletion: the old term ends within `within`, and one leads under another object's UID.
async fn another_term(log: &Log, leader: &Candidate, follower: &Candidate, within: Duration) {
    let deleted = Instant::now();
    let old = leader.token().expect("nothing has run since the deletion");
    leader.until("its term ends", |state| !state.leads()).await;
    assert!(deleted.elapsed() <= within, "{:?}", deleted.elapsed());
    assert_eq!(leader.token(), None);
    log.says_once(&["WARN", "stopped leading", "the lease was deleted"]);
    let next = the_leader(&[leader, follower]).await;
    let new = [leader, follower][next].token().unwrap();
    assert_ne!(new.lease_uid, old.lease_uid);
    assert_eq!(new.transitions, 0);
    // Who held the old one may not know yet.
    assert!(deleted.elapsed() >= secs(5), "{:?}", deleted.elapsed());
    tokio::time::sleep(secs(20)).await;
    assert_eq!(the_leader(&[leader, follower]).await, next);
}

#[rstest]
#[case::watched(true, Duration::from_millis(1))]
#[case::asked_every_retry_period(false, secs(1))]
#[tokio::test(start_paused = true)]
async fn ends_the_term_and_begins_another(#[case] watched: bool, #[case] within: Duration) {
    let (log, clock) = (Log::capture(), MachineClock::new());
    let lock = MemoryLock::new(Arc::clone(&clock) as Arc<dyn Clock>, "one");
    let (mine, theirs) = (lock.clone(), lock.peer("two"));
    let way = |lock: MemoryLock| if watched { lock } else { lock.without_watch() };
    let one = stand(way(mine), "one");
    one.leads().await;
    let two = stand(way(theirs), "two");
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    // At no special moment between two renewals.
    tokio::time::sleep(Duration::from_millis(7_300)).await;
    assert!(lock.delete());
    another_term(&log, &one, &two, within).await;
    guard.saw_no_two();
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn at_an_api_server_ends_the_term_and_begins_another() {
    let (log, client) = (Log::capture(), api_server().client());
    let lock = || LeaseLock::new(client.clone(), "default", "leader").unwrap();
    let one = stand(lock(), "one");
    one.leads().await;
    let two = stand(lock(), "two");
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    tokio::time::sleep(Duration::from_millis(7_300)).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.remove("leader").await;
    another_term(&log, &one, &two, Duration::from_millis(10)).await;
    guard.saw_no_two();
    one.stop().await;
    two.stop().await;
}

/// The leader cannot learn of it, the other does at once.
#[tokio::test(start_paused = true)]
async fn where_the_leader_cannot_see_it_makes_no_second_leader() {
    let log = Log::capture();
    let lock = MemoryLock::new(MachineClock::new(), "one");
    let one = stand(lock.clone(), "one");
    let old = one.leads().await;
    let two = stand(lock.peer("two"), "two");
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    tokio::time::sleep(Duration::from_millis(6_050)).await;
    lock.inject(Rule::new(Fault::Hang));
    lock.delete();
    let new = two.leads().await;
    assert_ne!(new.lease_uid, old.lease_uid);
    assert!(matches!(
        one.election.state(),
        State::Lost {
            loss: Loss::Deadline,
            ..
        }
    ));
    lock.heal();
    one.follows("two").await;
    log.says_once(&[
        "stopped leading",
        "no renewal succeeded within the renew deadline",
    ]);
    guard.saw_no_two();
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stops_a_candidate_that_is_to_stop_at_a_loss() {
    let clock = MachineClock::new();
    let lock = MemoryLock::new(Arc::clone(&clock) as Arc<dyn Clock>, "one");
    let one = stand_with(lock.clone(), stopping("one"), clock);
    one.leads().await;
    lock.delete();
    let reason = one.ended().await;
    assert_eq!(reason, StopReason::Lost(Loss::Deleted));
    assert_eq!(reason.to_string(), "leadership lost: the lease was deleted");
    assert_eq!(lock.peek(), None, "it makes no new one");
    let other = stand_with(lock.peer("other"), config("other"), MachineClock::new());
    other.leads().await;
    other.stop().await;
}
