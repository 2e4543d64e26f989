//! Conditions beside the kubelet's, and faults that are told of.

use super::*;
use crate::core::reported::PodState;
use evenkeel_probe::core::{Kind, Reading};

fn with_extras(pod: Pod) -> Bench {
    let mut bench = Bench::new(pod);
    let extra = |kind: &str, holds| Extra {
        kind: kind.to_owned(),
        holds,
    };
    bench.settings.conditions = vec![
        extra("a/installed", Holds::ContainersRunning),
        extra("a/ready", Holds::ContainersReady),
    ];
    bench
}

#[test]
fn extra_conditions_are_written_beside_the_kubelets_and_satisfy_gates() {
    let spec = json!({
        "readinessGates": [{"conditionType": "a/ready"}],
        "containers": [{"name": "web", "image": "web:1", "readinessProbe": {"tcpSocket": {"port": 1}}}],
    });
    let mut bench = with_extras(pod(&spec));
    bench.play(Input::Seen);
    assert_eq!(bench.condition("a/installed").0, "True");
    assert_eq!(bench.condition("a/ready").1, "ContainersNotReady");
    assert_eq!(bench.condition("Ready").1, "ContainersNotReady");
    let id = bench.machine.container_id("web", false).unwrap();
    let written = bench.play(Input::Probed {
        container: "web".into(),
        id: id.0,
        kind: Kind::Readiness,
        reading: Reading::Success,
    });
    assert_eq!(
        short(&written),
        ["post Running"],
        "one write tells of the condition and of its gate"
    );
    assert_eq!(bench.condition("Ready").0, "True");
}

#[test]
fn a_container_that_cannot_start_is_named_by_the_extra_condition_with_its_cause() {
    let mut bench = with_extras(web());
    bench.play_but(Input::Seen, |action| match action {
        Action::Start { container, .. } => Some(Some(Input::Started {
            container: container.clone(),
            result: Err(Trouble::Fault(fault(FaultKind::Later, "InstallFailed"))),
        })),
        _ => None,
    });
    let (status, reason, message) = bench.condition("a/installed");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "ContainersNotRunning")
    );
    assert_eq!(
        message,
        "containers that do not run: [web], web: InstallFailed it says"
    );
}

#[test]
fn a_restart_of_the_kubelet_keeps_since_when_extra_conditions_hold() {
    let mut bench = with_extras(web());
    bench.play(Input::Seen);
    let since = |bench: &Bench| {
        let conditions = bench.status().conditions.unwrap();
        let found = conditions.into_iter().find(|one| one.type_ == "a/installed");
        found.unwrap().last_transition_time
    };
    let before = since(&bench);
    bench.wait(100);
    bench.machine = Machine::new(&bench.pod);
    let state = PodState {
        sandbox: sandbox(),
        containers: [(
            "web".to_owned(),
            Observed {
                id: ContainerId("sim://web/0".into()),
                doing: Doing::Running { since: time(0) },
            },
        )]
        .into(),
    };
    bench.play_but(Input::Seen, |action| match action {
        Action::Adopt => Some(Some(Input::Adopted(Ok(Some(state.clone()))))),
        _ => None,
    });
    assert_eq!(bench.condition("a/installed").0, "True");
    assert_eq!(since(&bench), before);
}

#[test]
fn a_fatal_fault_of_a_start_fails_the_pod_where_that_is_wanted_and_else_waits() {
    let fatal = |action: &Action| match action {
        Action::Start { container, .. } => Some(Some(Input::Started {
            container: container.clone(),
            result: Err(Trouble::Fault(fault(FaultKind::Fatal, "InstallFailed"))),
        })),
        _ => None,
    };
    let mut bench = Bench::new(web());
    bench.play_but(Input::Seen, fatal);
    assert_eq!(bench.phase(), "Pending");
    assert_eq!(waiting(&bench.container("web")).0, "InstallFailed");
    bench.wait(10);
    assert_eq!(short(&bench.play(Input::Tick)), ["start web 0", "post Running"]);

    let mut bench = Bench::new(web());
    bench.settings.fail_refused = true;
    let asked = bench.play_but(Input::Seen, fatal);
    assert_eq!(bench.phase(), "Failed", "{asked:?}");
    let status = bench.status();
    assert_eq!(status.reason.as_deref(), Some("InstallFailed"));
    assert_eq!(status.message.as_deref(), Some("InstallFailed it says"));
}

#[test]
fn a_container_that_cannot_be_ended_is_told_of_once_and_ended_again() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    let refuse = |action: &Action| match action {
        Action::Stop { container, .. } => Some(Some(Input::Stopped {
            container: container.clone(),
            result: Err(fault(FaultKind::Later, "Conflict")),
        })),
        _ => None,
    };
    let asked = bench.play_but(Input::Seen, refuse);
    let said = |asked: &[Action]| {
        events(asked)
            .iter()
            .filter(|(reason, _)| *reason == "FailedKillPod")
            .count()
    };
    assert_eq!(said(&asked), 1, "{asked:?}");
    bench.wait_for(&asked);
    let asked = bench.play_but(Input::Tick, refuse);
    assert_eq!(said(&asked), 0);
    bench.wait_for(&asked);
    let asked = bench.play(Input::Tick);
    assert!(deeds(&asked).contains(&"remove".to_owned()), "{asked:?}");
}
