//! Status of pods.

use crate::core::{ContainerState, ContainerStatus, Phase, PodStatus};
use k8s_openapi::api::core::v1 as corev1;
use serde_json::Value;
use std::time::Duration;

/// The prober's view of a typed pod's status.
pub fn status(pod: &corev1::Pod) -> PodStatus {
    status_of(&serde_json::to_value(pod).expect("a Pod has string keys alone, and so is JSON"))
}

/// The prober's view of a pod's status. What is missing or unreadable counts as not known yet: a status is
/// reported, not written by people, and a prober that stopped over it would help nobody.
pub fn status_of(pod: &Value) -> PodStatus {
    let status = &pod["status"];
    let condition = |name: &str| {
        items(status, "conditions")
            .any(|condition| condition["type"] == name && condition["status"] == "True")
    };
    PodStatus {
        phase: match text(status, "phase") {
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "Unknown" => Phase::Unknown,
            _ => Phase::Pending,
        },
        address: text(status, "podIP").parse().ok(),
        ready: condition("Ready"),
        restarting_all: condition("AllContainersRestarting"),
        containers: items(status, "containerStatuses")
            .chain(items(status, "initContainerStatuses"))
            .map(container)
            .collect(),
    }
}

fn container(status: &Value) -> ContainerStatus {
    let state = &status["state"];
    let state = if let Some(running) = state.get("running").filter(|running| running.is_object()) {
        ContainerState::Running {
            started_at: since_epoch(text(running, "startedAt")),
        }
    } else if let Some(ended) = state.get("terminated").filter(|ended| ended.is_object()) {
        let code = ended.get("exitCode").and_then(Value::as_i64);
        ContainerState::Terminated {
            exit_code: code.and_then(|code| i32::try_from(code).ok()).unwrap_or(0),
        }
    } else {
        ContainerState::Waiting
    };
    ContainerStatus {
        name: text(status, "name").into(),
        id: text(status, "containerID").into(),
        state,
        started: status.get("started").and_then(Value::as_bool),
        ready: status.get("ready").and_then(Value::as_bool).unwrap_or(false),
        taken_over: false,
    }
}

/// Zero, which the prober takes for "not known", if it is not a time after 1970.
fn since_epoch(time: &str) -> Duration {
    let parsed = time.parse::<jiff::Timestamp>().ok();
    parsed
        .and_then(|time| Duration::try_from(time.as_duration()).ok())
        .unwrap_or_default()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}
