//! One worker: one probe of one container. Follows the kubelet's worker of 1.36 step by step.
//!
//! Three things that no running kubelet shows are otherwise: of two values set in one step (a started sidecar
//! with a new ID) only the last is published; an ID without a scheme is an ID; a start time that is not known
//! lies in the past.
//!
//! [`Worker::tick`] says whether there is anything to probe; [`Worker::settle`] takes the end of the attempt.
//! Neither looks at a clock. A worker never has two attempts at once: whoever drives it settles one before
//! the next tick.

use super::restart::runs_again;
use super::{
    Compat, Container, ContainerState, ContainerStatus, Kind, Outcome, Pod, PodStatus, Probe, Reading, Role,
    Verdict,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Two readings of the time, taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// A clock that never jumps, from any origin. Timers are in it.
    pub mono: Duration,
    /// Since the Unix epoch. Container start times are in it.
    pub wall: Duration,
}

/// What all workers of a prober share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whose rules apply.
    pub compat: Compat,
    /// When the prober started; a container that has run since 10 s before that is not new, the prober is.
    pub started: Now,
    /// Upstream's gate `ChangeContainerStatusOnKubeletRestart` (off since 1.35): whether initial values apply
    /// to containers that ran before the prober did.
    pub change_status_on_restart: bool,
}

impl Policy {
    /// Containers that start up to this long before the prober count as new (upstream's
    /// `kubeletRestartGracePeriod`).
    const GRACE: Duration = Duration::from_secs(10);

    /// Whether a container that is met now is not new, so that what is published about it should not flap: it
    /// was taken over, or ran before the prober did. In strict mode its age must say so too: the wall clock
    /// may have been set back since the prober started, and containers that start then are new.
    pub fn is_met_again(&self, container: &ContainerStatus, now: Now) -> bool {
        let ContainerState::Running { started_at } = container.state else {
            return false;
        };
        let age = now.wall.saturating_sub(started_at);
        let since = now.mono.saturating_sub(self.started.mono);
        let is_older = !started_at.is_zero() && started_at < self.started.wall.saturating_sub(Self::GRACE);
        container.taken_over
            || is_older && (self.compat == Compat::Kubelet || age > since.saturating_add(Self::GRACE))
    }
}

/// What a worker sees when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The rules that all workers of the prober share.
    pub policy: &'a Policy,
    /// The worker's pod.
    pub pod: &'a Pod,
    /// The worker's container.
    pub container: &'a Container,
    /// The pod's status, if any is known.
    pub status: Option<&'a PodStatus>,
    /// The worker's probe.
    pub probe: &'a Probe,
}

/// What comes of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The worker is done for good.
    Stop,
    /// Nothing to do now.
    Idle,
    /// Nothing to do before this time of [`Now::mono`], at which the worker wants to be asked again. Strict
    /// mode.
    Until(Duration),
    /// Make an attempt, and [`Worker::settle`] it.
    Probe,
}

/// How an attempt ended, once retries are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// A result that counts.
    Result(Reading),
    /// No result: the probe itself went wrong.
    Error,
    /// No result: the prober did not get to run in time, and can say nothing about the container. Strict
    /// mode.
    Starved,
}

impl Settled {
    /// What an outcome counts as: an error for nothing, a warning as success, `Unknown` without an error as
    /// failure.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome { error: Some(_), .. } => Self::Error,
            Outcome {
                verdict: Verdict::Success | Verdict::Warning,
                ..
            } => Self::Result(Reading::Success),
            Outcome {
                verdict: Verdict::Failure | Verdict::Unknown,
                ..
            } => Self::Result(Reading::Failure),
        }
    }
}

/// State of one worker. Written down, it survives a restart of the prober: thresholds go on where they were,
/// and what is published about a container that still runs stays published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    kind: Kind,
    /// Whose container the rest speaks of; `None` before the first was seen.
    container_id: Option<Arc<str>>,
    published: Option<Reading>,
    last: Option<Reading>,
    /// How often `last` came in a row.
    run: u32,
    /// Until there is a new container.
    on_hold: bool,
    /// In a row. Strict mode.
    errors: u32,
    /// The latest results that counted, newest in bit 0, a set bit a failure. Strict mode.
    failures: u64,
    /// How many bits of `failures` mean anything, up to 64.
    seen: u32,
    /// When the container was first seen to run. Strict mode. Means nothing to another process.
    #[serde(skip)]
    met: Option<Met>,
}

/// How long a container had run at some time of the clock that does not jump, whose origin may be later than
/// the container's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Met {
    /// On [`Now::mono`].
    at: Duration,
    /// Zero if its start lay in the future.
    age: Duration,
}

