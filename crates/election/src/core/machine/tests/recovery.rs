//! Upstream's recovery scenarios (15/10/2 s, requests time out after 5 s, the API is away from 5 s on): exact
//! times of client-go, and ours for the same outages. From S17 on: `recovery_ends`. Two candidates: `rivals`.
//! `Check`: `check`. Validation: `config`.

use super::*;

/// Milliseconds that no scene reaches.
pub(super) const FOREVER: u64 = 100_000_000;

/// A candidate whose API is away from 5 s on, as in upstream's recovery scenarios.
pub(super) fn away(config: Config, until: u64, fate: Fate) -> World {
    let mut world = World::new(config);
    world.me().timeout = Some(ms(5_000));
    world.outages = vec![Outage::of(0, 5_000..until, fate)];
    world
}

const BECAME: Announcement = Announcement::BecameLeader;
const STOPPED: Announcement = Announcement::StoppedLeading;

fn cancelled() -> StopReason {
    StopReason::Cancelled { drained: true }
}

/// S2, S3: loss, then recovery within the same term; work goes on throughout.
#[rstest]
#[case::client_gos(upstream_a(), 16_000, 21_000)]
#[case::ours(ours("a"), 14_000, 21_000)]
fn s2_loss_then_recovery(#[case] config: Config, #[case] lost: u64, #[case] recovered: u64) {
    let mut world = away(config, 20_000, Fate::Hangs);
    world.until(29_500);
    assert_eq!(world.me().count(&Action::Drain), 0, "the work's context is alive");
    world.at = after(30_000);
    world.send(Event::Cancel);
    world.until(30_000);
    let open = world.me().open_ms();
    assert_eq!(open, [(0, lost), (recovered, 30_000)]);
    let announced = [
        (0, BECAME),
        (lost, STOPPED),
        (recovered, BECAME),
        (30_000, STOPPED),
    ];
    assert_eq!(world.me().announced(), announced);
    let losses = [(lost, Loss::Deadline), (30_000, Loss::Cancelled)];
    assert_eq!(world.me().losses(), losses);
    let terms = |(_, state): &(u64, State)| matches!(state, State::Leading { .. });
    assert_eq!(
        world.me().states().iter().filter(|state| terms(state)).count(),
        1,
        "one term, begun once"
    );
    assert_eq!(world.me().leaders(), [(0, "a".to_owned())]);
    assert_eq!(world.me().stopped(), Some((30_000, cancelled())));
}

/// The gate is shut before anybody is told of the loss.
#[rstest]
fn s3_the_gate_closes_before_anybody_is_told(#[values(upstream_a(), ours("a"))] config: Config) {
    let mut world = away(config, FOREVER, Fate::Hangs);
    world.until(17_000);
    let place = |wanted: fn(&Action) -> bool| {
        world.candidates[0]
            .log
            .iter()
            .position(|(_, action)| wanted(action))
    };
    let closed = place(|action| *action == Action::CloseGate).unwrap();
    let told = [
        place(|action| *action == Action::Announce(Announcement::StoppedLeading)),
        place(|action| matches!(action, Action::Lost(_))),
        place(|action| matches!(action, Action::Publish(State::Lost { .. }))),
    ];
    assert!(
        told.iter().all(|told| told.is_some_and(|told| closed < told)),
        "{told:?}"
    );
}

/// S4: three losses and recoveries; the lock is never released at a loss.
#[rstest]
fn s4_three_cycles(
    #[values(upstream_a(), ours("a"))] config: Config,
    #[values(false, true)] release_on_cancel: bool,
) {
    let mut world = World::new(Config {
        release_on_cancel,
        ..config
    });
    world.me().timeout = Some(ms(5_000));
    for turn in 0..3 {
        let (from, until) = (5_000 + turn * 60_000, 25_000 + turn * 60_000);
        world.outages.push(Outage::of(0, from..until, Fate::Hangs));
    }
    world.until(180_000);
    assert_eq!(world.me().losses().len(), 3);
    assert_eq!(world.me().open().len(), 4);
    assert_eq!(world.me().announced().len(), 7, "seven turns of the gauge");
    let blanked = |(_, action): &(Duration, Action)| matches!(action, Action::Update { record, .. } if record.holder.is_empty());
    assert!(!world.me().log.iter().any(blanked));
    assert_eq!((world.holder(), world.transitions()), ("a", 0));
}

