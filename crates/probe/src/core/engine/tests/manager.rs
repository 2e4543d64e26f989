//! Upstream's tables for its manager.

use super::*;

const ALL: [Kind; 3] = Kind::ALL;

fn probes() -> [(Kind, Probe); 3] {
    ALL.map(|kind| (kind, probe()))
}

fn keys(engine: &Engine) -> Vec<String> {
    let mut keys: Vec<_> = engine
        .inspect()
        .map(|seen| format!("{}/{}/{}", seen.key.pod, seen.key.container, seen.key.kind))
        .collect();
    keys.sort();
    keys
}

#[test]
fn a_pod_has_a_worker_for_each_probe_until_it_is_removed() {
    let mut engine = engine(Compat::Kubelet);
    let none = pod("none", [container("no_probe", Role::Regular, &[])]);
    engine.add_pod(none, secs(0));
    assert!(keys(&engine).is_empty());
    let mixed = [
        container("none", Role::Regular, &[]),
        container("a", Role::Regular, &[(Kind::Readiness, probe())]),
        container("b", Role::Regular, &[(Kind::Liveness, probe())]),
        container("s", Role::Regular, &[(Kind::Startup, probe())]),
        container("init", Role::Init, &probes()),
    ];
    engine.add_pod(pod("p", mixed), secs(0));
    assert_eq!(keys(&engine), ["p/a/Readiness", "p/b/Liveness", "p/s/Startup"]);
    engine.remove_pod("none");
    engine.remove_pod("unknown");
    assert_eq!(keys(&engine).len(), 3);
    engine.remove_pod("p");
    engine.remove_pod("p");
    assert_empty(&engine);
    let stopped = engine.drain();
    assert_eq!(
        stopped.len(),
        3,
        "each worker says once that it has stopped: {stopped:?}"
    );
}

#[test]
fn workers_start_in_the_kubelets_order() {
    let mut engine = engine(Compat::Kubelet);
    let containers = [
        container("sidecar", Role::Sidecar, &probes()),
        container("main", Role::Regular, &probes()),
    ];
    engine.add_pod(pod("p", containers), secs(0));
    let order: Vec<_> = engine
        .inspect()
        .map(|seen| (seen.key.container.to_string(), seen.key.kind))
        .collect();
    let of = |name: &str| ALL.map(|kind| (name.to_owned(), kind));
    assert_eq!(order, [of("main"), of("sidecar")].concat());
}

#[test]
fn a_worker_that_exists_ends_the_call() {
    let mut engine = engine(Compat::Kubelet);
    let first = [container("b", Role::Regular, &[(Kind::Readiness, probe())])];
    engine.add_pod(pod("p", first), secs(0));
    let second = [
        container("a", Role::Regular, &[(Kind::Liveness, probe())]),
        container("b", Role::Regular, &probes()),
        container("c", Role::Regular, &probes()),
    ];
    engine.add_pod(pod("p", second), secs(0));
    assert_eq!(keys(&engine), ["p/a/Liveness", "p/b/Readiness", "p/b/Startup"]);
}

#[test]
fn sidecars_have_workers_and_other_init_containers_have_none() {
    for (role, count) in [(Role::Sidecar, 3), (Role::Init, 0)] {
        let mut engine = engine(Compat::Kubelet);
        engine.add_pod(pod("p", [container("i", role, &probes())]), secs(0));
        assert_eq!(engine.inspect().count(), count, "{role:?}");
        engine.remove_pod("p");
        assert_empty(&engine);
    }
}

#[test]
fn termination_stops_liveness_and_startup_but_not_of_sidecars() {
    let mut engine = engine(Compat::Kubelet);
    let containers = [
        container("main", Role::Regular, &probes()),
        container("side", Role::Sidecar, &probes()),
    ];
    engine.add_pod(pod("p", containers), secs(0));
    for _ in 0..2 {
        engine.stop_liveness_and_startup("p");
        assert_eq!(
            keys(&engine),
            [
                "p/main/Readiness",
                "p/side/Liveness",
                "p/side/Readiness",
                "p/side/Startup"
            ]
        );
    }
    assert_eq!(engine.drain().len(), 2);
}

