//! What the prober is told, and what becomes of what it says.

use super::*;
use evenkeel_probe::core::{Kind, Phase, Reading};
use rstest::rstest;

fn probed(policy: &str, role: &str) -> Pod {
    let probe = json!({"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 5});
    let mut container = json!({"name": "app", "image": "a", "livenessProbe": probe, "startupProbe": probe,
        "readinessProbe": {"exec": {"command": ["x"]}}});
    if role == "sidecar" {
        container["restartPolicy"] = json!("Always");
        pod(&json!({"restartPolicy": policy, "initContainers": [container]}))
    } else {
        pod(&json!({"restartPolicy": policy, "containers": [container]}))
    }
}

fn says(id: &str, kind: Kind, reading: Reading) -> Input {
    Input::Probed {
        container: "app".into(),
        id: id.into(),
        kind,
        reading,
    }
}

fn orders(actions: &[Action]) -> Vec<&'static str> {
    let orders = actions.iter().filter_map(|action| match action {
        Action::Probe(ProbeOrder::Watch) => Some("watch"),
        Action::Probe(ProbeOrder::Status(_)) => Some("status"),
        Action::Probe(ProbeOrder::Terminating) => Some("terminating"),
        Action::Probe(ProbeOrder::Forget) => Some("forget"),
        _ => None,
    });
    orders.collect()
}

#[test]
fn a_pod_without_probes_is_no_business_of_the_prober() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    bench.play(Input::Seen);
    assert_eq!(orders(&bench.log), [""; 0]);
}

#[test]
fn the_prober_hears_of_the_pod_its_status_and_its_end() {
    let mut bench = Bench::running(probed("Always", "regular"));
    assert_eq!(orders(&bench.log), ["watch", "status", "status"]);
    let last = bench.log.iter().rev().find_map(|action| match action {
        Action::Probe(ProbeOrder::Status(status)) => Some(status.clone()),
        _ => None,
    });
    let last = last.unwrap();
    assert_eq!(
        (last.phase, last.address),
        (Phase::Running, Some("10.1.0.7".parse().unwrap()))
    );
    assert_eq!(&*last.container("app").unwrap().id, "sim://app/0");
    assert_eq!(
        orders(&bench.play(Input::Seen)),
        [""; 0],
        "what it knows it is not told again"
    );
    bench.delete(30);
    assert_eq!(orders(&bench.play(Input::Seen)), ["terminating", "forget"]);
}

#[test]
fn a_container_starts_and_is_ready_as_its_probes_say() {
    let mut bench = Bench::running(probed("Always", "regular"));
    let is = |bench: &Bench| {
        (
            bench.container("app").started.unwrap(),
            bench.container("app").ready,
        )
    };
    assert_eq!(is(&bench), (false, false));
    bench.play(says("sim://app/0", Kind::Startup, Reading::Success));
    assert_eq!(is(&bench), (true, false));
    bench.play(says("sim://app/0", Kind::Readiness, Reading::Success));
    assert_eq!(is(&bench), (true, true));
    assert_eq!(bench.condition("Ready").0, "True");
    for unready in [Reading::Failure, Reading::Unknown] {
        bench.play(says("sim://app/0", Kind::Readiness, unready));
        assert_eq!(is(&bench), (true, false));
    }
    assert_eq!(
        bench.condition("Ready"),
        (
            "False".to_owned(),
            "ContainersNotReady".to_owned(),
            "containers with unready status: [app]".to_owned()
        )
    );
    assert_eq!(
        bench.container("app").restart_count,
        0,
        "readiness restarts nothing"
    );
}

#[test]
fn a_reading_of_another_instance_is_void() {
    let mut bench = Bench::running(probed("Always", "regular"));
    for kind in Kind::ALL {
        assert_eq!(bench.play(says("sim://app/9", kind, Reading::Failure)), []);
    }
}

#[rstest]
#[case::liveness(Kind::Liveness, "Container app failed liveness probe, will be restarted")]
#[case::startup(Kind::Startup, "Container app failed startup probe, will be restarted")]
fn a_probe_that_fails_restarts_the_container(#[case] kind: Kind, #[case] message: &str) {
    let mut bench = Bench::running(probed("Always", "regular"));
    let asked = bench.play(says("sim://app/0", kind, Reading::Failure));
    assert_eq!(
        deeds(&asked),
        ["stop app 5s", "start app 1"],
        "in the probe's own time"
    );
    assert_eq!(events(&asked)[0], ("Killing", message.to_owned()));
    assert!(!bench.container("app").ready);
}

/// A container that heeds TERM ends with 0, and runs again all the same.
#[rstest]
#[case::on_failure("OnFailure", &["stop app 5s", "start app 1"])]
#[case::never("Never", &["stop app 5s"])]
fn a_kill_restarts_by_policy(#[case] policy: &str, #[case] expected: &[&str]) {
    let mut bench = Bench::running(probed(policy, "regular"));
    let asked = bench.play(says("sim://app/0", Kind::Liveness, Reading::Failure));
    assert_eq!(deeds(&asked), expected);
}

#[test]
fn a_sidecar_whose_probe_fails_runs_again_even_where_nothing_restarts() {
    let mut bench = Bench::running(probed("Never", "sidecar"));
    bench.play(says("sim://app/0", Kind::Startup, Reading::Success));
    let asked = bench.play(says("sim://app/0", Kind::Liveness, Reading::Failure));
    assert_eq!(deeds(&asked), ["stop app 5s", "start app 1"]);
    assert_eq!(events(&asked)[0].1, "Init container app failed liveness probe");
}

#[test]
fn restart_counts_only_grow_while_a_probe_goes_on_failing() {
    let mut bench = Bench::running(probed("Always", "regular"));
    let mut counts = Vec::new();
    for attempt in 0..5 {
        bench.play(says(
            &format!("sim://app/{attempt}"),
            Kind::Liveness,
            Reading::Failure,
        ));
        bench.wait(300);
        bench.play(Input::Tick);
        counts.push(bench.container("app").restart_count);
    }
    assert_eq!(counts, [1, 2, 3, 4, 5]);
}

#[test]
fn a_stalled_container_is_not_ready_whatever_its_probes_say() {
    let mut bench = Bench::running(web());
    assert_eq!(bench.condition("Ready").0, "True");
    let report = |doing| Input::Observed {
        container: "web".into(),
        observed: Observed {
            id: ContainerId("sim://web/0".into()),
            doing,
        },
    };
    bench.play(report(Doing::Stalled {
        since: time(0),
        reason: "Deactivated".to_owned(),
        message: "another version is active".to_owned(),
    }));
    assert!(!bench.container("web").ready);
    assert_eq!(
        bench.condition("ContainersReady"),
        (
            "False".to_owned(),
            "Deactivated".to_owned(),
            "containers with unready status: [web], web: Deactivated: another version is active".to_owned()
        )
    );
    bench.play(report(Doing::Running { since: time(0) }));
    assert_eq!(bench.condition("Ready").0, "True");
}

#[test]
fn changed_settings_of_probes_reach_the_prober() {
    let mut bench = Bench::running(probed("Always", "regular"));
    bench.pod.metadata.annotations = Some([("evenkeel.io/probes".to_owned(), "{}".to_owned())].into());
    bench.bump();
    assert_eq!(orders(&bench.play(Input::Seen)), ["watch"]);
}
