//! The API server is gone for a minute. (On real sockets: the tests in network namespaces.)

use super::stage::{Guard, MachineClock, config, secs, stand, stand_with, stopping, the_leader};
use evenkeel_election::clock::Clock;
use evenkeel_election::lock::{Fault, LeaseLock, LockError, MemoryLock, Rule};
use evenkeel_election::{Loss, State, StopReason};
use evenkeel_testkit::api_server;
use evenkeel_testkit::log::Log;
use kube::Client;
use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = secs(60);

/// Silent, or answering that it cannot serve.
fn gone(how: &str) -> Fault {
    match how {
        "silent" => Fault::Hang,
        _ => Fault::Answer(LockError::Unreachable(
            "cannot get Lease ns/name: connection refused".into(),
        )),
    }
}

/// Alone: the gate is shut at its time, and the same term goes on when the server is back.
#[rstest]
#[tokio::test(start_paused = true)]
async fn for_a_minute_a_leader_is_lost_and_recovers_its_term(#[values("silent", "refusing")] how: &str) {
    let (log, clock) = (Log::capture(), MachineClock::new());
    let lock = MemoryLock::new(Arc::clone(&clock) as Arc<dyn Clock>, "one");
    let one = stand_with(lock.clone(), config("one"), Arc::clone(&clock));
    let token = one.leads().await;
    tokio::time::sleep(Duration::from_millis(10_200)).await;
    let deadline = one.election.gate().valid_until().unwrap();
    let from = lock.now();
    lock.inject(Rule::new(gone(how)).from(from).until(from + MINUTE));
    let lost = one
        .until("it is lost", |state| matches!(state, State::Lost { .. }))
        .await;
    let loss = Loss::Deadline;
    assert_eq!(
        lost,
        State::Lost {
            token: token.clone(),
            loss
        }
    );
    assert_eq!(
        clock.boot(),
        deadline,
        "not later than it was proven, and no sooner than needed"
    );
    assert_eq!(one.token(), None);

    let back = one.until("it recovers", State::leads).await;
    assert!(
        lock.now() >= from + MINUTE && lock.now() <= from + MINUTE + secs(2),
        "{:?}",
        lock.now()
    );
    assert!(
        matches!(&back, State::Recovered { token: now, .. } if *now == token),
        "{back:?}"
    );
    assert_eq!(one.token(), Some(token));
    let what = if how == "silent" {
        "no answer within 1.5s; check that the API server runs and can be reached from here"
    } else {
        "connection refused"
    };
    log.says_once(&[
        "WARN",
        "cannot update the lock; trying again every retry period",
        what,
    ]);
    log.says_once(&[
        "WARN",
        "stopped leading",
        "no renewal succeeded within the renew deadline",
    ]);
    log.says_once(&[
        "WARN",
        "leadership cannot be proven; writes are refused until it can",
    ]);
    log.says_once(&["the lock can be reached again"]);
    log.says_once(&["leadership recovered"]);
    // An outage of a minute is a few lines.
    assert!(log.warnings().len() <= 4, "{:#?}", log.lines());
    one.stop().await;
}

#[tokio::test(start_paused = true)]
async fn for_a_minute_ends_a_candidate_that_is_to_stop_at_a_loss() {
    let clock = MachineClock::new();
    let lock = MemoryLock::new(Arc::clone(&clock) as Arc<dyn Clock>, "one");
    let one = stand_with(lock.clone(), stopping("one"), clock);
    one.leads().await;
    let from = lock.now();
    lock.inject(Rule::new(Fault::Hang).from(from).until(from + MINUTE));
    let reason = one.ended().await;
    assert_eq!(reason, StopReason::Lost(Loss::Deadline));
    assert_eq!(
        reason.to_string(),
        "leadership lost: no renewal succeeded within the renew deadline"
    );
}

