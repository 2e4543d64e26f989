//! Changes that come without asking.

use super::*;

fn following(record: Record) -> World {
    let mut world = World::with(baz(), record);
    world.me().watches = true;
    world.attempt();
    assert!(!world.me().leads());
    world
}

/// Within a tenth of the retry period, 100 ms at most, which keeps several candidates apart.
#[rstest]
#[case(0.0, 0)]
#[case(0.5, 50)]
#[case(0.999_999, 99)]
fn a_release_seen_on_the_watch_is_taken_at_once(#[case] random: f64, #[case] takes: u64) {
    let mut world = following(taken_by("bing", 10, 4));
    world.me().random = random;
    world.until(100);
    world.put(taken_by("", 1, 4));
    world.attempt();
    assert!(world.me().leads());
    assert_eq!(since(world.at), 100 + takes);
    assert_eq!(world.transitions(), 5);
    let leaders: Vec<String> = world
        .me()
        .leaders()
        .into_iter()
        .map(|(_, holder)| holder)
        .collect();
    assert_eq!(leaders, ["bing", "", "baz"]);
}

/// client-go asks at its next turn.
#[test]
fn client_go_does_not_watch() {
    let mut world = World::with(upstream_baz(), taken_by("bing", 10, 4));
    world.me().watches = true;
    world.attempt();
    world.until(100);
    world.put(taken_by("", 1, 4));
    world.attempt();
    assert_eq!(world.at, after(3_200));
    assert!(world.me().leads());
}

#[test]
fn a_deletion_seen_on_the_watch_is_checked_at_once() {
    let mut world = following(taken_by("bing", 10, 4));
    world.send(Event::Seen(None));
    world.attempt();
    assert!(world.at <= after(200));
    // It was not deleted after all: the watch is only a hint.
    assert!(!world.me().leads());
    assert_eq!(world.me().calls(), ["get", "get"]);
}

#[test]
fn a_healthy_watch_replaces_polling_and_a_silent_one_does_not_delay_the_take_over() {
    let mut world = following(taken_by("bing", 10, 0));
    for second in 0..30 {
        world.until(second * 1_000);
        world.put(Record {
            renew_time: Some(world::now(world.at, 0.0).wall),
            ..taken_by("bing", 10, 0)
        });
    }
    assert_eq!(world.me().calls(), ["get"]);
    world.until(29_000 + 9_999);
    assert!(!world.me().leads());
    world.until(29_000 + 10_200);
    assert!(world.me().leads());
}

/// Somebody labels the Lease of a dead leader every second. Where times are cut to whole seconds, a write may
/// be a second renewal within one second.
#[rstest]
#[case::watched(baz(), true, 1, 10_050)]
#[case::polled(baz(), false, 1, 10_050)]
#[case::client_go(upstream_baz(), false, 1, 12_800)]
#[case::whole_seconds(baz(), true, 0, u64::MAX)]
fn metadata_is_no_renewal(
    #[case] config: Config,
    #[case] watches: bool,
    #[case] microseconds: i64,
    #[case] leads_at: u64,
) {
    let record = Record {
        renew_time: Some(Timestamp::from_microsecond(1_790_000_000_000_000 + microseconds).unwrap()),
        ..taken_by("bing", 10, 0)
    };
    let mut world = World::with(config, record.clone());
    world.me().watches = watches;
    for second in 1..30 {
        world.until(second * 1_000);
        if !world.me().leads() {
            world.put(record.clone());
        }
    }
    let led = world.me().open_ms().first().map_or(u64::MAX, |(from, _)| *from);
    assert_eq!(led, leads_at);
}

/// The expiry counts from when the change was seen, on the watch too: never earlier than a duration after it.
#[test]
fn what_the_watch_told_counts_from_then() {
    let mut world = following(taken_by("bing", 10, 0));
    world.until(9_990);
    world.put(Record {
        renew_time: Some(world::now(world.at, 0.0).wall),
        ..taken_by("bing", 10, 0)
    });
    world.until(19_989);
    assert!(!world.me().leads());
    world.until(20_300);
    assert!(world.me().leads());
}

