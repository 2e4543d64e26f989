//! What the status says.

use super::*;
use rstest::rstest;

#[test]
fn the_status_of_a_pod_that_runs() {
    let mut bench = Bench::running(pod(&json!({"containers": [
        {"name": "b", "image": "b:1", "resources": {"requests": {"cpu": "1"}}}, {"name": "a", "image": "a:1"}]})));
    bench.wait(5);
    let status = serde_json::to_value(bench.status()).unwrap();
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    let container = |name: &str| {
        json!({"name": name, "image": format!("{name}:1"), "imageID": "sha256:1",
            "containerID": format!("sim://{name}/0"), "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
    };
    let mut b = container("b");
    b["allocatedResources"] = json!({"cpu": "1"});
    b["resources"] = json!({"requests": {"cpu": "1"}});
    assert_eq!(
        status,
        json!({
            "phase": "Running", "observedGeneration": 1, "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z",
            "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
            "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
            "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
                condition("ContainersReady"), condition("PodScheduled")],
            // A kubelet sorts them by name.
            "containerStatuses": [container("a"), b],
        })
    );
}

#[test]
fn conditions_keep_the_time_since_when_they_hold() {
    let mut bench = Bench::running(web());
    bench.wait(10);
    let end = bench.ends("web", 1);
    bench.play(end);
    bench.wait(10);
    let end = bench.ends("web", 1);
    bench.play(end);
    let since = |bench: &Bench, name: &str| {
        let all = bench.status().conditions.unwrap();
        let found = all.into_iter().find(|condition| condition.type_ == name).unwrap();
        found.last_transition_time.unwrap().0
    };
    assert_eq!(since(&bench, "PodScheduled"), time(0));
    assert_eq!(since(&bench, "Initialized"), time(0));
    assert_eq!(since(&bench, "Ready"), time(20));
    bench.wait(5);
    bench.play(Input::Seen);
    assert_eq!(since(&bench, "Ready"), time(20));
}

#[rstest]
#[case::missing(json!([]), "corresponding condition of pod readiness gate \"a/b\" does not exist.")]
#[case::not_yet(json!([{"type": "a/b", "status": "False"}]),
    "the status of pod readiness gate \"a/b\" is not \"True\", but False")]
#[case::met(json!([{"type": "a/b", "status": "True"}]), "")]
fn readiness_gates_are_others_conditions(#[case] conditions: Value, #[case] message: &str) {
    let mut bench = Bench::running(pod(&json!({"readinessGates": [{"conditionType": "a/b"}]})));
    let theirs: Vec<_> = serde_json::from_value(conditions).unwrap();
    bench
        .pod
        .status
        .as_mut()
        .unwrap()
        .conditions
        .as_mut()
        .unwrap()
        .extend(theirs);
    bench.bump();
    bench.play(Input::Seen);
    let (status, reason, said) = bench.condition("Ready");
    assert_eq!(said, message);
    if message.is_empty() {
        assert_eq!((status.as_str(), reason.as_str()), ("True", ""));
    } else {
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("False", "ReadinessGatesNotReady")
        );
    }
    assert_eq!(bench.condition("ContainersReady").0, "True");
}

#[test]
fn a_new_generation_is_observed() {
    let mut bench = Bench::running(web());
    bench.pod.metadata.generation = Some(2);
    bench.bump();
    assert_eq!(short(&bench.play(Input::Seen)), ["post Running"]);
    assert_eq!(bench.status().observed_generation, Some(2));
}

#[rstest]
#[case::nothing(json!([{}]), "BestEffort")]
#[case::limits(json!([{"limits": {"cpu": "1", "memory": "1Gi"}}]), "Guaranteed")]
#[case::requests_that_are_limits(
    json!([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}]), "Guaranteed")]
#[case::lower_requests(
    json!([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}]), "Burstable")]
