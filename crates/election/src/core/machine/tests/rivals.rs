//! Two candidates at one lock: never two open gates.

use super::*;

/// `a` leads, `b` stands by.
fn rivals(config: impl Fn(&str) -> Config, random: f64, watches: bool) -> World {
    let mut world = World::new(config("a"));
    world.until(0);
    world.add(config("b"));
    for candidate in &mut world.candidates {
        candidate.timeout = Some(ms(5_000));
        candidate.random = random;
        candidate.watches = watches;
    }
    world
}

fn client_go_recovering(identity: &str) -> Config {
    Config {
        identity: identity.into(),
        ..upstream_a()
    }
}

fn ours_recovering(identity: &str) -> Config {
    ours(identity)
}

const NEVER: Option<(u64, u64)> = None;

type Rules = fn(&str) -> Config;

/// First and last of the instants, sampled each 10 ms, at which both gates are open; and beside that the
/// spans.
fn both_open(world: &World) -> Option<(u64, u64)> {
    let (a, b) = (world.candidates[0].open(), world.candidates[1].open());
    let is_open =
        |spans: &[(Duration, Duration)], at| spans.iter().any(|(from, to)| (*from..*to).contains(&at));
    let end = since(world.at);
    let both = |millis: &u64| is_open(&a, after(*millis)) && is_open(&b, after(*millis));
    let sampled: Vec<u64> = (0..end).step_by(10).filter(both).collect();
    let meet = |(from, to): &(Duration, Duration)| b.iter().any(|(start, end)| from < end && start < to);
    assert_eq!(a.iter().any(meet), !sampled.is_empty(), "{a:?} {b:?}");
    Some((*sampled.first()?, *sampled.last()?))
}

/// S16, first part: the partition heals before anybody takes over.
#[rstest]
fn s16_the_partition_heals_in_time(
    #[values(client_go_recovering as Rules, ours_recovering)] config: Rules,
    #[values(0.0, 0.5, 0.999_999)] random: f64,
    #[values(false, true)] watches: bool,
) {
    let mut world = rivals(config, random, watches);
    world.outages = vec![Outage::of(0, 5_000..15_000, Fate::Hangs)];
    world.until(120_000);
    assert!(world.candidates[1].open().is_empty());
    assert_eq!(
        world.candidates[0].announced().last(),
        Some(&(16_000, Announcement::BecameLeader))
    );
    assert!(world.candidates[0].leads());
    assert_eq!(both_open(&world), NEVER);
}

/// S16, second part: it does not, and the standby leads within [19, 27.9] s; the old holder ends when it sees
/// that.
#[rstest]
fn s16_the_partition_outlasts_the_lease(
    #[values(client_go_recovering as Rules, ours_recovering)] config: Rules,
    #[values(0.0, 0.25, 0.5, 0.75, 0.999_999)] random: f64,
    #[values(false, true)] watches: bool,
) {
    let mut world = rivals(config, random, watches);
    world.outages = vec![Outage::of(0, 5_000..60_000, Fate::Hangs)];
    world.until(120_000);
    let (taken, _) = world.candidates[1].open_ms()[0];
    assert!((19_000..=27_900).contains(&taken), "{taken}");
    if watches && world.candidates[1].machine.config().compat == Compat::Evenkeel {
        assert!(
            taken < 19_200,
            "a tenth of the retry period after the end: {taken}"
        );
    }
    let (ends, reason) = world.candidates[0].stopped().unwrap();
    assert_eq!(reason, StopReason::Lost(Loss::OtherHolder("b".into())));
    assert!((60_000..=70_000).contains(&ends), "{ends}");
    assert_eq!(both_open(&world), NEVER);
    assert_eq!((world.holder(), world.transitions()), ("b", 1));
}

/// S19: the gate is shut until an expired holder's record is taken, one full duration after it was first
/// seen.
#[rstest]
#[case::client_gos(upstream_a(), 16_000)]
#[case::ours(ours("a"), 15_050)]
fn s19_closed_until_taken(#[case] config: Config, #[case] taken: u64) {
    let mut world = World::with(config, taken_by("z", 15, 0));
    world.until(60_000);
    assert_eq!(world.me().open_ms()[0].0, taken);
    assert!(taken >= 15_000);
    let leaders: Vec<String> = world
        .me()
        .leaders()
        .into_iter()
        .map(|(_, holder)| holder)
        .collect();
    assert_eq!(leaders, ["z", "a"]);
}

