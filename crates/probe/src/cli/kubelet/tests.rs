use super::*;
use crate::core::{Handler, Port, Probe, RestartAction, RestartPolicy, RestartRule};

fn probe() -> Arc<Probe> {
    Arc::new(Probe::new(Handler::TcpSocket {
        host: None,
        port: Port::Number(80),
    }))
}

fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        liveness: Some(probe()),
        ..Container::default()
    }
}

fn pod(policy: RestartPolicy, containers: Vec<Container>) -> Arc<Pod> {
    Arc::new(Pod {
        uid: "uid".into(),
        namespace: "default".into(),
        name: "web".into(),
        deleting: false,
        restart_policy: policy,
        containers: containers.into_iter().map(Arc::new).collect(),
    })
}

fn at(seconds: u64) -> Now {
    Now {
        mono: Duration::from_secs(seconds),
        wall: Duration::from_secs(1_700_000_000 + seconds),
    }
}

fn kubelet(pod: Arc<Pod>) -> Kubelet {
    Kubelet::new(pod, None, Duration::from_secs(30), &BTreeMap::new(), at(0))
}

/// Fails the liveness of the container that runs now.
fn fail(kubelet: &mut Kubelet, name: &str, seconds: u64) -> Vec<Action> {
    let id = kubelet.status().container(name).unwrap().id.clone();
    kubelet.fail(name, &id, Kind::Liveness, at(seconds))
}

#[test]
fn the_first_restart_is_at_once_and_the_next_ones_wait_twice_as_long_each() {
    let mut kubelet = kubelet(pod(RestartPolicy::Always, vec![container("web")]));
    let mut now = 60;
    let actions = fail(&mut kubelet, "web", now);
    assert!(
        matches!(&actions[..], [Action::Kill { .. }, Action::Restart { restarts: 1, id, .. }] if &**id == "simulated://web/1"),
        "{actions:?}"
    );
    for (restarts, wanted) in [(2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300)] {
        now += 60;
        let actions = fail(&mut kubelet, "web", now);
        let Action::BackOff { delay, .. } = &actions[1] else {
            panic!("{actions:?}");
        };
        assert_eq!(delay.as_secs(), wanted);
        assert_eq!(
            kubelet.status().container("web").unwrap().state,
            ContainerState::Waiting
        );
        assert_eq!(kubelet.due(), Some(Duration::from_secs(now + wanted)));
        assert_eq!(kubelet.advance(at(now + wanted - 1)), []);
        now += wanted;
        let actions = kubelet.advance(at(now));
        assert!(
            matches!(&actions[..], [Action::Restart { restarts: r, .. }] if *r == restarts),
            "{actions:?}"
        );
        assert_eq!(kubelet.due(), None);
    }
}

#[test]
fn ten_good_minutes_reset_the_back_off() {
    let mut kubelet = kubelet(pod(RestartPolicy::Always, vec![container("web")]));
    fail(&mut kubelet, "web", 60);
    fail(&mut kubelet, "web", 120);
    kubelet.advance(at(130));
    let actions = fail(&mut kubelet, "web", 731);
    assert!(
        matches!(&actions[..], [_, Action::Restart { restarts: 3, .. }]),
        "{actions:?}"
    );
    let actions = fail(&mut kubelet, "web", 740);
    assert!(
        matches!(&actions[..], [_, Action::BackOff { delay, .. }] if delay.as_secs() == 10),
        "{actions:?}"
    );
}

#[test]
fn two_seconds_are_given_at_the_least() {
    for (own, pods) in [(Some(1), 30), (None, 0), (None, 1)] {
        let own = Probe {
            termination_grace_period: own.map(Duration::from_secs),
            ..Probe::clone(&probe())
        };
        let spec = Container {
            liveness: Some(Arc::new(own)),
            ..container("web")
        };
        let pod = pod(RestartPolicy::Always, vec![spec]);
        let Action::Kill { grace, .. } = kill(
            &pod,
            &pod.containers[0],
            Kind::Liveness,
            Duration::from_secs(pods),
        ) else {
            panic!("a kill is a kill");
        };
        assert_eq!(grace, Duration::from_secs(2));
    }
}

