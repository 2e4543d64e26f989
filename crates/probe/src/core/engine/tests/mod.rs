//! Virtual time, pods made to measure, and a driver that stands for the shell.

mod fairness;
mod manager;
mod random;
mod reload;
mod schedule;
mod snapshot;
mod status;

use super::*;
use crate::core::{ContainerState, ContainerStatus, Now, Phase, Port, RestartPolicy, Role, Verdict};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The wall clock is this far ahead of the other.
const WALL: Duration = Duration::from_secs(1_000_000);

pub(super) fn at(mono: Duration) -> Now {
    Now {
        mono,
        wall: mono.saturating_add(WALL),
    }
}

pub(super) fn secs(seconds: u64) -> Now {
    at(Duration::from_secs(seconds))
}

/// An engine whose prober started long ago, without limits to speak of.
pub(super) fn engine(compat: Compat) -> Engine {
    Engine::new(config(compat))
}

pub(super) fn config(compat: Compat) -> Config {
    Config {
        policy: Policy {
            compat,
            started: Now {
                mono: Duration::ZERO,
                wall: WALL,
            },
            change_status_on_restart: false,
        },
        concurrency: 10_000,
        exec_concurrency: 10_000,
        source: None,
        seed: 7,
    }
}

pub(super) fn probe() -> Probe {
    Probe::new(Handler::TcpSocket {
        host: None,
        port: Port::Number(80),
    })
}

pub(super) fn exec() -> Probe {
    Probe::new(Handler::Exec {
        command: vec!["true".to_owned()],
    })
}

/// A container with these probes.
pub(super) fn container(name: &str, role: Role, probes: &[(Kind, Probe)]) -> Container {
    let of = |wanted: Kind| {
        let found = probes.iter().find(|(kind, _)| *kind == wanted);
        found.map(|(_, probe)| Arc::new(probe.clone()))
    };
    Container {
        name: name.into(),
        role,
        restart_policy: (role == Role::Sidecar).then_some(RestartPolicy::Always),
        startup: of(Kind::Startup),
        readiness: of(Kind::Readiness),
        liveness: of(Kind::Liveness),
        ..Default::default()
    }
}

pub(super) fn pod(uid: &str, containers: impl IntoIterator<Item = Container>) -> Arc<Pod> {
    Arc::new(Pod {
        uid: uid.into(),
        namespace: "default".into(),
        name: uid.into(),
        deleting: false,
        restart_policy: RestartPolicy::Always,
        containers: containers.into_iter().map(Arc::new).collect(),
    })
}

/// A pod `uid` of one container `c` with these probes.
pub(super) fn simple(uid: &str, probes: &[(Kind, Probe)]) -> Arc<Pod> {
    pod(uid, [container("c", Role::Regular, probes)])
}

pub(super) fn status(containers: impl IntoIterator<Item = ContainerStatus>) -> PodStatus {
    PodStatus {
        phase: Phase::Running,
        address: Some([10, 0, 0, 1].into()),
        containers: containers.into_iter().collect(),
        ..Default::default()
    }
}

pub(super) fn in_state(name: &str, id: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        name: name.into(),
        id: id.into(),
        state,
        started: None,
        ready: false,
        taken_over: false,
    }
}

/// A container that has run since `since` on the clock of [`secs`].
pub(super) fn running(name: &str, id: &str, since: u64) -> ContainerStatus {
    let started_at = secs(since).wall;
    in_state(name, id, ContainerState::Running { started_at })
}

/// The status of [`simple`], running as `id` since `since`.
pub(super) fn up(id: &str, since: u64) -> PodStatus {
    status([running("c", id, since)])
}

/// All attempts that are due.
pub(super) fn attempts(engine: &mut Engine, now: Now) -> Vec<crate::core::Attempt> {
    std::iter::from_fn(|| engine.next_attempt(now)).collect()
}

/// Drives the engine until `until`, each attempt answered at once by `answer`, and says when who was probed.
pub(super) fn drive(
    engine: &mut Engine,
    until: Now,
    mut answer: impl FnMut(&Key, Now) -> Outcome,
) -> Vec<(Duration, Kind)> {
    let mut made = Vec::new();
    while let Some(due) = engine.due().filter(|due| *due <= until.mono) {
        let now = at(due);
        while let Some(attempt) = engine.next_attempt(now) {
            made.push((due, attempt.key.kind));
            let outcome = answer(&attempt.key, now);
            engine.settle(attempt.ticket, outcome, false, now);
        }
        assert!(
            engine.due().is_none_or(|next| next > due),
            "due() stays at {due:?}"
        );
    }
    made
}

pub(super) fn well(_: &Key, _: Now) -> Outcome {
    Outcome::success("fine")
}

pub(super) fn badly(_: &Key, _: Now) -> Outcome {
    Outcome::failure("HTTP probe failed with statuscode: 500")
}

/// What was published, with the reason.
pub(super) fn published(notices: &[Notice]) -> Vec<(Kind, Reading, &str)> {
    let of = |notice| match notice {
        &Notice::Published {
            ref key,
            reading,
            ref why,
            ..
        } => Some((key.kind, reading, why.as_str())),
        _ => None,
    };
    notices.iter().filter_map(of).collect()
}

/// Nothing is left: neither pods, nor timers, nor anything else that grows.
pub(super) fn assert_empty(engine: &Engine) {
    assert_eq!(
        (
            engine.index.len(),
            engine.pods.len(),
            engine.workers.len(),
            engine.aside.len()
        ),
        (0, 0, 0, 0),
        "pods, pods, workers, kept"
    );
    assert_eq!(
        (engine.timers.len(), engine.queue.len()),
        (0, 0),
        "timers, pods in the queue"
    );
    assert_eq!(
        engine.flights.len(),
        engine.execs,
        "only exec attempts may be left, if any"
    );
}
