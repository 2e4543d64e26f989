//! Pods that an earlier process ran.

use super::*;
use crate::core::reported::PodState;
use rstest::rstest;

fn knows(containers: &[(&str, &str, Doing)]) -> PodState {
    let containers = containers.iter().map(|(name, id, doing)| {
        let observed = Observed {
            id: ContainerId((*id).into()),
            doing: doing.clone(),
        };
        ((*name).to_owned(), observed)
    });
    PodState {
        sandbox: sandbox(),
        containers: containers.collect(),
    }
}

fn running() -> Doing {
    Doing::Running { since: time(0) }
}

/// The next process finds the bench's object, and the provider answers.
fn again(bench: Bench, answer: Option<PodState>) -> (Bench, Vec<Action>) {
    let now = bench.now;
    let mut bench = Bench::new(bench.pod);
    bench.now = now;
    bench.wait(100);
    let asked = bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Adopt).then(|| Some(Input::Adopted(Ok(answer.clone()))))
    });
    (bench, asked)
}

/// One that has restarted once.
fn restarted(policy: &str) -> Bench {
    let mut bench = Bench::running(pod(&json!({"restartPolicy": policy, "containers": [
        {"name": "web", "image": "web:1", "readinessProbe": {"exec": {"command": ["x"]}}}]})));
    let end = bench.ends("web", 1);
    bench.play(end);
    bench
}

#[test]
fn a_pod_that_runs_is_taken_over_without_a_trace() {
    let mut old = restarted("Always");
    old.play(Input::Probed {
        container: "web".into(),
        id: "sim://web/1".into(),
        kind: evenkeel_probe::core::Kind::Readiness,
        reading: evenkeel_probe::core::Reading::Success,
    });
    let (before, times) = (old.container("web"), old.status().conditions);
    assert!(before.ready);
    let (bench, asked) = again(old, Some(knows(&[("web", "sim://web/1", running())])));
    assert_eq!(short(&asked), ["adopt"], "nothing is started, nothing is written");
    assert_eq!(bench.container("web"), before);
    assert_eq!(bench.status().conditions, times);
    assert_eq!(bench.container("web").restart_count, 1);
}

#[test]
fn a_taken_over_container_is_ready_until_its_probe_says_otherwise() {
    let old = restarted("Always");
    let (mut bench, _) = again(old, Some(knows(&[("web", "sim://web/1", running())])));
    assert!(!bench.container("web").ready, "it was not");
    bench.play(Input::Probed {
        container: "web".into(),
        id: "sim://web/1".into(),
        kind: evenkeel_probe::core::Kind::Readiness,
        reading: evenkeel_probe::core::Reading::Success,
    });
    assert!(bench.container("web").ready);
}

#[rstest]
#[case::always("Always", &["adopt", "start web 2"], "Running")]
#[case::on_failure("OnFailure", &["adopt", "start web 2"], "Running")]
fn a_container_that_the_provider_has_lost_counts_as_killed(
    #[case] policy: &str,
    #[case] deeds_: &[&str],
    #[case] phase: &str,
) {
    let (bench, asked) = again(restarted(policy), Some(knows(&[])));
    assert_eq!(deeds(&asked), deeds_);
    assert_eq!(bench.phase(), phase);
    let last = bench.container("web").last_state.unwrap().terminated.unwrap();
    assert_eq!(
        (
            last.exit_code,
            last.reason.as_deref(),
            last.container_id.as_deref()
        ),
        (137, Some("ContainerStatusUnknown"), Some("sim://web/1"))
    );
    assert_eq!(bench.container("web").restart_count, 2);
}

#[test]
fn a_lost_container_that_must_not_run_again_fails_its_pod() {
    let old = Bench::running(pod(&json!({"restartPolicy": "Never"})));
    let (bench, asked) = again(old, Some(knows(&[])));
    assert_eq!(short(&asked), ["adopt", "post Failed"]);
    assert_eq!(
        terminated(&bench.container("web")),
        (137, "ContainerStatusUnknown".to_owned())
    );
}

#[test]
fn a_pod_that_the_provider_does_not_know_is_made_anew() {
    let (bench, asked) = again(restarted("Always"), None);
    assert_eq!(deeds(&asked), ["adopt", "create", "start web 2"]);
    assert_eq!(bench.container("web").restart_count, 2);
}

#[test]
fn a_lost_pod_that_must_not_run_again_is_not_made_anew() {
    let old = Bench::running(pod(&json!({"restartPolicy": "Never"})));
    let (_, asked) = again(old, None);
    assert_eq!(short(&asked), ["adopt", "post Failed"]);
}

