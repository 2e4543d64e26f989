//! Upstream's tables for `UpdatePodStatus`.

use super::*;
use std::collections::HashMap;

/// What an engine reports of these containers.
fn reports(engine: &mut Engine, status: PodStatus, now: Now) -> HashMap<String, (bool, bool)> {
    let reports = engine.update_status("p", status, now);
    let row = |report: Report| (report.container.to_string(), (report.started, report.ready));
    reports.into_iter().map(row).collect()
}

#[test]
fn started_and_ready_are_upstreams_for_both_compats() {
    const READY: (Kind, bool) = (Kind::Readiness, true);
    const UNREADY: (Kind, bool) = (Kind::Readiness, false);
    const STARTED: (Kind, bool) = (Kind::Startup, true);
    const UNSTARTED: (Kind, bool) = (Kind::Startup, false);
    let run = ContainerState::Running {
        started_at: secs(95).wall,
    };
    let ended = ContainerState::Terminated { exit_code: 0 };
    let failed = ContainerState::Terminated { exit_code: 1 };
    // Name, role, probe and whether it succeeds, state, started, ready.
    let rows = [
        ("unprobed", Role::Regular, None, run, true, true),
        ("ready", Role::Regular, Some(READY), run, true, true),
        (
            "pending",
            Role::Regular,
            None,
            ContainerState::Waiting,
            false,
            false,
        ),
        ("unready", Role::Regular, Some(UNREADY), run, true, false),
        (
            "startup not done",
            Role::Regular,
            Some(UNSTARTED),
            run,
            false,
            false,
        ),
        ("startup done", Role::Regular, Some(STARTED), run, true, true),
        ("terminated", Role::Regular, Some(READY), ended, false, false),
        ("init done", Role::Init, None, ended, false, true),
        ("init failed", Role::Init, None, failed, false, false),
        ("init running", Role::Init, None, run, true, false),
        ("sidecar", Role::Sidecar, None, run, true, true),
        ("sidecar ready", Role::Sidecar, Some(READY), run, true, true),
        ("sidecar unready", Role::Sidecar, Some(UNREADY), run, true, false),
        (
            "sidecar starts",
            Role::Sidecar,
            Some(UNSTARTED),
            run,
            false,
            false,
        ),
        ("sidecar started", Role::Sidecar, Some(STARTED), run, true, true),
        ("sidecar ended", Role::Sidecar, None, ended, false, false),
    ];
    for compat in [Compat::Kubelet, Compat::Strict] {
        let mut engine = engine(compat);
        let containers = rows.iter().map(|(name, role, made, ..)| {
            let probes: Vec<_> = made.iter().map(|(kind, _)| (*kind, probe())).collect();
            container(name, *role, &probes)
        });
        engine.add_pod(pod("p", containers), secs(100));
        let all = |state: &dyn Fn(ContainerState) -> ContainerState| {
            status(
                rows.iter()
                    .map(|(name, _, _, own, ..)| in_state(name, &format!("c://{name}"), state(*own))),
            )
        };
        engine.update_status("p", all(&|_| run), secs(100));
        drive(&mut engine, secs(100), |key, now| {
            let row = rows.iter().find(|row| *row.0 == *key.container).expect("a row");
            if row.2.is_some_and(|(_, good)| good) {
                well(key, now)
            } else {
                badly(key, now)
            }
        });
        let found = reports(&mut engine, all(&|own| own), secs(101));
        for (name, _, _, _, started, ready) in &rows {
            assert_eq!(found[*name], (*started, *ready), "{name}, {compat:?}");
        }
    }
}

#[test]
fn a_container_that_ran_before_the_prober_neither_loses_nor_gains_its_readiness() {
    // Gate, age before the prober's start or taken over, readiness probe, pod was ready; ready now.
    let rows = [
        (false, Some(100), true, true, true),
        (false, Some(100), true, false, false),
        (false, Some(100), false, false, true),
        (false, Some(5), true, true, false),
        (false, Some(5), true, false, false),
        (false, None, true, true, true),
        (false, None, true, false, false),
        (true, Some(100), true, true, false),
        (true, Some(100), false, false, true),
        (true, None, true, true, false),
    ];
    for (gate, age, probed, was_ready, ready) in rows {
        let mut settings = config(Compat::Kubelet);
        settings.policy.started = secs(1000);
        settings.policy.change_status_on_restart = gate;
        let mut engine = Engine::new(settings);
        let probes = [(Kind::Readiness, probe())];
        engine.add_pod(simple("p", if probed { &probes } else { &[] }), secs(1000));
        let mut seen = PodStatus {
            ready: was_ready,
            ..up("c://1", 1000 - age.unwrap_or_default())
        };
        seen.containers[0].taken_over = age.is_none();
        let found = reports(&mut engine, seen.clone(), secs(1001));
        assert_eq!(
            found["c"],
            (true, ready),
            "gate {gate}, age {age:?}, probed {probed}, was ready {was_ready}"
        );
    }
}

#[test]
fn a_failed_reading_outweighs_the_readiness_of_old() {
    let mut settings = config(Compat::Kubelet);
    settings.policy.started = secs(1000);
    let mut engine = Engine::new(settings);
    engine.add_pod(simple("p", &[(Kind::Readiness, probe())]), secs(1000));
    let seen = PodStatus {
        ready: true,
        ..up("c://1", 0)
    };
    engine.update_status("p", seen.clone(), secs(1000));
    drive(&mut engine, secs(1040), badly);
    assert_eq!(
        engine.reading("p", "c", Kind::Readiness, "c://1"),
        Some(Reading::Failure)
    );
    assert_eq!(reports(&mut engine, seen, secs(1040))["c"], (true, false));
}

