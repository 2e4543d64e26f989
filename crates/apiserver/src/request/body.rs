//! Bodies of requests: what their media type says, and bodies of no particular kind.

use super::form::ACCEPTED;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::{protobuf, strict};
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
    match Syntax::of(content_type)? {
        Syntax::Json => strict::decode_delete_options(body, false),
        Syntax::Yaml => strict::decode_delete_options(body, true),
        Syntax::Protobuf => strict::decode_delete_options_protobuf(body),
    }
}

/// Every object has metadata, be it empty.
pub(crate) fn ensure_metadata(object: &mut Value) {
    if object.is_object() && !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
}
