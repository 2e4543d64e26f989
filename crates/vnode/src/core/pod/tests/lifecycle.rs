//! The life of a pod as virtual-kubelet's tests tell it, and what is asked of the provider when an object
//! changes.

use super::*;
use crate::core::reported::Refusal;
use rstest::rstest;

#[test]
fn a_pod_is_created_started_and_deleted() {
    let mut bench = Bench::new(web());
    let asked = bench.play(Input::Seen);
    assert_eq!(deeds(&asked), ["create", "start web 0"]);
    assert_eq!(short(&asked).last().unwrap(), "post Running");
    bench.delete(30);
    let asked = bench.play(Input::Seen);
    assert_eq!(
        short(&asked),
        ["stop web 30s", "post Succeeded", "delete", "remove", "forget"]
    );
    assert_eq!(bench.step(Input::Tick), []);
}

#[test]
fn a_provider_that_does_not_know_the_deleted_pod_has_deleted_it() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    let missing = fault(FaultKind::NotFound, "NotFound");
    let asked = bench.play_but(Input::Seen, |action| match action {
        Action::Stop { container, .. } => Some(Some(Input::Stopped {
            container: container.clone(),
            result: Err(missing.clone()),
        })),
        Action::Delete => Some(Some(Input::Deleted(Err(missing.clone())))),
        _ => None,
    });
    assert_eq!(
        short(&asked),
        ["stop web 30s", "post Failed", "delete", "remove", "forget"]
    );
}

#[test]
fn a_deletion_that_fails_is_tried_again_until_it_is_done() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    let mut failures = 3;
    let mut refuse = |action: &Action| {
        let refused = matches!(action, Action::Delete) && failures > 0;
        refused.then(|| {
            failures -= 1;
            Some(Input::Deleted(Err(fault(FaultKind::Later, "Random"))))
        })
    };
    let asked = bench.play_but(Input::Seen, &mut refuse);
    assert_eq!(deeds(&asked), ["stop web 30s", "delete"]);
    assert_eq!(wake(&asked), Some(1));
    assert_eq!(events(&asked).last().unwrap().0, "ProviderDeleteFailed");
    assert!(
        bench
            .play_but(Input::Tick, &mut refuse)
            .iter()
            .all(|action| matches!(action, Action::Wake(_)))
    );
    for seconds in [2, 3] {
        bench.wait(seconds);
        assert_eq!(deeds(&bench.play_but(Input::Tick, &mut refuse)), ["delete"]);
    }
    bench.wait(6);
    let asked = bench.play_but(Input::Tick, &mut refuse);
    assert_eq!(deeds(&asked), ["delete", "remove", "forget"]);
}

#[rstest]
#[case::failed("Failed")]
#[case::succeeded("Succeeded")]
fn a_pod_that_is_over_is_left_alone(#[case] phase: &str) {
    let mut pod = web();
    pod.status = Some(PodStatus {
        phase: Some(phase.to_owned()),
        reason: Some("Because".to_owned()),
        ..PodStatus::default()
    });
    let mut bench = Bench::new(pod);
    assert_eq!(bench.play(Input::Seen), []);
    bench.wait(3600);
    assert_eq!(bench.play(Input::Tick), []);
    assert_eq!(bench.status().reason.as_deref(), Some("Because"));
    bench.delete(30);
    assert_eq!(short(&bench.play(Input::Seen)), ["remove", "forget"]);
}

#[test]
fn a_pod_that_is_over_is_removed_from_the_provider_with_its_object() {
    let mut bench = Bench::running(pod(&json!({"restartPolicy": "Never"})));
    let end = bench.ends("web", 0);
    assert_eq!(short(&bench.play(end)), ["post Succeeded"]);
    // Its object comes back to a new process.
    let mut bench = Bench::new(bench.pod);
    assert_eq!(bench.play(Input::Seen), []);
    bench.delete(30);
    assert_eq!(short(&bench.play(Input::Seen)), ["delete", "remove", "forget"]);
}

#[test]
fn a_pod_that_came_deleted_and_was_never_run_is_removed_without_the_provider() {
    let mut bench = Bench::new(web());
    bench.delete(30);
    let asked = bench.play(Input::Seen);
    assert_eq!(short(&asked), ["post Failed", "remove", "forget"]);
}

