//! The guarded work ends before the lock is given back; and handing over without stopping.

use super::*;

/// Leads since 0 s, renews each 2 s; work takes this long to end.
fn leading(drains_in: Option<Duration>, on_loss: OnLoss) -> World {
    let mut world = World::new(Config { on_loss, ..ours("a") });
    world.me().drains_in = drains_in;
    world.until(5_000);
    world
}

/// Renewed while the work ends, released when it has: no moment at which the work runs and the lock is free.
#[test]
fn the_lock_is_kept_until_the_work_has_ended() {
    let mut world = leading(Some(ms(9_500)), OnLoss::Recover);
    world.send(Event::Cancel);
    assert_eq!(world.me().count(&Action::Drain), 1);
    world.until(14_499);
    assert!(world.me().leads());
    assert_eq!(world.holder(), "a");
    assert_eq!(world.me().requests().last(), Some(&(14_000, "update")));
    world.until(14_500);
    assert_eq!(world.holder(), "");
    assert_eq!(world.me().open_ms(), [(0, 14_500)]);
    assert_eq!(world.me().losses(), [(14_500, Loss::Cancelled)]);
    let cancelled = StopReason::Cancelled { drained: true };
    assert_eq!(world.me().stopped(), Some((14_500, cancelled)));
}

/// Work that does not end within the lease duration is not waited for, and the lock is left to expire.
#[test]
fn work_that_does_not_end_leaves_the_lock_to_expire() {
    let mut world = leading(None, OnLoss::Recover);
    world.send(Event::Cancel);
    world.until(19_999);
    assert!(world.me().leads());
    world.until(20_000);
    let undrained = StopReason::Cancelled { drained: false };
    assert_eq!(world.me().stopped(), Some((20_000, undrained)));
    assert_eq!(world.me().open_ms(), [(0, 20_000)]);
    assert_eq!(world.holder(), "a", "not released");
    assert!(!world.me().calls()[2..].contains(&"get"));
}

/// client-go releases though the work may run still (1.3, second hazard).
#[test]
fn client_go_does_not_wait_for_the_work() {
    let mut world = World::new(Config {
        release_on_cancel: true,
        ..upstream_a()
    });
    world.me().drains_in = None;
    world.until(5_000);
    world.send(Event::Cancel);
    assert_eq!(world.me().count(&Action::Drain), 0);
    assert_eq!(world.holder(), "");
    assert_eq!(world.me().stopped().unwrap().0, 5_000);
}

/// The deadline holds while work ends, too; and then there is nothing to renew any more.
#[rstest]
#[case::ends_at_last(Some(ms(12_000)), 17_000, StopReason::Cancelled { drained: true }, &["get", "update"])]
#[case::does_not_end(None, 20_000, StopReason::Cancelled { drained: false }, &[])]
fn a_deadline_that_passes_while_work_ends(
    #[case] drains_in: Option<Duration>,
    #[case] at: u64,
    #[case] reason: StopReason,
    #[case] release: &[&str],
) {
    let mut world = leading(drains_in, OnLoss::Recover);
    world.outages = vec![Outage::of(0, 5_000..16_000, Fate::Refused)];
    world.send(Event::Cancel);
    world.until(16_500);
    assert_eq!(world.me().open_ms(), [(0, 14_000)]);
    assert_eq!(world.me().losses(), [(14_000, Loss::Deadline)]);
    let before = world.me().calls().len();
    world.until(60_000);
    assert_eq!(world.me().stopped(), Some((at, reason)));
    assert_eq!(&world.me().calls()[before..], release);
    assert_eq!(world.me().announced().len(), 2);
}

