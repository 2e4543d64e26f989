//! One round: what it looks at, in which order, and whether the worker goes on.

use super::*;
use rstest::rstest;

/// What a worker is told, and what comes of its first round: whether it goes on, and what it publishes.
#[rstest]
#[case::no_status(|bench: &mut Bench| bench.status = None, true, None)]
#[case::pod_failed(|bench: &mut Bench| bench.status.as_mut().unwrap().phase = Phase::Failed, false, None)]
#[case::pod_succeeded(|bench: &mut Bench| bench.status.as_mut().unwrap().phase = Phase::Succeeded, false, None)]
#[case::other_containers_status(|bench: &mut Bench| bench.seen().name = "other".into(), true, None)]
#[case::container_without_an_id(|bench: &mut Bench| bench.seen().id = "".into(), true, None)]
#[case::container_waiting(|bench: &mut Bench| bench.seen().state = ContainerState::Waiting, true, FAILURE)]
#[case::container_terminated(
    |bench: &mut Bench| bench.seen().state = ContainerState::Terminated { exit_code: 0 }, false, FAILURE
)]
#[case::probe_successful(|_: &mut Bench| {}, true, SUCCESS)]
#[case::initial_delay_passed(
    |bench: &mut Bench| {
        bench.probe.initial_delay = seconds(100);
        bench.seen().state = running(ago(seconds(100)));
        bench.policy.started.wall = ago(seconds(200));
    },
    true,
    SUCCESS
)]
fn a_first_round(
    #[values(Kind::Liveness, Kind::Readiness, Kind::Startup)] kind: Kind,
    #[case] given: fn(&mut Bench),
    #[case] goes_on: bool,
    #[case] published: Option<Reading>,
) {
    let mut bench = Bench::new(kind);
    given(&mut bench);
    assert_eq!(bench.round() != Step::Stop, goes_on);
    assert_eq!(bench.published(), published);
}

/// Nobody is to restart what is going away; but it may still be taken out of service.
#[rstest]
#[case::liveness(Kind::Liveness, Step::Stop)]
#[case::readiness(Kind::Readiness, Step::Probe)]
#[case::startup(Kind::Startup, Step::Stop)]
fn a_deletion_ends_all_but_readiness(#[case] kind: Kind, #[case] step: Step) {
    let mut bench = Bench::new(kind);
    bench.pod.deleting = true;
    assert_eq!(bench.round(), step);
    assert_eq!(bench.published(), SUCCESS);
    assert_eq!(bench.attempts, u32::from(kind == Kind::Readiness));
}

/// What ran before the pod was deleted is told to be well, whatever was said of it.
#[test]
fn a_deletion_makes_a_failed_readiness_no_better() {
    let mut bench = Bench::new(Kind::Readiness);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
    bench.pod.deleting = true;
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}

/// The first name in the status may be without an ID yet; upstream then looks among the init containers.
#[test]
fn a_status_without_an_id_hides_no_other_of_that_name() {
    let mut bench = Bench::new(Kind::Readiness);
    let status = bench.status.as_mut().unwrap();
    let mut empty = status.containers[0].clone();
    empty.id = "".into();
    status.containers.insert(0, empty);
    assert_eq!(bench.round(), Step::Probe);
}

#[rstest]
#[case::liveness(Kind::Liveness, SUCCESS)]
#[case::readiness(Kind::Readiness, FAILURE)]
#[case::startup(Kind::Startup, UNKNOWN)]
fn the_initial_value_stands_during_the_initial_delay(#[case] kind: Kind, #[case] initial: Option<Reading>) {
    let mut bench = Bench::new(kind);
    bench.probe.initial_delay = seconds(10);
    assert_eq!(bench.round(), Step::Idle);
    assert_eq!(bench.published(), initial);
    bench.seen().state = running(ago(seconds(100)));
    assert_eq!(bench.round(), Step::Probe);
    assert_eq!(bench.published(), SUCCESS);
}

/// The kubelet counts whole seconds towards zero, and waits for clocks that disagree.
#[rstest]
#[case::at_once(0, NOW.wall, true)]
#[case::a_part_of_a_second_too_early(10_000, ago(millis(9_999)), false)]
#[case::to_the_second(10_000, ago(millis(10_000)), true)]
#[case::parts_of_a_second_in_the_field_count_for_nothing(1_999, ago(millis(1_000)), true)]
#[case::starts_within_a_second(0, NOW.wall + millis(999), true)]
#[case::starts_in_a_second(0, NOW.wall + millis(1_000), false)]
#[case::starts_at_the_end_of_time(0, Duration::MAX, false)]
#[case::started_at_the_epoch(10_000, Duration::ZERO, true)]
#[case::waits_for_ever(u64::MAX, NOW.wall, false)]
fn the_initial_delay_counts_whole_seconds(
    #[case] delay: u64,
    #[case] started_at: Duration,
    #[case] due: bool,
) {
    let mut bench = Bench::new(Kind::Readiness);
    bench.probe.initial_delay = millis(delay);
    bench.seen().state = running(started_at);
    assert_eq!(bench.round(), if due { Step::Probe } else { Step::Idle });
}

#[test]
fn liveness_is_disabled_until_started() {
    let mut bench = Bench::new(Kind::Liveness);
    bench.seen().started = Some(false);
    assert_eq!(bench.rounds(&bad()), [SUCCESS]);
    assert_eq!(bench.attempts, 0);
    bench.seen().started = Some(true);
    assert_eq!(bench.rounds(&bad()), [FAILURE]);
}

/// A status that does not say whether the container has started says that it has not.
#[rstest]
#[case::liveness(Kind::Liveness, Step::Idle)]
#[case::readiness(Kind::Readiness, Step::Idle)]
#[case::startup(Kind::Startup, Step::Probe)]
fn started_unsaid_is_not_started(#[case] kind: Kind, #[case] step: Step) {
    let mut bench = Bench::new(kind);
    bench.seen().started = None;
    assert_eq!(bench.round(), step);
}

#[test]
fn startup_is_idle_after_started() {
    let mut bench = Bench::new(Kind::Startup).thresholds(1, 2);
    assert_eq!(bench.rounds(&bad()), [UNKNOWN]);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    bench.seen().started = Some(true);
    assert_eq!(bench.rounds(&bad()), [SUCCESS; 3]);
    assert_eq!(bench.attempts, 2);
}

/// Not by the hold alone: a prober that comes later finds the container started.
#[test]
fn startup_of_a_started_container_is_never_probed() {
    let mut bench = Bench::new(Kind::Startup);
    bench.seen().started = Some(true);
    assert_eq!(bench.rounds(&bad()), [UNKNOWN; 3]);
    assert_eq!(bench.attempts, 0);
}

/// What is on hold says nothing more of its container, not even that it has stopped, and does not notice a
/// deletion.
#[rstest]
#[case::waiting(|bench: &mut Bench| bench.seen().state = ContainerState::Waiting)]
#[case::terminated(|bench: &mut Bench| bench.seen().state = ContainerState::Terminated { exit_code: 1 })]
#[case::deleting(|bench: &mut Bench| bench.pod.deleting = true)]
fn a_hold_comes_before_what_the_container_does(#[case] given: fn(&mut Bench)) {
    let mut bench = Bench::new(Kind::Startup);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    given(&mut bench);
    assert_eq!(bench.round(), Step::Idle);
    assert_eq!(bench.published(), SUCCESS);
}
