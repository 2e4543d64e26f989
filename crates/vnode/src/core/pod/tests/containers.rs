//! Which containers run when: init containers, sidecars, restarts and their delays.

use super::*;
use evenkeel_probe::core::{Kind, Reading, RestartAction, RestartRule};
use rstest::rstest;

fn init(spec: &Value) -> Pod {
    pod(&json!({"restartPolicy": spec["policy"], "initContainers": spec["init"]}))
}

/// Starts come off; ends are told by the test.
fn two_inits(policy: &str) -> Bench {
    Bench::running(init(&json!({"policy": policy, "init": [
        {"name": "one", "image": "i"}, {"name": "two", "image": "i"}]})))
}

#[test]
fn init_containers_run_one_after_the_other_and_before_the_rest() {
    let mut bench = two_inits("Always");
    assert_eq!(deeds(&bench.log), ["create", "start one 0"]);
    assert_eq!(bench.phase(), "Pending");
    assert_eq!(waiting(&bench.container("web")).0, "PodInitializing");
    assert_eq!(
        bench.condition("Initialized"),
        (
            "False".to_owned(),
            "ContainersNotInitialized".to_owned(),
            "containers with incomplete status: [one two]".to_owned()
        )
    );
    let end = bench.ends("one", 0);
    assert_eq!(deeds(&bench.play(end)), ["start two 0"]);
    let end = bench.ends("two", 0);
    assert_eq!(deeds(&bench.play(end)), ["start web 0"]);
    assert_eq!(bench.phase(), "Running");
    assert_eq!(bench.condition("Initialized").0, "True");
    assert!(bench.container("one").ready && bench.container("two").ready);
}

#[rstest]
#[case::always("Always", true)]
#[case::on_failure("OnFailure", true)]
#[case::never("Never", false)]
fn an_init_container_that_fails_runs_again_or_fails_the_pod(#[case] policy: &str, #[case] again: bool) {
    let mut bench = two_inits(policy);
    let end = bench.ends("one", 1);
    let asked = bench.play(end);
    if again {
        assert_eq!(deeds(&asked), ["start one 1"]);
        assert_eq!(bench.phase(), "Pending");
    } else {
        assert_eq!(short(&asked), ["post Failed"]);
        assert_eq!(waiting(&bench.container("two")).0, "PodInitializing");
    }
}

#[test]
fn what_follows_a_sidecar_begins_once_it_has_started() {
    let mut bench = Bench::running(init(&json!({"policy": "Never", "init": [
        {"name": "side", "image": "s", "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["x"]}}},
        {"name": "one", "image": "i"}]})));
    assert_eq!(deeds(&bench.log), ["create", "start side 0"]);
    let probed = Input::Probed {
        container: "side".into(),
        id: "sim://side/0".into(),
        kind: Kind::Startup,
        reading: Reading::Success,
    };
    assert_eq!(deeds(&bench.play(probed)), ["start one 0"]);
    // A sidecar that ends meanwhile is kept up, and holds nothing back.
    let end = bench.ends("side", 0);
    assert_eq!(deeds(&bench.play(end)), ["start side 1"]);
    let end = bench.ends("one", 0);
    assert_eq!(deeds(&bench.play(end)), ["start web 0"]);
    assert_eq!(bench.phase(), "Running");
}

#[test]
fn a_pod_that_is_done_stops_its_sidecars_before_it_says_so() {
    let mut bench = Bench::running(init(&json!({"policy": "OnFailure", "init": [
        {"name": "side", "image": "s", "restartPolicy": "Always"}]})));
    let end = bench.ends("web", 0);
    let asked = bench.play_but(end, |action| {
        matches!(action, Action::Stop { .. }).then_some(None)
    });
    assert_eq!(short(&asked), ["stop side 30s", "post Running"]);
    let asked = bench.play(Input::Stopped {
        container: "side".into(),
        result: Ok(exit(143)),
    });
    assert_eq!(short(&asked), ["post Succeeded"]);
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "PodCompleted".to_owned(), String::new())
    );
}

