//! The three patches that need no field manager.

mod json;
mod strategic;
#[cfg(test)]
mod tests;

use crate::gofmt::{go_print, go_quote};
use crate::gvk::Gvk;
use crate::schema;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::strict::json::{Node, parse};
use serde_json::{Map, Value, json};

/// `application/json-patch+json` (RFC 6902, with the leniencies of upstream's library): `replace` of an
/// absent member adds it, `test` of an absent member equals null, negative indices count from the end.
pub fn json_patch(object: &Value, patch: &[u8]) -> ApiResult<Value> {
    json::apply(object, patch)
}

/// `application/merge-patch+json` (RFC 7386).
pub fn merge_patch(object: &Value, patch: &[u8]) -> ApiResult<Value> {
    let patch = patch_map(patch, "error decoding patch: ")?;
    let mut merged = object.clone();
    merge(&mut merged, patch);
    Ok(merged)
}

/// `application/strategic-merge-patch+json`, for built-in kinds.
pub fn strategic_merge_patch(gvk: &Gvk, object: &Value, patch: &[u8]) -> ApiResult<Value> {
    let Value::Object(patch) = patch_map(patch, "")? else {
        return Err(ApiError::bad_request("invalid JSON document"));
    };
    let Value::Object(original) = object.clone() else {
        return Err(ApiError::internal("the stored object is no JSON object"));
    };
    strategic::merge_map(original, patch, schema::kind(gvk)).map(Value::Object)
}

/// 422 for a JSON or merge patch whose result does not decode, which is shown; `text` is what
/// [`crate::strict::check`] said.
pub fn undecodable(patched: &Value, text: &str) -> ApiError {
    refused(&patched.to_string(), text)
}

/// The same for a strategic merge patch, which upstream shows itself, as a Go map.
pub fn undecodable_strategic(patch: &[u8], text: &str) -> ApiError {
    let shown = match parse(patch) {
        Ok(node) => go_print(&without_directives(node.into_value())),
        Err(_) => String::from_utf8_lossy(patch).into_owned(),
    };
    refused(&shown, text)
}

/// Upstream has taken out of the maps what says how they are merged when it shows them.
fn without_directives(mut patch: Value) -> Value {
    for member in patch
        .as_object_mut()
        .into_iter()
        .flatten()
        .map(|(_, member)| member)
    {
        *member = without_directives(member.take());
    }
    if let Some(members) = patch.as_object_mut() {
        members.remove("$patch");
    }
    patch
}

fn refused(shown: &str, text: &str) -> ApiError {
    let error = FieldError {
        reason: "FieldValueInvalid",
        field: "patch".to_owned(),
        message: format!("Invalid value: {}: {text}", go_quote(shown)),
    };
    let mut status = ApiError::invalid("", "", "", vec![error]);
    if let Value::Object(details) = &mut status.details {
        details.retain(|key, _| key == "causes");
    }
    status
}

fn patch_map(patch: &[u8], prefix: &str) -> ApiResult<Value> {
    match parse(patch) {
        Ok(node @ Node::Object(_)) => Ok(node.into_value()),
        Ok(Node::Null) => Ok(json!({})),
        Ok(other) => Err(ApiError::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.go_kind()
        ))),
        Err(error) => Err(ApiError::bad_request(format!("{prefix}{error}"))),
    }
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(members) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            members.remove(&name);
        } else {
            merge(members.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// 422 without a text of its own, as upstream answers patches that cannot be applied.
fn unprocessable() -> ApiError {
    let mut error = ApiError::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    error.details = json!({});
    error
}
