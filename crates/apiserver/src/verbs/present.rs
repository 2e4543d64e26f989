//! Objects as table rows, or by their metadata alone.

use super::rules::Rules;
use crate::request::query::Query;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::table::Column;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a table row shows of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// Reads the parameter `includeObject`.
    pub(crate) fn parse(query: &Query) -> ApiResult<Self> {
        match query.get("includeObject") {
            Some("None") => Ok(Self::Nothing),
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }
}

/// apiVersion of tables and partial metadata.
pub(crate) fn meta_version(beta: bool) -> &'static str {
    if beta {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    }
}

/// An object's metadata alone.
pub(crate) fn partial(object: &Value, beta: bool) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": meta_version(beta), "metadata": object["metadata"],
    })
}

/// The metadata that a table row shows. Upstream makes rows of its internal form, in which this annotation is
/// a field of the spec.
fn row_metadata(object: &Value, beta: bool) -> Value {
    const INTERNAL: &str = "deprecated.daemonset.template.generation";
    let mut shown = partial(object, beta);
    let Some(metadata) = shown["metadata"].as_object_mut() else {
        return shown;
    };
    let emptied = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
        .is_some_and(|annotations| annotations.remove(INTERNAL).is_some() && annotations.is_empty());
    if emptied {
        metadata.remove("annotations");
    }
    shown
}

/// Objects as a table.
pub(crate) fn table(
    rules: &Rules<'_>,
    objects: &[Arc<Value>],
    metadata: Value,
    beta: bool,
    include: Include,
) -> Value {
    let now = Timestamp::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let row = rules.row(object, now);
            let shown = match include {
                Include::Nothing => Value::Null,
                Include::Metadata => row_metadata(object, beta),
                Include::Object => (**object).clone(),
            };
            let mut json = json!({"cells": row.cells, "object": shown});
            if !row.conditions.is_empty() {
                json["conditions"] = Value::Array(row.conditions);
            }
            json
        })
        .collect();
    let columns: Vec<Value> = rules.columns().iter().map(Column::to_json).collect();
    json!({
        "kind": "Table", "apiVersion": meta_version(beta), "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}