#[test]
fn a_pod_that_is_made_anew_is_initialised_anew() {
    let mut old = Bench::running(pod(&json!({"initContainers": [{"name": "one", "image": "i"}]})));
    let end = old.ends("one", 0);
    old.play(end);
    let (mut bench, asked) = again(old, None);
    assert_eq!(deeds(&asked), ["adopt", "create", "start one 1"]);
    let end = bench.ends("one", 0);
    assert_eq!(deeds(&bench.play(end)), ["start web 1"]);
}

#[test]
fn init_containers_that_are_done_do_not_run_again() {
    let mut old = Bench::running(pod(&json!({"initContainers": [{"name": "one", "image": "i"}]})));
    let end = old.ends("one", 0);
    old.play(end);
    let (bench, asked) = again(old, Some(knows(&[("web", "sim://web/0", running())])));
    assert_eq!(short(&asked), ["adopt"]);
    assert!(bench.container("one").ready);
}

#[test]
fn an_end_that_nobody_saw_is_made_up_for() {
    let (bench, asked) = again(
        restarted("Always"),
        Some(knows(&[("web", "sim://web/1", Doing::Ended(exit(7)))])),
    );
    assert_eq!(deeds(&asked), ["adopt", "start web 2"]);
    let last = bench.container("web").last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 7);
}

#[test]
fn a_restart_that_no_status_speaks_of_is_counted() {
    let (bench, asked) = again(
        restarted("Always"),
        Some(knows(&[("web", "sim://web/2", running())])),
    );
    assert_eq!(short(&asked), ["adopt", "post Running"]);
    let web = bench.container("web");
    assert_eq!(
        (web.restart_count, web.container_id.as_deref()),
        (2, Some("sim://web/2"))
    );
}

#[test]
fn a_provider_that_cannot_say_is_asked_again_and_nothing_is_written_meanwhile() {
    let old = restarted("Always");
    let before = old.pod.status.clone();
    let mut bench = Bench::new(old.pod);
    let busy = |action: &Action| {
        matches!(action, Action::Adopt).then(|| Some(Input::Adopted(Err(fault(FaultKind::Later, "Busy")))))
    };
    let asked = bench.play_but(Input::Seen, busy);
    assert_eq!(
        (short(&asked), events(&asked)),
        (vec!["adopt".to_owned()], vec![])
    );
    for delay in [2, 3, 6] {
        bench.wait(delay);
        let asked = bench.play_but(Input::Tick, busy);
        assert_eq!(short(&asked), ["adopt"]);
        assert_eq!(
            events(&asked),
            [("ProviderStatusFailed", "Busy it says".to_owned())]
        );
    }
    assert_eq!(bench.pod.status, before);
    assert_eq!(
        bench.status().container_statuses,
        before.unwrap().container_statuses
    );
}

#[test]
fn an_end_that_is_told_before_the_provider_has_answered_is_not_lost() {
    let mut bench = Bench::new(restarted("Always").pod);
    bench.step(Input::Seen);
    bench.step(Input::Observed {
        container: "web".into(),
        observed: Observed {
            id: ContainerId("sim://web/1".into()),
            doing: Doing::Ended(exit(9)),
        },
    });
    let asked = bench.play(Input::Adopted(Ok(Some(knows(&[(
        "web",
        "sim://web/1",
        running(),
    )])))));
    assert_eq!(deeds(&asked), ["start web 2"]);
}

#[test]
fn a_new_pod_is_not_asked_for() {
    assert_eq!(deeds(&Bench::running(web()).log), ["create", "start web 0"]);
}

#[test]
fn a_pod_that_was_there_before_is_asked_for_even_if_no_status_says_that_it_runs() {
    let mut bench = Bench::of(Machine::new(&web()).found(), web());
    let state = knows(&[("web", "sim://web/0", running())]);
    let asked = bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Adopt).then(|| Some(Input::Adopted(Ok(Some(state.clone())))))
    });
    assert_eq!(short(&asked), ["adopt", "post Running"]);
    assert_eq!(bench.container("web").restart_count, 0);
}

#[test]
fn a_state_that_is_empty_harms_nobody() {
    let old = Bench::running(web());
    let (bench, asked) = again(old, Some(PodState::default()));
    assert_eq!(deeds(&asked), ["adopt", "start web 1"]);
    assert_eq!(bench.status().pod_ip, None);
}
