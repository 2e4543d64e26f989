//! Giving the lock back, and stopping in every phase.

use super::*;

/// Leads since 0 s, and releases when cancelled.
fn releasing(config: Config) -> World {
    let mut world = World::new(Config {
        release_on_cancel: true,
        ..config
    });
    world.attempt();
    assert!(world.me().leads());
    world
}

const CANCELLED: StopReason = StopReason::Cancelled { drained: true };

/// Upstream's Release and ReleaseMethodCallsGet: reads first, keeps the transitions, blanks the holder.
#[rstest]
fn a_release_reads_and_then_blanks_the_holder(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(
        Config {
            release_on_cancel: true,
            ..config
        },
        taken_by("", 1, 7),
    );
    world.attempt();
    world.me().forget();
    world.at = after(500);
    world.send(Event::Cancel);
    world.until(500);
    assert_eq!(world.me().calls(), ["get", "update"]);
    let wall = Some(world::now(after(500), 0.0).wall);
    let expected = Record {
        acquire_time: wall,
        renew_time: wall,
        ..taken_by("", 1, 8)
    };
    assert_eq!(world.record(), expected);
    let (seen, _) = world.me().machine.observed().unwrap();
    assert_eq!(*seen, expected, "the observed record is the released one");
    assert_eq!(world.me().losses(), [(500, Loss::Cancelled)]);
    assert_eq!(world.me().announced(), [(500, Announcement::StoppedLeading)]);
    assert_eq!(world.me().stopped(), Some((500, CANCELLED)));
    assert_eq!(world.me().open_ms(), [], "the gate was forgotten with the log");
    assert!(
        world.me().leaders().is_empty(),
        "a leader's own release is no news"
    );
    // Nobody may think that it leads while the lock is given back.
    let states: Vec<State> = world.me().states().into_iter().map(|(_, state)| state).collect();
    let stopped = State::Stopped { reason: CANCELLED };
    assert_eq!(states, [State::Following { leader: None }, stopped]);
}

/// Upstream's ReleaseOnCancellation (15/2/1 s): the write under way is given up, and a release is still sent.
#[rstest]
#[case::during_update(&[Fate::Hangs], &["update", "get", "update"])]
#[case::during_update_that_happens(&[Fate::Silent], &["update", "get", "update"])]
#[case::during_get(&[Fate::Refused, Fate::Hangs], &["update", "get", "get", "update"])]
fn a_stop_in_the_middle_of_a_renewal_still_releases(
    #[values(Compat::ClientGo, Compat::Evenkeel)] compat: Compat,
    #[case] fates: &[Fate],
    #[case] calls: &[&str],
) {
    let mut world = releasing(Config {
        compat,
        lease_duration: ms(15_000),
        renew_deadline: ms(2_000),
        retry_period: ms(1_000),
        on_loss: OnLoss::Stop,
        ..Config::new("a")
    });
    world.fates = fates.iter().copied().collect();
    world.attempt();
    world.send(Event::Cancel);
    let at = if compat == Compat::ClientGo { 0 } else { 1_000 };
    world.until(at);
    let made = world.me().calls();
    assert_eq!(&made[2..], calls);
    assert_eq!(world.holder(), "");
    let events = [
        (0, Announcement::BecameLeader),
        (at, Announcement::StoppedLeading),
    ];
    assert_eq!(world.me().announced(), events, "these two and no other");
    assert_eq!(world.me().stopped(), Some((at, CANCELLED)));
    assert_eq!(world.me().count(&Action::Abort), 1);
}

/// Upstream's ReleaseRetriesOnConflict.
#[rstest]
fn a_release_is_retried_after_a_conflict(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = releasing(config);
    world.me().forget();
    world.fates = [Fate::Served, Fate::Conflict, Fate::Served, Fate::Conflict].into();
    world.send(Event::Cancel);
    world.until(0);
    let calls = ["get", "update", "get", "update", "get", "update"];
    assert_eq!(world.me().calls(), calls);
    assert_eq!(world.holder(), "");
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
}

/// Nobody who takes the lock between our read and our write loses it to our release.
#[rstest]
fn a_conflict_with_another_holder_ends_the_release(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = releasing(config);
    world.me().forget();
    world.fates = [Fate::Served, Fate::Hangs].into();
    world.send(Event::Cancel);
    world.until(0);
    world.put(taken_by("bing", 10, 1));
    world.send(Event::Written(WriteResult::Conflict));
    assert_eq!(world.me().calls(), ["get", "update", "get"]);
    assert_eq!(world.holder(), "bing");
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
}

#[rstest]
#[case::answer_lost(&[Fate::Served, Fate::ReplyLost], "", &["get", "update"])]
#[case::read_fails(&[Fate::Refused], "baz", &["get"])]
#[case::write_fails(&[Fate::Served, Fate::Refused], "baz", &["get", "update"])]
fn a_release_that_fails_ends_all_the_same(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] fates: &[Fate],
    #[case] holder: &str,
    #[case] calls: &[&str],
) {
    let mut world = releasing(config);
    world.me().forget();
    world.fates = fates.iter().copied().collect();
    world.send(Event::Cancel);
    world.until(0);
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
    assert_eq!(world.me().calls(), calls);
    assert_eq!(world.holder(), holder);
}

