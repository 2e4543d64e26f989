//! Bodies of requests: what their media type says, and bodies of no particular kind.

use evenkeel_kube_rules::status::{ApiError, ApiResult};
use serde_json::{Value, json};

/// Whether a body is YAML rather than JSON; 415 for anything else.
pub(crate) fn is_yaml(content_type: &str) -> ApiResult<bool> {
    match content_type {
        "" | "application/json" => Ok(false),
        "application/yaml" => Ok(true),
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml",
        )),
    }
}

/// Decodes a body of no particular kind.
pub(crate) fn any(content_type: &str, body: &[u8]) -> ApiResult<Value> {
    let undecodable =
        |error: String| ApiError::bad_request(format!("cannot decode the request body: {error}"));
    if is_yaml(content_type)? {
        serde_saphyr::from_slice(body).map_err(|error| undecodable(error.to_string()))
    } else {
        serde_json::from_slice(body).map_err(|error| undecodable(error.to_string()))
    }
}

/// Every object has metadata, be it empty.
pub(crate) fn ensure_metadata(object: &mut Value) {
    if object.is_object() && !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
}
