//! Cases of upstream's `worker_test.go`, and what strict mode adds.

use super::*;
use crate::core::{ContainerStatus, Handler, Phase, RestartPolicy};

mod properties;
mod restarts;
mod rounds;
mod strict;
mod thresholds;

/// When the prober started, as everything else here unless it says so.
const NOW: Now = Now {
    mono: Duration::from_secs(1000),
    wall: Duration::from_secs(1_700_000_000),
};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// That long before [`NOW`], by the wall clock.
fn ago(span: Duration) -> Duration {
    NOW.wall.saturating_sub(span)
}

/// A probe whose thresholds are both 1.
fn probe() -> Probe {
    Probe {
        success_threshold: 1,
        failure_threshold: 1,
        ..Probe::new(Handler::Exec {
            command: vec!["true".into()],
        })
    }
}

fn running(started_at: Duration) -> ContainerState {
    ContainerState::Running { started_at }
}

fn status(state: ContainerState, started: bool) -> PodStatus {
    PodStatus {
        phase: Phase::Running,
        containers: vec![ContainerStatus {
            name: "app".into(),
            id: "test://1".into(),
            state,
            started: Some(started),
            ready: false,
            taken_over: false,
        }],
        ..PodStatus::default()
    }
}

/// A worker, its pod, and what answers it.
struct Bench {
    worker: Worker,
    policy: Policy,
    pod: Pod,
    container: Container,
    status: Option<PodStatus>,
    probe: Probe,
    now: Now,
    /// What the next attempts end in.
    answer: Outcome,
    /// Attempts made.
    attempts: u32,
}

impl Bench {
    /// A pod that never restarts, whose only container has just started (and, for a startup probe, not come
    /// up yet), and whose probe succeeds.
    fn new(kind: Kind) -> Self {
        Self {
            worker: Worker::new(kind),
            policy: Policy {
                started: NOW,
                ..Policy::default()
            },
            pod: Pod {
                uid: "uid".into(),
                namespace: "default".into(),
                name: "pod".into(),
                deleting: false,
                restart_policy: RestartPolicy::Never,
                containers: Vec::new(),
            },
            container: Container {
                name: "app".into(),
                ..Container::default()
            },
            status: Some(status(running(NOW.wall), kind != Kind::Startup)),
            probe: probe(),
            now: NOW,
            answer: Outcome::success(""),
            attempts: 0,
        }
    }

    fn strict(kind: Kind) -> Self {
        let mut bench = Self::new(kind);
        bench.policy.compat = Compat::Strict;
        bench
    }

    fn thresholds(mut self, success: u32, failure: u32) -> Self {
        (self.probe.success_threshold, self.probe.failure_threshold) = (success, failure);
        self
    }

    /// The status of the worker's container.
    fn seen(&mut self) -> &mut ContainerStatus {
        &mut self.status.as_mut().unwrap().containers[0]
    }

    fn new_container(&mut self, id: &str) {
        self.seen().id = id.into();
    }

    fn tick(&mut self) -> Step {
        let world = World {
            policy: &self.policy,
            pod: &self.pod,
            container: &self.container,
            status: self.status.as_ref(),
            probe: &self.probe,
        };
        self.worker.tick(&world, self.now)
    }

    /// A tick, and the attempt if there is one.
    fn round(&mut self) -> Step {
        let step = self.tick();
        if step == Step::Probe {
            self.attempts += 1;
            self.settle(Settled::of(&self.answer));
        }
        step
    }

    fn settle(&mut self, settled: Settled) {
        self.worker.settle(settled, &self.probe, &self.policy);
    }

    /// Rounds that end like this, and what is published after each.
    fn rounds<const N: usize>(&mut self, outcome: &Outcome) -> [Option<Reading>; N] {
        self.answer = outcome.clone();
        [(); N].map(|()| {
            assert_ne!(self.round(), Step::Stop);
            self.worker.published()
        })
    }

    fn published(&self) -> Option<Reading> {
        self.worker.published()
    }
}

fn good() -> Outcome {
    Outcome::success("")
}

fn bad() -> Outcome {
    Outcome::failure("")
}

const SUCCESS: Option<Reading> = Some(Reading::Success);
const FAILURE: Option<Reading> = Some(Reading::Failure);
const UNKNOWN: Option<Reading> = Some(Reading::Unknown);
