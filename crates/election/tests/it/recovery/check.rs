//! S14 and CheckMethodRace: the health check of a running candidate.

use super::stage::{Setting, Stage, client_go, ms, ours};
use evenkeel_election::clock::SystemClock;
use evenkeel_election::lock::{Fault, MemoryLock, Op};
use evenkeel_election::{Config, Elector, HealthAdaptor};
use rstest::rstest;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// "nil elector": a check without an election.
#[test]
fn without_an_election_all_is_well() {
    assert_eq!(HealthAdaptor::new(Duration::ZERO).check(), Ok(()));
    assert_eq!(HealthAdaptor::NAME, "leaderElection");
}

/// S14: healthy while attempts go on, through ten minutes of outage; also with timers so tight that one fills
/// the lease.
#[rstest]
#[case::client_gos(client_go("a"), 20_000)]
#[case::client_gos_tight(Config { renew_deadline: ms(14_000), ..client_go("a") }, 0)]
#[case::ours(ours("a"), 20_000)]
#[case::ours_tight(Config { renew_deadline: ms(14_000), ..ours("a") }, 0)]
#[tokio::test(start_paused = true)]
async fn s14_who_goes_on_trying_is_healthy(#[case] config: Config, #[case] tolerance: u64) {
    let setting = Setting {
        tolerance: ms(tolerance),
        timeout: ms(14_000),
        ..config.into()
    };
    let stage = Stage::new(setting).away(600_000, Fault::Hang);
    stage.until(20_000).await;
    assert_eq!(stage.stops().len(), 1);
    for tenth in 200..6_000 {
        stage.until(tenth * 100).await;
        assert_eq!(stage.health.check(), Ok(()), "at {tenth}00 ms");
    }
}

/// CheckMethodRace: checks from other threads neither stop renewals nor are stopped by them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_beside_renewals() {
    let lock = MemoryLock::new(Arc::new(SystemClock), "a");
    let config = Config {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(30),
        retry_period: ms(1),
        ..Config::new("a")
    };
    let stop = CancellationToken::new();
    let election = Elector::new(lock.clone(), config).unwrap().run(stop.clone());
    let checkers: Vec<_> = (0..4)
        .map(|_| {
            let (health, stop) = (election.health(), stop.clone());
            std::thread::spawn(move || {
                let mut checks = 0_u64;
                while !stop.is_cancelled() {
                    health.check(Duration::ZERO).unwrap();
                    checks += 1;
                }
                checks
            })
        })
        .collect();
    let renewals = || lock.ops().into_iter().filter(|op| *op == Op::Update).count();
    evenkeel_testkit::until("fifty renewals", async || renewals() >= 50).await;
    stop.cancel();
    for checker in checkers {
        assert!(checker.join().unwrap() > 0);
    }
    assert!(election.stopped().await.is_some());
}