impl Worker {
    /// A worker that has seen nothing.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            container_id: None,
            published: None,
            last: None,
            run: 0,
            on_hold: false,
            errors: 0,
            failures: 0,
            seen: 0,
            met: None,
        }
    }

    /// Which probe this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The container that the worker knows.
    pub fn container_id(&self) -> Option<&Arc<str>> {
        self.container_id.as_ref()
    }

    /// What is published about [`Worker::container_id`].
    pub fn published(&self) -> Option<Reading> {
        self.published
    }

    /// The last result that counted, and how many alike came in a row.
    pub fn run(&self) -> (Option<Reading>, u32) {
        (self.last, self.run)
    }

    /// Errors in a row.
    pub fn errors(&self) -> u32 {
        self.errors
    }

    /// Whether it waits for a new container.
    pub fn on_hold(&self) -> bool {
        self.on_hold
    }

    /// Forgets how many results came in a row, because the thresholds they count towards have changed.
    pub fn reset_run(&mut self) {
        (self.last, self.run, self.errors) = (None, 0, 0);
        (self.failures, self.seen) = (0, 0);
    }

    /// What is published about a container at first.
    fn initial(&self) -> Reading {
        match self.kind {
            Kind::Readiness => Reading::Failure,
            Kind::Liveness => Reading::Success,
            Kind::Startup => Reading::Unknown,
        }
    }

    /// The time has come: is there anything to probe? What is published may change by the question alone;
    /// compare [`Worker::published`].
    pub fn tick(&mut self, world: &World<'_>, now: Now) -> Step {
        use super::Phase;
        let Some(status) = world.status else {
            return Step::Idle;
        };
        if matches!(status.phase, Phase::Failed | Phase::Succeeded) {
            return Step::Stop;
        }
        let named =
            |container: &&ContainerStatus| container.name == world.container.name && !container.id.is_empty();
        let Some(container) = status.containers.iter().find(named) else {
            return Step::Idle;
        };
        let strict = world.policy.compat == Compat::Strict;
        if self.container_id.as_deref() != Some(&*container.id) {
            self.meet(container, world, now);
        }
        if self.on_hold {
            return Step::Idle;
        }
        let started_at = match container.state {
            ContainerState::Running { started_at } => started_at,
            ContainerState::Waiting => {
                self.published = Some(Reading::Failure);
                return Step::Idle;
            }
            ContainerState::Terminated { exit_code } => {
                self.published = Some(Reading::Failure);
                return if runs_again(world.pod, world.container, exit_code, status) {
                    Step::Idle
                } else {
                    Step::Stop
                };
            }
        };
        if world.pod.deleting && self.kind != Kind::Readiness {
            // For a quiet end: nobody is to restart what is going away.
            self.published = Some(Reading::Success);
            return Step::Stop;
        }
        let due = if strict {
            // The wall clock may jump; how long the container has run is read from it once.
            let met = *self.met.get_or_insert(Met {
                at: now.mono,
                age: now.wall.saturating_sub(started_at),
            });
            met.at
                .saturating_add(world.probe.initial_delay.saturating_sub(met.age))
        } else if whole_seconds(now.wall, started_at) < i128::from(world.probe.initial_delay.as_secs()) {
            return Step::Idle;
        } else {
            now.mono
        };
        // A startup probe has done its part once the container has started, the others begin theirs.
        if (container.started == Some(true)) == (self.kind == Kind::Startup) {
            return Step::Idle;
        }
        if due > now.mono {
            return Step::Until(due);
        }
        Step::Probe
    }

    /// A container that the worker has not seen yet.
    fn meet(&mut self, container: &ContainerStatus, world: &World<'_>, now: Now) {
        self.container_id = Some(container.id.clone());
        self.on_hold = false;
        self.met = None;
        self.published = None;
        let policy = world.policy;
        if !policy.change_status_on_restart
            && world.container.role == Role::Sidecar
            && self.kind == Kind::Startup
            && container.started == Some(true)
        {
            self.published = Some(Reading::Success);
        }
        if policy.change_status_on_restart || !policy.is_met_again(container, now) {
            self.published = Some(self.initial());
        }
        if policy.compat == Compat::Strict {
            self.reset_run();
        }
    }

    /// Counts the result of an attempt that has ended, and publishes it if it is the last of enough equal
    /// ones in a row.
    pub fn settle(&mut self, settled: Settled, probe: &Probe, policy: &Policy) {
        let strict = policy.compat == Compat::Strict;
        let result = match settled {
            Settled::Starved => return,
            Settled::Error => {
                self.errors = self.errors.saturating_add(1);
                let threshold = probe.extras.error_threshold.unwrap_or(probe.failure_threshold);
                if strict && self.errors >= threshold {
                    self.published = Some(Reading::Unknown);
                }
                return;
            }
            Settled::Result(result) => result,
        };
        self.errors = 0;
        if self.last == Some(result) {
            self.run = self.run.saturating_add(1);
        } else {
            (self.last, self.run) = (Some(result), 1);
        }
        self.failures = self.failures << 1 | u64::from(result == Reading::Failure);
        self.seen = self.seen.saturating_add(1).min(u64::BITS);

        let Some(reached) = self.reached(result, probe, strict) else {
            return;
        };
        self.published = Some(reached);
        if self.kind == Kind::Startup || self.kind == Kind::Liveness && reached == Reading::Failure {
            // The container is about to be killed, or has started: nothing to ask until there is a new one.
            self.on_hold = true;
            self.run = 0;
        }
    }

    /// What is to be published after `result`, if its threshold is met.
    fn reached(&self, result: Reading, probe: &Probe, strict: bool) -> Option<Reading> {
        let succeeded = result == Reading::Success && self.run >= probe.success_threshold;
        match probe.extras.window.filter(|_| strict) {
            Some(window) => {
                // A window that cannot be is taken for the nearest that can.
                let of = window.of.clamp(1, u64::BITS);
                let failures = window.failures.clamp(1, of);
                let meant = u64::MAX >> (u64::BITS - of.min(self.seen).max(1));
                if (self.failures & meant).count_ones() >= failures {
                    Some(Reading::Failure)
                } else {
                    succeeded.then_some(Reading::Success)
                }
            }
            None if succeeded => Some(Reading::Success),
            None => (result == Reading::Failure && self.run >= probe.failure_threshold)
                .then_some(Reading::Failure),
        }
    }
}

/// Whole seconds from `then` to `now`, towards zero; negative when the clocks disagree.
fn whole_seconds(now: Duration, then: Duration) -> i128 {
    let difference = now.as_nanos() as i128 - then.as_nanos() as i128;
    difference / 1_000_000_000
}

#[cfg(test)]
mod tests;