#[test]
fn cleanup_keeps_the_desired_pods_alone() {
    let mut engine = engine(Compat::Kubelet);
    for uid in ["old", "new"] {
        engine.add_pod(simple(uid, &probes()), secs(0));
    }
    engine.retain_pods(&["new".into()].into());
    assert_eq!(
        keys(&engine),
        ["new/c/Liveness", "new/c/Readiness", "new/c/Startup"]
    );
    engine.retain_pods(&[].into());
    assert_empty(&engine);
}

#[test]
fn cleanup_over_and_over_leaves_nothing() {
    let mut engine = engine(Compat::Kubelet);
    for round in 0..10 {
        for pod in 0..100 {
            let uid = format!("{round}-{pod}");
            engine.add_pod(simple(&uid, &probes()), secs(round));
            engine.update_status(&uid, up("c://1", 0), secs(round));
        }
        assert_eq!(engine.inspect().count(), 300);
        drive(&mut engine, secs(round), well);
        engine.retain_pods(&[].into());
        assert_empty(&engine);
    }
}

#[test]
fn a_pod_that_has_ended_ends_its_workers() {
    for phase in [Phase::Failed, Phase::Succeeded] {
        let mut engine = engine(Compat::Kubelet);
        engine.add_pod(simple("p", &probes()), secs(100));
        engine.update_status(
            "p",
            PodStatus {
                phase,
                ..up("c://1", 90)
            },
            secs(100),
        );
        assert!(attempts(&mut engine, secs(100)).is_empty());
        let stopped = engine.drain();
        assert!(matches!(
            stopped[..],
            [
                Notice::Stopped { .. },
                Notice::Stopped { .. },
                Notice::Stopped { .. }
            ]
        ));
        assert_eq!((engine.inspect().count(), engine.due()), (0, None));
    }
}

#[test]
fn readiness_goes_from_true_to_false() {
    let mut engine = engine(Compat::Kubelet);
    let once = Probe {
        failure_threshold: 1,
        ..probe()
    };
    engine.add_pod(simple("p", &[(Kind::Readiness, once)]), secs(100));
    assert!(!engine.update_status("p", up("c://1", 95), secs(100))[0].ready);
    drive(&mut engine, secs(100), well);
    assert_eq!(
        engine.reading("p", "c", Kind::Readiness, "c://1"),
        Some(Reading::Success)
    );
    assert_eq!(
        engine.reading("p", "c", Kind::Readiness, "c://2"),
        None,
        "of another container nothing is known"
    );
    assert!(engine.update_status("p", up("c://1", 95), secs(101))[0].ready);
    drive(&mut engine, secs(110), badly);
    assert!(!engine.update_status("p", up("c://1", 95), secs(111))[0].ready);
    let notices = engine.drain();
    assert_eq!(
        published(&notices),
        [
            (
                Kind::Readiness,
                Reading::Failure,
                "new container: readiness counts as Failure until it succeeds"
            ),
            (
                Kind::Readiness,
                Reading::Success,
                "1 success in a row (threshold 1): fine"
            ),
            (
                Kind::Readiness,
                Reading::Failure,
                "1 failure in a row (threshold 1): HTTP probe failed with statuscode: 500"
            ),
        ]
    );
}

