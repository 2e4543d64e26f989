//! Pods: the status column tells what keeps a pod from running.

use super::age;
use super::cells::{NONE, int, is_deleting, items, or, text};
use super::column::{AGE, Cell, NAME, Printer, string};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) const POD: &[Printer] = &[
    NAME,
    string("Ready", Cell::Made(ready)),
    string("Status", Cell::Made(|pod, _| json!(Summary::of(pod).reason))),
    string("Restarts", Cell::Made(restarts)),
    AGE,
    string("IP", Cell::Made(|pod, _| json!(or(ip(pod), NONE)))).wide(),
    string("Node", Cell::Text("/spec/nodeName", NONE)).wide(),
    string("Nominated Node", Cell::Text("/status/nominatedNodeName", NONE)).wide(),
    string(
        "Readiness Gates",
        Cell::Made(|pod, _| json!(readiness_gates(pod))),
    )
    .wide(),
];

/// `TableRow.conditions`: a pod that has ended says so.
pub(super) fn conditions(pod: &Value) -> Vec<Value> {
    let completed = |reason: &str, message: &str| {
        vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
    };
    match text(pod, "/status/phase") {
        "Succeeded" => completed("Succeeded", "The pod has completed successfully."),
        "Failed" => completed("Failed", "The pod failed."),
        _ => Vec::new(),
    }
}

fn ready(pod: &Value, _now: Timestamp) -> Value {
    let summary = Summary::of(pod);
    json!(format!("{}/{}", summary.ready, summary.total))
}

fn restarts(pod: &Value, now: Timestamp) -> Value {
    let summary = Summary::of(pod);
    json!(match summary.last_restart {
        Some(time) if summary.restarts > 0 => format!("{} ({} ago)", summary.restarts, age(time, now)),
        _ => summary.restarts.to_string(),
    })
}

fn ip(pod: &Value) -> &str {
    let first = items(pod, "/status/podIPs").first();
    let ip = first.map_or("", |ip| text(ip, "/ip"));
    or(ip, text(pod, "/status/podIP"))
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| condition(pod, text(gate, "/conditionType")) == Some("True"))
        .count();
    format!("{open}/{}", gates.len())
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    items(pod, "/status/conditions")
        .iter()
        .find(|one| text(one, "/type") == kind)
        .map(|one| text(one, "/status"))
}

struct Summary<'a> {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<&'a Value>,
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Self {
        let inits = items(pod, "/spec/initContainers");
        let is_sidecar = |name: &str| {
            inits
                .iter()
                .any(|one| text(one, "/name") == name && text(one, "/restartPolicy") == "Always")
        };
        let mut summary = Self {
            reason: or(text(pod, "/status/reason"), text(pod, "/status/phase")).to_owned(),
            ready: 0,
            total: items(pod, "/spec/containers").len()
                + inits
                    .iter()
                    .filter(|one| text(one, "/restartPolicy") == "Always")
                    .count(),
            restarts: 0,
            last_restart: None,
        };
        let gated = items(pod, "/status/conditions").iter().any(|condition| {
            text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
        });
        if gated {
            "SchedulingGated".clone_into(&mut summary.reason);
        }
        let (mut sidecar_restarts, mut sidecar_last) = (0, None);
        let mut initializing = false;
        for (number, status) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
            summary.restarts += int(status, "/restartCount");
            summary.last_restart = later(summary.last_restart, status);
            let sidecar = is_sidecar(text(status, "/name"));
            if sidecar {
                sidecar_restarts += int(status, "/restartCount");
                sidecar_last = later(sidecar_last, status);
            }
            let terminated = &status["state"]["terminated"];
            if terminated.is_object() && int(terminated, "/exitCode") == 0 {
                continue;
            }
            if sidecar && status["started"] == json!(true) {
                summary.ready += usize::from(status["ready"] == json!(true));
                continue;
            }
            initializing = true;
            let waiting = text(status, "/state/waiting/reason");
            summary.reason = if terminated.is_object() {
                format!("Init:{}", terminated_reason(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{number}/{}", inits.len())
            };
            break;
        }
        if !initializing || condition(pod, "Initialized") == Some("True") {
            summary.restarts = sidecar_restarts;
            summary.last_restart = sidecar_last;
            summary.containers(pod);
        }
        if is_deleting(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut summary.reason);
            } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    fn containers(&mut self, pod: &'a Value) {
        let mut running = false;
        for status in items(pod, "/status/containerStatuses").iter().rev() {
            self.restarts += int(status, "/restartCount");
            self.last_restart = later(self.last_restart, status);
            let waiting = text(status, "/state/waiting/reason");
            let terminated = &status["state"]["terminated"];
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if terminated.is_object() {
                self.reason = terminated_reason(terminated);
            } else if status["ready"] == json!(true) && status["state"]["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            let ready = condition(pod, "Ready") == Some("True");
            let reason = if ready { "Running" } else { "NotReady" };
            reason.clone_into(&mut self.reason);
        }
    }
}

fn terminated_reason(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    let signal = int(terminated, "/signal");
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", int(terminated, "/exitCode"))
    }
}

fn later<'a>(last: Option<&'a Value>, status: &'a Value) -> Option<&'a Value> {
    let finished = status
        .pointer("/lastState/terminated/finishedAt")
        .filter(|time| time.is_string());
    match (last, finished) {
        (Some(last), Some(finished)) if finished.as_str() > last.as_str() => Some(finished),
        (None, finished) => finished,
        (last, _) => last,
    }
}
