//! Stopping: ReleaseOnCancellation, S7, S8, and the release itself.

use super::stage::{Setting, Stage, Told, client_go, ms, ours};
use evenkeel_election::lock::{Fault, MemoryLock, Op, Rule};
use evenkeel_election::{Compat, Config, Elector, OnLoss, StopReason};
use rstest::rstest;
use tokio_util::sync::CancellationToken;

const CANCELLED: StopReason = StopReason::Cancelled { drained: true };

/// Upstream's ReleaseOnCancellation: 15/2/1 s, cancelled in the middle of the first renewal. The Events are
/// exactly two.
#[rstest]
#[case::during_update(Rule::new(Fault::Hang).on(Op::Update).times(1), &[Op::Update, Op::Get, Op::Update])]
#[case::during_get(Rule::new(Fault::Hang).from(ms(500)).until(ms(1_500)), &[Op::Update, Op::Get, Op::Update])]
#[tokio::test(start_paused = true)]
async fn a_stop_during_a_request_still_releases(
    #[values(Compat::ClientGo, Compat::Evenkeel)] compat: Compat,
    #[case] hang: Rule,
    #[case] last: &[Op],
) {
    let mut stage = Stage::new(Config {
        compat,
        lease_duration: ms(15_000),
        renew_deadline: ms(2_000),
        retry_period: ms(1_000),
        release_on_cancel: true,
        on_loss: OnLoss::Stop,
        ..Config::new("a")
    });
    stage.lock.inject(hang);
    stage.until(1_500).await;
    stage.stop.cancel();
    assert_eq!(stage.ended().await, (1_500, CANCELLED));
    assert_eq!(stage.holder(), "");
    let ops = stage.lock.ops();
    assert_eq!(&ops[ops.len() - last.len()..], last);
    let events: Vec<String> = stage.events().into_iter().map(|(_, text)| text).collect();
    assert_eq!(events, ["a became leader", "a stopped leading"]);
    assert_eq!((stage.starts().len(), stage.stops().len()), (1, 1));
}

/// Upstream's Release, ReleaseMethodCallsGet and ReleaseRetriesOnConflict.
#[rstest]
#[case::once(0)]
#[case::after_conflicts(3)]
#[tokio::test(start_paused = true)]
async fn a_release_reads_first(#[values(client_go("a"), ours("a"))] config: Config, #[case] conflicts: u64) {
    let mut stage = Stage::new(Config {
        release_on_cancel: true,
        ..config
    });
    stage.until(5_000).await;
    let before = stage.requests().len();
    stage
        .lock
        .inject(Rule::new(Fault::Conflict).on(Op::Update).times(conflicts));
    stage.stop.cancel();
    assert_eq!(stage.ended().await, (5_000, CANCELLED));
    let ops: Vec<Op> = stage
        .requests()
        .split_off(before)
        .into_iter()
        .map(|(_, op)| op)
        .collect();
    assert_eq!(
        ops,
        [Op::Get, Op::Update].repeat(1 + usize::try_from(conflicts).unwrap())
    );
    let record = stage.lock.peek().unwrap().record;
    assert_eq!(
        (&*record.holder, record.lease_duration_seconds, record.transitions),
        ("", 1, 0)
    );
}

/// S7: while inactive. S8: while leading. At once, or after the attempt to release; stopped exactly once.
#[rstest]
#[case::s7_inactive(18_000, false, 18_000)]
#[case::s7_inactive_with_release(18_000, true, 23_000)]
#[case::s8_leading(3_000, false, 3_000)]
#[case::s8_leading_with_release(3_000, true, 3_000)]
#[case::s8_leading_with_release_into_silence(7_000, true, 12_000)]
#[tokio::test(start_paused = true)]
async fn s7_a_stop_ends_it(
    #[values(client_go("a"), ours("a"))] config: Config,
    #[case] cancelled: u64,
    #[case] release_on_cancel: bool,
    #[case] ends: u64,
) {
    let mut stage = Stage::new(Config {
        release_on_cancel,
        ..config
    });
    stage.lock.inject(Rule::new(Fault::Hang).from(ms(5_000)));
    stage.until(cancelled).await;
    stage.stop.cancel();
    assert_eq!(stage.ended().await, (ends, CANCELLED));
    stage.until(ends).await;
    assert_eq!(stage.stops().len(), 1);
    assert_eq!(
        stage.times(|told| *told == Told::Cancelled),
        [cancelled],
        "the work is told at once"
    );
    assert!(
        !stage
            .told
            .all()
            .iter()
            .any(|(_, told)| *told == Told::Stopped(true))
    );
    let released = release_on_cancel && cancelled < 5_000;
    assert_eq!(stage.holder(), if released { "" } else { "a" });
}

/// Ours waits for the work: renews while it ends, releases when it has.
#[tokio::test(start_paused = true)]
async fn the_lock_is_kept_until_the_work_has_ended() {
    let setting = Setting {
        slow_work: ms(9_500),
        ..Config {
            release_on_cancel: true,
            ..ours("a")
        }
        .into()
    };
    let mut stage = Stage::new(setting);
    stage.until(5_000).await;
    stage.stop.cancel();
    stage.until(14_499).await;
    assert_eq!(stage.times(|told| *told == Told::Cancelled), [5_000]);
    assert!(stage.gate.is_open(), "it may finish what it is about");
    assert_eq!(stage.holder(), "a");
    assert_eq!(stage.requests().last(), Some(&(14_000, Op::Update)));
    assert_eq!(stage.ended().await, (14_500, CANCELLED));
    assert_eq!(stage.holder(), "");
}

/// Nor does anything new begin meanwhile: a share taken then would not be waited for.
#[tokio::test(start_paused = true)]
async fn no_work_begins_while_the_last_one_ends() {
    let time = Stage::new(ours("another"));
    let lock = MemoryLock::new(time.clock.clone(), "a");
    let stop = CancellationToken::new();
    let elector = Elector::new(lock.clone(), ours("a")).unwrap();
    let mut election = elector.with_clock(time.clock.clone()).run(stop.clone());
    assert!(election.next().await.unwrap().leads());
    let work = election.work().unwrap();
    stop.cancel();
    work.stopped().await;
    time.until(8_500).await;
    let renewed = lock.calls().last().map(|call| call.at);
    assert_eq!(renewed, Some(ms(8_000)), "renewed while the work ends");
    assert!(election.work().is_none());
    drop(work);
    assert_eq!(election.stopped().await, Some(CANCELLED));
}
