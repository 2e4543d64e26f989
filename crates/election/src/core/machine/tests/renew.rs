//! Keeping the lock: paths, periods and the deadline.

use super::*;

/// Upstream's FastPath: calls of an acquisition and of the renewals after it.
#[rstest]
#[case::fast_path_after_lock_acquired(&[], &["get", "create", "update", "update"])]
#[case::slow_path_after_fast_path_fails(
    &[Fate::Served, Fate::Served, Fate::Served, Fate::Conflict],
    &["get", "create", "update", "update", "get", "update", "update"],
)]
fn a_leader_renews_without_reading(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] fates: &[Fate],
    #[case] calls: &[&str],
) {
    let mut world = World::new(config);
    world.fates = fates.iter().copied().collect();
    while world.me().calls().len() < calls.len() {
        world.attempt();
        assert!(world.me().leads());
    }
    assert_eq!(world.me().calls(), calls);
    assert_eq!(world.me().states().len(), 1);
    let slow = usize::from(!fates.is_empty());
    assert_eq!(world.me().count(&Action::CountSlowPath), slow);
}

/// S1 "acquire opens gate"; client-go's renew loop begins with a renewal at once.
#[rstest]
#[case::client_gos(upstream_a(), &[(0, "get"), (0, "create"), (0, "update"), (2_000, "update"), (4_000, "update"), (6_000, "update")])]
#[case::ours(ours("a"), &[(0, "get"), (0, "create"), (2_000, "update"), (4_000, "update"), (6_000, "update")])]
fn renewals_follow_each_other_at_the_retry_period(
    #[case] config: Config,
    #[case] requests: &[(u64, &'static str)],
) {
    let mut world = World::new(config);
    world.attempt();
    let acquired = world.record().acquire_time;
    assert!(acquired.is_some());
    world.until(7_000);
    assert_eq!(world.me().requests(), requests);
    assert_eq!(world.me().announced(), [(0, Announcement::BecameLeader)]);
    assert!(world.me().losses().is_empty());
    let record = world.record();
    assert_eq!(record.acquire_time, acquired);
    assert_eq!(record.renew_time, Some(world::now(after(6_000), 0.0).wall));
    assert_eq!((record.transitions, record.lease_duration_seconds), (0, 15));
}

/// client-go's wait begins when the turn ends, so a slow renewal moves those after it. Ours begins with the
/// attempt.
#[rstest]
#[case::client_gos(upstream_a(), &[0, 0, 2_000, 5_500], u64::MAX)]
#[case::ours(ours("a"), &[0, 2_000, 4_000, 6_000], 16_000)]
fn a_slow_renewal_moves_client_gos_next_one(
    #[case] config: Config,
    #[case] starts: &[u64],
    #[case] proven: u64,
) {
    let mut world = World::new(config);
    world.outages = vec![Outage::of(0, 1_000..3_000, Fate::SlowAnswer(ms(1_500)))];
    world.until(7_500);
    let writes: Vec<u64> = world
        .me()
        .requests()
        .into_iter()
        .skip(1)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(&writes[..4], starts);
    assert_eq!(world.me().open_ms(), [(0, proven)]);
}

/// The first renewal follows the time in the record that took the lock by a whole period, however long the
/// read before took: client-go's followers compare whole seconds, and would take 0.0 s and 0.95 s for the
/// same record.
#[test]
fn a_slow_read_does_not_shorten_the_time_to_the_first_renewal() {
    let mut world = World::new(Config::new("a"));
    world.outages = vec![Outage::of(0, 0..10, Fate::SlowAnswer(ms(50)))];
    world.until(2_500);
    let requests = [(0, "get"), (50, "create"), (1_050, "update"), (2_050, "update")];
    assert_eq!(world.me().requests(), requests);
}

/// With answers as slow as the request time-out allows, ours stays leader: 1.4 s each, of a deadline of 3 s.
#[test]
fn slow_answers_alone_do_not_cost_leadership() {
    let mut world = World::new(Config::new("a"));
    world.me().timeout = Some(ms(1_500));
    world.outages = vec![Outage::of(0, 0..600_000, Fate::SlowAnswer(ms(1_400)))];
    world.until(60_000);
    assert_eq!(world.me().open().len(), 1);
    assert!(world.me().leads() && world.me().losses().is_empty());
}

