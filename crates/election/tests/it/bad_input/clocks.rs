//! Clocks that jump.

use super::stage::{Candidate, Guard, MachineClock, config, secs, stand_with};
use evenkeel_election::State;
use evenkeel_election::gate::is_gate_closed;
use evenkeel_election::lock::{AnnotationLock, LeaseLock, Lock, MemoryLock};
use evenkeel_testkit::api_server;
use evenkeel_testkit::log::Log;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = secs(3_600);

/// Micro-seconds in memory and in a Lease, whole seconds in an annotation.
fn locks(kind: &str) -> [Box<dyn Lock>; 2] {
    let client = api_server().client();
    let lease = || LeaseLock::new(client.clone(), "default", "leader").unwrap();
    let map = || AnnotationLock::config_map(client.clone(), "default", "leader").unwrap();
    match kind {
        "lease" => [Box::new(lease()), Box::new(lease())],
        "annotation" => [Box::new(map()), Box::new(map())],
        _ => {
            let lock = MemoryLock::new(MachineClock::new(), "one");
            [Box::new(lock.peer("two")), Box::new(lock)]
        }
    }
}

/// Set on one of two machines, back and forth: nothing happens.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_wall_clock_set_by_an_hour_changes_nothing(
    #[values("memory", "lease", "annotation")] kind: &str,
    #[values(0, 1)] of: usize,
    #[values(1, -1)] hours: i64,
) {
    let log = Log::capture();
    let [first, second] = locks(kind).map(Arc::<dyn Lock>::from);
    let one = stand_with(first, config("one"), MachineClock::new());
    let token = one.leads().await;
    let two = stand_with(second, config("two"), MachineClock::new());
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    let before = log.lines().len();
    for step in [hours, -hours, -hours, hours] {
        tokio::time::sleep(Duration::from_millis(4_300)).await;
        [&one, &two][of].clock.step_wall(SignedDuration::from_hours(step));
    }
    tokio::time::sleep(secs(20)).await;
    assert_eq!(one.token(), Some(token));
    assert!(matches!(one.election.state(), State::Leading { .. }));
    two.follows("one").await;
    assert_eq!(&log.lines()[before..], &[] as &[String]);
    // And the hand-over is as ever.
    one.stop().await;
    two.leads().await;
    guard.saw_no_two();
    two.stop().await;
}

/// Suspended for an hour: the gate is shut for whoever looks first, before any of our tasks has run. The
/// other machine has led for nearly an hour by then.
#[test]
fn a_machine_that_wakes_after_an_hour_finds_its_gate_shut() {
    let log = Log::capture();
    // A runtime for each machine: what is not run is suspended.
    let (here, there) = (runtime(), runtime());
    let (lock, one) = here.block_on(async {
        let clock = MachineClock::new();
        let lock = MemoryLock::new(Arc::clone(&clock) as _, "one");
        let one = stand_with(lock.clone(), config("one"), clock);
        one.leads().await;
        tokio::time::sleep(secs(10)).await;
        (lock, one)
    });
    let old = look(&here, &one).expect("it leads");
    let two = there.block_on(async {
        let two = stand_with(lock.peer("two"), config("two"), MachineClock::new());
        two.follows("one").await;
        tokio::time::sleep(secs(4)).await;
        assert_eq!(two.token(), None, "while the record of the sleeper is valid");
        two.leads().await;
        tokio::time::sleep(HOUR).await;
        two
    });
    // It wakes. No task has run, and none knows.
    one.clock.sleep(HOUR);
    assert!(one.election.state().leads());
    assert_eq!(look(&here, &one), None);
    {
        let _here = here.enter();
        assert!(!one.election.gate().is_open());
        let refused = one.election.gate().check().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "leader election write gate is closed: not leading"
        );
    }
    // A task that wakes first of all, and writes.
    here.block_on(async {
        let maps: Api<ConfigMap> =
            Api::namespaced(one.election.gate().client(&api_server().client()), "default");
        let patch = Patch::Merge(json!({"data": {"written": "late"}}));
        let refused = maps
            .patch("any", &PatchParams::default(), &patch)
            .await
            .unwrap_err();
        assert!(is_gate_closed(&refused), "{refused}");
    });
    let new = look(&there, &two).expect("the other leads");
    assert!(new.transitions > old.transitions);
    here.block_on(async {
        one.follows("two").await;
        log.says_once(&["WARN", "stopped leading", "lease=\"memory/lock\""]);
        assert_eq!(one.token(), None);
        one.stop().await;
    });
    there.block_on(async {
        assert_eq!(two.token(), Some(new));
        two.stop().await;
    });
}

/// Shorter than the record's duration: nobody has taken it, the term goes on once that is proven.
#[tokio::test(start_paused = true)]
async fn a_machine_that_wakes_in_time_recovers_its_term() {
    let log = Log::capture();
    let clock = MachineClock::new();
    let lock = MemoryLock::new(Arc::clone(&clock) as _, "one");
    let one = stand_with(lock.clone(), config("one"), clock);
    let token = one.leads().await;
    let two = stand_with(lock.peer("two"), config("two"), MachineClock::new());
    two.follows("one").await;
    let guard = Guard::over(&[&one, &two]);
    one.clock.sleep(secs(4));
    assert_eq!(one.token(), None);
    one.until("it recovers", |state| matches!(state, State::Recovered { .. }))
        .await;
    assert_eq!(one.token(), Some(token));
    log.says_once(&[
        "stopped leading",
        "no renewal succeeded within the renew deadline",
    ]);
    log.says_once(&["leadership recovered"]);
    tokio::time::sleep(secs(10)).await;
    guard.saw_no_two();
    one.stop().await;
    two.stop().await;
}

/// A follower that wakes looks again before it takes what seems long expired, at whatever moment between two
/// renewals.
#[rstest]
fn a_follower_that_wakes_after_an_hour_takes_nothing_from_a_leader(#[values(true, false)] watched: bool) {
    let (here, there) = (runtime(), runtime());
    let (lock, one) = there.block_on(async {
        let clock = MachineClock::new();
        let lock = MemoryLock::new(Arc::clone(&clock) as _, "one");
        let one = stand_with(lock.clone(), config("one"), clock);
        one.leads().await;
        (lock, one)
    });
    let token = look(&there, &one);
    let peer = lock.peer("two");
    let peer = if watched { peer } else { peer.without_watch() };
    let two = here.block_on(async {
        let two = stand_with(peer, config("two"), MachineClock::new());
        two.follows("one").await;
        two
    });
    for turn in 0..12 {
        let suspended = HOUR + Duration::from_millis(90 * turn);
        run(&there, suspended);
        two.clock.sleep(suspended);
        let awake = Duration::from_millis(150);
        let asked = lock.peek();
        run(&here, awake);
        assert_eq!((look(&there, &one), look(&here, &two)), (token.clone(), None));
        assert_eq!(lock.peek(), asked, "nothing was written");
        run(&there, awake);
    }
    there.block_on(one.stop());
    here.block_on(async {
        two.leads().await;
        two.stop().await;
    });
}

fn run(machine: &tokio::runtime::Runtime, time: Duration) {
    machine.block_on(async { tokio::time::sleep(time).await });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

/// What its gate says, by its own machine's clock.
fn look(machine: &tokio::runtime::Runtime, candidate: &Candidate) -> Option<evenkeel_election::FencingToken> {
    let _machine = machine.enter();
    candidate.token()
}
