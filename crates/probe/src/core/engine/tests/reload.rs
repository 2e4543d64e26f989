//! Probes that change while their containers run.

use super::*;

fn after(compat: Compat, kind: Kind, probe: &Probe) -> Engine {
    let mut engine = engine(compat);
    engine.add_pod(simple("p", &[(kind, probe.clone())]), secs(100));
    engine.update_status("p", up("c://1", 100), secs(100));
    engine
}

fn change(engine: &mut Engine, kind: Kind, probe: Probe, now: Now) {
    engine.update_pod(simple("p", &[(kind, probe)]), now);
}

fn run_of(engine: &Engine) -> (Option<Reading>, u32) {
    engine.inspect().next().expect("a worker").worker.run()
}

#[test]
fn probes_are_removed_and_added_again_without_a_new_container() {
    let mut engine = after(Compat::Kubelet, Kind::Readiness, &probe());
    drive(&mut engine, secs(100), badly);
    engine.update_pod(simple("p", &[]), secs(101));
    assert_eq!(engine.inspect().count(), 0);
    let report = &engine.update_status("p", up("c://1", 100), secs(102))[0];
    assert!(report.started && report.ready, "nothing is asked of it any more");
    change(&mut engine, Kind::Readiness, probe(), secs(103));
    assert_eq!(
        drive(&mut engine, secs(103), well),
        [(secs(103).mono, Kind::Readiness)]
    );
}

#[test]
fn a_changed_threshold_resets_the_run() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        let mut engine = after(compat, Kind::Liveness, &probe());
        drive(&mut engine, secs(100), badly);
        assert_eq!(run_of(&engine), (Some(Reading::Failure), 1));
        let timeout = 2 * SECOND;
        change(
            &mut engine,
            Kind::Liveness,
            Probe { timeout, ..probe() },
            secs(101),
        );
        assert_eq!(run_of(&engine).1, 1, "the timeout is no threshold");
        change(
            &mut engine,
            Kind::Liveness,
            Probe {
                failure_threshold: 2,
                ..probe()
            },
            secs(101),
        );
        assert_eq!(run_of(&engine).1, 0);
        drive(&mut engine, secs(140), badly);
        assert_eq!(
            engine.reading("p", "c", Kind::Liveness, "c://1"),
            Some(Reading::Failure)
        );
    }
}

#[test]
fn a_changed_period_counts_from_the_last_attempt() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        for (period, next) in [(4, 104), (2, 103), (60, 160)] {
            let mut engine = after(compat, Kind::Liveness, &probe());
            drive(&mut engine, secs(100), well);
            let period = Duration::from_secs(period);
            change(
                &mut engine,
                Kind::Liveness,
                Probe { period, ..probe() },
                secs(103),
            );
            let due = engine.due().expect("a next");
            assert_eq!(due, secs(next).mono, "{compat:?}, {period:?}");
        }
    }
}

#[test]
fn a_changed_delay_matters_before_the_first_probe_alone() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        let delay = |seconds| Probe {
            initial_delay: Duration::from_secs(seconds),
            period: 5 * SECOND,
            ..probe()
        };
        let mut engine = after(compat, Kind::Liveness, &delay(0));
        drive(&mut engine, secs(100), well);
        change(&mut engine, Kind::Liveness, delay(1000), secs(101));
        assert!(
            !drive(&mut engine, secs(112), well).is_empty(),
            "{compat:?}: it has been probed already"
        );
        engine.update_status("p", up("c://2", 113), secs(113));
        assert!(
            drive(&mut engine, secs(1100), well).is_empty(),
            "{compat:?}: the new container has not"
        );
        assert!(!drive(&mut engine, secs(1120), well).is_empty());

        let mut engine = after(compat, Kind::Liveness, &delay(1000));
        assert!(drive(&mut engine, secs(103), well).is_empty());
        change(&mut engine, Kind::Liveness, delay(4), secs(103));
        let made = drive(&mut engine, secs(106), well);
        let first = if compat == Compat::Strict { 104 } else { 105 };
        assert_eq!(made[0].0, secs(first).mono, "{compat:?}");
    }
}

#[test]
fn a_new_startup_probe_waits_for_the_next_start() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        let mut engine = engine(compat);
        engine.add_pod(simple("p", &[]), secs(100));
        engine.update_status("p", up("c://1", 100), secs(100));
        change(&mut engine, Kind::Startup, probe(), secs(101));
        assert!(drive(&mut engine, secs(150), well).is_empty());
        assert!(engine.update_status("p", up("c://1", 100), secs(150))[0].started);
        assert!(!engine.update_status("p", up("c://2", 151), secs(151))[0].started);
        assert!(!drive(&mut engine, secs(170), well).is_empty());
        assert!(engine.update_status("p", up("c://2", 151), secs(171))[0].started);
    }
}

#[test]
fn without_its_startup_probe_a_container_is_started() {
    let mut engine = engine(Compat::Strict);
    let both = [(Kind::Startup, probe()), (Kind::Liveness, probe())];
    engine.add_pod(simple("p", &both), secs(100));
    engine.update_status("p", up("c://1", 100), secs(100));
    let made = drive(&mut engine, secs(100), badly);
    assert_eq!(made, [(secs(100).mono, Kind::Startup)]);
    change(&mut engine, Kind::Liveness, probe(), secs(101));
    assert_eq!(
        drive(&mut engine, secs(101), well),
        [(secs(101).mono, Kind::Liveness)]
    );
}

#[test]
fn a_probe_that_waits_changes_lines_with_its_handler() {
    let mut engine = Engine::new(Config {
        exec_concurrency: 1,
        ..config(Compat::Kubelet)
    });
    for uid in ["a", "p"] {
        engine.add_pod(simple(uid, &[(Kind::Liveness, exec())]), secs(100));
        engine.update_status(uid, up("c://1", 100), secs(100));
    }
    assert_eq!(attempts(&mut engine, secs(100)).len(), 1);
    change(&mut engine, Kind::Liveness, probe(), secs(101));
    let next = engine.next_attempt(secs(101)).expect("no exec any more");
    assert_eq!((&*next.key.pod, next.lag), ("p", SECOND));
}

#[test]
fn what_has_ended_is_not_started_again() {
    let mut engine = after(Compat::Kubelet, Kind::Liveness, &probe());
    engine.stop_liveness_and_startup("p");
    change(
        &mut engine,
        Kind::Liveness,
        Probe {
            failure_threshold: 9,
            ..probe()
        },
        secs(101),
    );
    assert_eq!(engine.inspect().count(), 0);
}

#[test]
fn a_changed_delay_matters_to_a_started_container_that_has_not_been_probed() {
    let delayed = |seconds| {
        let readiness = Probe {
            initial_delay: Duration::from_secs(seconds),
            ..probe()
        };
        simple("p", &[(Kind::Startup, probe()), (Kind::Readiness, readiness)])
    };
    for (compat, delay, first) in [
        (Compat::Strict, 80, 180),
        (Compat::Strict, 20, 120),
        (Compat::Kubelet, 80, 180),
    ] {
        let mut engine = engine(compat);
        engine.add_pod(delayed(60), secs(100));
        engine.update_status("p", up("c://1", 100), secs(100));
        drive(&mut engine, secs(101), well);
        engine.update_pod(delayed(delay), secs(105));
        let made = drive(&mut engine, secs(200), well);
        assert_eq!(
            made.first(),
            Some(&(secs(first).mono, Kind::Readiness)),
            "{compat:?}, {delay} s"
        );
    }
}