/// Loss at last success + retry period + renew deadline (16 s), or at start of the last success + renew
/// deadline (14 s).
#[rstest]
#[case::client_gos(upstream_a(), 16_000)]
#[case::ours(ours("a"), 14_000)]
fn a_leader_stops_at_the_deadline(
    #[case] config: Config,
    #[case] lost: u64,
    #[values(Fate::Refused, Fate::Hangs, Fate::Silent, Fate::Delayed(ms(30_000)))] fate: Fate,
    #[values(None, Some(ms(5_000)))] timeout: Option<Duration>,
) {
    let mut world = World::new(config);
    world.me().timeout = timeout;
    world.outages = vec![Outage::of(0, 5_000..100_000, fate)];
    world.until(lost - 1);
    assert!(world.me().leads());
    world.until(lost);
    assert!(!world.me().leads());
    assert_eq!(world.me().losses(), [(lost, Loss::Deadline)]);
    assert_eq!(world.me().open_ms(), [(0, lost)]);
}

/// However late the wake-up comes: the gate had its time, and nobody is asked anything before the loss.
#[test]
fn a_leader_that_slept_has_lost_before_it_does_anything() {
    let mut world = World::new(ours("a"));
    world.attempt();
    world.me().forget();
    world.at = after(60_000);
    world.send(Event::Wake);
    let log: Vec<Action> = world.me().log.iter().map(|(_, action)| action.clone()).collect();
    assert_eq!(log[..2], [Action::CloseGate, Action::Lost(Loss::Deadline)]);
    assert_eq!(
        world.me().machine.valid_until(),
        Some(after(70_000)),
        "and recovers from now on"
    );
}

#[rstest]
#[case::in_time(2_000, true)]
#[case::just_in_time(6_999, true)]
#[case::too_late(7_000, false)]
#[case::much_too_late(60_000, false)]
fn a_late_answer_proves_leadership_from_its_request_on(#[case] delay: u64, #[case] leads: bool) {
    let mut world = World::new(baz());
    world.fates = [Fate::Served, Fate::SlowAnswer(ms(delay)), Fate::Hangs].into();
    world.until(delay.min(7_000));
    assert_eq!(world.me().leads(), leads);
    let expected = if leads { vec![(delay, 7_000)] } else { vec![] };
    assert_eq!(world.me().open_ms(), expected);
}

/// An answer that comes with the deadline comes too late, and is not taken for the answer to what was asked
/// since.
#[rstest]
fn an_answer_at_the_deadline_is_no_answer_to_the_next_request(
    #[values(OnLoss::Stop, OnLoss::Recover, OnLoss::Campaign)] on_loss: OnLoss,
) {
    let mut world = World::new(Config {
        on_loss,
        release_on_cancel: true,
        ..Config::client_go("a")
    });
    world.fates = [Fate::Served, Fate::Served, Fate::Refused].into();
    world.attempt();
    world.fates = [Fate::Refused, Fate::Hangs].into();
    world.attempt();
    let found = ReadResult::Found(world.lease.clone().unwrap());
    world.at = after(10_000);
    world.me().forget();
    let step = world
        .me()
        .machine
        .step(world::now(after(10_000), 0.5), Event::Read(found));
    let is_request =
        |action: &&Action| matches!(action, Action::Get | Action::Create(_) | Action::Update { .. });
    assert!(step.contains(&Action::CloseGate), "{step:?}");
    assert!(step.iter().filter(is_request).count() <= 1, "{step:?}");
}

#[rstest]
fn a_renewal_whose_answer_was_lost_is_found_again(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::new(config);
    world.attempt();
    world.me().forget();
    world.fates = [Fate::ReplyLost].into();
    world.attempt();
    assert_eq!(world.me().calls(), ["update", "get", "update"]);
    assert!(world.me().leads() && world.me().losses().is_empty());
    assert!(world.me().states().is_empty());
}

#[rstest]
fn a_creation_whose_answer_was_lost_is_found_again(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::new(config);
    world.fates = [Fate::Served, Fate::ReplyLost].into();
    world.attempt();
    assert!(!world.me().leads());
    world.attempt();
    assert!(world.me().leads());
    assert_eq!(world.transitions(), 0, "it was ours already");
    assert_eq!(world.me().calls(), ["get", "create", "get", "update"]);
}

