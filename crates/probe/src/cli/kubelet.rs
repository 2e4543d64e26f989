//! A kubelet without a runtime: containers that are taken to run, and what would become of them. Pure.

use crate::core::engine::Report;
use crate::core::{
    BackOff, Container, ContainerState, ContainerStatus, Event, Kind, Now, Phase, Pod, PodStatus, Role,
    all_restart, kill_grace, runs_again,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What a container ends with that did not heed TERM in time. Killed containers count as failed.
const KILLED: i32 = 137;

/// Something that a kubelet does about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ends a container because a probe failed.
    Kill {
        container: Arc<str>,
        /// The probe that failed.
        kind: Kind,
        /// The event that a kubelet records for it.
        event: Event,
        /// Time between TERM and KILL.
        grace: Duration,
        /// The field of the manifest that sets this time.
        grace_of: &'static str,
    },
    /// Waits before it starts the container again.
    BackOff { container: Arc<str>, delay: Duration },
    /// Starts it again.
    Restart {
        container: Arc<str>,
        /// The new container's ID.
        id: Arc<str>,
        /// How many restarts that makes.
        restarts: u32,
    },
    /// Leaves it ended.
    End {
        container: Arc<str>,
        /// The restart policy that says so.
        policy: &'static str,
    },
    /// Nothing of the pod runs any more, nor will.
    Fail,
}

/// The event, and the time that a kubelet gives a container which failed this probe: the probe's own, else
/// the pod's, but two seconds at the least.
pub(super) fn kill(pod: &Pod, container: &Container, kind: Kind, grace: Duration) -> Action {
    let own = container
        .probe(kind)
        .and_then(|probe| probe.termination_grace_period);
    Action::Kill {
        container: container.name.clone(),
        kind,
        event: Event::killing(kind, pod, container),
        grace: kill_grace(container, kind, grace),
        grace_of: match (own, kind) {
            (Some(_), Kind::Startup) => "startupProbe.terminationGracePeriodSeconds",
            (Some(_), _) => "livenessProbe.terminationGracePeriodSeconds",
            (None, _) => "the pod's terminationGracePeriodSeconds",
        },
    }
}

/// A container as it is simulated.
#[derive(Clone, Debug)]
struct Simulated {
    spec: Arc<Container>,
    restarts: u32,
    id: Arc<str>,
    state: ContainerState,
    started: Option<bool>,
    ready: bool,
    back_off: BackOff,
    /// When it ended, and when it starts again; on the clock that does not jump.
    again: Option<(Duration, Duration)>,
}

/// A container as a table shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: Arc<str>,
    pub(super) id: Arc<str>,
    pub(super) state: ContainerState,
    pub(super) started: bool,
    pub(super) ready: bool,
    pub(super) restarts: u32,
}

/// The simulated kubelet of one pod.
#[derive(Clone, Debug)]
pub(super) struct Kubelet {
    pod: Arc<Pod>,
    address: Option<IpAddr>,
    grace: Duration,
    containers: Vec<Simulated>,
    failed: bool,
}

impl Kubelet {
    /// A pod whose containers all run since `now`, except init containers, which have ended well. `grace` is
    /// the pod's `terminationGracePeriodSeconds`; `restarts` are those of a former run, by container.
    pub(super) fn new(
        pod: Arc<Pod>,
        address: Option<IpAddr>,
        grace: Duration,
        restarts: &BTreeMap<Arc<str>, u32>,
        now: Now,
    ) -> Self {
        let containers = pod.containers.iter().map(|spec| {
            let restarts = restarts.get(&spec.name).copied().unwrap_or(0);
            Simulated {
                restarts,
                id: id(&spec.name, restarts),
                state: match spec.role {
                    Role::Init => ContainerState::Terminated { exit_code: 0 },
                    Role::Regular | Role::Sidecar => ContainerState::Running { started_at: now.wall },
                },
                started: None,
                ready: false,
                back_off: BackOff::default(),
                again: None,
                spec: spec.clone(),
            }
        });
        Self {
            containers: containers.collect(),
            pod,
            address,
            grace,
            failed: false,
        }
    }

    /// What is reported to the prober.
    pub(super) fn status(&self) -> PodStatus {
        let containers = self.containers.iter().map(|container| ContainerStatus {
            name: container.spec.name.clone(),
            id: container.id.clone(),
            state: container.state,
            started: container.started,
            ready: container.ready,
            taken_over: false,
        });
        PodStatus {
            phase: if self.failed {
                Phase::Failed
            } else {
                Phase::Running
            },
            address: self.address,
            ready: self.ready(),
            restarting_all: false,
            containers: containers.collect(),
        }
    }

    /// The containers that can have probes, in their order.
    pub(super) fn seen(&self) -> impl Iterator<Item = Seen> {
        let probed = self.containers.iter().filter(|c| c.spec.role != Role::Init);
        probed.map(|container| Seen {
            name: container.spec.name.clone(),
            id: container.id.clone(),
            state: container.state,
            started: container.started == Some(true),
            ready: container.ready,
            restarts: container.restarts,
        })
    }

    /// Whether all containers are ready.
    pub(super) fn ready(&self) -> bool {
        !self.failed && self.seen().all(|container| container.ready)
    }