#[case::one_of_two(json!([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}]), "Burstable")]
#[case::memory_alone(json!([{"limits": {"memory": "1Gi"}}]), "Burstable")]
#[case::zero(json!([{"requests": {"cpu": "0"}}]), "BestEffort")]
#[case::another_resource(json!([{"limits": {"nvidia.com/gpu": "1"}}]), "BestEffort")]
fn quality_of_service(#[case] resources: Value, #[case] class: &str) {
    let containers = resources.as_array().unwrap().iter().enumerate();
    let containers: Vec<_> = containers
        .map(|(index, resources)| json!({"name": format!("c{index}"), "image": "i", "resources": resources}))
        .collect();
    let bench = Bench::running(pod(&json!({"containers": containers})));
    assert_eq!(bench.status().qos_class.as_deref(), Some(class));
}

#[test]
fn the_newest_instance_and_the_one_before() {
    let mut bench = Bench::new(web());
    let id = |bench: &Bench, previous| {
        bench
            .machine
            .container_id("web", previous)
            .map(|id| id.to_string())
    };
    assert_eq!((id(&bench, false), id(&bench, true)), (None, None));
    bench.play(Input::Seen);
    assert_eq!(
        (id(&bench, false).as_deref(), id(&bench, true)),
        (Some("sim://web/0"), None)
    );
    let end = bench.ends("web", 1);
    bench.play(end);
    assert_eq!(id(&bench, false).as_deref(), Some("sim://web/1"));
    assert_eq!(id(&bench, true).as_deref(), Some("sim://web/0"));
    let end = bench.ends("web", 1);
    bench.play(end);
    assert_eq!(
        id(&bench, false).as_deref(),
        Some("sim://web/1"),
        "while it waits"
    );
    assert_eq!(id(&bench, true).as_deref(), Some("sim://web/1"));
    assert_eq!(bench.machine.container_id("other", false), None);
}

#[test]
fn termination_messages_share_twelve_kilobytes() {
    let mut bench = Bench::running(pod(&json!({"restartPolicy": "Never"})));
    bench.play(Input::Observed {
        container: "web".into(),
        observed: Observed {
            id: ContainerId("sim://web/0".into()),
            doing: Doing::Ended(Exit {
                message: "ä".repeat(10_000),
                ..exit(1)
            }),
        },
    });
    let ended = bench.container("web").state.unwrap().terminated.unwrap();
    assert_eq!(ended.message.unwrap().len(), 12 << 10);
}

#[test]
fn a_pod_is_settled_while_nothing_is_under_way() {
    let mut bench = Bench::new(web());
    bench.step(Input::Seen);
    assert!(!bench.machine.is_settled());
    bench.play(Input::Created(Ok(sandbox())));
    // The first status was asked for by hand, above, and is not answered.
    let version = bench.bump();
    bench.play(Input::Posted(Posted::Done(version)));
    assert!(bench.machine.is_settled());
    let end = bench.ends("web", 1);
    bench.play_but(end, |action| {
        matches!(action, Action::Start { .. }).then_some(None)
    });
    assert!(!bench.machine.is_settled());
}

/// What an idle pod takes, with its strings: IDs of 64 hexadecimal digits, an image with a registry.
#[test]
fn an_idle_pod_takes_less_than_a_kilobyte() {
    use super::super::record::{Record, Run};
    let strings = [
        "container-name",
        &"i".repeat(80),
        "simulated://0123456789abcdef",
        &"d".repeat(75),
        "10.1.0.7",
    ];
    // An allocation costs its bytes, two counters, and the allocator's own.
    let heap: usize = strings.iter().map(|text| text.len() + 16 + 16).sum();
    let records = size_of::<Record>() + size_of::<Run>() + 2 * 16;
    let all = size_of::<Machine>() + records + heap;
    assert!(
        all <= 1024,
        "{all} bytes: machine {}, records {records}, strings {heap}",
        size_of::<Machine>()
    );
}
