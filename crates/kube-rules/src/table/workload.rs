//! Kinds that make pods.

use super::age;
use super::cells::{NONE, int, is_deleting, items, joined, labels, selector, text};
use super::column::{AGE, Cell, NAME, Printer, boolean, integer, string};
use evenkeel_kube_values::duration;
use jiff::Timestamp;
use serde_json::{Value, json};

const CONTAINERS: Printer = string(
    "Containers",
    Cell::Made(|object, _| json!(joined(containers(object), "/name"))),
)
.wide();
const IMAGES: Printer = string(
    "Images",
    Cell::Made(|object, _| json!(joined(containers(object), "/image"))),
)
.wide();
const SELECTOR: Printer = string(
    "Selector",
    Cell::Made(|object, _| selector(&object["spec"]["selector"])),
)
.wide();
const READY: Printer = string("Ready", Cell::Made(ready));

pub(super) const REPLICATION_CONTROLLER: &[Printer] = &[
    NAME,
    integer("Desired", Cell::Number("/spec/replicas")),
    integer("Current", Cell::Number("/status/replicas")),
    integer("Ready", Cell::Number("/status/readyReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    string(
        "Selector",
        Cell::Made(|object, _| json!(labels(&object["spec"]["selector"]))),
    )
    .wide(),
];

pub(super) const REPLICA_SET: &[Printer] = &[
    NAME,
    integer("Desired", Cell::Number("/spec/replicas")),
    integer("Current", Cell::Number("/status/replicas")),
    integer("Ready", Cell::Number("/status/readyReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const DEPLOYMENT: &[Printer] = &[
    NAME,
    READY,
    string("Up-to-date", Cell::Number("/status/updatedReplicas")),
    string("Available", Cell::Number("/status/availableReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const STATEFUL_SET: &[Printer] = &[NAME, READY, AGE, CONTAINERS, IMAGES];

pub(super) const DAEMON_SET: &[Printer] = &[
    NAME,
    integer("Desired", Cell::Number("/status/desiredNumberScheduled")),
    integer("Current", Cell::Number("/status/currentNumberScheduled")),
    integer("Ready", Cell::Number("/status/numberReady")),
    integer("Up-to-date", Cell::Number("/status/updatedNumberScheduled")),
    integer("Available", Cell::Number("/status/numberAvailable")),
    string(
        "Node Selector",
        Cell::Made(|object, _| json!(labels(&object["spec"]["template"]["spec"]["nodeSelector"]))),
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const CONTROLLER_REVISION: &[Printer] = &[
    NAME,
    string("Controller", Cell::Made(|object, _| json!(controller(object)))),
    string("Revision", Cell::Member("/revision")),
    AGE,
];

pub(super) const JOB: &[Printer] = &[
    NAME,
    string("Status", Cell::Made(|object, _| json!(job_status(object)))),
    string("Completions", Cell::Made(|object, _| json!(completions(object)))),
    string(
        "Duration",
        Cell::Made(|object, now| json!(job_duration(object, now))),
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const CRON_JOB: &[Printer] = &[
    NAME,
    string("Schedule", Cell::Member("/spec/schedule")),
    string("Timezone", Cell::Text("/spec/timeZone", NONE)),
    boolean("Suspend", Cell::Flag("/spec/suspend")),
    integer("Active", Cell::Size("/status/active")),
    string("Last Schedule", Cell::Made(last_schedule)),
    AGE,
    CONTAINERS,
    IMAGES,
    string(
        "Selector",
        Cell::Made(|object, _| selector(&object["spec"]["jobTemplate"]["spec"]["selector"])),
    )
    .wide(),
];

/// Containers of the pods that the object makes.
fn containers(object: &Value) -> &[Value] {
    let at = if object["spec"].get("jobTemplate").is_some() {
        "/spec/jobTemplate/spec/template/spec/containers"
    } else {
        "/spec/template/spec/containers"
    };
    items(object, at)
}

fn ready(object: &Value, _now: Timestamp) -> Value {
    let (ready, wanted) = (
        int(object, "/status/readyReplicas"),
        int(object, "/spec/replicas"),
    );
    json!(format!("{ready}/{wanted}"))
}

/// The owner that controls the object, as `deployment.apps/web`.
fn controller(object: &Value) -> String {
    let owner = items(object, "/metadata/ownerReferences")
        .iter()
        .find(|one| one["controller"] == json!(true));
    let Some(owner) = owner else {
        return NONE.to_owned();
    };
    let (group, _version) = crate::gvk::split_api_version(text(owner, "/apiVersion"));
    let kind = text(owner, "/kind").to_lowercase();
    format!("{}/{}", crate::gvk::qualified(group, &kind), text(owner, "/name"))
}

fn completions(object: &Value) -> String {
    let succeeded = int(object, "/status/succeeded");
    let parallelism = int(object, "/spec/parallelism");
    match object["spec"]["completions"].as_i64() {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn job_status(object: &Value) -> &'static str {
    let has = |kind: &str| {
        items(object, "/status/conditions")
            .iter()
            .any(|one| text(one, "/type") == kind && text(one, "/status") == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if is_deleting(object) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn job_duration(object: &Value, now: Timestamp) -> String {
    let time = |name: &str| {
        object["status"][name]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
    };
    match (time("startTime"), time("completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => duration::human(end.unwrap_or(now).as_second() - start.as_second()),
    }
}

fn last_schedule(object: &Value, now: Timestamp) -> Value {
    match &object["status"]["lastScheduleTime"] {
        Value::Null => json!(NONE),
        time => json!(age(time, now)),
    }
}
