//! Loss and recovery.

use super::stage::{Setting, Stage, Told, client_go, ms, ours};
use evenkeel_election::gate::is_gate_closed;
use evenkeel_election::lock::{Fault, Op};
use evenkeel_election::{Config, Loss, OnLoss, StopReason};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use rstest::rstest;
use std::time::Duration;

const FOREVER: u64 = 100_000_000;

/// S1 "acquire opens gate", with the calls and their times.
#[rstest]
#[case::client_gos(client_go("a"), &[(0, Op::Get), (0, Op::Create), (0, Op::Update), (2_000, Op::Update), (4_000, Op::Update), (6_000, Op::Update)])]
#[case::ours(ours("a"), &[(0, Op::Get), (0, Op::Create), (2_000, Op::Update), (4_000, Op::Update), (6_000, Op::Update)])]
#[tokio::test(start_paused = true)]
async fn s1_acquire_opens_the_gate(#[case] config: Config, #[case] requests: &[(u64, Op)]) {
    let stage = Stage::new(config);
    assert!(!stage.gate.is_open());
    stage.until(0).await;
    assert!(stage.gate.is_open());
    stage.until(7_000).await;
    assert_eq!(stage.requests(), requests);
    assert_eq!((stage.starts().len(), stage.stops().len()), (1, 0));
    assert_eq!(stage.events(), [(0, "a became leader".to_owned())]);
}

/// S2, S3: loss, and recovery within the term. The write under way ends with the gate's error, the work goes
/// on.
#[rstest]
#[case::client_gos(client_go("a"), 16_000)]
#[case::ours(ours("a"), 14_000)]
#[tokio::test(start_paused = true)]
async fn s2_loss_then_recovery(#[case] config: Config, #[case] lost: u64) {
    let mut stage = Stage::new(config).away(20_000, Fault::Hang);
    stage.until(10_000).await;
    let write = tokio::spawn(hanging_write(&stage));
    stage.until(lost - 1).await;
    assert!(stage.gate.is_open() && !write.is_finished());
    assert_eq!((stage.gate.in_flight(), stage.gauge()), (1, 1));
    stage.until(lost).await;
    assert!(!stage.gate.is_open());
    assert_eq!((stage.gate.in_flight(), stage.gauge()), (0, 0));
    assert!(is_gate_closed(&write.await.unwrap().unwrap_err()));
    assert!(
        is_gate_closed(&hanging_write(&stage).await.unwrap_err()),
        "and the next one at once"
    );
    stage.until(20_999).await;
    assert_eq!((stage.gate.is_open(), stage.gauge()), (false, 0));
    stage.until(21_000).await;
    assert_eq!((stage.gate.is_open(), stage.gauge()), (true, 1));
    stage.until(30_000).await;
    let cancelled = stage.times(|told| *told == Told::Cancelled);
    assert!(cancelled.is_empty(), "the work's context is alive");
    stage.stop.cancel();
    let cancelled = StopReason::Cancelled { drained: true };
    assert_eq!(stage.ended().await, (30_000, cancelled));
    assert_eq!(stage.starts(), [0], "no second start");
    assert_eq!(stage.stops(), [lost, 30_000]);
    assert!(
        !stage
            .told
            .all()
            .iter()
            .any(|(_, told)| *told == Told::Stopped(true)),
        "the gate is shut by then"
    );
    let leaders = stage.times(|told| matches!(told, Told::NewLeader(_)));
    assert_eq!(leaders, [0], "no spurious OnNewLeader");
    let events = stage.events();
    let times: Vec<u64> = events.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, lost, 21_000, 30_000]);
    assert!(
        events
            .iter()
            .step_by(2)
            .all(|(_, text)| text == "a became leader")
    );
    assert!(
        events
            .iter()
            .skip(1)
            .step_by(2)
            .all(|(_, text)| text == "a stopped leading")
    );
}

/// A write through the stage's gate to a server that never answers.
fn hanging_write(stage: &Stage) -> impl Future<Output = kube::Result<Lease>> + 'static {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let client = stage.gate.client(&Client::new(silent, "default"));
    let leases: Api<Lease> = Api::namespaced(client, "default");
    async move {
        leases
            .create(&kube::api::PostParams::default(), &Lease::default())
            .await
    }
}

/// S5, S5b: the end is exact, and a slow `on_stopped_leading` does not move it.
#[rstest]
#[case::client_gos(client_go("a"), false, 46_000)]
#[case::client_gos_with_release(client_go("a"), true, 51_000)]
#[case::ours(ours("a"), false, 44_000)]
#[case::ours_with_release(ours("a"), true, 49_000)]
#[tokio::test(start_paused = true)]
async fn s5_recovery_deadline(#[case] config: Config, #[case] release_on_cancel: bool, #[case] ends: u64) {
    let config = Config {
        recovery_deadline: Some(ms(30_000)),
        release_on_cancel,
        ..config
    };
    let setting = Setting {
        slow_stop: ms(60_000),
        ..config.into()
    };
    let mut stage = Stage::new(setting).away(FOREVER, Fault::Hang);
    assert_eq!(stage.ended().await, (ends, StopReason::RecoveryDeadline));
    assert_eq!(stage.stops().len(), 1);
}

