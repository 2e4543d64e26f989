//! Nodes.

use super::age;
use super::cells::{NONE, items, or, text};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
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
    let kernel = or(text(node, "/status/nodeInfo/kernelVersion"), "<unknown>");
    let kernel = match text(node, "/status/nodeInfo/architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    vec![
        json!(text(node, "/metadata/name")),
        json!(status),
        json!(roles(node)),
        json!(age(&node["metadata"]["creationTimestamp"], now)),
        json!(text(node, "/status/nodeInfo/kubeletVersion")),
        json!(address(node, "InternalIP")),
        json!(address(node, "ExternalIP")),
        json!(or(text(node, "/status/nodeInfo/osImage"), "<unknown>")),
        json!(kernel),
        json!(or(
            text(node, "/status/nodeInfo/containerRuntimeVersion"),
            "<unknown>"
        )),
    ]
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
