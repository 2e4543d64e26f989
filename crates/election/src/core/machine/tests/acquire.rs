//! Getting the lock: upstream's `tryAcquireOrRenew` table under both rules, and where ours differ.

use super::*;

/// What stood there, whether one attempt gets it, the transitions then, and the calls.
#[rstest]
#[case::acquire_from_no_object(None, true, 0, &["get", "create"])]
#[case::acquire_from_object_without_annotations(Some(Record::default()), true, 1, &["get", "update"])]
#[case::acquire_from_unled_object(Some(taken_by("", 0, 0)), true, 1, &["get", "update"])]
#[case::acquire_from_empty_led_acked_object(Some(taken_by("", 10, 0)), true, 1, &["get", "update"])]
#[case::acquire_from_released(Some(taken_by("", 1, 4)), true, 5, &["get", "update"])]
#[case::dont_acquire_from_led_object(Some(taken_by("bing", 10, 3)), false, 3, &["get"])]
fn one_attempt(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] before: Option<Record>,
    #[case] success: bool,
    #[case] transitions: i32,
    #[case] calls: &[&str],
) {
    let mut world = World::new(config);
    if let Some(record) = before {
        world.put(record);
    }
    world.attempt();
    let holder = if success { "baz" } else { "bing" };
    assert_eq!(world.me().leads(), success);
    assert_eq!(world.holder(), holder);
    assert_eq!(world.transitions(), transitions);
    assert_eq!(world.me().calls(), calls);
    assert_eq!(world.me().leaders(), [(0, holder.to_owned())]);
}

/// "acquire from led object" that tells no duration: upstream's takes it at once, ours gives its holder our
/// own duration.
#[rstest]
#[case::upstreams(upstream_baz(), 0)]
#[case::ours(baz(), 10_000)]
fn a_led_object_without_duration(
    #[case] config: Config,
    #[case] taken_at: u64,
    #[values(0, -1)] duration: i32,
) {
    let mut world = World::with(config, taken_by("bing", duration, 0));
    world.attempt();
    if taken_at > 0 {
        world.until(taken_at - 1);
        assert!(!world.me().leads());
        world.attempt();
    }
    assert!(world.me().leads());
    assert_eq!((world.holder(), world.transitions()), ("baz", 1));
}

/// "acquire from led object with the lease duration seconds": the record's 3 s count, not our 10.
#[rstest]
fn the_records_own_duration_decides_not_ours(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(config, taken_by("bing", 3, 0));
    world.attempt();
    assert!(!world.me().leads());
    world.until(2_999);
    assert!(!world.me().leads());
    world.attempt();
    assert!(world.me().leads());
    assert_eq!(world.transitions(), 1);
    assert_eq!(world.me().calls(), ["get", "get", "update"]);
    let leaders = world.me().leaders().into_iter().map(|(_, holder)| holder);
    assert_eq!(leaders.collect::<Vec<_>>(), ["bing", "baz"]);
}

/// "acquire from led, unacked object": seen long ago and never since.
#[rstest]
fn a_record_that_has_not_changed_for_its_duration_is_taken(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(config, taken_by("bing", 10, 0));
    world.attempt();
    world.at = after(1_000_000);
    world.attempt();
    assert!(world.me().leads());
    assert_eq!((world.holder(), world.transitions()), ("baz", 1));
    assert_eq!(world.me().calls(), ["get", "get", "update"]);
}

/// "don't acquire from led, acked object", seen a moment ago, and to the millisecond before its end.
#[rstest]
fn a_record_within_its_duration_is_left_alone(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(config, taken_by("bing", 10, 0));
    world.until(9_999);
    assert!(!world.me().leads());
    assert_eq!(world.holder(), "bing");
    assert!(world.me().calls().iter().all(|call| *call == "get"));
    assert_eq!(world.me().leaders(), [(0, "bing".to_owned())]);
}

/// "renew already acquired object" by the process that acquired it.
#[rstest]
fn a_holder_goes_on_with_its_record(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::new(config);
    world.attempt();
    world.me().forget();
    world.fates = [Fate::Refused].into();
    world.attempt();
    assert!(world.me().leads());
    assert_eq!((world.holder(), world.transitions()), ("baz", 0));
    assert_eq!(world.me().calls(), ["update", "get", "update"]);
    assert!(world.me().leaders().is_empty(), "told of already");
}

/// The same by another process of the same name: client-go's goes on at once, ours waits (see `duplicate`).
#[rstest]
#[case::client_gos(upstream_baz(), true, 6, &["get", "update"])]
#[case::ours(baz(), false, 6, &["get"])]
fn a_restarted_holder_finds_its_own_name(
    #[case] config: Config,
    #[case] success: bool,
    #[case] transitions: i32,
    #[case] calls: &[&str],
) {
    let mut world = World::with(config, taken_by("baz", 10, 6));
    world.attempt();
    assert_eq!(world.me().leads(), success);
    assert_eq!(world.transitions(), transitions);
    assert_eq!(world.me().calls(), calls);
    assert_eq!(world.me().leaders(), [(0, "baz".to_owned())]);
}

#[rstest]
fn validity_counts_from_the_change_we_saw_not_from_remote_times(
    #[values(upstream_baz(), baz())] config: Config,
    #[values(0, 1_700_000_000, 1_900_000_000)] renewed: i64,
) {
    let record = Record {
        renew_time: Some(Timestamp::from_second(renewed).unwrap()),
        ..taken_by("bing", 10, 0)
    };
    let mut world = World::with(config, record);
    world.until(9_999);
    assert!(!world.me().leads());
    world.until(14_400);
    assert!(world.me().leads());
}

