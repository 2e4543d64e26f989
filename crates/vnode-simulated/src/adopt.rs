//! Takes up what an earlier process ran, by what the API server last recorded.

use super::life::note_hostname;
use super::shape::{Shape, find, volumes};
use super::table::{Instance, Record, exit};
use super::{Simulated, identity};
use evenkeel_vnode::provider::{Exit, Fault, FaultKind, PodRequest, PodState};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A life of a container as it was recorded.
struct Life {
    number: u64,
    started: Timestamp,
    ended: Option<Exit>,
}

impl Simulated {
    pub(super) fn adopt_pod(&self, request: &PodRequest) -> Result<Option<PodState>, Fault> {
        let inner = &self.0;
        let now = inner.now();
        if let Some((record, boot)) = inner.table().pod(&request.id.uid) {
            return Ok(Some(state(record, &boot)));
        }
        let Some(status) = &request.pod.status else {
            return Ok(None);
        };
        let mut addresses = addresses(status);
        let statuses: Vec<&ContainerStatus> = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ]
        .into_iter()
        .flatten()
        .flatten()
        .collect();
        let known = statuses.iter().any(|status| recorded(status).next().is_some());
        if addresses.is_empty() && !known {
            return Ok(None);
        }
        let mut record = Record::new(request.id.clone());
        note_hostname(&mut record, request);
        let mut table = inner.table();
        let node = table.node(&request.id.node, &inner.settings, now);
        let boot = node.boot.clone();
        if addresses.is_empty() {
            addresses.extend(node.pool.take().map(IpAddr::V4));
        }
        let mut addresses = addresses.into_iter();
        record.address = addresses.next();
        if addresses.len() > 0 {
            record.extra().more = addresses.collect();
        }
        for status in statuses {
            let Some((container, part)) = find(&request.pod, &status.name) else {
                continue;
            };
            let shape = Shape::of(&request.pod, &container, part)
                .map_err(|error| Fault::new(FaultKind::Invalid, "InvalidSimulation", error))?;
            let (shape, volumes) = (inner.shapes.share(shape), volumes(&container));
            for life in lives(status, &boot) {
                let mut instance = Instance::new(life.number, life.started, shape.clone(), volumes.clone());
                instance.ended = life.ended.map(Box::new);
                if instance.ended.is_none() && instance.end().is_some_and(|at| at <= now) {
                    // It ended while nobody looked.
                    instance.ended = instance.own_exit().map(Box::new);
                }
                record.add(instance);
            }
            if record.newest(&shape.name).is_some()
                && (shape.plan.pull_error.is_some() || shape.plan.start_error.is_some())
            {
                let done = |failing: &Option<super::plan::Failing>| {
                    failing.as_ref().and_then(|f| f.times).unwrap_or(0)
                };
                let done = (done(&shape.plan.pull_error), done(&shape.plan.start_error));
                record.extra().failures.insert(shape.name.clone(), done);
            }
        }
        let state = state(&record, &boot);
        let running: Vec<u64> = record
            .containers
            .iter()
            .filter(|instance| instance.ended.is_none())
            .map(|instance| instance.number)
            .collect();
        table.insert(record);
        drop(table);
        let uid: &Arc<str> = &request.id.uid;
        for number in running {
            if let Err(fault) = self.enliven(uid, number) {
                inner.end_and_report(uid, number, |instance| {
                    exit(1, &fault.message, Some(instance.started), now)
                });
            }
        }
        Ok(Some(state))
    }
}

/// What there is of a pod.
fn state(record: &Record, boot: &str) -> PodState {
    let mut containers = BTreeMap::new();
    for instance in &record.containers {
        containers.insert(instance.shape.name.to_string(), instance.observed(boot));
    }
    PodState {
        sandbox: record.sandbox(),
        containers,
    }
}

fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let first = status.pod_ip.iter().map(String::as_str);
    let mut found: Vec<IpAddr> = Vec::new();
    for address in first.chain(all).filter_map(|text| text.parse().ok()) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// IDs of ours in a status.
fn recorded(status: &ContainerStatus) -> impl Iterator<Item = &str> {
    let last = status
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let now = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    [
        status.container_id.as_deref(),
        now.and_then(|ended| ended.container_id.as_deref()),
        last.and_then(|ended| ended.container_id.as_deref()),
    ]
    .into_iter()
    .flatten()
    .filter(|id| identity::parse(id).is_some())
}

/// The lives of a container under this boot, the newest last.
fn lives(status: &ContainerStatus, boot: &str) -> Vec<Life> {
    let number = |id: Option<&str>| {
        let (of, number) = identity::parse(id?)?;
        (of == boot).then_some(number)
    };
    let ended = |state: &ContainerStateTerminated, id: Option<&str>| {
        let number = number(state.container_id.as_deref().or(id))?;
        let at = state.finished_at.as_ref().map(|time| time.0)?;
        let started = state.started_at.as_ref().map_or(at, |time| time.0);
        let exit = Exit {
            reason: state.reason.clone().unwrap_or_default(),
            ..exit(
                state.exit_code,
                state.message.as_deref().unwrap_or(""),
                Some(started),
                at,
            )
        };
        Some(Life {
            number,
            started,
            ended: Some(exit),
        })
    };
    let id = status.container_id.as_deref();
    let last = status
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let mut lives: Vec<Life> = last.and_then(|state| ended(state, None)).into_iter().collect();
    match &status.state {
        Some(ContainerState {
            running: Some(running),
            ..
        }) => lives.extend(number(id).and_then(|number| {
            Some(Life {
                number,
                started: running.started_at.as_ref()?.0,
                ended: None,
            })
        })),
        Some(ContainerState {
            terminated: Some(state),
            ..
        }) => lives.extend(ended(state, id)),
        _ => {}
    }
    lives
}