#[test]
fn a_pod_that_came_deleted_and_was_run_is_asked_for_stopped_and_removed() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    let mut bench = Bench::new(bench.pod);
    let state = crate::core::reported::PodState {
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
    let asked = bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Adopt).then(|| Some(Input::Adopted(Ok(Some(state.clone())))))
    });
    assert_eq!(
        short(&asked),
        [
            "adopt",
            "stop web 30s",
            "post Succeeded",
            "delete",
            "remove",
            "forget"
        ]
    );
}

/// What may be different about an object, and what comes of it.
#[rstest]
#[case::nothing(|_: &mut Pod| {}, &[])]
#[case::a_label(|pod: &mut Pod| { pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()); }, &["update"])]
#[case::an_annotation(
    |pod: &mut Pod| { pod.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()); }, &["update"])]
#[case::a_toleration(|pod: &mut Pod| {
    let toleration = k8s_openapi::api::core::v1::Toleration { key: Some("k".to_owned()), ..Default::default() };
    pod.spec.as_mut().unwrap().tolerations = Some(vec![toleration]);
}, &["update"])]
#[case::a_finalizer(|pod: &mut Pod| { pod.metadata.finalizers = Some(vec!["a/b".to_owned()]); }, &[])]
#[case::its_environment(|pod: &mut Pod| {
    let variable = k8s_openapi::api::core::v1::EnvVar { name: "A".to_owned(), ..Default::default() };
    pod.spec.as_mut().unwrap().containers[0].env = Some(vec![variable]);
}, &[])]
#[case::an_image(
    |pod: &mut Pod| { pod.spec.as_mut().unwrap().containers[0].image = Some("web:2".to_owned()); },
    &["stop web 30s", "start web 1"])]
fn what_a_change_of_the_object_asks_for(#[case] change: fn(&mut Pod), #[case] expected: &[&str]) {
    let mut bench = Bench::running(web());
    change(&mut bench.pod);
    bench.bump();
    assert_eq!(deeds(&bench.play(Input::Seen)), expected);
    assert_eq!(deeds(&bench.play(Input::Seen)), [""; 0], "and once is enough");
}

#[test]
fn a_status_that_another_wrote_is_nothing_to_the_provider() {
    let mut bench = Bench::running(web());
    bench.pod.status.as_mut().unwrap().nominated_node_name = Some("other".to_owned());
    bench.bump();
    assert_eq!(short(&bench.play(Input::Seen)), [""; 0]);
}

#[test]
fn an_update_that_fails_is_tried_again() {
    let mut bench = Bench::running(web());
    bench.pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let asked = bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Update).then(|| Some(Input::Updated(Err(fault(FaultKind::Later, "Busy")))))
    });
    assert_eq!(
        events(&asked),
        [("ProviderUpdateFailed", "Busy it says".to_owned())]
    );
    assert_eq!(wake(&asked), Some(1));
    bench.wait(2);
    assert_eq!(deeds(&bench.play(Input::Tick)), ["update"]);
}

