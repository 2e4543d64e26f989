//! More of upstream's recovery scenarios: how long it goes on, and what ends it.

use super::*;
use recovery::{FOREVER, away};

/// S17: no deadline: recovers after ten minutes.
#[rstest]
fn s17_after_ten_minutes(#[values(upstream_a(), ours("a"))] config: Config) {
    let mut world = away(config, 605_000, Fate::Hangs);
    world.until(604_999);
    assert!(matches!(world.me().machine.state(), State::Lost { .. }));
    // The read that began at most 5 s before the API came back fails first; jitter is for pauses, and there
    // is none.
    world.until(610_000);
    assert!(matches!(world.me().machine.state(), State::Recovered { .. }));
    assert_eq!(world.transitions(), 0);
}

/// Attempts to recover begin at least every max(renew deadline, 2.2 retry periods), of client-go; ours each
/// retry period.
#[rstest]
#[case::client_gos(upstream_a(), 0.999_999, 4_399)]
#[case::client_gos(upstream_a(), 0.0, 2_000)]
#[case::ours(ours("a"), 0.999_999, 2_000)]
fn recovery_is_tried_steadily(#[case] config: Config, #[case] random: f64, #[case] gap: u64) {
    let mut world = away(config, FOREVER, Fate::Refused);
    world.me().random = random;
    world.until(120_000);
    let reads = world
        .me()
        .requests()
        .into_iter()
        .filter(|(at, call)| *at >= 40_000 && *call == "get");
    let reads: Vec<u64> = reads.map(|(at, _)| at).collect();
    assert!(reads.len() > 10);
    // Nanoseconds add up to a millisecond now and then.
    assert!(
        reads
            .windows(2)
            .all(|pair| pair[1] - pair[0] == gap || pair[1] - pair[0] == gap + 1),
        "{reads:?}"
    );
}

/// S21, S23, S24: what has been somebody else's, or is gone, is not ours to recover: no create, no write.
#[rstest]
#[case::s21_deleted(None, Loss::Deleted)]
#[case::s23_changed_hands_and_released(Some(taken_by("", 1, 1)), Loss::Blanked)]
#[case::s24_other_holder_expired(Some(taken_by("b", 1, 1)), Loss::OtherHolder("b".into()))]
fn s21_nothing_left_to_recover(
    #[values(upstream_a(), ours("a"))] config: Config,
    #[values(false, true)] release_on_cancel: bool,
    #[case] stands: Option<Record>,
    #[case] loss: Loss,
) {
    let mut world = away(
        Config {
            release_on_cancel,
            ..config
        },
        40_000,
        Fate::Refused,
    );
    world.until(17_000);
    world.delete();
    if stands.is_some() {
        world.lease = Some(Observation {
            uid: "uid-1".into(),
            ..Observation::default()
        });
    }
    let expected = stands.clone();
    if let Some(record) = stands {
        world.put(record);
    }
    world.until(100_000);
    let (at, reason) = world.me().stopped().unwrap();
    assert_eq!(reason, StopReason::Lost(loss));
    assert!((40_000..=44_400).contains(&at), "{at}");
    let writes = world
        .me()
        .requests()
        .into_iter()
        .filter(|(at, call)| *at >= 40_000 && *call != "get");
    assert_eq!(writes.count(), 0);
    assert_eq!(world.lease.map(|lease| lease.record), expected);
}

/// S22: a client without time-out: each attempt is bounded by the renew deadline.
#[rstest]
#[case::client_gos(upstream_a(), 16_000)]
#[case::ours(ours("a"), 14_000)]
fn s22_no_timeout(#[case] config: Config, #[case] lost: u64, #[values(0.0, 0.5, 0.999_999)] random: f64) {
    let mut world = away(config, 30_000, Fate::Hangs);
    world.me().timeout = None;
    world.me().random = random;
    world.until(35_999);
    assert_eq!(world.me().open_ms(), [(0, lost)]);
    let begun: Vec<u64> = world
        .me()
        .requests()
        .into_iter()
        .map(|(at, _)| at)
        .filter(|at| *at >= 5_000)
        .collect();
    assert_eq!(begun, [6_000, 16_000, 26_000], "10 s each");
    world.until(36_000);
    assert!(world.me().leads(), "not later than 36 s + 4.4 s");
}

/// S25: the release after the recovery deadline finds another holder, and leaves it alone.
#[rstest]
#[case::client_gos(upstream_a(), 46_000)]
#[case::ours(ours("a"), 44_000)]
fn s25_release_does_not_clobber(#[case] config: Config, #[case] ends: u64) {
    let config = Config {
        recovery_deadline: Some(ms(30_000)),
        release_on_cancel: true,
        ..config
    };
    let mut world = away(config, ends, Fate::Hangs);
    world.until(40_000);
    world.put(taken_by("b", 15, 1));
    world.until(100_000);
    assert_eq!(world.record(), taken_by("b", 15, 1));
    let made = world.me().requests().into_iter().filter(|(at, _)| *at >= ends);
    assert_eq!(made.collect::<Vec<_>>(), [(ends, "get")]);
    assert_eq!(world.me().stopped(), Some((ends, StopReason::RecoveryDeadline)));
}