#[test]
fn an_outcome_whose_worker_is_gone_is_dropped_and_frees_its_place() {
    let mut engine = Engine::new(Config {
        concurrency: 1,
        ..config(Compat::Kubelet)
    });
    for uid in ["a", "b"] {
        engine.add_pod(simple(uid, &[(Kind::Liveness, exec())]), secs(100));
        engine.update_status(uid, up("c://1", 0), secs(100));
    }
    let first = engine.next_attempt(secs(100)).expect("one may run");
    assert!(engine.next_attempt(secs(100)).is_none());
    engine.remove_pod(&first.key.pod);
    assert!(
        engine.next_attempt(secs(100)).is_none(),
        "the attempt is still under way"
    );
    engine.drain();
    engine.settle(first.ticket, Outcome::failure(""), false, secs(101));
    assert_eq!(engine.drain(), []);
    let second = engine.next_attempt(secs(101)).expect("the place is free");
    assert_eq!(second.lag, SECOND);
    for ticket in [first.ticket, 0, u64::MAX] {
        engine.settle(ticket, Outcome::failure(""), false, secs(101));
    }
    assert_eq!(
        engine.drain(),
        [],
        "tickets that are settled or unknown are ignored"
    );
    assert!(engine.inspect().all(|seen| seen.running));
}

#[test]
fn an_attempt_is_told_with_its_event_and_counted() {
    let mut engine = engine(Compat::Kubelet);
    engine.add_pod(simple("p", &[(Kind::Liveness, probe())]), secs(100));
    engine.update_status("p", up("c://1", 0), secs(100));
    let outcomes = [
        (Outcome::success("a\nb\u{7}"), Ending::Success, None),
        (
            Outcome::warning("w"),
            Ending::Warning,
            Some("Liveness probe warning: w"),
        ),
        (
            Outcome::failure("f"),
            Ending::Failure,
            Some("Liveness probe failed: f"),
        ),
        (
            Outcome::error(Verdict::Unknown, "e"),
            Ending::Error,
            Some("Liveness probe errored and resulted in unknown state: e"),
        ),
    ];
    for (turn, (outcome, ending, event)) in (0..).zip(outcomes) {
        let now = secs(100 + 10 * turn);
        let attempt = engine.next_attempt(now).expect("due each 10 s");
        engine.drain();
        let later = at(now.mono + Duration::from_millis(7));
        engine.settle(attempt.ticket, outcome.clone(), true, later);
        let notices = engine.drain();
        assert!(
            matches!(&notices[0], Notice::Ended { outcome: told, took, starved: false, .. }
                if *told == outcome && took.as_millis() == 7),
            "{notices:?}"
        );
        let events: Vec<_> = notices
            .iter()
            .filter_map(|notice| match notice {
                Notice::Event { event, .. } => Some(event.message.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(events, event.into_iter().collect::<Vec<_>>());
        let seen = engine.inspect().next().expect("one worker");
        assert_eq!(seen.tally.history.iter().next(), Some((later.wall, ending)));
        if turn == 0 {
            assert_eq!(seen.tally.last.as_deref(), Some("a b"));
        }
    }
    let tally = engine.inspect().next().expect("one worker").tally.clone();
    assert_eq!(
        (tally.successful, tally.failed, tally.errored, tally.unknown),
        (2, 1, 1, 0)
    );
    assert_eq!((tally.durations.count, tally.durations.buckets[1]), (4, 4));
    assert_eq!(tally.durations.sum.as_millis(), 28);
}

/// It was seen before it ran, which counts as a failure. Then it fails from its first attempt on, and whoever
/// kills it is told.
#[test]
fn a_container_that_was_seen_before_it_ran_is_killed_like_any_other() {
    for (compat, kind) in [Compat::Kubelet, Compat::Strict]
        .into_iter()
        .flat_map(|compat| [(compat, Kind::Liveness), (compat, Kind::Startup)])
    {
        let mut engine = engine(compat);
        engine.add_pod(simple("p", &[(kind, probe())]), secs(100));
        let waits = status([in_state("c", "c://1", ContainerState::Waiting)]);
        engine.update_status("p", waits, secs(100));
        drive(&mut engine, secs(115), badly);
        engine.drain();
        engine.update_status("p", up("c://1", 116), secs(116));
        drive(&mut engine, secs(300), badly);
        let notices = engine.drain();
        let told = published(&notices);
        let told: Vec<_> = told.iter().map(|(kind, reading, _)| (*kind, *reading)).collect();
        assert_eq!(told, [(kind, Reading::Failure)], "{compat:?}");
    }
}
