//! `probe()` of upstream's `prober_test.go`, as far as results and events go.

use super::*;
use crate::core::{Handler, Reading, RestartPolicy, Settled};
use rstest::rstest;

fn silent(verdict: Verdict) -> Outcome {
    Outcome {
        verdict,
        output: String::new(),
        error: None,
    }
}

/// What an attempt ended in, what that counts as, and what is recorded.
#[rstest]
#[case::fails(
    Outcome::failure("no"),
    Settled::Result(Reading::Failure),
    Some(("Unhealthy", "probe failed: no"))
)]
#[case::succeeds(Outcome::success("yes"), Settled::Result(Reading::Success), None)]
#[case::warns(
    Outcome::warning("hm"),
    Settled::Result(Reading::Success),
    Some(("ProbeWarning", "probe warning: hm"))
)]
#[case::unknown_without_an_error(silent(Verdict::Unknown), Settled::Result(Reading::Failure), None)]
#[case::unknown_with_an_error(
    Outcome::error(Verdict::Unknown, "exec error"),
    Settled::Error,
    Some(("Unhealthy", "probe errored and resulted in unknown state: exec error"))
)]
#[case::failure_with_an_error(
    Outcome::error(Verdict::Failure, "body"),
    Settled::Error,
    Some(("Unhealthy", "probe errored and resulted in failure state: body"))
)]
#[case::success_with_an_error(
    Outcome::error(Verdict::Success, "odd"),
    Settled::Error,
    Some(("Unhealthy", "probe errored and resulted in success state: odd"))
)]
#[case::warning_with_an_error(
    Outcome::error(Verdict::Warning, "odd"),
    Settled::Error,
    Some(("Unhealthy", "probe errored and resulted in warning state: odd"))
)]
fn the_end_of_an_attempt(
    #[values(Kind::Liveness, Kind::Readiness, Kind::Startup)] kind: Kind,
    #[case] outcome: Outcome,
    #[case] settled: Settled,
    #[case] event: Option<(&'static str, &str)>,
) {
    assert_eq!(Settled::of(&outcome), settled);
    let event = event.map(|(reason, message)| Event {
        warning: true,
        reason,
        message: format!("{} {message}", kind.name()),
    });
    assert_eq!(Event::of(kind, &outcome), event);
}

#[rstest]
#[case::liveness(
    Kind::Liveness,
    Role::Regular,
    None,
    "Container app failed liveness probe, will be restarted"
)]
#[case::startup(
    Kind::Startup,
    Role::Regular,
    None,
    "Container app failed startup probe, will be restarted"
)]
#[case::for_good(
    Kind::Liveness,
    Role::Regular,
    Some(RestartPolicy::Never),
    "Container app failed liveness probe"
)]
#[case::sidecar(
    Kind::Startup,
    Role::Sidecar,
    Some(RestartPolicy::Always),
    "Init container app failed startup probe"
)]
fn a_container_is_killed_for(
    #[case] kind: Kind,
    #[case] role: Role,
    #[case] own: Option<RestartPolicy>,
    #[case] message: &str,
) {
    let container = Container {
        name: "app".into(),
        role,
        restart_policy: own,
        ..Container::default()
    };
    let pod = Pod {
        uid: "uid".into(),
        namespace: "default".into(),
        name: "pod".into(),
        deleting: false,
        restart_policy: RestartPolicy::OnFailure,
        containers: Vec::new(),
    };
    let expected = Event {
        warning: false,
        reason: "Killing",
        message: message.into(),
    };
    assert_eq!(Event::killing(kind, &pod, &container), expected);
}

/// In kubelet mode errors are tried again at once; in strict mode they have a threshold.
#[rstest]
#[case::kubelet(Compat::Kubelet, 3)]
#[case::strict(Compat::Strict, 1)]
fn an_attempt_is_tried(#[case] compat: Compat, #[case] tries: u32) {
    let attempt = Attempt {
        ticket: 1,
        key: Key {
            pod: "uid".into(),
            container: "app".into(),
            kind: Kind::Readiness,
        },
        target: Target {
            address: None,
            source: None,
            container: Arc::default(),
            container_id: "test://1".into(),
        },
        probe: Arc::new(Probe::new(Handler::Exec { command: vec![] })),
        compat,
        lag: Duration::ZERO,
    };
    assert_eq!(attempt.tries(), tries);
    assert_eq!(attempt.key.to_string(), "app readinessProbe of pod uid");
}
