//! What strict mode does otherwise.

use super::*;
use crate::core::Window;
use rstest::rstest;

/// The delay, how long the container has run, and when the first attempt is made, in milliseconds from now.
#[rstest]
#[case::at_once(0, 0, 0)]
#[case::milliseconds_count(1_250, 0, 1_250)]
#[case::from_the_start_of_the_container(1_250, 1_000, 250)]
#[case::to_the_millisecond(10_000, 9_999, 1)]
#[case::just_now(10_000, 10_000, 0)]
#[case::long_ago(10_000, 3_600_000, 0)]
#[case::before_the_clock_that_does_not_jump(10_000, 1_001_000, 0)]
fn the_first_attempt_is_due(#[case] delay: u64, #[case] age: u64, #[case] due: u64) {
    let mut bench = Bench::strict(Kind::Readiness);
    bench.probe.initial_delay = millis(delay);
    bench.seen().state = running(ago(millis(age)));
    let at = NOW.mono + millis(due);
    if due > 0 {
        assert_eq!(bench.tick(), Step::Until(at));
        bench.now.mono = at.saturating_sub(Duration::from_nanos(1));
        assert_eq!(bench.tick(), Step::Until(at));
    }
    bench.now.mono = at;
    assert_eq!(bench.tick(), Step::Probe);
}

/// A container that is older than the origin of the clock is due at once, not a delay after the origin.
#[test]
fn a_container_older_than_the_clock() {
    let mut bench = Bench::strict(Kind::Readiness);
    bench.probe.initial_delay = seconds(60);
    bench.now.mono = millis(1);
    bench.seen().state = running(ago(seconds(3600)));
    assert_eq!(bench.tick(), Step::Probe);
}

/// The age of a container is read once; what the wall clock does later is of no matter.
#[rstest]
#[case::forward(NOW.wall + seconds(86_400))]
#[case::back(ago(seconds(86_400)))]
#[case::to_the_beginning(Duration::ZERO)]
#[case::to_the_end(Duration::MAX)]
fn the_wall_clock_jumps(#[case] wall: Duration) {
    let mut bench = Bench::strict(Kind::Readiness);
    bench.probe.initial_delay = seconds(10);
    let due = NOW.mono + seconds(10);
    assert_eq!(bench.tick(), Step::Until(due));
    bench.now.wall = wall;
    assert_eq!(bench.tick(), Step::Until(due));
    bench.now.mono = due;
    assert_eq!(bench.tick(), Step::Probe);
}

/// A start in the future is a start now: a clock that was set back must not keep a container unprobed for
/// hours.
#[rstest]
#[case::a_second(NOW.wall + seconds(1))]
#[case::for_ever(Duration::MAX)]
fn a_start_in_the_future_is_a_start_now(#[case] started_at: Duration) {
    let mut bench = Bench::strict(Kind::Readiness);
    bench.probe.initial_delay = seconds(2);
    bench.seen().state = running(started_at);
    assert_eq!(bench.tick(), Step::Until(NOW.mono + seconds(2)));
}

/// A machine boots in 1970 and learns the time later: what was met before keeps its delay, what is met after
/// is old.
#[test]
fn the_clock_is_set_at_boot() {
    let mut bench = Bench::strict(Kind::Readiness);
    bench.policy.started.wall = seconds(3);
    bench.now.wall = seconds(8);
    bench.probe.initial_delay = seconds(10);
    bench.seen().state = running(seconds(6));
    let due = NOW.mono + seconds(8);
    assert_eq!(bench.tick(), Step::Until(due));
    bench.now.wall = NOW.wall;
    assert_eq!(bench.tick(), Step::Until(due));
    bench.new_container("test://2");
    assert_eq!(bench.tick(), Step::Probe);
}

/// Each container has its own delay.
#[test]
fn a_new_container_is_timed_anew() {
    let mut bench = Bench::strict(Kind::Readiness);
    bench.probe.initial_delay = seconds(10);
    bench.now.mono += seconds(100);
    bench.now.wall += seconds(100);
    assert_eq!(bench.tick(), Step::Probe);
    bench.new_container("test://2");
    bench.seen().state = running(bench.now.wall.saturating_sub(seconds(1)));
    assert_eq!(bench.tick(), Step::Until(bench.now.mono + seconds(9)));
}

