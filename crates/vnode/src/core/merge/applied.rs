//! What was written last, as the Node itself tells.

use evenkeel_api::names::vnode::{LAST_APPLIED_META, LAST_APPLIED_STATUS};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The keys that are ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) labels: BTreeSet<String>,
    pub(super) annotations: BTreeSet<String>,
    pub(super) conditions: BTreeSet<String>,
    pub(super) addresses: BTreeSet<String>,
    pub(super) capacity: BTreeSet<String>,
    pub(super) allocatable: BTreeSet<String>,
    pub(super) has_endpoint: bool,
}

impl Applied {
    /// Of a Node. Where either annotation is missing or unreadable nothing counts as ours: then nothing is
    /// removed.
    pub(super) fn read(node: &Node) -> Self {
        let read = |name| {
            let text = node.metadata.annotations.as_ref()?.get(name)?;
            serde_json::from_str::<Value>(text).ok()
        };
        let (Some(meta), Some(status)) = (read(LAST_APPLIED_META), read(LAST_APPLIED_STATUS)) else {
            return Self::default();
        };
        let mut annotations = keys(&meta["annotations"]);
        annotations.retain(|key| key != LAST_APPLIED_META && key != LAST_APPLIED_STATUS);
        Self {
            labels: keys(&meta["labels"]),
            annotations,
            conditions: types(&status["conditions"]),
            addresses: types(&status["addresses"]),
            capacity: keys(&status["capacity"]),
            allocatable: keys(&status["allocatable"]),
            has_endpoint: status["daemonEndpoints"]["kubeletEndpoint"]["Port"].is_i64(),
        }
    }
}

/// The two annotations for what is wanted.
pub(super) fn own_annotations(wanted: &Node) -> [(String, String); 2] {
    let meta = json!({
        "labels": blanks(wanted.metadata.labels.iter().flat_map(|map| map.keys()), ""),
        "annotations": blanks(wanted.metadata.annotations.iter().flat_map(|map| map.keys()), ""),
    });
    let mut status = Map::new();
    if let Some(wanted) = &wanted.status {
        let conditions: Vec<Value> = wanted
            .conditions
            .iter()
            .flatten()
            .map(|one| json!({"type": one.type_, "status": ""}))
            .collect();
        status.insert("conditions".to_owned(), Value::Array(conditions));
        let addresses: BTreeSet<&str> = wanted
            .addresses
            .iter()
            .flatten()
            .map(|one| one.type_.as_str())
            .collect();
        let addresses: Vec<Value> = addresses
            .into_iter()
            .map(|kind| json!({"type": kind, "address": ""}))
            .collect();
        status.insert("addresses".to_owned(), Value::Array(addresses));
        for (name, map) in [
            ("capacity", &wanted.capacity),
            ("allocatable", &wanted.allocatable),
        ] {
            let keys = map.iter().flat_map(|map| map.keys());
            status.insert(name.to_owned(), blanks(keys, "0"));
        }
        if wanted.daemon_endpoints.is_some() {
            let endpoints = json!({"kubeletEndpoint": {"Port": 0}});
            status.insert("daemonEndpoints".to_owned(), endpoints);
        }
    }
    [
        (LAST_APPLIED_META.to_owned(), meta.to_string()),
        (LAST_APPLIED_STATUS.to_owned(), Value::Object(status).to_string()),
    ]
}

fn blanks<'a>(keys: impl Iterator<Item = &'a String>, blank: &str) -> Value {
    Value::Object(keys.map(|key| (key.clone(), json!(blank))).collect())
}

fn keys(map: &Value) -> BTreeSet<String> {
    map.as_object()
        .into_iter()
        .flat_map(|map| map.keys().cloned())
        .collect()
}

fn types(list: &Value) -> BTreeSet<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["type"].as_str())
        .map(ToOwned::to_owned)
        .collect()
}