/// S5, S5b: the recovery deadline counts from the loss; a release into silence adds one request's time-out.
#[rstest]
#[case::client_gos(upstream_a(), false, 46_000)]
#[case::client_gos_with_release(upstream_a(), true, 51_000)]
#[case::ours(ours("a"), false, 44_000)]
#[case::ours_with_release(ours("a"), true, 49_000)]
fn s5_recovery_deadline(#[case] config: Config, #[case] release_on_cancel: bool, #[case] ends: u64) {
    let config = Config {
        recovery_deadline: Some(ms(30_000)),
        release_on_cancel,
        ..config
    };
    let mut world = away(config, FOREVER, Fate::Hangs);
    world.until(FOREVER);
    assert_eq!(world.me().stopped(), Some((ends, StopReason::RecoveryDeadline)));
    assert_eq!(world.me().announced().len(), 2);
    assert_eq!(world.me().losses().len(), 1);
}

/// S6: another holder while we were away. No write of ours once it can be known.
#[rstest]
#[case::client_gos(upstream_a(), false, 26_000)]
#[case::ours(ours("a"), false, 26_000)]
#[case::ours_with_a_watch(ours("a"), true, 25_000)]
fn s6_another_holder(#[case] config: Config, #[case] watches: bool, #[case] ends: u64) {
    let mut world = away(config, 25_000, Fate::Hangs);
    world.me().watches = watches;
    world.until(20_000);
    world.put(taken_by("b", 15, 1));
    world.until(100_000);
    let reason = StopReason::Lost(Loss::OtherHolder("b".into()));
    assert_eq!(world.me().stopped(), Some((ends, reason)));
    let writes = world
        .me()
        .requests()
        .into_iter()
        .filter(|(at, call)| *at >= 25_000 && *call != "get");
    assert_eq!(writes.count(), 0);
    assert_eq!(world.holder(), "b");
    assert_eq!(world.me().leaders().last().unwrap().1, "b");
}

/// S7: cancelled while inactive: ends at once, or after trying to release.
#[rstest]
fn s7_cancelled_while_inactive(
    #[values(upstream_a(), ours("a"))] config: Config,
    #[values(false, true)] release_on_cancel: bool,
) {
    let mut world = away(
        Config {
            release_on_cancel,
            ..config
        },
        FOREVER,
        Fate::Hangs,
    );
    world.until(18_000);
    world.send(Event::Cancel);
    world.until(FOREVER);
    let ends = if release_on_cancel { 23_000 } else { 18_000 };
    assert_eq!(world.me().stopped(), Some((ends, cancelled())));
    assert_eq!(world.me().losses().len(), 1, "stopped once");
    assert_eq!(world.me().announced().len(), 2);
}

/// S8: cancelled while leading. The gate is shut first. client-go tells of the end after the release; ours,
/// whose work has ended by then, before.
#[rstest]
#[case::at_once(false, 10_000, 10_000, FOREVER)]
#[case::released(true, 10_000, 10_000, FOREVER)]
#[case::into_silence(true, 7_000, 12_000, 5_000)]
fn s8_cancelled_while_leading(
    #[values(upstream_a(), ours("a"))] config: Config,
    #[case] release_on_cancel: bool,
    #[case] cancelled_at: u64,
    #[case] ends: u64,
    #[case] from: u64,
) {
    let ours = config.compat == Compat::Evenkeel;
    let mut world = World::new(Config {
        release_on_cancel,
        ..config
    });
    world.me().timeout = Some(ms(5_000));
    world.outages = vec![Outage::of(0, from..FOREVER, Fate::Hangs)];
    world.until(cancelled_at);
    world.send(Event::Cancel);
    world.until(60_000);
    assert_eq!(world.me().stopped(), Some((ends, cancelled())));
    assert_eq!(world.me().losses(), [(cancelled_at, Loss::Cancelled)]);
    let told_at = if ours { cancelled_at } else { ends };
    assert_eq!(world.me().announced(), [(0, BECAME), (told_at, STOPPED)]);
    let log: Vec<&Action> = world.candidates[0].log.iter().map(|(_, action)| action).collect();
    let place = |wanted: &dyn Fn(&Action) -> bool| log.iter().position(|action| wanted(action));
    let closed = place(&|action| *action == Action::CloseGate).unwrap();
    let told = place(&|action| *action == Action::Announce(STOPPED)).unwrap();
    let released =
        place(&|action| matches!(action, Action::Update { record, .. } if record.holder.is_empty()));
    assert_eq!(released.is_some(), release_on_cancel && from == FOREVER);
    assert!(closed < told);
    if let Some(released) = released {
        assert!(closed < released);
        assert_eq!(told < released, ours);
    }
}

/// S9, S10: without recovery the candidate ends with the loss, and the gate is shut.
#[rstest]
#[case::client_gos(upstream_a(), 16_000)]
#[case::ours(ours("a"), 14_000)]
fn s9_without_recovery(#[case] config: Config, #[case] ends: u64) {
    let config = Config {
        on_loss: OnLoss::Stop,
        release_on_cancel: false,
        ..config
    };
    let mut world = away(config, 20_000, Fate::Hangs);
    world.until(60_000);
    assert_eq!(
        world.me().stopped(),
        Some((ends, StopReason::Lost(Loss::Deadline)))
    );
    assert_eq!(world.me().open_ms(), [(0, ends)]);
    assert_eq!(world.holder(), "a");
}