/// Gone for the leader, for the others, or for all: the others lead when they may, and in the end exactly one
/// does.
#[rstest]
#[case::for_the_leader(true, false)]
#[case::for_the_followers(false, true)]
#[case::for_all(true, true)]
#[tokio::test(start_paused = true)]
async fn for_a_minute_makes_no_second_leader(
    #[case] leader: bool,
    #[case] followers: bool,
    #[values("silent", "refusing")] how: &str,
) {
    let log = Log::capture();
    let lock = MemoryLock::new(MachineClock::new(), "one");
    let (second, third) = (lock.peer("two"), lock.peer("three"));
    let one = stand(lock.clone(), "one");
    let token = one.leads().await;
    let (two, three) = (stand(second.clone(), "two"), stand(third.clone(), "three"));
    two.follows("one").await;
    three.follows("one").await;
    let all = [&one, &two, &three];
    let guard = Guard::over(&all);
    tokio::time::sleep(Duration::from_millis(10_200)).await;
    let from = lock.now();
    let cut = [(&lock, leader), (&second, followers), (&third, followers)];
    for (handle, _) in cut.iter().filter(|(_, cut)| *cut) {
        handle.inject(Rule::new(gone(how)).from(from).until(from + MINUTE));
    }
    let expiry = lock.history().last().unwrap().at + secs(5);
    while lock.now() + Duration::from_millis(2) < expiry {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(
        two.token().is_none() && three.token().is_none(),
        "while it may still be valid"
    );
    tokio::time::sleep(secs(30)).await;
    let leading = all.iter().filter(|candidate| candidate.token().is_some()).count();
    assert_eq!(leading, usize::from(!(leader && followers)), "{:#?}", log.lines());
    tokio::time::sleep(secs(40)).await;
    let next = the_leader(&all).await;
    let expected = i32::from(leader);
    let now = all[next].token().unwrap();
    assert!(
        now.transitions == expected || (next == 0 && now == token),
        "{now}"
    );
    tokio::time::sleep(secs(20)).await;
    assert_eq!(the_leader(&all).await, next);
    guard.saw_no_two();
    for candidate in [one, two, three] {
        candidate.stop().await;
    }
}

const WELL: u8 = 0;
const SILENT: u8 = 1;
const REFUSING: u8 = 2;

/// The same on the wire's side of a Lease: requests that hang or fail below the client.
#[rstest]
#[case::silent(
    SILENT,
    "no answer within 1.5s; check that the API server runs and can be reached from here"
)]
#[case::refusing(REFUSING, "cannot update Lease default/leader: ")]
#[tokio::test(start_paused = true)]
async fn for_a_minute_is_told_with_the_lease_and_survived(#[case] how: u8, #[case] what: &str) {
    let (log, mood) = (Log::capture(), Arc::new(AtomicU8::new(WELL)));
    let (inner, now) = (api_server().client(), Arc::clone(&mood));
    let send = tower::service_fn(move |request| {
        let (client, mood) = (inner.clone(), now.load(Ordering::SeqCst));
        async move {
            match mood {
                WELL => client.send(request).await,
                SILENT => std::future::pending().await,
                _ => {
                    let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                    Err(kube::Error::Service(Box::new(error)))
                }
            }
        }
    });
    let lock = LeaseLock::new(Client::new(send, "default"), "default", "leader").unwrap();
    let one = stand(lock, "one");
    let token = one.leads().await;
    tokio::time::sleep(secs(10)).await;
    let start = Instant::now();
    mood.store(how, Ordering::SeqCst);
    one.until("it is lost", |state| matches!(state, State::Lost { .. }))
        .await;
    assert!(start.elapsed() <= secs(3), "{:?}", start.elapsed());
    assert_eq!(one.token(), None);
    tokio::time::sleep(MINUTE.saturating_sub(start.elapsed())).await;
    mood.store(WELL, Ordering::SeqCst);
    assert_eq!(one.leads().await, token);
    assert!(start.elapsed() <= MINUTE + secs(3), "{:?}", start.elapsed());
    log.says_once(&["WARN", "cannot update the lock", "lease=\"default/leader\"", what]);
    log.says_once(&["leadership recovered"]);
    one.stop().await;
}
