//! The status of a pod (kubelet's `generateAPIPodStatus`), and what the prober sees of it.

use super::end::End;
use super::machine::{Machine, World};
use super::presence::Presence;
use super::record::{Ended, LOST, LOST_MESSAGE, Life, Record};
use super::spec::{Role, Spec, generation};
use super::transitions::OWN;
use super::words::whole;
use super::{phase, qos};
use evenkeel_api::names::pods::{CONTAINER_CREATING, POD_INITIALIZING, STATUS_UNKNOWN};
use evenkeel_probe::core::{self as probe, Phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, PodIP, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

/// A kubelet's limit of all termination messages of a pod, in bytes, shared by its containers.
const MESSAGES: usize = 12 << 10;

impl Machine {
    /// The status; of a pod that is left alone or not taken over yet, as it stands.
    pub(super) fn build(&self, world: &World<'_>) -> PodStatus {
        if matches!(self.end, End::LeftAlone(_)) || self.presence.is_unknown() {
            let mut status = world.pod.status.clone().unwrap_or_default();
            if let Some(conditions) = &mut status.conditions {
                let extra = &world.settings.conditions;
                conditions.retain(|condition| {
                    OWN.contains(&&*condition.type_)
                        || extra.iter().any(|extra| extra.kind == condition.type_)
                });
            }
            return status;
        }
        let phase = self.present_phase(world);
        let (conditions, _) = self.conditions(world, phase);
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let fate = self.end.fate().filter(|_| self.end.over().is_some());
        let hosts = &world.settings.host_addresses;
        let addresses = self
            .presence
            .sandbox()
            .map_or(&[][..], |sandbox| &sandbox.addresses[..]);
        let shown = self.has_containers_to_show();
        let list = |roles: &[Role], sorted: bool| {
            let all = self.records.iter().zip(world.specs);
            let of = all.filter(|(record, _)| shown && roles.contains(&record.role));
            let mut list: Vec<_> = of
                .map(|(record, spec)| self.container(world, record, spec))
                .collect();
            if sorted {
                list.sort_by(|one, other| one.name.cmp(&other.name));
            }
            (!list.is_empty()).then_some(list)
        };
        let own = world.pod.status.as_ref();
        let class = own.and_then(|status| status.qos_class.clone());
        PodStatus {
            phase: Some(phase::name(phase).to_owned()),
            reason: fate.and_then(|fate| text(&fate.reason)),
            message: fate.and_then(|fate| text(&fate.message)),
            conditions: Some(conditions),
            host_ip: hosts.first().map(ToString::to_string),
            host_ips: (!hosts.is_empty()).then(|| {
                hosts
                    .iter()
                    .take(2)
                    .map(|ip| HostIP { ip: ip.to_string() })
                    .collect()
            }),
            pod_ip: addresses.first().map(ToString::to_string),
            pod_ips: (!addresses.is_empty())
                .then(|| addresses.iter().map(|ip| PodIP { ip: ip.to_string() }).collect()),
            start_time: self
                .started_at
                .and_then(|at| Timestamp::from_second(at).ok())
                .map(Time),
            qos_class: class.or_else(|| Some(qos::class(world.pod).to_owned())),
            observed_generation: generation(world.pod),
            init_container_statuses: list(&[Role::Init, Role::Sidecar], false),
            container_statuses: list(&[Role::Regular], true),
            ephemeral_container_statuses: list(&[Role::Ephemeral], true),
            ..PodStatus::default()
        }
    }

    /// A pod that was refused has nothing to show.
    pub(super) fn has_containers_to_show(&self) -> bool {
        let never_created = matches!(self.presence, Presence::Absent { remains: false, .. });
        !never_created || self.end.fate().is_none()
    }

    /// The status as the prober sees it.
    pub(super) fn probed(&self, world: &World<'_>) -> probe::PodStatus {
        let phase = self.present_phase(world);
        let regular = |role: Role| role == Role::Regular;
        let all = self.records.iter().zip(world.specs);
        let shown = all.filter(|(record, _)| record.role != Role::Ephemeral);
        let mut containers: Vec<_> = shown
            .map(|(record, spec)| {
                let (id, state) = match (&record.life, &record.ended) {
                    (Life::Running(run), _) => {
                        let started_at = Duration::try_from(run.since.as_duration()).unwrap_or_default();
                        (run.id.clone(), probe::ContainerState::Running { started_at })
                    }
                    (_, Some(ended)) if record.wait.is_none() => (
                        ended.id.clone(),
                        probe::ContainerState::Terminated {
                            exit_code: ended.code,
                        },
                    ),
                    (_, Some(ended)) => (ended.id.clone(), probe::ContainerState::Waiting),
                    (_, None) => ("".into(), probe::ContainerState::Waiting),
                };
                let run = record.run();
                let status = probe::ContainerStatus {
                    name: record.name.clone(),
                    id,
                    state,
                    started: Some(run.is_some_and(|run| run.is_started(spec))),
                    ready: run.is_some_and(|run| run.is_ready(spec)),
                    taken_over: run.is_some_and(|run| run.recorded.is_some()),
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
        probe::PodStatus {
            phase,
            address: self
                .sandbox()
                .and_then(|sandbox| sandbox.addresses.first().copied()),
            ready: ready("Ready"),
            restarting_all: self.presence.is_restarting_all(),
            containers: containers.into_iter().map(|(_, status)| status).collect(),
        }
    }

    fn container(&self, world: &World<'_>, record: &Record, spec: &Spec<'_>) -> ContainerStatus {
        let share = MESSAGES / world.specs.len().max(1);
        let ended = record.ended.as_deref();
        let mut status = ContainerStatus {
            name: spec.name.to_owned(),
            image: spec.image.to_owned(),
            restart_count: i32::try_from(record.restarts).unwrap_or(i32::MAX),
            started: (record.role != Role::Ephemeral).then_some(false),
            ..ContainerStatus::default()
        };
        let last = |ended: Option<&Ended>| {
            ended.map(|ended| ContainerState {
                terminated: Some(terminated(ended, share)),
                ..ContainerState::default()
            })
        };
        if let Life::Running(run) = &record.life {
            let running = ContainerStateRunning {
                started_at: Some(whole(run.since)),
            };
            status.state = Some(ContainerState {
                running: Some(running),
                ..ContainerState::default()
            });
            status.last_state = last(ended);
            status.container_id = Some(run.id.to_string());
            status.image_id = run.image_id.to_string();
            if !run.image.is_empty() {
                status.image = run.image.to_string();
            }
            if record.role != Role::Ephemeral {
                status.started = Some(run.is_started(spec));
                status.ready = record.role != Role::Init && run.is_ready(spec);
            }
        } else {
            let waiting = self.waiting(world, record);
            let instance = ended.filter(|ended| !ended.id.is_empty());
            if let Some(ended) = instance {
                status.container_id = Some(ended.id.to_string());
                status.image_id = ended.image_id.to_string();
                status.image = ended.image.to_string();
            }
            match (waiting, ended) {
                (Some(waiting), _) => {
                    status.state = Some(ContainerState {
                        waiting: Some(waiting),
                        ..ContainerState::default()
                    });
                    status.last_state = last(ended);
                }
                (None, Some(ended)) => {
                    status.ready = record.role == Role::Init && ended.code == 0;
                    status.state = last(Some(ended));
                    status.last_state = last(record.older.as_deref());
                }
                (None, None) => {
                    let lost = ContainerStateTerminated {
                        exit_code: LOST,
                        reason: Some(STATUS_UNKNOWN.to_owned()),
                        message: Some(LOST_MESSAGE.to_owned()),
                        ..ContainerStateTerminated::default()
                    };
                    status.state = Some(ContainerState {
                        terminated: Some(lost),
                        ..ContainerState::default()
                    });
                }
            }
        }
        if record.has_history() {
            let resources = spec
                .resources
                .filter(|resources| **resources != ResourceRequirements::default());
            status.allocated_resources = resources.and_then(|resources| resources.requests.clone());
            status.resources = resources.cloned();
        }
        status
    }

    /// What a container waits for that does not run; `None`: for nothing, it has ended.
    fn waiting(&self, world: &World<'_>, record: &Record) -> Option<ContainerStateWaiting> {
        let ending = self.is_ending(world);
        if record.ended.is_some() {
            let wait = record.wait.as_ref().filter(|_| !ending)?;
            return Some(ContainerStateWaiting {
                reason: Some(wait.reason.clone().unwrap_or_else(|| default_reason(world))),
                message: Some(wait.message.clone()).filter(|message| !message.is_empty()),
            });
        }
        // Of a pod that was initialised, every container is held to have run.
        if self.end.over().is_some()
            && self.initialised
            && self.end.over() != Some(Phase::Pending)
            && record.role == Role::Regular
        {
            return None;
        }
        let wait = record.wait.as_ref();
        let hindrance = self.presence.hindrance();
        let message = match wait {
            Some(wait) => Some(wait.message.clone()),
            None => hindrance.map(|hindrance| hindrance.message.clone()),
        };
        Some(ContainerStateWaiting {
            reason: Some(
                wait.and_then(|wait| wait.reason.clone())
                    .or_else(|| hindrance.and_then(|hindrance| hindrance.reason.clone()))
                    .unwrap_or_else(|| default_reason(world)),
            ),
            message: message.filter(|message| !message.is_empty()),
        })
    }
}

fn default_reason(world: &World<'_>) -> String {
    let reason = if world.has_init() {
        POD_INITIALIZING
    } else {
        CONTAINER_CREATING
    };
    reason.to_owned()
}

fn terminated(ended: &Ended, share: usize) -> ContainerStateTerminated {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut end = ended.message.len().min(share);
    while !ended.message.is_char_boundary(end) {
        end -= 1;
    }
    ContainerStateTerminated {
        container_id: text(&ended.id),
        exit_code: ended.code,
        reason: text(&ended.reason),
        message: text(&ended.message[..end]),
        started_at: ended.started_at.map(whole),
        finished_at: ended.at.map(whole),
        signal: None,
    }
}
