//! Bodies of requests: what their media type says, and bodies of no particular kind.

use super::form::ACCEPTED;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::{protobuf, schema};
use serde_json::{Value, json};

/// What a body is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    Yaml,
    Protobuf,
}

impl Syntax {
    /// By the media type; 415 for one that is not read.
    pub(crate) fn of(content_type: &str) -> ApiResult<Self> {
        match content_type {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            protobuf::MEDIA => Ok(Self::Protobuf),
            _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
        }
    }
}

/// Decodes `DeleteOptions`, which every kind has.
pub(crate) fn delete_options(content_type: &str, body: &[u8]) -> ApiResult<Value> {
    let decoded = match Syntax::of(content_type)? {
        Syntax::Json => serde_json::from_slice(body).map_err(|error| error.to_string()),
        Syntax::Yaml => serde_saphyr::from_slice(body).map_err(|error| error.to_string()),
        Syntax::Protobuf => protobuf::open(body)
            .and_then(|envelope| {
                let definition = schema::definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
                definition.map_or(Ok(Value::Null), |definition| {
                    protobuf::decode(definition, envelope.raw)
                })
            })
            .map_err(|error| error.to_string()),
    };
    let options =
        decoded.map_err(|error| ApiError::bad_request(format!("cannot decode the request body: {error}")))?;
    let kind = options["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "DeleteOptions") {
        let version = options["apiVersion"]
            .as_str()
            .filter(|version| !version.is_empty())
            .unwrap_or("meta.k8s.io/v1");
        return Err(ApiError::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    Ok(options)
}

/// Every object has metadata, be it empty.
pub(crate) fn ensure_metadata(object: &mut Value) {
    if object.is_object() && !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
}