    /// Whether nothing runs any more, nor will.
    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    /// Takes what the prober says is to be reported.
    pub(super) fn take(&mut self, reports: &[Report]) {
        for report in reports {
            let found = self
                .containers
                .iter_mut()
                .find(|container| container.spec.name == report.container);
            let Some(container) = found else { continue };
            let running = container.state.is_running();
            let (started, ready) = (report.started && running, report.ready && running);
            (container.started, container.ready) = (Some(started), ready);
        }
    }

    /// A probe whose failure restarts has failed for good, for the container of this ID.
    pub(super) fn fail(&mut self, container: &str, id: &str, kind: Kind, now: Now) -> Vec<Action> {
        let found = self.containers.iter().position(|candidate| {
            &*candidate.spec.name == container && &*candidate.id == id && candidate.state.is_running()
        });
        let Some(index) = found.filter(|_| kind != Kind::Readiness) else {
            // Of a container that is no more.
            return Vec::new();
        };
        self.end(index);
        let status = self.status();
        let spec = self.containers[index].spec.clone();
        let again = runs_again(&self.pod, &spec, KILLED, &status);
        let mut actions = vec![kill(&self.pod, &spec, kind, self.grace)];
        if all_restart(&self.pod, &status) {
            let running = |c: &Simulated| c.spec.role != Role::Init;
            let all: Vec<usize> = (0..self.containers.len())
                .filter(|index| running(&self.containers[*index]))
                .collect();
            for index in all {
                self.end(index);
                actions.push(self.start(index, now));
            }
        } else if again {
            actions.push(self.wait(index, now));
        } else {
            let policy = spec.restart_policy.unwrap_or(self.pod.restart_policy);
            actions.push(Action::End {
                container: spec.name.clone(),
                policy: match policy {
                    crate::core::RestartPolicy::Always => "Always",
                    crate::core::RestartPolicy::OnFailure => "OnFailure",
                    crate::core::RestartPolicy::Never => "Never",
                },
            });
            let over = |c: &Simulated| !c.state.is_running() && c.again.is_none();
            if self
                .containers
                .iter()
                .filter(|c| c.spec.role == Role::Regular)
                .all(over)
            {
                self.failed = true;
                actions.push(Action::Fail);
            }
        }
        actions
    }

    /// When [`Kubelet::advance`] has something to do, on [`Now::mono`].
    pub(super) fn due(&self) -> Option<Duration> {
        self.containers
            .iter()
            .filter_map(|container| container.again.map(|(_, at)| at))
            .min()
    }

    /// In how long a container starts again that waits.
    pub(super) fn waits(&self, container: &str, now: Duration) -> Option<Duration> {
        let found = self
            .containers
            .iter()
            .find(|candidate| *candidate.spec.name == *container)?;
        found.again.map(|(_, at)| at.saturating_sub(now))
    }

    /// Starts what is due to start again.
    pub(super) fn advance(&mut self, now: Now) -> Vec<Action> {
        let due: Vec<usize> = (0..self.containers.len())
            .filter(|index| {
                self.containers[*index]
                    .again
                    .is_some_and(|(_, at)| at <= now.mono)
            })
            .collect();
        due.into_iter().map(|index| self.start(index, now)).collect()
    }

    /// It has ended; at once, since nobody knows how long it would take.
    fn end(&mut self, index: usize) {
        let container = &mut self.containers[index];
        container.state = ContainerState::Terminated { exit_code: KILLED };
        (container.started, container.ready) = (Some(false), false);
    }

    /// Starts it again, now or after the back-off.
    fn wait(&mut self, index: usize, now: Now) -> Action {
        let container = &mut self.containers[index];
        let delay = container.back_off.delay(now.mono, BackOff::MOST);
        container.again = Some((now.mono, now.mono.saturating_add(delay)));
        if delay.is_zero() {
            return self.start(index, now);
        }
        container.state = ContainerState::Waiting;
        Action::BackOff {
            container: container.spec.name.clone(),
            delay,
        }
    }

    fn start(&mut self, index: usize, now: Now) -> Action {
        let container = &mut self.containers[index];
        let (ended, _) = container.again.take().unwrap_or((now.mono, now.mono));
        container
            .back_off
            .advance(ended, now.mono, BackOff::FIRST, BackOff::MOST);
        container.restarts = container.restarts.saturating_add(1);
        container.id = id(&container.spec.name, container.restarts);
        container.state = ContainerState::Running { started_at: now.wall };
        (container.started, container.ready) = (None, false);
        Action::Restart {
            container: container.spec.name.clone(),
            id: container.id.clone(),
            restarts: container.restarts,
        }
    }
}

/// A container ID that no runtime gives.
pub(super) fn id(container: &str, restarts: u32) -> Arc<str> {
    format!("{SCHEME}{container}/{restarts}").into()
}

/// The number of restarts that an ID of [`id`] stands for.
pub(super) fn restarts_of(id: &str) -> Option<u32> {
    id.strip_prefix(SCHEME)?.rsplit_once('/')?.1.parse().ok()
}

const SCHEME: &str = "simulated://";

#[cfg(test)]
mod tests;