/// S9, S10: without recovery it ends with the loss.
#[rstest]
#[case::client_gos(client_go("a"), 16_000)]
#[case::ours(ours("a"), 14_000)]
#[tokio::test(start_paused = true)]
async fn s9_without_recovery(#[case] config: Config, #[case] ends: u64) {
    let config = Config {
        on_loss: OnLoss::Stop,
        ..config
    };
    let mut stage = Stage::new(config).away(20_000, Fault::Hang);
    assert_eq!(stage.ended().await, (ends, StopReason::Lost(Loss::Deadline)));
    assert!(!stage.gate.is_open());
    assert_eq!((stage.starts(), stage.stops()), (vec![0], vec![ends]));
    assert_eq!(stage.times(|told| *told == Told::Cancelled), [ends]);
}

/// S12: everything happens a second after the client gave up.
#[rstest]
#[case::client_gos(client_go("a"), 16_000, 46_000)]
#[case::ours(ours("a"), 14_000, 44_000)]
#[tokio::test(start_paused = true)]
async fn s12_everything_happens_too_late(#[case] config: Config, #[case] lost: u64, #[case] ends: u64) {
    let config = Config {
        recovery_deadline: Some(ms(30_000)),
        ..config
    };
    let late = Fault::Delay {
        before: ms(6_000),
        after: Duration::ZERO,
    };
    let mut stage = Stage::new(config).away(FOREVER, late);
    stage.until(lost).await;
    for millis in (lost..ends).step_by(10) {
        stage.until(millis).await;
        assert!(!stage.gate.is_open(), "at {millis} ms");
    }
    assert_eq!(stage.ended().await, (ends, StopReason::RecoveryDeadline));
    let last = stage.lock.history().pop().unwrap();
    assert!(
        last.at > ms(11_000),
        "a renewal happened after its client had given up: {:?}",
        last.at
    );
}

/// S13: what succeeds after the stop reopens nothing and announces nothing.
#[rstest]
#[tokio::test(start_paused = true)]
async fn s13_success_after_the_end(
    #[values((client_go("a"), 16_000), (ours("a"), 14_000))] (config, lost): (Config, u64),
) {
    let mut stage = Stage::new(config).away(15_500, Fault::Hang);
    let slow = Fault::Delay {
        before: Duration::ZERO,
        after: ms(4_000),
    };
    stage
        .lock
        .inject(evenkeel_election::lock::Rule::new(slow).from(ms(15_500)));
    stage.until(18_000).await;
    let written = stage.lock.history().pop().unwrap();
    assert_eq!(
        written.at,
        ms(16_000),
        "the renewal is done, the answer on its way"
    );
    stage.stop.cancel();
    assert_eq!(stage.ended().await.0, 18_000);
    stage.until(40_000).await;
    assert!(!stage.gate.is_open());
    let events = [
        (0, "a became leader".to_owned()),
        (lost, "a stopped leading".to_owned()),
    ];
    assert_eq!(stage.events(), events);
    assert_eq!(stage.stops(), [lost]);
}

/// S20: a gate that was made before the elector follows it, and belongs to it alone.
#[rstest]
#[tokio::test(start_paused = true)]
async fn s20_an_external_gate_follows(#[values(client_go("a"), ours("a"))] config: Config) {
    let mut stage = Stage::new(config.clone());
    let gate = stage.gate.clone();
    let other = evenkeel_election::Elector::new(stage.lock.peer("b"), config).unwrap();
    let error = other.with_gate(&gate).err().unwrap();
    assert_eq!(
        error.to_string(),
        "WriteGate is already in use by another LeaderElector",
        "S18"
    );
    stage.until(1_000).await;
    assert!(gate.is_open());
    stage.stop.cancel();
    stage.ended().await;
    assert!(!gate.is_open());
}

/// S22: a client without time-out of its own. The attempts are bounded by the renew deadline.
#[rstest]
#[case::client_gos(client_go("a"), 16_000)]
#[case::ours(ours("a"), 14_000)]
#[tokio::test(start_paused = true)]
async fn s22_no_timeout(#[case] config: Config, #[case] lost: u64, #[values(0.0, 0.999_999)] random: f64) {
    let setting = Setting {
        timeout: ms(FOREVER),
        random,
        ..config.into()
    };
    let stage = Stage::new(setting).away(30_000, Fault::Hang);
    stage.until(35_999).await;
    assert_eq!(stage.stops(), [lost]);
    assert!(!stage.gate.is_open());
    stage.until(36_000).await;
    assert!(stage.gate.is_open(), "not later than 36 s + 4.4 s");
}