fn refusal(reason: &str, message: &str) -> Refusal {
    Refusal {
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Answers that a pod cannot be created, for this reason.
fn refusing(trouble: Trouble) -> impl FnMut(&Action) -> Option<Option<Input>> {
    move |action| matches!(action, Action::Create).then(|| Some(Input::Created(Err(trouble.clone()))))
}

#[rstest]
#[case::no_provider_can(
    Trouble::Refused(refusal("UnsupportedPodSpec", "spec.hostNetwork")),
    ("UnsupportedPodSpec", "spec.hostNetwork"), ("UnsupportedPodSpec", "spec.hostNetwork")
)]
#[case::this_provider_does_not(
    Trouble::Refused(refusal("InvalidModule", "no version")),
    ("InvalidModule", "no version"), ("ProviderCreateFailed", "InvalidModule: no version")
)]
#[case::it_was_asked_and_never_will(
    Trouble::Fault(fault(FaultKind::Never, "ModuleClaimed")),
    ("ModuleClaimed", "ModuleClaimed it says"),
    ("FailedCreatePodSandBox", "Failed to create pod sandbox: ModuleClaimed it says")
)]
#[case::it_was_asked_and_the_pod_has_failed(
    Trouble::Fault(fault(FaultKind::Fatal, "Broken")),
    ("Broken", "Broken it says"), ("FailedCreatePodSandBox", "Failed to create pod sandbox: Broken it says")
)]
fn a_pod_that_cannot_run_here_waits_with_the_reason_until_it_can(
    #[case] trouble: Trouble,
    #[case] waits: (&str, &str),
    #[case] event: (&'static str, &str),
) {
    let asked_the_provider = matches!(trouble, Trouble::Fault(_));
    let mut bench = Bench::new(web());
    let asked = bench.play_but(Input::Seen, refusing(trouble.clone()));
    assert_eq!(short(&asked), ["create", "post Pending", "post Pending"]);
    assert_eq!(events(&asked), [(event.0, event.1.to_owned())]);
    assert_eq!(
        waiting(&bench.container("web")),
        (waits.0.to_owned(), waits.1.to_owned())
    );
    // Five minutes: it is looked at again every 5 to 7.5 s, and said ever more seldom.
    let mut said = 0;
    let mut looks = 0;
    for _ in 0..300 {
        bench.wait(1);
        let asked = bench.play_but(Input::Tick, refusing(trouble.clone()));
        assert!(short(&asked).iter().all(|deed| deed == "create"), "{asked:?}");
        said += events(&asked).len();
        looks += short(&asked).len();
    }
    assert!((37..=60).contains(&looks), "{looks} looks");
    assert_eq!(said, 5, "the 2nd, 4th, 8th, 16th, 32nd time");
    // It is deleted as it is: the provider hears of it only if it was asked.
    let mut deleted = Bench::new(web());
    deleted.play_but(Input::Seen, refusing(trouble));
    deleted.delete(30);
    let asked = short(&deleted.play(Input::Seen));
    assert_eq!(
        asked.iter().any(|deed| deed == "delete"),
        asked_the_provider,
        "{asked:?}"
    );
    assert_eq!(asked.last().unwrap(), "forget", "{asked:?}");
    // What was in the way is gone.
    bench.wait(8);
    let asked = bench.play(Input::Tick);
    assert_eq!(
        short(&asked),
        ["create", "start web 0", "post Pending", "post Running"]
    );
}

#[test]
fn another_reason_is_said_at_once() {
    let mut bench = Bench::new(web());
    bench.play_but(
        Input::Seen,
        refusing(Trouble::Refused(refusal("InvalidModule", "no version"))),
    );
    bench.wait(8);
    bench.play_but(
        Input::Tick,
        refusing(Trouble::Refused(refusal("InvalidModule", "no version"))),
    );
    bench.wait(8);
    let asked = bench.play_but(
        Input::Tick,
        refusing(Trouble::Refused(refusal("InvalidModule", "no name"))),
    );
    assert_eq!(
        events(&asked),
        [("ProviderCreateFailed", "InvalidModule: no name".to_owned())]
    );
    assert_eq!(waiting(&bench.container("web")).1, "no name");
}