/// A delay that changes before the first attempt counts from the same start.
#[test]
fn a_changed_delay_counts_from_the_start() {
    let mut bench = Bench::strict(Kind::Readiness);
    bench.probe.initial_delay = seconds(60);
    assert_eq!(bench.tick(), Step::Until(NOW.mono + seconds(60)));
    bench.now.mono += seconds(4);
    bench.probe.initial_delay = seconds(5);
    assert_eq!(bench.tick(), Step::Until(NOW.mono + seconds(5)));
    bench.probe.initial_delay = Duration::MAX;
    assert_eq!(bench.tick(), Step::Until(Duration::MAX));
}

/// What is not to be probed at all is not waited for.
#[rstest]
#[case::readiness_before_startup(Kind::Readiness, false)]
#[case::startup_after_startup(Kind::Startup, true)]
fn a_gate_comes_before_the_delay(#[case] kind: Kind, #[case] started: bool) {
    let mut bench = Bench::strict(kind);
    bench.probe.initial_delay = seconds(10);
    bench.seen().started = Some(started);
    assert_eq!(bench.tick(), Step::Idle);
}

/// In kubelet mode there is no such step, and the same worker is idle.
#[test]
fn the_kubelet_waits_for_its_next_tick() {
    let mut bench = Bench::new(Kind::Readiness);
    bench.probe.initial_delay = seconds(10);
    assert_eq!(bench.tick(), Step::Idle);
}

#[test]
fn counters_are_reset_by_a_new_container() {
    let mut bench = Bench::strict(Kind::Readiness).thresholds(1, 3);
    bench.rounds::<2>(&bad());
    bench.rounds::<2>(&Outcome::error(Verdict::Unknown, "no"));
    assert_eq!((bench.worker.run(), bench.worker.errors()), ((FAILURE, 2), 2));
    bench.new_container("test://2");
    bench.tick();
    assert_eq!((bench.worker.run(), bench.worker.errors()), ((None, 0), 0));
    bench.rounds::<1>(&good());
    assert_eq!(bench.rounds(&bad()), [SUCCESS, SUCCESS, FAILURE]);
}

/// The kind, its error threshold, and what is published after each of four errors.
#[rstest]
#[case::liveness(Kind::Liveness, Some(2), [SUCCESS, UNKNOWN, UNKNOWN, UNKNOWN])]
#[case::readiness(Kind::Readiness, Some(2), [SUCCESS, UNKNOWN, UNKNOWN, UNKNOWN])]
#[case::as_many_as_failures(Kind::Readiness, None, [SUCCESS, SUCCESS, UNKNOWN, UNKNOWN])]
#[case::at_once(Kind::Readiness, Some(1), [UNKNOWN; 4])]
#[case::zero_is_one(Kind::Readiness, Some(0), [UNKNOWN; 4])]
#[case::never(Kind::Liveness, Some(u32::MAX), [SUCCESS; 4])]
fn errors_make_unknown(
    #[case] kind: Kind,
    #[case] threshold: Option<u32>,
    #[case] published: [Option<Reading>; 4],
) {
    let mut bench = Bench::strict(kind).thresholds(1, 3);
    bench.probe.extras.error_threshold = threshold;
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.rounds(&Outcome::error(Verdict::Failure, "no")), published);
    assert!(!bench.worker.on_hold());
    assert_eq!(bench.worker.errors(), 4);
    // And the probe goes on.
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.worker.errors(), 0);
}

#[test]
fn a_startup_that_only_errs_stays_unknown_and_goes_on() {
    let mut bench = Bench::strict(Kind::Startup);
    assert_eq!(
        bench.rounds(&Outcome::error(Verdict::Failure, "no")),
        [UNKNOWN; 10]
    );
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
}

/// Only errors in a row: a result of either kind ends the row, an error does not end a row of results.
#[test]
fn errors_and_results_count_apart() {
    let mut bench = Bench::strict(Kind::Readiness).thresholds(1, 2);
    let error = Outcome::error(Verdict::Unknown, "no");
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.rounds(&error), [SUCCESS]);
    assert_eq!(bench.rounds(&bad()), [SUCCESS]);
    assert_eq!(bench.rounds(&error), [SUCCESS]);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}

