//! What the prober is told.

use super::machine::{Machine, Object, World};
use super::record::Life;
use super::spec::Role;
use super::{Action, ProbeOrder};
use evenkeel_api::names::annotations::PROBES;
use evenkeel_probe::core::{ContainerState, ContainerStatus, PodStatus};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// What the prober was told; digests, 0 for nothing.
#[derive(Debug, Default)]
pub(super) struct Probing {
    watched: u64,
    status: u64,
    terminating: bool,
}

impl Machine {
    /// Tells the prober what has changed. Pods without probes are none of its business.
    pub(super) fn tell_prober(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        let ending = self.is_ending(world);
        let over =
            self.object == Object::Forgotten || (ending && self.is_quiet() && self.end.over().is_some());
        if over {
            if self.probing.watched != 0 {
                self.probing = Probing::default();
                out.push(Action::Probe(ProbeOrder::Forget));
            }
            return;
        }
        if !world.specs.iter().any(super::spec::Spec::has_probes) || !self.presence.is_up() {
            return;
        }
        let watched = watched(world);
        if !ending && self.probing.watched != watched {
            self.probing.watched = watched;
            out.push(Action::Probe(ProbeOrder::Watch));
        }
        if self.probing.watched == 0 {
            return;
        }
        let status = self.probed(world);
        let digest = digest(&status);
        if self.probing.status != digest {
            self.probing.status = digest;
            out.push(Action::Probe(ProbeOrder::Status(status)));
        }
        if ending && !self.probing.terminating {
            self.probing.terminating = true;
            out.push(Action::Probe(ProbeOrder::Terminating));
        }
    }

    /// The status as the prober sees it.
    fn probed(&self, world: &World<'_>) -> PodStatus {
        let phase = self.present_phase(world);
        let regular = |role: Role| role == Role::Regular;
        let all = self.records.iter().zip(world.specs);
        let shown = all.filter(|(record, _)| record.role != Role::Ephemeral);
        let mut containers: Vec<_> = shown
            .map(|(record, spec)| {
                let (id, state) = match (&record.life, &record.ended) {
                    (Life::Running(run), _) => {
                        let started_at = Duration::try_from(run.since.as_duration()).unwrap_or_default();
                        (run.id.clone(), ContainerState::Running { started_at })
                    }
                    (_, Some(ended)) if record.wait.is_none() => (
                        ended.id.clone(),
                        ContainerState::Terminated {
                            exit_code: ended.code,
                        },
                    ),
                    (_, Some(ended)) => (ended.id.clone(), ContainerState::Waiting),
                    (_, None) => ("".into(), ContainerState::Waiting),
                };
                let run = record.run();
                let status = ContainerStatus {
                    name: record.name.clone(),
                    id,
                    state,
                    started: Some(run.is_some_and(|run| run.is_started(spec))),
                    ready: run.is_some_and(|run| run.is_ready(spec)),
                };
                (regular(record.role), status)
            })
            .collect();
        containers.sort_by_key(|(regular, _)| !*regular);
        let (conditions, _) = self.conditions(world, phase);
        let ready = |name: &str| {
            conditions
                .iter()
                .any(|found| found.type_ == name && found.status == "True")
        };
        PodStatus {
            phase,
            address: self
                .sandbox()
                .and_then(|sandbox| sandbox.addresses.first().copied()),
            ready: ready("Ready"),
            restarting_all: self.restarting_all,
            containers: containers.into_iter().map(|(_, status)| status).collect(),
        }
    }
}

/// Of what decides how the pod is probed and can change while it runs.
fn watched(world: &World<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let annotations = world.pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(PROBES)).hash(&mut hasher);
    hasher.finish().max(1)
}

fn digest(status: &PodStatus) -> u64 {
    struct Sink(DefaultHasher);
    impl Write for Sink {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut sink = Sink(DefaultHasher::new());
    // A hasher takes all.
    let _ = write!(sink, "{status:?}");
    sink.0.finish().max(1)
}
