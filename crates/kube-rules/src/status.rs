//! Every error a client can see, as a Kubernetes `Status`.

use crate::gofmt::go_quote;
use crate::gvk::qualified;
use serde_json::{Map, Value, json};

/// An error on its way to a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// `Status.reason`, as in `NotFound`.
    pub reason: &'static str,
    /// Text of `Status.message`.
    pub message: String,
    /// `Status.details`, absent if null.
    pub details: Value,
    /// Seconds for `Retry-After`.
    pub retry_after: Option<u64>,
}

/// Result of anything a client asked for.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            retry_after: None,
        }
    }

    /// 400 BadRequest, for a request that cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500 InternalError, for a failure of the server.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// An error about one object: `details` name it.
    fn about(
        code: u16,
        reason: &'static str,
        (group, resource, name): (&str, &str, &str),
        message: String,
    ) -> Self {
        let mut details = json!({"kind": resource});
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        Self {
            details,
            ..Self::new(code, reason, message)
        }
    }

    /// 404 for an object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, resource));
        Self::about(404, "NotFound", (group, resource, name), message)
    }

    /// 409 for a create of an object that exists.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, resource));
        Self::about(409, "AlreadyExists", (group, resource, name), message)
    }

    /// 409 for a write that does not fit the object's present state.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            qualified(group, resource)
        );
        Self::about(409, "Conflict", (group, resource, name), message)
    }

    /// 409 for a write by somebody who did not see the newest state.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, why)
    }

    /// 403 by a rule of the server, not for lack of a permission.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", qualified(group, resource));
        Self::about(403, "Forbidden", (group, resource, name), message)
    }

    /// The 422 that lists `errors`: `Pod "x" is invalid: [a, b]`, with one cause each. Equal texts are shown
    /// once.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> Self {
        let qualified = qualified(group, kind);
        let mut texts: Vec<String> = Vec::new();
        for error in &errors {
            let text = format!("{}: {}", error.field, error.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [] => "<nil>".to_owned(),
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}))
            .collect();
        if !causes.is_empty() {
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        let mut status = Self::new(
            422,
            "Invalid",
            format!("{qualified} {} is invalid: {list}", go_quote(name)),
        );
        status.details = Value::Object(details);
        status
    }

    /// 404 for a path that is not served.
    pub fn no_such_resource() -> Self {
        Self {
            details: json!({}),
            ..Self::new(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
        }
    }

    /// 405 for a path that is served, but not so.
    pub fn method_not_allowed() -> Self {
        Self {
            details: json!({}),
            ..Self::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        }
    }

    /// 500 without a reason, as upstream answers errors that it did not foresee.
    pub fn unforeseen(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 410 for a watch or an exact list of a past that is forgotten.
    pub fn expired(wanted: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {wanted} ({oldest})"),
        )
    }

    /// 504 for a resourceVersion that has not been given out yet.
    pub fn too_large(wanted: u64, current: u64) -> Self {
        Self {
            details: json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            }),
            retry_after: Some(1),
            ..Self::new(
                504,
                "Timeout",
                format!("Timeout: Too large resource version: {wanted}, current: {current}"),
            )
        }
    }

    /// 406: none of the media types that the client reads can be written.
    pub fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::new(406, "NotAcceptable", message)
    }

    /// 406 of the layer before: it has never heard of any of the media types.
    pub fn no_representation(available: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        Self {
            details: json!({}),
            ..Self::new(406, "NotAcceptable", message)
        }
    }

    /// 415: the body's media type cannot be read.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// The body that goes over the wire.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// One thing that validation found, as upstream's `field.Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`, `FieldValueNotSupported`,
    /// `FieldValueDuplicate`, `FieldValueTooLong`, `FieldValueTooMany`, `FieldValueTypeInvalid`,
    /// `FieldValueNotFound`.
    pub reason: &'static str,
    /// As in `spec.containers[0].image`.
    pub field: String,
    /// Without the field: `Required value`, `Invalid value: -1: must be greater than or equal to 0`.
    pub message: String,
}