#[rstest]
#[case::kubelet(Compat::Kubelet)]
#[case::strict(Compat::Strict)]
fn a_starved_attempt_counts_for_nothing(#[case] compat: Compat) {
    let mut bench = Bench::new(Kind::Liveness).thresholds(1, 2);
    bench.policy.compat = compat;
    bench.rounds::<1>(&bad());
    bench.settle(Settled::Error);
    let before = bench.worker.clone();
    for _ in 0..100 {
        bench.settle(Settled::Starved);
    }
    assert_eq!(bench.worker, before);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}

/// A window, results (`+` success, `-` failure), and what is published after each (`S`, `F`).
#[rstest]
#[case::one_of_one(1, 1, "+-+--+", "SFSFFS")]
#[case::three_of_five(3, 5, "+-+-+-+++", "SSSSSFSSS")]
#[case::three_of_five_in_a_row(3, 5, "+---+++", "SSSFFFS")]
#[case::a_window_larger_than_what_was_seen(2, 64, "-+-", "FSF")]
#[case::all_of_three(3, 3, "+--+---", "SSSSSSF")]
#[case::no_failures_are_one(0, 5, "+-+++++", "SFFFFFS")]
#[case::of_none_is_of_one(1, 0, "+-+", "SFS")]
#[case::nothing_at_all(0, 0, "+-+", "SFS")]
#[case::more_failures_than_results(9, 3, "+---+", "SSSFS")]
#[case::more_than_can_be_kept(1, u32::MAX, "+-+", "SFF")]
fn failures_in_a_window(
    #[case] failures: u32,
    #[case] of: u32,
    #[case] results: &str,
    #[case] published: &str,
) {
    let mut bench = Bench::strict(Kind::Readiness).thresholds(1, 1);
    bench.probe.extras.window = Some(Window { failures, of });
    let seen: String = results
        .chars()
        .map(|result| {
            let outcome = if result == '+' { good() } else { bad() };
            match bench.rounds(&outcome) {
                [SUCCESS] => 'S',
                [FAILURE] => 'F',
                [other] => unreachable!("{other:?}"),
            }
        })
        .collect();
    assert_eq!(seen, published);
}

#[test]
fn the_largest_window() {
    let mut bench = Bench::strict(Kind::Liveness);
    bench.probe.extras.window = Some(Window { failures: 64, of: 64 });
    assert_eq!(bench.rounds(&bad()), [SUCCESS; 63]);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.rounds(&bad()), [SUCCESS; 63]);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
    assert!(bench.worker.on_hold());
}

/// A liveness that failed by its window is on hold, and its next container has a clean one.
#[test]
fn a_window_belongs_to_a_container() {
    let mut bench = Bench::strict(Kind::Liveness);
    bench.probe.extras.window = Some(Window { failures: 2, of: 3 });
    assert_eq!(bench.rounds(&bad()), [SUCCESS, FAILURE]);
    bench.new_container("test://2");
    assert_eq!(bench.rounds(&bad()), [SUCCESS]);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}

/// The success threshold goes on counting in a row.
#[test]
fn a_window_with_a_success_threshold() {
    let mut bench = Bench::strict(Kind::Readiness).thresholds(2, 1);
    bench.probe.extras.window = Some(Window { failures: 2, of: 3 });
    assert_eq!(bench.rounds(&good()), [FAILURE, SUCCESS]);
    assert_eq!(bench.rounds(&bad()), [SUCCESS, FAILURE]);
    assert_eq!(bench.rounds(&good()), [FAILURE, SUCCESS]);
}

#[test]
fn the_kubelet_has_no_windows_and_no_error_threshold() {
    let mut bench = Bench::new(Kind::Readiness);
    bench.probe.extras.window = Some(Window { failures: 5, of: 5 });
    bench.probe.extras.error_threshold = Some(1);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(
        bench.rounds(&Outcome::error(Verdict::Unknown, "no")),
        [SUCCESS; 5]
    );
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}