/// S11: renewals happen, their answers are lost. That proves nothing, and is found out by reading.
#[rstest]
#[case::client_gos(upstream_a(), 16_000, 16_000)]
#[case::ours(ours("a"), 14_000, 16_000)]
fn s11_lost_answers(#[case] config: Config, #[case] lost: u64, #[case] recovered: u64) {
    let mut world = away(config, 15_500, Fate::Silent);
    world.until(lost - 1);
    assert!(world.me().leads());
    world.until(17_000);
    assert_eq!(world.me().losses(), [(lost, Loss::Deadline)]);
    assert_eq!(world.me().announced().last(), Some(&(recovered, BECAME)));
    let made = world.me().requests().into_iter().filter(|(at, _)| *at >= 15_500);
    let made: Vec<&str> = made.map(|(_, call)| call).collect();
    assert_eq!(
        made,
        ["update", "get", "update"],
        "the fast path conflicts with what we wrote"
    );
    assert_eq!(world.me().leaders(), [(0, "a".to_owned())], "no holder but us");
}

/// S12: every request happens, after the client gave it up.
#[rstest]
#[case::client_gos(upstream_a(), 16_000, 46_000)]
#[case::ours(ours("a"), 14_000, 44_000)]
fn s12_everything_happens_too_late(#[case] config: Config, #[case] lost: u64, #[case] ends: u64) {
    let config = Config {
        recovery_deadline: Some(ms(30_000)),
        release_on_cancel: false,
        ..config
    };
    let mut world = away(config, FOREVER, Fate::Delayed(ms(6_000)));
    world.until(100_000);
    assert_eq!(world.me().open_ms(), [(0, lost)]);
    assert_eq!(world.me().stopped(), Some((ends, StopReason::RecoveryDeadline)));
    let renewed = world::now(after(6_000), 0.0).wall;
    assert_eq!(
        world.record().renew_time,
        Some(renewed),
        "it was renewed, at 12 s, and nobody heard"
    );
    assert_eq!(world.holder(), "a");
}

/// S13: a success that comes after the stop, or after the deadline, changes nothing.
#[rstest]
#[case::stopped(None, Some(18_000))]
#[case::deadline(Some(2_500), None)]
fn s13_success_after_the_end(
    #[values((upstream_a(), 16_000), (ours("a"), 14_000))] (config, lost): (Config, u64),
    #[case] deadline: Option<u64>,
    #[case] cancel: Option<u64>,
) {
    let config = Config {
        recovery_deadline: deadline.map(ms),
        release_on_cancel: false,
        ..config
    };
    let mut world = away(config, 15_500, Fate::Hangs);
    let slow = Outage::of(0, 15_500..FOREVER, Fate::SlowAnswer(ms(4_000)));
    world.outages.push(slow);
    if let Some(cancel) = cancel {
        world.until(cancel);
        world.send(Event::Cancel);
    }
    world.until(40_000);
    assert_eq!(world.me().open_ms(), [(0, lost)]);
    assert_eq!(world.me().announced(), [(0, BECAME), (lost, STOPPED)]);
    let ends = cancel.unwrap_or_else(|| lost + deadline.unwrap());
    assert_eq!(world.me().stopped().unwrap().0, ends);
    let renewed = world.record().renew_time.unwrap();
    assert!(renewed >= world::now(after(16_000), 0.0).wall, "it did succeed");
}

/// S15: recovery by an update alone while the record is valid (to 19 s), else by reading first.
#[rstest]
#[case::client_gos_fast_path(upstream_a(), Fate::Hangs, 15_000, 16_000, &["update"])]
#[case::client_gos_slow_path(upstream_a(), Fate::Refused, 20_000, 22_400, &["get", "update"])]
#[case::ours_fast_path(ours("a"), Fate::Hangs, 15_000, 16_000, &["update"])]
#[case::ours_slow_path(ours("a"), Fate::Refused, 20_000, 20_000, &["get", "update"])]
fn s15_both_paths(
    #[case] config: Config,
    #[case] fate: Fate,
    #[case] back: u64,
    #[case] recovered: u64,
    #[case] calls: &[&str],
) {
    let mut world = away(config, back, fate);
    world.until(recovered);
    assert_eq!(world.me().announced().last(), Some(&(recovered, BECAME)));
    let made = world.me().requests().into_iter().filter(|(at, _)| *at >= back);
    let made: Vec<&str> = made.map(|(_, call)| call).collect();
    assert_eq!(made, calls);
    let slow = usize::from(calls.len() > 1);
    assert_eq!(world.me().count(&Action::CountSlowPath), slow);
}