#[rstest]
#[case::always_after_success("Always", 0, Some("Running"))]
#[case::always_after_failure("Always", 1, Some("Running"))]
#[case::on_failure_after_success("OnFailure", 0, None)]
#[case::on_failure_after_failure("OnFailure", 1, Some("Running"))]
#[case::never_after_success("Never", 0, None)]
#[case::never_after_failure("Never", 1, None)]
fn a_container_runs_again_by_policy(#[case] policy: &str, #[case] code: i32, #[case] again: Option<&str>) {
    let mut bench = Bench::running(pod(&json!({"restartPolicy": policy})));
    let end = bench.ends("web", code);
    let asked = bench.play(end);
    if let Some(phase) = again {
        assert_eq!(deeds(&asked), ["start web 1"]);
        assert_eq!(bench.phase(), phase);
        let web = bench.container("web");
        assert_eq!(web.restart_count, 1);
        let last = web.last_state.unwrap().terminated.unwrap();
        assert_eq!(
            (last.exit_code, last.container_id.as_deref()),
            (code, Some("sim://web/0"))
        );
    } else {
        assert_eq!(deeds(&asked), [""; 0]);
        assert_eq!(bench.phase(), if code == 0 { "Succeeded" } else { "Failed" });
    }
}

#[test]
fn a_container_s_own_policy_goes_before_the_pod_s() {
    let mut bench = Bench::running(pod(&json!({"restartPolicy": "Never", "containers": [
        {"name": "web", "image": "web:1", "restartPolicy": "OnFailure"}]})));
    let end = bench.ends("web", 1);
    assert_eq!(deeds(&bench.play(end)), ["start web 1"]);
    let end = bench.ends("web", 0);
    assert_eq!(short(&bench.play(end)), ["post Succeeded"]);
}

#[test]
fn restarts_wait_longer_and_longer_and_start_afresh_after_a_quiet_time() {
    let mut bench = Bench::running(web());
    let end = bench.ends("web", 1);
    assert_eq!(deeds(&bench.play(end)), ["start web 1"], "the first at once");
    for (attempt, delay) in [(2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300)] {
        bench.wait(1);
        let end = bench.ends("web", 1);
        let asked = bench.play(end);
        assert_eq!(deeds(&asked), [""; 0]);
        assert_eq!(wake(&asked), Some(delay));
        assert_eq!(
            events(&asked),
            [(
                "BackOff",
                "Back-off restarting failed container web in pod web_default(uid-1)".to_owned()
            )]
        );
        let web = bench.container("web");
        let go = [
            (10, "10s"),
            (20, "20s"),
            (40, "40s"),
            (80, "1m20s"),
            (160, "2m40s"),
            (300, "5m0s"),
        ];
        let go = go.iter().find(|(seconds, _)| *seconds == delay).unwrap().1;
        let message = format!("back-off {go} restarting failed container=web pod=web_default(uid-1)");
        assert_eq!(waiting(&web), ("CrashLoopBackOff".to_owned(), message));
        assert_eq!(web.last_state.unwrap().terminated.unwrap().exit_code, 1);
        assert_eq!(bench.phase(), "Running", "a pod that restarts is running");
        bench.wait(delay - 1);
        assert_eq!(deeds(&bench.play(Input::Tick)), [""; 0]);
        bench.wait(1);
        assert_eq!(deeds(&bench.play(Input::Tick)), [format!("start web {attempt}")]);
    }
    bench.wait(601);
    let end = bench.ends("web", 1);
    assert_eq!(deeds(&bench.play(end)), ["start web 9"]);
}

#[test]
fn an_end_that_is_told_before_the_start_is_answered_is_not_lost() {
    let mut bench = Bench::new(web());
    bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Start { .. }).then_some(None)
    });
    bench.step(Input::Observed {
        container: "web".into(),
        observed: Observed {
            id: ContainerId("sim://web/0".into()),
            doing: Doing::Ended(exit(3)),
        },
    });
    let answer = Input::Started {
        container: "web".into(),
        result: Ok(started("sim://web/0")),
    };
    assert_eq!(deeds(&bench.play(answer)), ["start web 1"]);
    let web = bench.container("web");
    assert_eq!(web.last_state.unwrap().terminated.unwrap().exit_code, 3);
}

#[test]
fn reports_about_instances_that_are_over_change_nothing() {
    let mut bench = Bench::running(web());
    let end = bench.ends("web", 1);
    bench.play(end.clone());
    assert_eq!(bench.container("web").restart_count, 1);
    assert_eq!(bench.play(end), []);
}