#[test]
fn where_it_is_wanted_a_refused_pod_fails_with_the_reason_and_nothing_else_is_done() {
    let mut bench = Bench::new(web());
    bench.settings.fail_refused = true;
    let refused = Trouble::Refused(refusal("UnsupportedPodSpec", "spec.hostNetwork"));
    let asked = bench.play_but(Input::Seen, refusing(refused));
    assert_eq!(short(&asked), ["create", "post Pending", "post Failed"]);
    assert_eq!(
        events(&asked),
        [("UnsupportedPodSpec", "spec.hostNetwork".to_owned())]
    );
    let status = bench.status();
    assert_eq!(status.reason.as_deref(), Some("UnsupportedPodSpec"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was rejected: spec.hostNetwork")
    );
    assert_eq!(status.container_statuses, None);
    bench.wait(3600);
    assert_eq!(bench.play(Input::Tick), []);
    bench.delete(30);
    assert_eq!(short(&bench.play(Input::Seen)), ["remove", "forget"]);
}

#[test]
fn a_pod_past_its_deadline_fails() {
    let mut bench = Bench::new(pod(
        &json!({"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 5}),
    ));
    let asked = bench.play(Input::Seen);
    assert_eq!(wake(&asked), Some(60));
    bench.wait(59);
    assert_eq!(short(&bench.play(Input::Tick)), [""; 0]);
    bench.wait(1);
    let asked = bench.play(Input::Tick);
    assert_eq!(short(&asked), ["stop web 5s", "post Failed"]);
    assert_eq!(bench.status().reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(
        bench.status().message.as_deref(),
        Some("Pod was active on the node longer than the specified deadline")
    );
}

#[test]
fn a_pod_that_somebody_else_has_failed_is_stopped_and_stays_so() {
    let mut bench = Bench::running(web());
    let status = bench.pod.status.as_mut().unwrap();
    status.phase = Some("Failed".to_owned());
    status.reason = Some("NodeLost".to_owned());
    bench.bump();
    assert_eq!(short(&bench.play(Input::Seen))[0], "stop web 30s");
    assert_eq!(bench.phase(), "Failed");
    assert_eq!(bench.status().reason.as_deref(), Some("NodeLost"));
}

#[test]
fn a_sandbox_that_cannot_be_made_is_tried_again_every_10_s_and_up_to_a_half_more() {
    let mut bench = Bench::new(web());
    let refuse = |action: &Action| {
        matches!(action, Action::Create).then(|| {
            Some(Input::Created(Err(Trouble::Fault(fault(
                FaultKind::Later,
                "Busy",
            )))))
        })
    };
    let asked = bench.play_but(Input::Seen, refuse);
    assert_eq!(deeds(&asked), ["create"]);
    assert_eq!(
        events(&asked),
        [(
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: Busy it says".to_owned()
        )]
    );
    let web = bench.container("web");
    assert_eq!(
        waiting(&web),
        ("ContainerCreating".to_owned(), "Busy it says".to_owned())
    );
    for _ in 0..9 {
        bench.wait(9);
        assert_eq!(
            deeds(&bench.play_but(Input::Tick, refuse)),
            [""; 0],
            "not before 10 s"
        );
        bench.wait(6);
        assert_eq!(deeds(&bench.play_but(Input::Tick, refuse)), ["create"]);
    }
    bench.wait(15);
    assert_eq!(deeds(&bench.play(Input::Tick)), ["create", "start web 0"]);
}

#[test]
fn a_volume_that_is_missing_leaves_the_pod_in_container_creating() {
    let mut bench = Bench::new(web());
    let asked = bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Create)
            .then(|| Some(Input::Created(Err(Trouble::Volume("no such Secret".to_owned())))))
    });
    assert_eq!(events(&asked), []);
    assert_eq!(bench.phase(), "Pending");
    assert_eq!(waiting(&bench.container("web")).0, "ContainerCreating");
    assert_eq!(wake(&asked), Some(1));
    bench.wait_for(&asked);
    bench.play(Input::Tick);
    assert_eq!(bench.phase(), "Running");
}

#[test]
fn pods_that_fail_together_do_not_all_try_again_together() {
    let refuse = |action: &Action| {
        let refused = || Input::Created(Err(Trouble::Fault(fault(FaultKind::Later, "Busy"))));
        matches!(action, Action::Create).then(|| Some(refused()))
    };
    let pauses: std::collections::BTreeSet<Duration> = (0..100)
        .map(|number| {
            let mut pod = web();
            pod.metadata.uid = Some(format!("uid-{number}"));
            let asked = Bench::new(pod).play_but(Input::Seen, refuse);
            let mut wakes = asked.iter().filter_map(|action| match action {
                Action::Wake(pause) => Some(*pause),
                _ => None,
            });
            wakes.next_back().expect("it is tried again")
        })
        .collect();
    let [least, most] = [pauses.first(), pauses.last()].map(|pause| pause.unwrap().as_millis());
    assert!(
        (10_000..10_500).contains(&least) && (14_500..15_000).contains(&most),
        "{pauses:?}"
    );
    assert!(pauses.len() > 90, "{pauses:?}");
}

#[test]
fn where_it_is_wanted_a_pod_that_can_never_be_created_fails() {
    let mut bench = Bench::new(web());
    bench.settings.fail_refused = true;
    let asked = bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Create).then(|| {
            Some(Input::Created(Err(Trouble::Fault(fault(
                FaultKind::Never,
                "TooBig",
            )))))
        })
    });
    assert_eq!(short(&asked).last().unwrap(), "post Failed");
    assert_eq!(bench.status().reason.as_deref(), Some("TooBig"));
}