/// Told to stop while leadership is only lost: the work is waited for, nothing reopens the gate.
#[rstest]
#[case(Some(ms(8_000)), 24_000, true)]
#[case(None, 31_000, false)]
fn a_stop_while_lost(#[case] drains_in: Option<Duration>, #[case] at: u64, #[case] drained: bool) {
    let mut world = leading(drains_in, OnLoss::Recover);
    world.outages = vec![Outage::of(0, 5_000..16_000, Fate::Hangs)];
    world.until(15_999);
    assert!(matches!(world.me().machine.state(), State::Lost { .. }));
    world.at = after(16_000);
    world.send(Event::Cancel);
    world.until(60_000);
    assert_eq!(
        world.me().stopped(),
        Some((at, StopReason::Cancelled { drained }))
    );
    assert_eq!(world.me().open_ms(), [(0, 14_000)]);
    assert_eq!(world.holder(), if drained { "" } else { "a" });
}

/// A recovery deadline that passes while the work ends is no reason to wake up again and again.
#[test]
fn a_recovery_deadline_within_a_drain_is_not_waited_for() {
    let mut world = World::new(Config {
        recovery_deadline: Some(ms(3_000)),
        ..ours("a")
    });
    world.me().drains_in = Some(ms(10_000));
    world.outages = vec![Outage::of(0, 5_000..90_000, Fate::Hangs)];
    world.until(16_000);
    world.send(Event::Cancel);
    // Lost at 14 s, so the deadline is at 17 s, and the work ends at 26 s.
    world.until(25_999);
    assert_eq!(world.me().stopped(), None);
    world.until(36_000);
    let cancelled = StopReason::Cancelled { drained: true };
    assert_eq!(
        world.me().stopped(),
        Some((36_000, cancelled)),
        "after one renew deadline of trying to release"
    );
}

/// Work told to end by a loss is waited for as well: for the candidate that ends, for a lease duration; for
/// one that campaigns again, for as long as it takes.
#[rstest]
#[case::stop(OnLoss::Stop, Some(ms(4_000)), Some(10_000))]
#[case::stop_without_end(OnLoss::Stop, None, Some(21_000))]
#[case::campaign(OnLoss::Campaign, Some(ms(4_000)), None)]
#[case::campaign_late(OnLoss::Campaign, Some(ms(40_000)), None)]
fn a_lost_term_is_drained(
    #[case] on_loss: OnLoss,
    #[case] drains_in: Option<Duration>,
    #[case] stopped: Option<u64>,
) {
    let mut world = leading(drains_in, on_loss);
    world.put(taken_by("b", 15, 1));
    let before = world.me().calls().len();
    world.until(6_000);
    assert_eq!(world.me().losses(), [(6_000, Loss::OtherHolder("b".into()))]);
    let drained = drains_in.map_or(90_000, |time| 6_000 + time.as_millis() as u64);
    world.until(drained.min(90_000) - 1);
    assert_eq!(
        &world.me().calls()[before..],
        ["update", "get"],
        "nothing is asked meanwhile"
    );
    assert!(!world.me().leads());
    world.until(90_000);
    let reason = StopReason::Lost(Loss::OtherHolder("b".into()));
    assert_eq!(world.me().stopped(), stopped.map(|at| (at, reason)));
    // `b` never renews: who campaigns again leads again, in a new term.
    assert_eq!(world.me().leads(), stopped.is_none());
    let last = if stopped.is_none() {
        token(1, 2)
    } else {
        token(1, 0)
    };
    let tokens = world
        .me()
        .states()
        .into_iter()
        .filter_map(|(_, state)| state.token().cloned());
    let tokens: Vec<FencingToken> = tokens.collect();
    assert_eq!(tokens.last(), Some(&last));
}

/// Hands over: work ends, the lock is released, the others have a lease duration, then it campaigns.
#[test]
fn a_step_down_leaves_the_lock_to_the_others_first() {
    let mut world = leading(Some(ms(500)), OnLoss::Recover);
    world.me().watches = true;
    world.send(Event::StepDown);
    world.send(Event::StepDown);
    assert_eq!(world.me().count(&Action::Drain), 1);
    world.until(5_500);
    assert_eq!(world.holder(), "");
    assert_eq!(world.me().open_ms(), [(0, 5_500)]);
    world.put(taken_by("", 1, 0));
    world.until(19_999);
    assert_eq!(world.holder(), "", "nobody wanted it");
    assert_eq!(world.me().leaders().last().unwrap().1, "");
    world.until(20_200);
    assert!(world.me().leads());
    assert_eq!(world.transitions(), 1);
    assert_eq!(world.me().stopped(), None);
}