/// 1.7, problem 1: a renewal that takes 4.9 s to be answered moves client-go's deadline, not its rivals'
/// patience. They lead together for up to two seconds. Ours counts from the start of the request.
#[rstest]
#[case::client_gos(client_go_recovering as Rules, true)]
#[case::ours(ours_recovering as Rules, false)]
fn slow_answers_let_two_of_client_gos_lead_at_once(#[case] config: Rules, #[case] both: bool) {
    let mut world = rivals(config, 0.0, true);
    world.outages = vec![
        Outage::of(0, 4_000..4_001, Fate::SlowAnswer(ms(4_900))),
        Outage::of(0, 4_001..60_000, Fate::Hangs),
    ];
    world.until(120_000);
    // The leader stops at 4 + 4.9 + 2 + 10 s; its rival looks at 20 s, and could have from 19 s on.
    assert_eq!(both_open(&world), both.then_some((20_000, 20_890)));
    assert!(!world.candidates[1].open().is_empty());
}

/// 1.7, problem 2: a leader that did not run while its lock was taken. Its gate asks the clock.
#[rstest]
#[case::client_gos(client_go_recovering as Rules, true)]
#[case::ours(ours_recovering as Rules, false)]
fn a_paused_leader_wakes_up_with_its_gate_shut(#[case] config: Rules, #[case] both: bool) {
    let mut world = rivals(config, 0.5, false);
    world.until(5_000);
    world.candidates[0].dead = true;
    world.until(60_000);
    assert!(world.candidates[1].leads());
    assert_eq!(both_open(&world).is_some(), both);
}

/// A planned handover: one retry of the standby, or at once where it watches.
#[rstest]
#[case::client_gos(client_go_recovering as Rules, false, 4_400)]
#[case::ours_polling(ours_recovering as Rules, false, 4_400)]
#[case::ours_watching(ours_recovering as Rules, true, 200)]
fn a_released_lock_is_taken_soon(#[case] config: Rules, #[case] watches: bool, #[case] within: u64) {
    let releasing = |identity: &str| Config {
        release_on_cancel: true,
        ..config(identity)
    };
    let mut world = rivals(releasing, 0.999_999, watches);
    world.until(5_500);
    world.send(Event::Cancel);
    world.until(20_000);
    let (taken, _) = world.candidates[1].open_ms()[0];
    assert!(taken - 5_500 <= within, "{taken}");
    assert_eq!(both_open(&world), NEVER);
    assert_eq!(world.transitions(), 1);
}

/// A crash: the standby leads a lease duration and one attempt after the last renewal.
#[rstest]
#[case::client_gos(client_go_recovering as Rules, false, 23_800)]
#[case::ours_polling(ours_recovering as Rules, false, 19_600)]
#[case::ours_watching(ours_recovering as Rules, true, 15_200)]
fn a_crashed_leaders_lock_is_taken_in_time(
    #[case] config: Rules,
    #[case] watches: bool,
    #[case] within: u64,
    #[values(0.0, 0.3, 0.6, 0.999_999)] random: f64,
) {
    let mut world = rivals(config, random, watches);
    world.until(60_500);
    world.candidates[0].dead = true;
    world.until(100_000);
    let (taken, _) = world.candidates[1].open_ms()[0];
    let took = taken - 60_000;
    assert!((15_000..=within).contains(&took), "{took}");
}

/// Both want a lock that is free, at the same moment.
#[rstest]
fn one_of_two_gets_a_free_lock(
    #[values(client_go_recovering as Rules, ours_recovering)] config: Rules,
    #[values(Fate::Served, Fate::SlowAnswer(ms(300)), Fate::Delayed(ms(300)))] fate: Fate,
    #[values(None, Some(taken_by("", 1, 4)))] stands: Option<Record>,
) {
    let mut world = World::new(config("a"));
    world.add(config("b"));
    world.outages = vec![0, 1]
        .into_iter()
        .map(|who| Outage::of(who, 0..30_000, fate))
        .collect();
    if let Some(record) = stands {
        world.put(record);
    }
    world.until(60_000);
    let leading: Vec<bool> = world.candidates.iter().map(world::Candidate::leads).collect();
    assert!(
        leading == [true, false] || leading == [false, true],
        "{leading:?}"
    );
    assert_eq!(both_open(&world), NEVER);
    assert_eq!(
        world.candidates[0].open().len() + world.candidates[1].open().len(),
        1
    );
}