/// Hazard of 1.3: client-go before 1.38 blanks whatever it finds, if only it believes that it leads.
#[rstest]
#[case::another_holder(Some(taken_by("bing", 10, 1)))]
#[case::released_already(Some(taken_by("", 1, 0)))]
#[case::deleted(None)]
fn only_our_own_record_is_released(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] stands: Option<Record>,
) {
    let mut world = releasing(config);
    world.me().forget();
    world.delete();
    let expected = stands.clone();
    if let Some(record) = stands {
        world.put(record);
    }
    world.send(Event::Cancel);
    world.until(0);
    assert_eq!(world.lease.as_ref().map(|lease| lease.record.clone()), expected);
    assert_eq!(world.me().calls(), ["get"]);
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
}

#[rstest]
#[case::no_answer_to_the_read(&[Fate::Hangs])]
#[case::no_answer_to_the_write(&[Fate::Served, Fate::Hangs])]
fn a_release_into_silence_ends_at_the_renew_deadline(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] fates: &[Fate],
) {
    let mut world = releasing(config);
    world.fates = fates.iter().copied().collect();
    world.send(Event::Cancel);
    world.until(6_999);
    assert_eq!(world.me().stopped(), None);
    world.until(7_000);
    assert_eq!(world.me().stopped(), Some((7_000, CANCELLED)));
}

/// Conflict after conflict: the deadline is for the whole release.
#[rstest]
fn a_release_that_never_wins_ends_at_the_renew_deadline(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = releasing(config);
    world.send(Event::Cancel);
    let mut world = releasing(world.me().machine.config().clone());
    let slow_conflict = [Fate::SlowAnswer(ms(1_000)), Fate::Conflict];
    world.fates = slow_conflict.into_iter().cycle().take(40).collect();
    world.send(Event::Cancel);
    world.until(7_000);
    assert_eq!(world.me().stopped(), Some((7_000, CANCELLED)));
}

#[rstest]
fn a_follower_releases_nothing(#[values(upstream_baz(), baz())] config: Config) {
    let config = Config {
        release_on_cancel: true,
        ..config
    };
    let mut world = World::with(config, taken_by("bing", 10, 0));
    world.attempt();
    world.send(Event::Cancel);
    assert_eq!(world.me().calls(), ["get"]);
    assert_eq!(world.holder(), "bing");
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
    assert!(world.me().announced().is_empty() && world.me().losses().is_empty());
}

#[rstest]
fn nothing_is_released_unless_asked_for(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::new(Config {
        release_on_cancel: false,
        ..config
    });
    world.attempt();
    world.me().forget();
    world.send(Event::Cancel);
    world.until(0);
    assert!(world.me().calls().is_empty());
    assert_eq!(world.holder(), "baz");
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
}

#[rstest]
fn a_candidate_cancelled_before_it_began_asks_nothing(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::new(config);
    world.send(Event::Cancel);
    world.until(60_000);
    assert!(world.me().calls().is_empty());
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
}

/// A candidate in the middle of taking the lock may have it already. client-go leaves it to expire.
#[rstest]
#[case::client_gos(upstream_baz(), "baz", &["get", "create"])]
#[case::ours(baz(), "", &["get", "create", "get", "update"])]
fn a_stop_while_taking_the_lock(#[case] config: Config, #[case] holder: &str, #[case] calls: &[&str]) {
    let mut world = World::new(Config {
        release_on_cancel: true,
        ..config
    });
    world.fates = [Fate::Served, Fate::Silent].into();
    world.attempt();
    world.send(Event::Cancel);
    assert_eq!(world.me().calls(), calls);
    assert_eq!(world.holder(), holder);
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
    assert!(world.me().open().is_empty() && world.me().announced().is_empty());
}

#[rstest]
fn a_stop_while_reading_as_a_follower_gives_the_read_up(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::new(config);
    world.fates = [Fate::Hangs].into();
    world.attempt();
    world.send(Event::Cancel);
    assert_eq!(world.me().count(&Action::Abort), 1);
    assert_eq!(world.me().stopped(), Some((0, CANCELLED)));
}

#[rstest]
fn after_the_end_nothing_happens_any_more(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = releasing(config);
    world.send(Event::Cancel);
    world.until(0);
    world.me().forget();
    let lease = world.lease.clone();
    for event in [
        Event::Wake,
        Event::Cancel,
        Event::StepDown,
        Event::Drained,
        Event::Seen(None),
        Event::Seen(lease.clone()),
        Event::Read(ReadResult::Missing),
        Event::Written(WriteResult::Done(lease.unwrap())),
    ] {
        world.send(event);
    }
    assert!(world.me().log.is_empty());
}

/// "OnNewLeader("") when transition reporting runs": a follower that sees a released record says so, in both.
#[rstest]
fn a_released_record_is_reported_as_nobody(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(config, taken_by("bing", 10, 0));
    world.attempt();
    world.put(taken_by("", 1, 0));
    world.fates = [Fate::Served, Fate::Conflict].into();
    world.attempt();
    let leaders: Vec<String> = world
        .me()
        .leaders()
        .into_iter()
        .map(|(_, holder)| holder)
        .collect();
    assert_eq!(leaders, ["bing", ""]);
}