/// Its work has failed, for instance, and would not begin anew in a term that is recovered.
#[test]
fn a_step_down_ends_a_term_that_is_lost() {
    let mut world = leading(Some(ms(500)), OnLoss::Recover);
    world.outages.push(Outage::of(0, 5_000..30_000, Fate::Refused));
    world.until(20_000);
    assert!(matches!(world.me().machine.state(), State::Lost { .. }));
    let first = world.me().machine.state().token().cloned();
    world.send(Event::StepDown);
    assert_eq!(world.me().count(&Action::Drain), 1);
    world.until(60_000);
    assert!(matches!(world.me().machine.state(), State::Leading { .. }));
    assert_ne!(world.me().machine.state().token().cloned(), first);
}

#[test]
fn a_step_down_whose_work_does_not_end_keeps_the_next_term_waiting() {
    let mut world = leading(None, OnLoss::Recover);
    world.send(Event::StepDown);
    world.until(19_999);
    assert!(world.me().leads());
    world.until(100_000);
    assert_eq!(world.me().open_ms(), [(0, 20_000)]);
    assert_eq!(world.me().requests().last(), Some(&(18_000, "update")));
    assert_eq!(world.me().stopped(), None);
    world.send(Event::Drained);
    assert_eq!(
        world.holder(),
        "",
        "released once the work has ended, as nobody took it"
    );
}

#[rstest]
#[case::a_follower(ours("a"), false)]
#[case::a_client_go_follower(upstream_a(), false)]
fn who_does_not_lead_cannot_step_down(#[case] config: Config, #[case] leads: bool) {
    let mut world = World::with(config, taken_by("b", 15, 0));
    world.attempt();
    world.me().forget();
    world.send(Event::StepDown);
    assert!(world.me().log.is_empty());
    assert_eq!(world.me().leads(), leads);
}

#[rstest]
#[case::while_work_ends(ms(500), true)]
#[case::while_the_release_is_under_way(Duration::ZERO, true)]
fn a_stop_after_a_step_down_stops(#[case] drains_in: Duration, #[case] drained: bool) {
    let mut world = leading(Some(drains_in), OnLoss::Recover);
    if drains_in.is_zero() {
        world.fates = [Fate::Hangs].into();
    }
    world.send(Event::StepDown);
    world.until(5_100);
    world.send(Event::Cancel);
    world.until(60_000);
    assert_eq!(world.me().stopped().unwrap().1, StopReason::Cancelled { drained });
}

#[test]
fn a_stop_while_the_campaign_waits_for_the_work_waits_a_lease_duration() {
    let mut world = leading(None, OnLoss::Campaign);
    world.put(taken_by("b", 15, 1));
    world.until(50_000);
    world.send(Event::Cancel);
    world.until(90_000);
    assert_eq!(
        world.me().stopped(),
        Some((65_000, StopReason::Cancelled { drained: false }))
    );
}

/// Work that was told to end while leadership was lost is not told again when the lock turns out to be
/// another's.
#[rstest]
#[case::another_holder(Some(taken_by("b", 15, 1)))]
#[case::deleted_and_made_anew(None)]
fn a_stop_while_lost_is_not_undone_by_what_is_seen_then(#[case] stands: Option<Record>) {
    let mut world = leading(Some(ms(8_000)), OnLoss::Recover);
    world.me().watches = true;
    world.outages = vec![Outage::of(0, 5_000..17_000, Fate::Hangs)];
    world.until(16_000);
    world.send(Event::Cancel);
    world.until(17_500);
    if stands.is_none() {
        world.delete();
    }
    world.put(stands.unwrap_or_else(|| taken_by("c", 15, 0)));
    let holder = world.holder().to_owned();
    world.until(60_000);
    assert_eq!(world.me().count(&Action::Drain), 1);
    assert_eq!(
        world.me().stopped(),
        Some((24_000, StopReason::Cancelled { drained: true }))
    );
    assert_eq!(world.holder(), holder);
}
