//! Rules about which probes there are, and about ending.

use super::handler::script;
use super::{Hit, Seen, hit};
use crate::core::{Kind, Probe, RestartPolicy, Role};
use serde_json::Value;
use std::time::Duration;

/// Kubernetes' default of the pod's `terminationGracePeriodSeconds`.
const GRACE: u64 = 30;

fn has_ports(seen: &Seen) -> bool {
    seen.raw["ports"]
        .as_array()
        .is_some_and(|ports| !ports.is_empty())
}

fn pod_grace(seen: &Seen) -> Duration {
    let seconds = &seen.of.workload.pod["spec"]["terminationGracePeriodSeconds"];
    Duration::from_secs(seconds.as_u64().unwrap_or(GRACE))
}

pub(super) fn no_readiness(seen: &Seen) -> Option<Hit> {
    if seen.container.role != Role::Regular || !has_ports(seen) || seen.container.readiness.is_some() {
        return None;
    }
    hit(
        "",
        format!(
            "container {} has ports, but no readinessProbe",
            seen.container.name
        ),
    )
}

pub(super) fn liveness_alone(seen: &Seen) -> Option<Hit> {
    if seen.container.role != Role::Regular || seen.container.readiness.is_some() {
        return None;
    }
    seen.container.liveness.as_ref()?;
    hit(
        Kind::Liveness.field(),
        format!(
            "container {} has no readinessProbe beside it",
            seen.container.name
        ),
    )
}

pub(super) fn bare_sidecar(seen: &Seen) -> Option<Hit> {
    let container = seen.container;
    if container.role != Role::Sidecar || container.readiness.is_some() || container.startup.is_some() {
        return None;
    }
    hit(
        "",
        format!("nobody waits until sidecar {} serves", container.name),
    )
}

pub(super) fn long_grace(seen: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let (own, pod) = (probe.termination_grace_period?, pod_grace(seen));
    if own <= pod {
        return None;
    }
    hit(
        "terminationGracePeriodSeconds",
        format!("{own:?} is longer than the pod's {pod:?}"),
    )
}

/// How long a hook takes at least, where that can be told.
fn sleeps(hook: &Value) -> Option<Duration> {
    if let Some(seconds) = hook["sleep"]["seconds"].as_u64() {
        return Some(Duration::from_secs(seconds));
    }
    let command: Vec<String> = hook["exec"]["command"]
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let text = match command.as_slice() {
        [program, seconds] if program.rsplit('/').next() == Some("sleep") => seconds,
        _ => script(&command)?.trim().strip_prefix("sleep ")?,
    };
    let seconds = text
        .split(|c: char| c.is_whitespace() || c == ';')
        .find(|word| !word.is_empty())?;
    seconds.parse().ok().map(Duration::from_secs)
}

pub(super) fn long_pre_stop(seen: &Seen) -> Option<Hit> {
    let hook = sleeps(&seen.raw["lifecycle"]["preStop"])?;
    let grace = pod_grace(seen);
    if hook < grace {
        return None;
    }
    hit(
        "lifecycle.preStop",
        format!("preStop takes {hook:?} of a grace period of {grace:?}"),
    )
}

pub(super) fn never_restarted(seen: &Seen, kind: Kind, _: &Probe) -> Option<Hit> {
    let policy = seen
        .container
        .restart_policy
        .unwrap_or(seen.of.pod.restart_policy);
    let rules = seen.container.restart_rules.is_empty();
    if kind == Kind::Readiness || policy != RestartPolicy::Never || !rules {
        return None;
    }
    hit("", "its failure kills a container that is not restarted")
}
