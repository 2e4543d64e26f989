//! JSON patch.

use super::{parse, unprocessable};
use crate::status::{ApiError, ApiResult};
use crate::strict::json::{MAX_DEPTH, Node};
use serde_json::Value;

/// Upstream refuses longer patches.
const MAX_OPERATIONS: usize = 10_000;
/// How many bytes of JSON a patch may copy in all, as upstream. Each copy of a member into itself doubles it.
const MAX_COPIED: usize = 3 * 1024 * 1024;
/// Go's type in messages.
const OPERATION: &str = "handlers.jsonPatchOp";

/// Applies a patch.
pub(super) fn apply(object: &Value, patch: &[u8]) -> ApiResult<Value> {
    let (mut document, mut copied) = (object.clone(), 0);
    for operation in operations(patch)? {
        run(&mut document, &operation, &mut copied).ok_or_else(unprocessable)?;
    }
    Ok(document)
}

fn operations(patch: &[u8]) -> ApiResult<Vec<Value>> {
    let refuse = |text: String| ApiError::bad_request(format!("error decoding patch: {text}"));
    let nodes = match parse(patch).map_err(refuse)? {
        Node::Array(nodes) => nodes,
        Node::Null => Vec::new(),
        other => {
            return Err(refuse(format!(
                "json: cannot unmarshal {} into Go value of type []{OPERATION}",
                other.go_kind()
            )));
        }
    };
    if nodes.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity is too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                nodes.len()
            ),
        ));
    }
    for node in &nodes {
        if !matches!(node, Node::Object(_) | Node::Null) {
            return Err(refuse(format!(
                "json: cannot unmarshal {} into Go value of type {OPERATION}",
                node.go_kind()
            )));
        }
    }
    Ok(nodes.into_iter().map(Node::into_value).collect())
}

/// `copied`: how many bytes were copied before.
fn run(document: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let path = pointer(operation["path"].as_str()?)?;
    match operation["op"].as_str()? {
        "add" => add(document, &path, operation.get("value")?.clone()),
        "remove" => take(document, &path).map(drop),
        "replace" => replace(document, &path, operation.get("value")?.clone()),
        "test" => {
            let wanted = operation.get("value").unwrap_or(&Value::Null);
            let found = if path.is_empty() {
                Some(&*document)
            } else {
                get(document, &path)
            };
            (found.unwrap_or(&Value::Null) == wanted).then_some(())
        }
        "move" => {
            let from = pointer(operation["from"].as_str()?)?;
            let value = take(document, &from)?;
            add(document, &path, value)
        }
        "copy" => {
            let from = pointer(operation["from"].as_str()?)?;
            let value = get(document, &from).filter(|_| !from.is_empty())?;
            *copied += value.to_string().len();
            let value = (*copied <= MAX_COPIED).then(|| value.clone())?;
            add(document, &path, value)
        }
        _ => None,
    }
}

/// The unescaped segments of a JSON pointer.
fn pointer(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let rest = text.strip_prefix('/')?;
    Some(
        rest.split('/')
            .map(|segment| segment.replace("~1", "/").replace("~0", "~"))
            .collect(),
    )
}

/// An index into a list of `length`; `length` itself is an index only where one past the end is.
fn index(segment: &str, length: usize) -> Option<usize> {
    let index: i64 = segment.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index })
        .ok()
        .filter(|index| *index < length as usize)
}

fn get<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |value, segment| match value {
        Value::Object(members) => members.get(segment),
        Value::Array(items) => items.get(index(segment, items.len())?),
        _ => None,
    })
}

fn parent<'a, 'p>(document: &'a mut Value, path: &'p [String]) -> Option<(&'a mut Value, &'p String)> {
    let (last, above) = path.split_last()?;
    let parent = above.iter().try_fold(document, |value, segment| match value {
        Value::Object(members) => members.get_mut(segment),
        Value::Array(items) => {
            let at = index(segment, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    })?;
    Some((parent, last))
}

/// Never the whole document, as upstream.
fn add(document: &mut Value, path: &[String], value: Value) -> Option<()> {
    put(document, path, value, |items, last, value| {
        let at = match last {
            "-" => items.len(),
            last => index(last, items.len() + 1)?,
        };
        items.insert(at, value);
        Some(())
    })
}

fn replace(document: &mut Value, path: &[String], value: Value) -> Option<()> {
    if path.is_empty() {
        let is_whole = value.is_object() || value.is_array();
        return is_whole.then(|| *document = value);
    }
    put(document, path, value, |items, last, value| {
        let at = index(last, items.len())?;
        items[at] = value;
        Some(())
    })
}

/// Puts a value where the path leads: into a list by `into_list`, which is given the last segment.
fn put(
    document: &mut Value,
    path: &[String],
    value: Value,
    into_list: fn(&mut Vec<Value>, &str, Value) -> Option<()>,
) -> Option<()> {
    if path.len() + nesting(&value) > MAX_DEPTH {
        return None;
    }
    let (parent, last) = parent(document, path)?;
    match parent {
        Value::Object(members) => {
            members.insert(last.clone(), value);
            Some(())
        }
        Value::Array(items) => into_list(items, last, value),
        _ => None,
    }
}

/// How many lists and objects are within each other.
fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

fn take(document: &mut Value, path: &[String]) -> Option<Value> {
    let (parent, last) = parent(document, path)?;
    match parent {
        Value::Object(members) => members.remove(last),
        Value::Array(items) => {
            let at = index(last, items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}