#[test]
fn the_grace_period_is_the_probes_own_else_the_pods() {
    let own = Probe {
        termination_grace_period: Some(Duration::from_secs(5)),
        ..Probe::clone(&probe())
    };
    let spec = Container {
        startup: Some(Arc::new(own)),
        ..container("web")
    };
    for (kind, wanted, of) in [
        (Kind::Startup, 5, "startupProbe.terminationGracePeriodSeconds"),
        (Kind::Liveness, 30, "the pod's terminationGracePeriodSeconds"),
    ] {
        let mut kubelet = kubelet(pod(RestartPolicy::Always, vec![spec.clone()]));
        let actions = kubelet.fail("web", "simulated://web/0", kind, at(1));
        let Action::Kill {
            grace,
            grace_of,
            event,
            ..
        } = &actions[0]
        else {
            panic!("{actions:?}");
        };
        assert_eq!((grace.as_secs(), *grace_of), (wanted, of));
        let kind = kind.name().to_lowercase();
        assert_eq!(
            event.message,
            format!("Container web failed {kind} probe, will be restarted")
        );
    }
}

#[test]
fn a_container_that_is_never_restarted_stays_ended_and_the_pod_fails_with_the_last() {
    let mut kubelet = kubelet(pod(
        RestartPolicy::Never,
        vec![container("web"), container("log")],
    ));
    let actions = fail(&mut kubelet, "web", 1);
    let Action::Kill { event, .. } = &actions[0] else {
        panic!("{actions:?}");
    };
    assert_eq!(event.message, "Container web failed liveness probe");
    assert!(
        matches!(&actions[1..], [Action::End { policy: "Never", .. }]),
        "{actions:?}"
    );
    assert_eq!(kubelet.due(), None);
    assert!(!kubelet.failed() && !kubelet.ready());
    let actions = fail(&mut kubelet, "log", 2);
    assert!(
        matches!(&actions[1..], [Action::End { .. }, Action::Fail]),
        "{actions:?}"
    );
    assert_eq!(kubelet.status().phase, Phase::Failed);
    assert!(kubelet.failed());
}

#[test]
fn rules_for_exit_codes_count_and_can_restart_everything() {
    let spec = Container {
        restart_policy: Some(RestartPolicy::Never),
        restart_rules: vec![RestartRule {
            action: RestartAction::RestartAllContainers,
            among: true,
            values: vec![137],
        }],
        ..container("web")
    };
    let mut kubelet = kubelet(pod(RestartPolicy::Never, vec![spec, container("log")]));
    let actions = fail(&mut kubelet, "web", 1);
    assert!(
        matches!(&actions[1..], [Action::Restart { .. }, Action::Restart { .. }]),
        "{actions:?}"
    );
    let ids: Vec<_> = kubelet.seen().map(|seen| seen.id.to_string()).collect();
    assert_eq!(ids, ["simulated://web/1", "simulated://log/1"]);
}

#[test]
fn failures_of_readiness_and_of_former_containers_kill_nothing() {
    let mut kubelet = kubelet(pod(RestartPolicy::Always, vec![container("web")]));
    assert_eq!(
        kubelet.fail("web", "simulated://web/0", Kind::Readiness, at(1)),
        []
    );
    assert_eq!(
        kubelet.fail("web", "simulated://web/7", Kind::Liveness, at(1)),
        []
    );
    assert_eq!(
        kubelet.fail("other", "simulated://web/0", Kind::Liveness, at(1)),
        []
    );
    fail(&mut kubelet, "web", 2);
    fail(&mut kubelet, "web", 3);
    assert_eq!(fail(&mut kubelet, "web", 4), [], "it waits, it does not run");
}

#[test]
fn the_pod_is_ready_when_all_but_init_containers_are() {
    let init = Container {
        role: Role::Init,
        ..container("init")
    };
    let mut kubelet = kubelet(pod(RestartPolicy::Always, vec![container("web"), init]));
    let report = |container: &str, ready| Report {
        container: container.into(),
        started: true,
        ready,
    };
    assert!(!kubelet.ready());
    kubelet.take(&[report("who", true)]);
    assert!(!kubelet.ready(), "nobody of that name");
    kubelet.take(&[report("web", true)]);
    assert!(kubelet.ready());
    fail(&mut kubelet, "web", 1);
    assert!(
        !kubelet.ready(),
        "a new container is not ready before it is said to be"
    );
}

#[test]
fn restarts_of_a_former_run_are_counted_on() {
    let restarts = BTreeMap::from([(Arc::from("web"), 3)]);
    let pod = pod(RestartPolicy::Always, vec![container("web")]);
    let kubelet = Kubelet::new(pod, None, Duration::ZERO, &restarts, at(0));
    let id = kubelet.status().container("web").unwrap().id.clone();
    assert_eq!(&*id, "simulated://web/3");
    assert_eq!(restarts_of(&id), Some(3));
    assert_eq!(restarts_of("containerd://web/3"), None);
}
