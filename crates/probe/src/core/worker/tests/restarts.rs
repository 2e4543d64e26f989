//! A container that has ended, and a prober that has started again.

use super::*;
use crate::core::{RestartAction, RestartRule};
use rstest::rstest;

fn on_exit(action: RestartAction, code: i32) -> RestartRule {
    RestartRule {
        action,
        among: true,
        values: vec![code],
    }
}

/// Whether a worker goes on when its container has ended, by the container's own policy and rules, in a pod
/// that never restarts.
#[rstest]
#[case::on_failure_failed(RestartPolicy::OnFailure, None, 1, true)]
#[case::on_failure_succeeded(RestartPolicy::OnFailure, None, 0, false)]
#[case::always_failed(RestartPolicy::Always, None, 1, true)]
#[case::always_succeeded(RestartPolicy::Always, None, 0, true)]
#[case::never_failed(RestartPolicy::Never, None, 1, false)]
#[case::never_succeeded(RestartPolicy::Never, None, 0, false)]
#[case::rule_that_matches(RestartPolicy::Never, Some(1), 1, true)]
#[case::rule_that_does_not_match(RestartPolicy::Never, Some(99), 1, false)]
fn a_worker_goes_on_if_its_container_runs_again(
    #[values(Kind::Liveness, Kind::Readiness, Kind::Startup)] kind: Kind,
    #[case] own: RestartPolicy,
    #[case] rule: Option<i32>,
    #[case] exit_code: i32,
    #[case] goes_on: bool,
) {
    let mut bench = Bench::new(kind);
    bench.container.restart_policy = Some(own);
    bench.container.restart_rules = rule
        .map(|code| on_exit(RestartAction::Restart, code))
        .into_iter()
        .collect();
    bench.seen().state = ContainerState::Terminated { exit_code };
    assert_eq!(bench.round(), if goes_on { Step::Idle } else { Step::Stop });
    assert_eq!(bench.published(), FAILURE);
}

/// The pod and its containers as [`crate::core::restart`] sees them, one with a rule that restarts all.
fn with_trigger(bench: &mut Bench, state: ContainerState) {
    let trigger = Container {
        name: "trigger".into(),
        restart_policy: Some(RestartPolicy::Never),
        restart_rules: vec![on_exit(RestartAction::RestartAllContainers, 1)],
        ..Container::default()
    };
    bench.pod.containers = vec![Arc::new(bench.container.clone()), Arc::new(trigger)];
    let mut seen = bench.seen().clone();
    (seen.name, seen.id, seen.state) = ("trigger".into(), "".into(), state);
    bench.status.as_mut().unwrap().containers.push(seen);
}

#[rstest]
#[case::by_its_own_rule(
    |bench: &mut Bench| {
        bench.container.restart_policy = Some(RestartPolicy::Never);
        bench.container.restart_rules = vec![on_exit(RestartAction::RestartAllContainers, 1)];
        bench.pod.containers = vec![Arc::new(bench.container.clone())];
        bench.seen().state = ContainerState::Terminated { exit_code: 1 };
    },
    true
)]
#[case::by_anothers_rule(
    |bench: &mut Bench| {
        with_trigger(bench, ContainerState::Terminated { exit_code: 1 });
        bench.seen().state = ContainerState::Terminated { exit_code: 1 };
    },
    true
)]
#[case::by_the_condition(
    |bench: &mut Bench| {
        bench.status.as_mut().unwrap().restarting_all = true;
        bench.seen().state = ContainerState::Terminated { exit_code: 1 };
    },
    true
)]
#[case::cleaned_up(
    |bench: &mut Bench| {
        with_trigger(bench, ContainerState::Waiting);
        bench.status.as_mut().unwrap().phase = Phase::Pending;
        bench.seen().state = ContainerState::Waiting;
    },
    true
)]
#[case::not_while_the_other_runs(
    |bench: &mut Bench| {
        with_trigger(bench, running(NOW.wall));
        bench.seen().state = ContainerState::Terminated { exit_code: 1 };
    },
    false
)]
fn a_worker_goes_on_if_all_containers_restart(
    #[values(Kind::Liveness, Kind::Readiness, Kind::Startup)] kind: Kind,
    #[case] given: fn(&mut Bench),
    #[case] goes_on: bool,
) {
    let mut bench = Bench::new(kind);
    given(&mut bench);
    assert_eq!(bench.round(), if goes_on { Step::Idle } else { Step::Stop });
    assert_eq!(bench.published(), FAILURE);
}

/// In a pod that never restarts.
#[rstest]
#[case::sidecar(Role::Sidecar, Some(RestartPolicy::Always), Step::Idle)]
#[case::regular(Role::Regular, None, Step::Stop)]
fn a_sidecar_that_has_ended_runs_again(
    #[case] role: Role,
    #[case] own: Option<RestartPolicy>,
    #[case] step: Step,
) {
    let mut bench = Bench::new(Kind::Startup);
    (bench.container.role, bench.container.restart_policy) = (role, own);
    bench.seen().started = Some(true);
    bench.seen().state = ContainerState::Terminated { exit_code: 0 };
    assert_eq!(bench.round(), step);
    assert_eq!(bench.published(), FAILURE);
}

