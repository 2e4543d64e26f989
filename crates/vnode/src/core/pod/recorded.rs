//! What an earlier process has recorded of a pod in its status, and what the provider makes of it.

use super::record::{Ended, Life, Record, Run};
use super::spec::Role;
use crate::core::Now;
use crate::core::reported::{ContainerId, Doing, PodState, Started};
use evenkeel_probe::core::Phase;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use std::sync::Arc;

/// Whether the status shows that the pod was in a kubelet's hands before, and may run.
pub(super) fn was_run(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let some = |list: &Option<Vec<ContainerStatus>>| list.as_ref().is_some_and(|list| !list.is_empty());
    some(&status.container_statuses)
        || some(&status.init_container_statuses)
        || some(&status.ephemeral_container_statuses)
        || status.pod_ip.as_ref().is_some_and(|ip| !ip.is_empty())
        || status.start_time.is_some()
}

/// Whether the status shows that the pod was let in: it has an address, or a container that ran. One that was
/// refused has a status as well, in which everything waits.
pub(crate) fn was_let_in(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let ran = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
    let mut containers = lists.into_iter().flatten().flatten();
    status.pod_ip.as_ref().is_some_and(|ip| !ip.is_empty())
        || containers.any(|known| [&known.state, &known.last_state].into_iter().flatten().any(ran))
}

/// The terminal phase that the status shows.
pub(crate) fn is_over(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// The phase of this name; `Pending` where there is none.
pub(super) fn phase(name: &str) -> Phase {
    match name {
        "Running" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        "Unknown" => Phase::Unknown,
        _ => Phase::Pending,
    }
}

/// Takes a container over: its record is new, the provider's state may be `None` for a pod that it does not
/// know.
pub(super) fn take_over(record: &mut Record, pod: &Pod, image: &str, state: Option<&PodState>, now: Now) {
    let known = recorded(pod, record.role, &record.name);
    let observed = state.and_then(|state| state.containers.get(&*record.name));
    if let Some(known) = known {
        record.restarts = u32::try_from(known.restart_count).unwrap_or(0);
        if let Some(last) = known
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref())
        {
            record.ended = Some(Box::new(ended(known, last)));
        }
        match known.state.as_ref() {
            Some(ContainerState {
                running: Some(running),
                ..
            }) => {
                let started = Started {
                    id: ContainerId(id(known)),
                    image_id: known.image_id.clone(),
                    at: running.started_at.as_ref().map(|at| at.0).unwrap_or_default(),
                };
                let mut run = Run::new(started, known.image.as_str().into());
                run.recorded = Some((known.started == Some(true), known.ready));
                record.life = Life::Running(Box::new(run));
            }
            Some(ContainerState {
                terminated: Some(terminated),
                ..
            }) => record.older = record.ended.replace(Box::new(ended(known, terminated))),
            _ => {}
        }
    }
    let Some(observed) = observed else {
        if let Life::Running(run) = std::mem::replace(&mut record.life, Life::Idle) {
            let mut lost = Ended::lost(run.id, run.image, run.image_id);
            lost.started_at = Some(run.since);
            lost.at = Some(super::record::timestamp(now));
            record.push(lost, now);
        }
        return;
    };
    let same = record.run().is_some_and(|run| *run.id == *observed.id.0);
    let over = record
        .ended
        .as_ref()
        .is_some_and(|ended| *ended.id == *observed.id.0);
    match &observed.doing {
        Doing::Ended(_) if over => {}
        Doing::Ended(exit) => {
            if !same {
                another(
                    record,
                    observed.id.clone(),
                    image,
                    exit.started_at.unwrap_or(exit.at),
                    now,
                );
            }
            record.ends(exit.clone(), now);
        }
        Doing::Running { since } | Doing::Stalled { since, .. } => {
            if same {
                if let Some(run) = record.run_mut() {
                    run.since = *since;
                }
            } else {
                another(record, observed.id.clone(), image, *since, now);
            }
            record.observes(observed.clone(), now);
        }
    }
}

/// An instance that no status speaks of yet.
fn another(record: &mut Record, id: ContainerId, image: &str, at: jiff::Timestamp, now: Now) {
    if let Life::Running(run) = std::mem::replace(&mut record.life, Life::Idle) {
        record.push(Ended::lost(run.id, run.image, run.image_id), now);
    }
    let started = Started {
        id,
        image_id: String::new(),
        at,
    };
    record.runs(started, image.into());
}

fn recorded<'a>(pod: &'a Pod, role: Role, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let list = match role {
        Role::Init | Role::Sidecar => &status.init_container_statuses,
        Role::Regular => &status.container_statuses,
        Role::Ephemeral => &status.ephemeral_container_statuses,
    };
    list.iter().flatten().find(|status| status.name == name)
}

fn id(status: &ContainerStatus) -> Arc<str> {
    status.container_id.as_deref().unwrap_or_default().into()
}

fn ended(status: &ContainerStatus, state: &ContainerStateTerminated) -> Ended {
    Ended {
        id: state.container_id.as_deref().unwrap_or_default().into(),
        image: status.image.as_str().into(),
        image_id: status.image_id.as_str().into(),
        code: state.exit_code,
        reason: state.reason.clone().unwrap_or_default(),
        message: state.message.clone().unwrap_or_default(),
        started_at: state.started_at.as_ref().map(|at| at.0),
        at: state.finished_at.as_ref().map(|at| at.0),
    }
}
