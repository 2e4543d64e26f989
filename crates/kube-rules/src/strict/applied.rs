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

/// A YAML document: of a key that stands twice the last value counts, and where the first such key stands is
/// told. The error is as Go's YAML library words it.
pub(super) fn document(body: &[u8]) -> Result<(Value, Option<String>), String> {
    let text = String::from_utf8_lossy(body);
    let value = read(&text, DuplicateKeyPolicy::LastWins).map_err(|error| {
        let (line, problem) = problem(&error);
        if line > 1 {
            format!("yaml: line {line}: {problem}")
        } else {
            format!("yaml: {problem}")
        }
    })?;
    let doubled = read(&text, DuplicateKeyPolicy::Error).err();
    Ok((value, doubled.as_ref().and_then(doubled_key)))
}

/// Where which key stands again.
fn doubled_key(error: &Error) -> Option<String> {
    let Error::DuplicateMappingKey { key, .. } = error else {
        return None;
    };
    let line = error.location().map_or(1, |location| location.line());
    let key = go_quote(key.as_deref().unwrap_or_default());
    Some(format!("line {line}: key {key} already set in map"))
}

fn read(text: &str, duplicates: DuplicateKeyPolicy) -> Result<Value, Error> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    let parse = |text: &str| {
        let options = serde_saphyr::options! { duplicate_keys: duplicates, with_snippet: false };
        serde_saphyr::from_str_with_options(text, options)
    };
    parse(text).or_else(|error| match first_document(text, &error) {
        Some(first) => parse(first),
        None => Err(error),
    })
}

/// What goes before something that is neither part of the first document nor the begin of another one. Go's
/// library does not read as far.
fn first_document<'t>(text: &'t str, error: &Error) -> Option<&'t str> {
    if !error.to_string().contains("expected <document start>") {
        return None;
    }
    let location = error.location()?;
    let before: usize = text
        .split_inclusive('\n')
        .take(usize::try_from(location.line()).ok()?.checked_sub(1)?)
        .map(str::len)
        .sum();
    let line = text.get(before..)?;
    let column = usize::try_from(location.column()).ok()?.checked_sub(1)?;
    let within = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    text.get(..before + within)
        .filter(|first| !first.trim().is_empty())
}

fn is_duplicate(error: &Error) -> bool {
    matches!(error, Error::DuplicateMappingKey { .. })
}

/// An error as Go's YAML library words it: the same texts, without what was being parsed.
pub(super) fn go_yaml(error: &Error) -> String {
    if let Some(doubled) = doubled_key(error) {
        return format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {doubled}");
    }
    let (line, problem) = problem(error);
    format!("error converting YAML to JSON: yaml: line {line}: {problem}")
}

/// The line of an error, and what is wrong there.
fn problem(error: &Error) -> (u64, String) {
    let line = error.location().map_or(1, |location| location.line());
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let text = match text
        .split_once("while ")
        .and_then(|(_, rest)| rest.split_once(", "))
    {
        _ if text.contains("unclosed quote") => "found unexpected end of stream",
        _ if text.contains("invalid trailing content after double-quoted scalar") => {
            "did not find expected ',' or '}'"
        }
        _ if text.contains("unclosed bracket '['") => "did not find expected ',' or ']'",
        _ if text.contains("unclosed bracket '{'") => "did not find expected ',' or '}'",
        Some((_, wrong)) => wrong,
        None => match text.split_once(": ") {
            Some((place, wrong)) if place.starts_with("line ") => wrong,
            _ => text,
        },
    };
    (line, text.to_owned())
}
