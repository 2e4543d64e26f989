//! Nodes.

use super::cells::{NONE, items, or, text};
use super::column::{AGE, Cell, NAME, Printer, string};
use serde_json::{Value, json};

const UNKNOWN: &str = "<unknown>";

pub(super) const NODE: &[Printer] = &[
    NAME,
    string("Status", Cell::Made(|node, _| json!(status(node)))),
    string("Roles", Cell::Made(|node, _| json!(roles(node)))),
    AGE,
    string("Version", Cell::Text("/status/nodeInfo/kubeletVersion", "")),
    string(
        "Internal-IP",
        Cell::Made(|node, _| json!(address(node, "InternalIP"))),
    )
    .wide(),
    string(
        "External-IP",
        Cell::Made(|node, _| json!(address(node, "ExternalIP"))),
    )
    .wide(),
    string("OS-Image", Cell::Text("/status/nodeInfo/osImage", UNKNOWN)).wide(),
    string("Kernel-Version", Cell::Made(|node, _| json!(kernel(node)))).wide(),
    string(
        "Container-Runtime",
        Cell::Text("/status/nodeInfo/containerRuntimeVersion", UNKNOWN),
    )
    .wide(),
];

fn status(node: &Value) -> String {
    let ready = items(node, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == json!(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn kernel(node: &Value) -> String {
    let kernel = or(text(node, "/status/nodeInfo/kernelVersion"), UNKNOWN);
    match text(node, "/status/nodeInfo/architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    items(node, "/status/addresses")
        .iter()
        .find(|address| text(address, "/type") == kind)
        .map_or(NONE, |address| text(address, "/address"))
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = node["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            key.strip_prefix("node-role.kubernetes.io/")
                .or_else(|| (key == "kubernetes.io/role").then(|| value.as_str().unwrap_or_default()))
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), NONE).to_owned()
}