const BEFORE: Duration = Duration::from_secs(NOW.wall.as_secs() - 300);
const AFTER: Duration = Duration::from_secs(NOW.wall.as_secs() + 300);

/// What is published first of a started container, by the gate, by when it started, by role and kind.
#[rstest]
#[case::gate_on_restart_readiness(true, BEFORE, Role::Regular, Kind::Readiness, FAILURE)]
#[case::gate_on_restart_liveness(true, BEFORE, Role::Regular, Kind::Liveness, SUCCESS)]
#[case::gate_on_restart_startup(true, BEFORE, Role::Regular, Kind::Startup, UNKNOWN)]
#[case::gate_on_new_readiness(true, AFTER, Role::Regular, Kind::Readiness, FAILURE)]
#[case::gate_on_new_liveness(true, AFTER, Role::Regular, Kind::Liveness, SUCCESS)]
#[case::gate_on_new_startup(true, AFTER, Role::Regular, Kind::Startup, UNKNOWN)]
#[case::gate_off_restart_readiness(false, BEFORE, Role::Regular, Kind::Readiness, None)]
#[case::gate_off_restart_liveness(false, BEFORE, Role::Regular, Kind::Liveness, None)]
#[case::gate_off_restart_startup(false, BEFORE, Role::Regular, Kind::Startup, None)]
#[case::gate_off_new_readiness(false, AFTER, Role::Regular, Kind::Readiness, FAILURE)]
#[case::gate_off_new_liveness(false, AFTER, Role::Regular, Kind::Liveness, SUCCESS)]
#[case::gate_off_new_startup(false, AFTER, Role::Regular, Kind::Startup, UNKNOWN)]
#[case::gate_off_restart_startup_sidecar(false, BEFORE, Role::Sidecar, Kind::Startup, SUCCESS)]
#[case::gate_off_restart_liveness_sidecar(false, BEFORE, Role::Sidecar, Kind::Liveness, None)]
#[case::gate_off_restart_readiness_sidecar(false, BEFORE, Role::Sidecar, Kind::Readiness, None)]
#[case::gate_on_restart_startup_sidecar(true, BEFORE, Role::Sidecar, Kind::Startup, UNKNOWN)]
fn what_a_prober_that_starts_again_says_first(
    #[case] gate: bool,
    #[case] started_at: Duration,
    #[case] role: Role,
    #[case] kind: Kind,
    #[case] published: Option<Reading>,
) {
    let mut bench = Bench::new(kind);
    bench.policy.change_status_on_restart = gate;
    bench.container.role = role;
    bench.container.restart_policy = (role == Role::Sidecar).then_some(RestartPolicy::Always);
    bench.probe.initial_delay = seconds(1000);
    bench.seen().started = Some(true);
    bench.seen().state = running(started_at);
    bench.round();
    assert_eq!(bench.published(), published);
    assert_eq!(bench.attempts, 0);
}

/// A container that started up to 10 s before the prober is new; so is one that does not run, or whose start
/// is not known.
#[rstest]
#[case::to_the_second(running(ago(seconds(10))), FAILURE)]
#[case::a_moment_more(running(ago(millis(10_001))), None)]
#[case::start_unknown(running(Duration::ZERO), FAILURE)]
#[case::waiting(ContainerState::Waiting, FAILURE)]
fn a_container_of_before_the_prober(#[case] state: ContainerState, #[case] published: Option<Reading>) {
    let mut bench = Bench::new(Kind::Readiness);
    bench.probe.initial_delay = Duration::MAX;
    bench.seen().state = state;
    bench.round();
    assert_eq!(bench.published(), published);
}

/// Nothing is said of such a container until a threshold is met.
#[test]
fn what_ran_before_is_spoken_of_after_a_threshold() {
    let mut bench = Bench::new(Kind::Readiness).thresholds(1, 3);
    bench.seen().state = running(BEFORE);
    assert_eq!(bench.rounds(&bad()), [None, None, FAILURE]);
    bench.new_container("test://2");
    bench.seen().state = running(AFTER);
    bench.now.wall = AFTER;
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
}

/// What is published belongs to a container: of the next one nothing is, until something is known of it.
#[test]
fn the_next_container_does_not_inherit() {
    let mut bench = Bench::new(Kind::Liveness);
    assert_eq!(bench.rounds(&good()), [SUCCESS]);
    bench.new_container("test://2");
    bench.seen().state = running(BEFORE);
    bench.probe.initial_delay = seconds(1000);
    bench.round();
    assert_eq!(bench.published(), None);
}

/// A prober whose clock stands at the beginning of time takes every container for new.
#[test]
fn a_clock_that_was_not_set_yet_makes_nothing_old() {
    let mut bench = Bench::new(Kind::Readiness);
    bench.policy.started.wall = seconds(5);
    bench.now.wall = seconds(7);
    bench.seen().state = running(seconds(1));
    bench.tick();
    assert_eq!(bench.published(), FAILURE);
}