#[test]
fn a_start_that_nobody_waits_for_any_more_is_found_to_have_come_off() {
    let mut bench = Bench::new(web());
    let late = fault(FaultKind::Later, "Timeout");
    bench.play_but(Input::Seen, |action| match action {
        Action::Start { container, .. } => Some(Some(Input::Started {
            container: container.clone(),
            result: Err(Trouble::Fault(late.clone())),
        })),
        _ => None,
    });
    bench.play(Input::Observed {
        container: "web".into(),
        observed: Observed {
            id: ContainerId("sim://web/0".into()),
            doing: Doing::Running { since: time(0) },
        },
    });
    assert_eq!(bench.phase(), "Running");
    bench.wait(100);
    assert_eq!(
        deeds(&bench.play(Input::Tick)),
        [""; 0],
        "it is not started twice"
    );
    assert_eq!(bench.container("web").restart_count, 0);
}

#[rstest]
#[case::config(Trouble::Config("secret \"s\" not found".to_owned()), "CreateContainerConfigError", "secret \"s\" not found", 10, 10)]
#[case::volume(Trouble::Volume("no".to_owned()), "ContainerCreating", "", 1, 2)]
#[case::fault(
    Trouble::Fault(fault(FaultKind::Later, "ErrImagePull")),
    "ErrImagePull",
    "ErrImagePull it says",
    10,
    20
)]
fn a_start_that_fails_is_told_and_tried_again(
    #[case] trouble: Trouble,
    #[case] reason: &str,
    #[case] message: &str,
    #[case] delay: u64,
    #[case] next: u64,
) {
    let mut bench = Bench::new(web());
    let failing = |action: &Action| match action {
        Action::Start { container, .. } => Some(Some(Input::Started {
            container: container.clone(),
            result: Err(trouble.clone()),
        })),
        _ => None,
    };
    let asked = bench.play_but(Input::Seen, failing);
    let about = |asked: &[Action], least: u64| {
        let wake = wake(asked).expect("it is tried again");
        assert!(
            wake >= least && wake <= least + least / 2,
            "{wake} s, not {least} s"
        );
    };
    about(&asked, delay);
    let web = bench.container("web");
    assert_eq!(waiting(&web), (reason.to_owned(), message.to_owned()));
    assert_eq!(bench.phase(), "Pending");
    bench.wait_for(&asked);
    let asked = bench.play_but(Input::Tick, failing);
    assert_eq!(deeds(&asked), ["start web 0"]);
    about(&asked, next);
    bench.wait_for(&asked);
    bench.play(Input::Tick);
    assert_eq!(
        (bench.phase(), bench.container("web").restart_count),
        ("Running".to_owned(), 0)
    );
}

#[test]
fn a_new_image_is_tried_at_once() {
    let mut bench = Bench::new(web());
    bench.play_but(Input::Seen, |action| match action {
        Action::Start { container, .. } => Some(Some(Input::Started {
            container: container.clone(),
            result: Err(Trouble::Fault(fault(FaultKind::Later, "ErrImagePull"))),
        })),
        _ => None,
    });
    bench.pod.spec.as_mut().unwrap().containers[0].image = Some("web:2".to_owned());
    bench.bump();
    assert_eq!(deeds(&bench.play(Input::Seen)), ["start web 0"]);
    assert_eq!(bench.container("web").image, "web:2");
}

#[rstest]
#[case::never("Never", "Failed")]
#[case::always("Always", "Running")]
fn a_container_that_can_never_start_has_failed(#[case] policy: &str, #[case] phase: &str) {
    let mut bench = Bench::new(pod(&json!({"restartPolicy": policy})));
    let mut first = true;
    bench.play_but(Input::Seen, |action| match action {
        Action::Start { container, .. } if std::mem::take(&mut first) => Some(Some(Input::Started {
            container: container.clone(),
            result: Err(Trouble::Fault(fault(FaultKind::Never, "BadModule"))),
        })),
        _ => None,
    });
    assert_eq!(bench.phase(), phase);
    if phase == "Failed" {
        assert_eq!(terminated(&bench.container("web")), (128, "BadModule".to_owned()));
    } else {
        assert_eq!(bench.container("web").restart_count, 1);
    }
}