/// Two renewals within one second differ in nothing but microseconds: client-go's text comparison is blind to
/// them and takes the lock from a healthy holder (1.7, problem 9).
#[rstest]
#[case::client_gos(upstream_baz(), true)]
#[case::ours(baz(), false)]
fn renewals_within_one_second_are_seen(#[case] config: Config, #[case] taken: bool) {
    let renewed = |micros: u64| Record {
        renew_time: Some(Timestamp::from_microsecond(1_790_000_000_000_000 + micros as i64).unwrap()),
        ..taken_by("bing", 1, 0)
    };
    let mut world = World::with(config, renewed(0));
    for turn in 1..=16 {
        world.until(turn * 200);
        if world.holder() == "bing" {
            world.put(renewed(turn));
        }
    }
    world.until(3_300);
    assert_eq!(world.me().leads(), taken, "{:?}", world.me().requests());
}

/// A label put on the Lease is a new version, though no renewal: to wait for another duration then is the
/// safe side. client-go's comparison does not see it.
#[rstest]
#[case::client_gos(upstream_baz(), true)]
#[case::ours(baz(), false)]
fn a_change_of_other_fields_counts_as_a_change(#[case] config: Config, #[case] taken: bool) {
    let mut world = World::with(config, taken_by("bing", 10, 0));
    world.until(5_000);
    let same = world.record();
    world.put(same);
    world.until(14_000);
    assert_eq!(world.me().leads(), taken);
    world.until(20_000);
    assert!(world.me().leads());
}

#[rstest]
fn a_renewing_holder_keeps_its_lease(
    #[values(upstream_baz(), baz())] config: Config,
    #[values(false, true)] watches: bool,
) {
    let mut world = World::with(config, taken_by("bing", 10, 0));
    world.me().watches = watches;
    for second in 1..=60 {
        world.until(second * 1_000);
        let mut record = world.record();
        record.renew_time = Some(world::now(world.at, 0.0).wall);
        world.put(record);
    }
    assert!(!world.me().leads());
    assert!(world.me().calls().iter().all(|call| *call == "get"));
    let following = State::Following {
        leader: Some("bing".into()),
    };
    assert_eq!(world.me().states(), [(0, following)]);
}

#[rstest]
fn two_that_want_the_same_free_lease_do_not_both_get_it(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(config, taken_by("", 1, 0));
    world.fates = [Fate::Served, Fate::Hangs].into();
    world.attempt();
    world.put(taken_by("bing", 10, 1));
    world.send(Event::Written(WriteResult::Conflict));
    assert!(!world.me().leads());
    world.attempt();
    assert_eq!(world.me().leaders().last().unwrap().1, "bing");
    assert_eq!(world.me().calls(), ["get", "update", "get"]);
}

#[rstest]
fn two_that_create_the_lock_do_not_both_get_it(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::new(config);
    world.fates = [Fate::Served, Fate::Hangs].into();
    world.attempt();
    world.put(taken_by("bing", 10, 0));
    world.send(Event::Written(WriteResult::Conflict));
    world.attempt();
    assert!(!world.me().leads());
    assert_eq!(world.me().calls(), ["get", "create", "get"]);
}

#[rstest]
#[case(0.0, 2_000)]
#[case(0.5, 3_200)]
#[case(0.999_999, 4_399)]
#[case(1.0, 2_000)]
#[case(-1.0, 2_000)]
#[case(f64::NAN, 2_000)]
fn a_follower_waits_one_to_two_point_two_periods(
    #[values(upstream_baz(), baz())] config: Config,
    #[case] random: f64,
    #[case] wait: u64,
) {
    let mut world = World::new(config);
    world.me().random = random;
    world.fates = [Fate::Refused].into();
    world.attempt();
    assert_eq!(world.me().wake.map(since), Some(wait));
}

/// client-go polls on; ours looks again when the record ends, with a spread of a tenth of the period, 100 ms
/// at most.
#[rstest]
#[case::client_gos(upstream_baz(), 0.999_999, 4_399)]
#[case::ours_at_once(baz(), 0.0, 1_000)]
#[case::ours_spread(baz(), 0.999_999, 1_099)]
fn a_follower_is_there_when_the_record_ends(#[case] config: Config, #[case] random: f64, #[case] at: u64) {
    let mut world = World::with(config, taken_by("bing", 1, 0));
    world.me().random = random;
    world.attempt();
    assert_eq!(world.me().wake.map(since), Some(at));
    world.attempt();
    assert!(world.me().leads());
}

#[rstest]
fn the_last_transition_count_does_not_overflow(#[values(upstream_baz(), baz())] config: Config) {
    let mut world = World::with(config, taken_by("", 1, i32::MAX));
    world.attempt();
    assert!(world.me().leads());
    assert_eq!(world.transitions(), i32::MAX);
}

/// What an admission webhook could do: the API says yes, to something else.
#[rstest]
fn a_write_that_came_back_with_another_holder_is_no_leadership(
    #[values(upstream_baz(), baz())] config: Config,
) {
    let mut world = World::new(config);
    world.fates = [Fate::Served, Fate::Hangs].into();
    world.attempt();
    world.put(taken_by("webhook", 10, 0));
    let changed = world.lease.clone().unwrap();
    world.send(Event::Written(WriteResult::Done(changed)));
    assert!(!world.me().leads());
    assert!(world.me().open().is_empty());
    assert!(world.me().wake.is_some());
}
