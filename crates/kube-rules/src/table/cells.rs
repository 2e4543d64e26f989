//! Texts that several kinds show.

use crate::selector::LabelSelector;
use serde_json::{Value, json};

/// Shown where there is nothing to show.
pub(super) const NONE: &str = "<none>";

/// Text of a member, or empty.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Number of a member, or zero.
pub(super) fn int(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Items of a list, or none.
pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Number of members or items.
pub(super) fn size(value: &Value, pointer: &str) -> usize {
    match value.pointer(pointer) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    }
}

/// The text, or a placeholder.
pub(super) fn or<'a>(text: &'a str, placeholder: &'a str) -> &'a str {
    if text.is_empty() { placeholder } else { text }
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or(&pairs.join(","), NONE).to_owned()
}

/// A label selector as text, or `<none>`.
pub(super) fn selector(selector: &Value) -> Value {
    let text = LabelSelector::from_object(selector)
        .map(|parsed| parsed.to_string())
        .unwrap_or_default();
    json!(or(&text, NONE))
}

/// Whether the object is being deleted.
pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// One member of each item, joined with commas.
pub(super) fn joined(list: &[Value], member: &str) -> String {
    list.iter()
        .map(|item| text(item, member))
        .collect::<Vec<_>>()
        .join(",")
}

/// At most three, and how many more there are.
pub(super) fn three(all: &[String], none: &str) -> String {
    match all.len() {
        0 => none.to_owned(),
        1..=3 => all.join(","),
        more => format!("{} + {} more...", all[..3].join(","), more - 3),
    }
}

/// Access modes in their short forms, as in `RWO,ROX`.
pub(super) fn access_modes(modes: &[Value]) -> String {
    [
        "ReadWriteOnce",
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOncePod",
    ]
    .iter()
    .zip(["RWO", "ROX", "RWX", "RWOP"])
    .filter(|(long, _)| modes.iter().any(|mode| mode == **long))
    .map(|(_, short)| short)
    .collect::<Vec<_>>()
    .join(",")
}
