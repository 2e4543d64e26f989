//! Errors of this module in upstream's words.

use crate::request::Attributes;
use evenkeel_kube_rules::gvk::qualified;
use evenkeel_kube_rules::status::{ApiError, FieldError};
use serde_json::{Map, Value, json};

/// `Status.details` without empty members.
pub(crate) fn details(group: &str, resource: &str, name: &str) -> Value {
    let mut details = Map::new();
    for (key, text) in [("name", name), ("group", group), ("kind", resource)] {
        if !text.is_empty() {
            details.insert(key.to_owned(), json!(text));
        }
    }
    Value::Object(details)
}

pub(crate) fn unauthorized() -> ApiError {
    ApiError::new(401, "Unauthorized", "Unauthorized")
}

/// One field of a virtual object is invalid. `kind` may be empty, as it is upstream for access reviews.
pub(crate) fn invalid(group: &str, kind: &str, field: &str, message: &str) -> ApiError {
    let error = FieldError {
        reason: "FieldValueInvalid",
        field: field.to_owned(),
        message: message.to_owned(),
    };
    ApiError::invalid(group, kind, "", vec![error])
}

/// 500 as upstream's `NewInternalError` words it.
pub(crate) fn internal(why: &str) -> ApiError {
    let mut error = ApiError::internal(format!("Internal error occurred: {why}"));
    error.details = json!({"causes": [{"message": why}]});
    error
}

/// 403 of an admission plugin.
pub(crate) fn refused(attributes: &Attributes, why: &str) -> ApiError {
    let metadata = attributes.object.as_ref().map(|object| &object["metadata"]);
    let text = |key: &str| metadata.and_then(|m| m[key].as_str()).unwrap_or_default();
    let name = [
        attributes.name.as_str(),
        text("name"),
        text("generateName"),
        "Unknown",
    ]
    .into_iter()
    .find(|name| !name.is_empty())
    .unwrap_or_default();
    let (group, resource) = (&attributes.gvr.group, &attributes.gvr.resource);
    let mut error = ApiError::new(
        403,
        "Forbidden",
        format!("{} \"{name}\" is forbidden: {why}", qualified(group, resource)),
    );
    error.details = details(group, resource, name);
    error
}
