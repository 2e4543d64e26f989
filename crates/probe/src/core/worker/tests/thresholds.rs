//! Thresholds, holds and the run counter, as the kubelet has them.

use super::*;
use rstest::rstest;

#[test]
fn failures_below_the_threshold_leave_success() {
    let mut bench = Bench::new(Kind::Readiness).thresholds(1, 3);
    for _ in 0..2 {
        assert_eq!(bench.rounds(&good()), [SUCCESS; 3]);
        assert_eq!(bench.rounds(&bad()), [SUCCESS; 2]);
        assert_eq!(bench.rounds(&bad()), [FAILURE; 3]);
    }
}

#[test]
fn successes_below_the_threshold_leave_failure() {
    let mut bench = Bench::new(Kind::Readiness).thresholds(3, 1);
    for _ in 0..2 {
        assert_eq!(bench.rounds(&good()), [FAILURE; 2]);
        assert_eq!(bench.rounds(&good()), [SUCCESS; 3]);
        assert_eq!(bench.rounds(&bad()), [FAILURE]);
    }
}

#[test]
fn a_success_between_failures_starts_the_count_anew() {
    let mut bench = Bench::new(Kind::Readiness).thresholds(1, 2);
    for _ in 0..3 {
        assert_eq!(bench.rounds(&good()), [SUCCESS]);
        assert_eq!(bench.rounds(&bad()), [SUCCESS]);
    }
}

#[test]
fn a_startup_success_holds() {
    let mut bench = Bench::new(Kind::Startup).thresholds(1, 3);
    assert!(!bench.worker.on_hold());
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert!(bench.worker.on_hold());
    assert_eq!(bench.worker.run(), (SUCCESS, 0));
    assert_eq!(bench.rounds(&bad()), [SUCCESS; 5]);
    assert_eq!(bench.attempts, 1);
}

/// What is published, the run and the hold after each failure.
#[rstest]
#[case::startup(Kind::Startup, UNKNOWN)]
#[case::liveness(Kind::Liveness, SUCCESS)]
fn failures_count_up_to_a_hold(#[case] kind: Kind, #[case] before: Option<Reading>) {
    let mut bench = Bench::new(kind).thresholds(1, 3);
    for (published, run, on_hold) in [(before, 1, false), (before, 2, false), (FAILURE, 0, true)] {
        assert!(!bench.worker.on_hold());
        assert_eq!(bench.rounds(&bad()), [published]);
        assert_eq!(bench.worker.run(), (FAILURE, run));
        assert_eq!(bench.worker.on_hold(), on_hold);
    }
}

#[test]
fn the_run_of_a_liveness_is_reset_when_it_has_failed() {
    let mut bench = Bench::new(Kind::Liveness).thresholds(1, 3);
    let script = [
        (good(), SUCCESS, 1),
        (bad(), SUCCESS, 1),
        (bad(), SUCCESS, 2),
        (bad(), FAILURE, 0),
    ];
    for (outcome, published, run) in script {
        assert_eq!(bench.rounds(&outcome), [published]);
        assert_eq!(bench.worker.run().1, run);
    }
}

#[test]
fn the_run_of_a_startup_is_reset_when_it_has_failed() {
    let mut bench = Bench::new(Kind::Startup).thresholds(1, 3);
    let script = [(bad(), UNKNOWN, 1), (bad(), UNKNOWN, 2), (bad(), FAILURE, 0)];
    for (outcome, published, run) in script {
        assert_eq!(bench.rounds(&outcome), [published]);
        assert_eq!(bench.worker.run().1, run);
    }
}

/// And a restarted container gets as many attempts as the first.
#[rstest]
#[case::liveness(Kind::Liveness, SUCCESS, false)]
#[case::startup(Kind::Startup, UNKNOWN, true)]
fn a_failure_holds_until_there_is_a_new_container(
    #[case] kind: Kind,
    #[case] initial: Option<Reading>,
    #[case] success_holds: bool,
) {
    let mut bench = Bench::new(kind);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
    assert!(bench.worker.on_hold());
    assert_eq!(bench.rounds(&good()), [FAILURE; 3]);
    assert!(bench.worker.on_hold());
    assert_eq!(bench.attempts, 1);

    bench.new_container("test://2");
    assert_eq!(bench.tick(), Step::Probe);
    assert_eq!(bench.published(), initial);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.worker.on_hold(), success_holds);

    bench.probe.failure_threshold = 3;
    bench.new_container("test://3");
    assert_eq!(bench.rounds(&bad()), [initial, initial, FAILURE]);
}

#[test]
fn readiness_is_never_on_hold() {
    let mut bench = Bench::new(Kind::Readiness);
    assert_eq!(bench.rounds(&bad()), [FAILURE; 3]);
    assert_eq!(bench.rounds(&good()), [SUCCESS; 3]);
    assert_eq!(bench.attempts, 6);
}

/// The kubelet's, said in its documentation nowhere: the run of a failing readiness goes on in a new
/// container.
#[test]
fn the_run_of_a_readiness_outlives_its_container() {
    let mut bench = Bench::new(Kind::Readiness).thresholds(3, 3);
    bench.rounds::<2>(&good());
    bench.new_container("test://2");
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.worker.run(), (SUCCESS, 3));
}

/// An error is no result: it neither counts nor interrupts what counts.
#[rstest]
#[case::liveness(Kind::Liveness, SUCCESS)]
#[case::readiness(Kind::Readiness, FAILURE)]
#[case::startup(Kind::Startup, UNKNOWN)]
fn errors_count_for_nothing(#[case] kind: Kind, #[case] initial: Option<Reading>) {
    let mut bench = Bench::new(kind).thresholds(2, 2);
    let error = Outcome::error(Verdict::Failure, "no such port");
    assert_eq!(bench.rounds(&error), [initial; 20]);
    assert_eq!(bench.worker.run(), (None, 0));
    assert!(!bench.worker.on_hold());
    bench.rounds::<1>(&bad());
    assert_eq!(bench.rounds(&error), [initial; 20]);
    assert_eq!(bench.worker.run(), (FAILURE, 1));
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}

/// What is published stays.
#[test]
fn a_reset_starts_the_count_anew() {
    let mut bench = Bench::new(Kind::Readiness).thresholds(1, 3);
    bench.rounds::<1>(&good());
    bench.rounds::<2>(&bad());
    bench.worker.reset_run();
    assert_eq!(bench.worker.run(), (None, 0));
    assert_eq!(bench.rounds(&bad()), [SUCCESS, SUCCESS, FAILURE]);
}

/// Kubernetes lets no threshold be zero; one that is anyway is as good as 1.
#[rstest]
#[case::zero(0)]
#[case::one(1)]
fn the_least_threshold_is_met_at_once(#[case] threshold: u32) {
    let mut bench = Bench::new(Kind::Readiness).thresholds(threshold, threshold);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}

#[test]
fn the_greatest_threshold_is_met_by_nobody() {
    let mut bench = Bench::new(Kind::Readiness).thresholds(u32::MAX, u32::MAX);
    assert_eq!(bench.rounds(&good()), [FAILURE; 100]);
}