#[test]
fn a_container_with_a_new_image_is_stopped_and_runs_again_even_where_nothing_restarts() {
    let mut bench = Bench::running(pod(&json!({"restartPolicy": "Never"})));
    bench.pod.spec.as_mut().unwrap().containers[0].image = Some("web:2".to_owned());
    bench.bump();
    let asked = bench.play(Input::Seen);
    assert_eq!(
        events(&asked)[0],
        (
            "Killing",
            "Container web definition changed, will be restarted".to_owned()
        )
    );
    assert_eq!(deeds(&asked), ["stop web 30s", "start web 1"]);
    assert_eq!(bench.phase(), "Running");
    assert_eq!(bench.container("web").image, "web:2");
}

#[test]
fn an_ephemeral_container_is_started_once() {
    let mut bench = Bench::running(web());
    bench.pod.spec.as_mut().unwrap().ephemeral_containers =
        Some(serde_json::from_value(json!([{"name": "debug", "image": "busybox"}])).unwrap());
    bench.bump();
    assert_eq!(deeds(&bench.play(Input::Seen)), ["start debug 0"]);
    let debug = bench.container("debug");
    assert!(debug.state.unwrap().running.is_some());
    assert_eq!((debug.started, debug.ready), (None, false));
    let end = bench.ends("debug", 1);
    assert_eq!(deeds(&bench.play(end)), [""; 0]);
    assert_eq!(bench.phase(), "Running");
}

fn rules(action: RestartAction, among: bool, values: &[i32]) -> Vec<(Arc<str>, Vec<RestartRule>)> {
    let rule = RestartRule {
        action,
        among,
        values: values.to_vec(),
    };
    vec![("web".into(), vec![rule])]
}

#[test]
fn a_rule_restarts_a_container_for_its_exit_code() {
    let pod = pod(&json!({"restartPolicy": "Never", "containers": [
        {"name": "web", "image": "web:1", "restartPolicy": "Never"}]}));
    let machine = Machine::new(&pod).with_rules(rules(RestartAction::Restart, true, &[42]));
    let mut bench = Bench::of(machine, pod);
    bench.play(Input::Seen);
    let end = bench.ends("web", 42);
    assert_eq!(deeds(&bench.play(end)), ["start web 1"]);
    let end = bench.ends("web", 1);
    assert_eq!(short(&bench.play(end)), ["post Failed"]);
}

#[test]
fn a_rule_restarts_all_containers_from_the_first_init_container_on() {
    let pod = pod(&json!({
        "restartPolicy": "Never",
        "initContainers": [
            {"name": "one", "image": "i"}, {"name": "side", "image": "s", "restartPolicy": "Always"}],
        "containers": [
            {"name": "web", "image": "web:1", "restartPolicy": "Never"}, {"name": "other", "image": "o"}]}));
    let machine = Machine::new(&pod).with_rules(rules(RestartAction::RestartAllContainers, true, &[42]));
    let mut bench = Bench::of(machine, pod);
    bench.play(Input::Seen);
    let end = bench.ends("one", 0);
    assert_eq!(
        deeds(&bench.play(end)),
        ["start side 0", "start web 0", "start other 0"]
    );
    assert_eq!(bench.condition("AllContainersRestarting").0, "False");
    let end = bench.ends("web", 42);
    let hang = |action: &Action| matches!(action, Action::Stop { .. }).then_some(None);
    assert_eq!(
        deeds(&bench.play_but(end, hang)),
        ["stop other 2s", "stop side 2s"]
    );
    assert_eq!(
        bench.condition("AllContainersRestarting"),
        (
            "True".to_owned(),
            "RestartAllContainersStarted".to_owned(),
            "container exited with restart policy rule".to_owned()
        )
    );
    let stopped = |container: &str| Input::Stopped {
        container: container.into(),
        result: Ok(exit(0)),
    };
    bench.play(stopped("other"));
    assert_eq!(deeds(&bench.play(stopped("side"))), ["start one 1"]);
    assert_eq!(
        bench.condition("Initialized").0,
        "True",
        "who was initialised stays so"
    );
    let end = bench.ends("one", 0);
    assert_eq!(
        deeds(&bench.play(end)),
        ["start side 1", "start web 1", "start other 1"]
    );
    assert_eq!(bench.phase(), "Running");
}