#[test]
fn what_is_told_as_started_counts_unless_the_gate_is_on() {
    for (gate, told, started) in [
        (false, Some(true), true),
        (false, Some(false), false),
        (false, None, false),
        (true, Some(true), false),
    ] {
        let mut settings = config(Compat::Kubelet);
        settings.policy.change_status_on_restart = gate;
        let mut engine = Engine::new(settings);
        engine.add_pod(simple("p", &[(Kind::Startup, probe())]), secs(100));
        let mut seen = up("c://1", 95);
        seen.containers[0].started = told;
        assert_eq!(
            reports(&mut engine, seen, secs(100))["c"].0,
            started,
            "gate {gate}, told {told:?}"
        );
    }
}

#[test]
fn what_was_found_started_stays_so_for_this_container_alone() {
    let mut engine = engine(Compat::Kubelet);
    engine.add_pod(simple("p", &[(Kind::Startup, probe())]), secs(100));
    engine.update_status("p", up("c://1", 95), secs(100));
    drive(&mut engine, secs(100), well);
    engine.stop_liveness_and_startup("p");
    assert!(reports(&mut engine, up("c://1", 95), secs(101))["c"].0);

    let mut engine = super::engine(Compat::Kubelet);
    engine.add_pod(simple("p", &[(Kind::Startup, probe())]), secs(100));
    engine.update_status("p", up("c://1", 95), secs(100));
    drive(&mut engine, secs(100), well);
    assert!(reports(&mut engine, up("c://1", 95), secs(101))["c"].0);
    assert!(
        !reports(&mut engine, up("c://2", 101), secs(102))["c"].0,
        "a new container starts anew"
    );
}

#[test]
fn a_startup_success_has_readiness_asked_at_once() {
    for (compat, follow) in [
        (Compat::Kubelet, vec![Kind::Startup, Kind::Readiness]),
        (
            Compat::Strict,
            vec![Kind::Startup, Kind::Readiness, Kind::Liveness],
        ),
    ] {
        let mut engine = engine(compat);
        let slow = Probe {
            period: Duration::from_secs(60),
            ..probe()
        };
        let probes = Kind::ALL.map(|kind| (kind, slow.clone()));
        engine.add_pod(simple("p", &probes), secs(100));
        engine.update_status("p", up("c://1", 100), secs(100));
        let made = drive(&mut engine, secs(101), well);
        let kinds: Vec<_> = made.iter().map(|(_, kind)| *kind).collect();
        assert_eq!(kinds, follow, "{compat:?}");
        assert!(made.iter().all(|(when, _)| *when == secs(100).mono), "{made:?}");
        assert!(reports(&mut engine, up("c://1", 100), secs(101))["c"].1);
    }
}

#[test]
fn the_status_of_an_unknown_pod_is_not_kept() {
    let mut engine = engine(Compat::Strict);
    assert_eq!(engine.update_status("p", up("c://1", 0), secs(1)), []);
    assert_empty(&engine);
}

#[test]
fn what_comes_of_a_container_is_published_with_its_reason() {
    let mut engine = engine(Compat::Strict);
    let probes = [(Kind::Readiness, probe()), (Kind::Liveness, probe())];
    engine.add_pod(simple("p", &probes), secs(100));
    let ended = ContainerState::Terminated { exit_code: 3 };
    engine.update_status("p", up("c://1", 100), secs(100));
    drive(&mut engine, secs(100), well);
    engine.update_status("p", status([in_state("c", "c://1", ended)]), secs(101));
    drive(&mut engine, secs(101), well);
    let going = Arc::new(Pod {
        deleting: true,
        ..Pod::clone(&simple("p", &probes))
    });
    engine.update_status("p", up("c://2", 102), secs(102));
    drive(&mut engine, secs(102), badly);
    engine.update_pod(going, secs(103));
    drive(&mut engine, secs(103), well);
    let notices = engine.drain();
    let of = |kind: Kind| -> Vec<_> {
        published(&notices)
            .into_iter()
            .filter(|row| row.0 == kind)
            .map(|row| (row.1, row.2))
            .collect()
    };
    assert_eq!(
        of(Kind::Liveness),
        [
            (
                Reading::Success,
                "new container: liveness counts as Success until it fails"
            ),
            (
                Reading::Failure,
                "container is not running: it ended with exit code 3"
            ),
            (
                Reading::Success,
                "new container: liveness counts as Success until it fails"
            ),
        ]
    );
    assert!(of(Kind::Readiness).contains(&(Reading::Success, "1 success in a row (threshold 1): fine")));
    let stopped = |notice: &&Notice| matches!(notice, Notice::Stopped { key } if key.kind == Kind::Liveness);
    assert_eq!(
        notices.iter().filter(stopped).count(),
        1,
        "nobody restarts what is going away"
    );
}

#[test]
fn a_container_that_replaces_another_is_not_ready_because_the_wall_clock_was_set_back() {
    let mut settings = config(Compat::Strict);
    settings.policy.started = Now {
        mono: secs(90).mono,
        wall: secs(90).wall + Duration::from_secs(7200),
    };
    let mut engine = Engine::new(settings);
    engine.add_pod(simple("p", &[(Kind::Readiness, probe())]), secs(100));
    let ready = |id: &str, since| PodStatus {
        ready: true,
        ..up(id, since)
    };
    engine.update_status("p", ready("c://1", 100), secs(100));
    drive(&mut engine, secs(109), well);
    assert_eq!(
        reports(&mut engine, ready("c://2", 110), secs(110))["c"],
        (true, false),
        "nobody has asked it yet"
    );
}