#[test]
fn a_stale_watch_takes_nothing_from_a_leader() {
    let mut world = following(taken_by("bing", 1, 0));
    let old = world.lease.clone();
    world.attempt();
    assert!(world.me().leads());
    world.send(Event::Seen(old));
    world.send(Event::Seen(None));
    world.attempt();
    assert!(world.me().leads() && world.me().losses().is_empty());
}

/// Versions that are no numbers cannot be compared: such a change is looked into, not believed.
#[test]
fn what_cannot_be_shown_to_be_newer_is_asked_about() {
    let mut world = World::new(baz());
    world.until(500);
    let mut change = world.lease.clone().unwrap();
    change.version = "opaque".into();
    change.record = taken_by("bing", 10, 1);
    world.me().forget();
    world.send(Event::Seen(Some(change)));
    assert!(world.me().leads());
    world.until(500);
    assert_eq!(world.me().calls(), ["update"], "the record is ours still");
    assert!(world.me().leads());
}

/// Of a change that comes while a request is under way, the proof counts, and the request is given up.
#[test]
fn a_leader_that_sees_another_holder_gives_its_renewal_up() {
    let mut world = World::new(baz());
    world.me().watches = true;
    world.until(1_000);
    world.fates = [Fate::Hangs].into();
    world.until(2_500);
    world.put(taken_by("bing", 10, 1));
    assert_eq!(world.me().losses(), [(2_500, Loss::OtherHolder("bing".into()))]);
    assert_eq!(world.me().count(&Action::Abort), 1);
}

/// Our own renewals come back on the watch, and say nothing new.
#[test]
fn a_leader_hears_its_own_renewals_without_a_request_more() {
    let mut world = World::new(baz());
    world.until(60_000);
    let alone = world.me().requests();
    let mut world = World::new(baz());
    world.me().watches = true;
    world.until(60_000);
    assert_eq!(world.me().requests(), alone);
    assert_eq!(world.me().states().len(), 1);
}

/// What is seen while a follower's request is under way is left to its answer.
#[test]
fn a_change_during_a_followers_request_waits_for_the_answer() {
    let mut world = World::with(baz(), taken_by("bing", 10, 0));
    world.fates = [Fate::SlowAnswer(ms(500))].into();
    world.until(100);
    world.send(Event::Seen(world.lease.clone()));
    world.until(499);
    assert_eq!(world.me().calls(), ["get"]);
    world.until(500);
    assert_eq!(world.me().leaders(), [(500, "bing".to_owned())]);
}

/// A watch that tells of each renewal saves every question, also where the holder renews more seldom than we
/// would ask; one that has told nothing for a lease duration is not trusted any more.
#[test]
fn a_watch_that_tells_saves_polling() {
    let mut world = following(taken_by("bing", 60, 0));
    world.until(1_000);
    world.put(taken_by("bing", 60, 0));
    world.me().forget();
    let patience = 1_000 + 10_000;
    world.until(patience - 1);
    assert!(world.me().calls().is_empty(), "{:?}", world.me().calls());
    world.until(patience + 30_000);
    assert!(world.me().calls().len() > 5, "{:?}", world.me().calls());
}

/// A watch that has told something is trusted for a lease duration, and not longer: what it kept to itself is
/// found.
#[test]
fn a_watch_that_went_silent_is_not_trusted_for_long() {
    let mut world = following(taken_by("bing", 3_600, 0));
    world.until(1_000);
    world.put(taken_by("bing", 3_600, 1));
    world.me().watches = false;
    world.until(10_900);
    assert_eq!(world.me().calls(), ["get"]);
    world.put(taken_by("", 1, 1));
    world.until(11_100);
    assert!(
        world.me().leads(),
        "asked one lease duration after the last that was told"
    );
}