/// client-go polls with a ticker that does not slide: attempts are due at multiples of the period from the
/// first one, and of the ticks that pass during a slow attempt one is kept.
#[rstest]
// Fast failures: each period.
#[case(&[0, 0, 0, 0, 0], &[2_000, 4_000, 6_000, 8_000, 10_000])]
// The second takes 3 s: the tick at 6 s was kept, then the grid goes on.
#[case(&[0, 3_000, 0, 0], &[2_000, 4_000, 7_000, 8_000, 10_000])]
// The first takes 5 s: ticks at 4 and 6 s passed, one was kept.
#[case(&[5_000, 0, 0], &[2_000, 7_000, 8_000, 10_000])]
// Exactly on a tick.
#[case(&[2_000, 0, 0], &[2_000, 4_000, 6_000, 8_000])]
fn client_gos_renew_poll_ticks(#[case] takes: &[u64], #[case] starts: &[u64]) {
    let mut world = World::new(upstream_a());
    world.until(1_000);
    world.me().forget();
    for (turn, takes) in takes.iter().enumerate() {
        // The fast path fails at once, the read after its time.
        world.fates = [Fate::Refused, Fate::Hangs].into();
        world.until(starts[turn]);
        world.at += ms(*takes);
        world.send(Event::Read(ReadResult::Failed));
    }
    world.until(*starts.last().unwrap());
    let updates = world.me().requests().into_iter();
    let updates = updates.filter(|(_, call)| *call == "update").map(|(at, _)| at);
    assert_eq!(updates.take(starts.len()).collect::<Vec<_>>(), starts);
}

#[test]
fn ours_tries_each_period_and_at_once_after_a_slow_failure() {
    let mut world = World::new(baz());
    world.attempt();
    world.fates = [Fate::Refused, Fate::Hangs].into();
    world.attempt();
    assert_eq!(world.at, after(2_000));
    world.at = after(5_500);
    world.send(Event::Read(ReadResult::Failed));
    assert_eq!(world.me().wake, Some(after(5_500)));
    world.fates = [Fate::Refused, Fate::Refused].into();
    world.attempt();
    // The next attempt would be due at 7.5 s: the deadline comes first.
    assert_eq!(world.me().wake, Some(after(7_000)));
}

/// client-go reports a new holder when its round of attempts is over, not within it.
#[rstest]
#[case::client_gos(Config { on_loss: OnLoss::Stop, ..upstream_a() }, 12_000)]
#[case::ours(Config { on_loss: OnLoss::Stop, ..ours("a") }, 2_000)]
fn a_leader_that_sees_another_holder(#[case] config: Config, #[case] stops: u64) {
    let mut world = World::new(config);
    world.until(1_000);
    world.put(taken_by("bing", 15, 1));
    world.until(stops - 1);
    assert!(world.me().leads());
    world.until(stops);
    assert!(!world.me().leads());
    let leaders = [(0, "a".to_owned()), (stops, "bing".to_owned())];
    assert_eq!(world.me().leaders(), leaders);
    world.until(30_000);
    assert_eq!(world.holder(), "bing");
    assert_eq!(world.me().stopped().unwrap().0, stops);
}

/// Where client-go's leader finds no lock it makes one and goes on.
#[test]
fn client_gos_leader_makes_a_deleted_lock_anew() {
    let mut world = World::new(upstream_a());
    world.until(1_000);
    world.me().forget();
    world.delete();
    world.until(3_000);
    assert_eq!(world.me().calls(), ["update", "get", "create"]);
    assert!(world.me().leads() && world.me().losses().is_empty());
    assert_eq!(world.me().machine.state().token(), Some(&token(2, 0)));
}

/// client-go does not note the text of what it wrote, so the first read after a creation is a change to it.
#[rstest]
#[case::client_gos(Compat::ClientGo, 200)]
#[case::ours(Compat::Evenkeel, 0)]
fn what_was_created_and_then_read(#[case] compat: Compat, #[case] changed: u64) {
    let mut world = World::new(Config {
        compat,
        retry_period: ms(200),
        ..Config::new("a")
    });
    world.until(100);
    world.outages = vec![Outage::of(0, 100..60_000, Fate::Hangs)];
    let fates = [Fate::Refused, Fate::Served, Fate::Hangs];
    world.fates = fates.into();
    world.until(300);
    assert_eq!(
        world.me().machine.observed().map(|(_, at)| at),
        Some(after(changed))
    );
}
