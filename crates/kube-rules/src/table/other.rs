//! Kinds with few columns.

use super::cells::{NONE, items, size, text};
use super::column::{AGE, CREATED_AT, Cell, NAME, Printer, boolean, integer, string};
use evenkeel_kube_values::duration;
use serde_json::{Value, json};

/// Kinds without columns of their own.
pub(super) const ANY: &[Printer] = &[NAME, CREATED_AT];

pub(super) const CONFIG_MAP: &[Printer] = &[
    NAME,
    string(
        "Data",
        Cell::Made(|object, _| json!(size(object, "/data") + size(object, "/binaryData"))),
    ),
    AGE,
];

pub(super) const SECRET: &[Printer] = &[
    NAME,
    string("Type", Cell::Member("/type")),
    string("Data", Cell::Size("/data")),
    AGE,
];

pub(super) const NAMESPACE: &[Printer] = &[NAME, string("Status", Cell::Text("/status/phase", "")), AGE];

pub(super) const SERVICE_ACCOUNT: &[Printer] = &[NAME, string("Secrets", Cell::Size("/secrets")), AGE];

pub(super) const POD_DISRUPTION_BUDGET: &[Printer] = &[
    NAME,
    string(
        "Min Available",
        Cell::Made(|object, _| json!(scalar(&object["spec"]["minAvailable"]))),
    ),
    string(
        "Max Unavailable",
        Cell::Made(|object, _| json!(scalar(&object["spec"]["maxUnavailable"]))),
    ),
    integer("Allowed Disruptions", Cell::Number("/status/disruptionsAllowed")),
    AGE,
];

pub(super) const LEASE: &[Printer] = &[
    NAME,
    string("Holder", Cell::Text("/spec/holderIdentity", "")),
    AGE,
];

pub(super) const LEASE_CANDIDATE: &[Printer] = &[
    NAME,
    string("LeaseName", Cell::Text("/spec/leaseName", "")),
    string("BinaryVersion", Cell::Text("/spec/binaryVersion", "")),
    string("EmulationVersion", Cell::Text("/spec/emulationVersion", "")),
    AGE,
];

pub(super) const ROLE_BINDING: &[Printer] = &[
    NAME,
    string("Role", Cell::Made(|object, _| json!(role(object)))),
    AGE,
    string("Users", Cell::Made(|object, _| json!(subjects(object, "User")))).wide(),
    string("Groups", Cell::Made(|object, _| json!(subjects(object, "Group")))).wide(),
    string(
        "ServiceAccounts",
        Cell::Made(|object, _| json!(subjects(object, "ServiceAccount"))),
    )
    .wide(),
];

pub(super) const WEBHOOK_CONFIGURATION: &[Printer] =
    &[NAME, integer("Webhooks", Cell::Size("/webhooks")), AGE];

pub(super) const PRIORITY_CLASS: &[Printer] = &[
    NAME,
    integer("Value", Cell::Number("/value")),
    boolean("Global-Default", Cell::Flag("/globalDefault")),
    AGE,
    string("PreemptionPolicy", Cell::Member("/preemptionPolicy")),
];

pub(super) const RUNTIME_CLASS: &[Printer] = &[NAME, string("Handler", Cell::Member("/handler")), AGE];

pub(super) const CERTIFICATE_SIGNING_REQUEST: &[Printer] = &[
    NAME,
    AGE,
    string("SignerName", Cell::Text("/spec/signerName", NONE)),
    string("Requestor", Cell::Text("/spec/username", "")),
    string(
        "RequestedDuration",
        Cell::Made(|object, _| json!(requested_duration(object))),
    ),
    string(
        "Condition",
        Cell::Made(|object, _| json!(signing_status(&object["status"]))),
    ),
];

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn role(binding: &Value) -> String {
    format!(
        "{}/{}",
        text(binding, "/roleRef/kind"),
        text(binding, "/roleRef/name")
    )
}

fn subjects(binding: &Value, kind: &str) -> String {
    items(binding, "/subjects")
        .iter()
        .filter(|one| text(one, "/kind") == kind)
        .map(|one| match kind {
            "ServiceAccount" => format!("{}/{}", text(one, "/namespace"), text(one, "/name")),
            _ => text(one, "/name").to_owned(),
        })
        .collect::<Vec<_>>()
        .join(", ")
}

fn requested_duration(request: &Value) -> String {
    match request["spec"]["expirationSeconds"].as_i64() {
        Some(seconds) => duration::human(seconds),
        None => NONE.to_owned(),
    }
}

fn signing_status(status: &Value) -> String {
    let has = |kind: &str| {
        items(status, "/conditions")
            .iter()
            .any(|one| text(one, "/type") == kind)
    };
    let mut shown = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        shown.push_str(",Failed");
    }
    if !text(status, "/certificate").is_empty() {
        shown.push_str(",Issued");
    }
    shown
}
