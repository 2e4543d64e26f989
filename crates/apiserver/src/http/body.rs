//! Bodies on their way in.

use bytes::Bytes;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};

/// Largest body that is read; upstream's number.
const LIMIT: usize = 3 * 1024 * 1024;

/// Reads a whole body.
pub(crate) async fn read(body: axum::body::Body) -> ApiResult<Bytes> {
    match Limited::new(body, LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {LIMIT}"),
        )),
        Err(error) => Err(ApiError::bad_request(format!(
            "cannot read the request body: {error}"
        ))),
    }
}

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
