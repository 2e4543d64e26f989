//! Decoding of what is applied: YAML of which no kind is expected.

use super::json::{Node, parse};
use crate::gofmt::go_quote;
use crate::status::{ApiError, ApiResult};
use serde_json::{Value, json};
use serde_saphyr::{DuplicateKeyPolicy, Error};

/// A configuration for server-side apply, and what is said of a key that stands in it twice.
pub fn decode_apply(body: &[u8]) -> ApiResult<(Value, Option<String>)> {
    let refused = |error: &str| ApiError::bad_request(format!("error decoding YAML: {error}"));
    let text = String::from_utf8_lossy(body);
    let value = match parse(body) {
        Ok(node) => node,
        Err(_) => {
            Node::from(read(&text, DuplicateKeyPolicy::LastWins).map_err(|error| refused(&go_yaml(&error)))?)
        }
    };
    let value = match value {
        Node::Null => json!({}),
        node @ Node::Object(_) => node.into_value(),
        other => {
            return Err(refused(&format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
                 map[string]interface {{}}",
                other.go_kind()
            )));
        }
    };
    let doubled = read(&text, DuplicateKeyPolicy::Error).err().filter(is_duplicate);
    Ok((value, doubled.map(|error| go_yaml(&error))))
}

fn read(text: &str, duplicates: DuplicateKeyPolicy) -> Result<Value, Error> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    let options = serde_saphyr::options! { duplicate_keys: duplicates, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
}

fn is_duplicate(error: &Error) -> bool {
    matches!(error, Error::DuplicateMappingKey { .. })
}

/// An error as Go's YAML library words it: the same texts, without what was being parsed.
pub(super) fn go_yaml(error: &Error) -> String {
    let line = error.location().map_or(1, |location| location.line());
    if let Error::DuplicateMappingKey { key, .. } = error {
        let key = go_quote(key.as_deref().unwrap_or_default());
        return format!(
            "error converting YAML to JSON: yaml: unmarshal errors:\n  line {line}: key {key} already set in map"
        );
    }
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    let text = match text
        .split_once("while ")
        .and_then(|(_, rest)| rest.split_once(", "))
    {
        _ if text.contains("unclosed bracket '['") => "did not find expected ',' or ']'",
        _ if text.contains("unclosed bracket '{'") => "did not find expected ',' or '}'",
        Some((_, wrong)) => wrong,
        None => text,
    };
    format!("error converting YAML to JSON: yaml: line {line}: {text}")
}
