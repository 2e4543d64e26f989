//! Events, of the core group and of `events.k8s.io`, whose fields have other names.

use super::age;
use super::cells::{int, or, text};
use super::column::{Cell, NAME, Printer, string};
use serde_json::{Value, json};

pub(super) const EVENT: &[Printer] = &[
    string(
        "Last Seen",
        Cell::Made(|object, now| json!(age(last_seen(object), now))),
    ),
    string("Type", Cell::Text("/type", "")),
    string("Reason", Cell::Text("/reason", "")),
    string("Object", Cell::Made(|object, _| json!(target(object)))),
    string(
        "Subobject",
        Cell::Made(|object, _| json!(text(regarding(object), "/fieldPath"))),
    )
    .wide(),
    string("Source", Cell::Made(|object, _| json!(source(object)))).wide(),
    string("Message", Cell::Made(|object, _| json!(message(object)))),
    string(
        "First Seen",
        Cell::Made(|object, now| json!(age(first_seen(object), now))),
    )
    .wide(),
    string("Count", Cell::Made(|object, _| json!(count(object)))).wide(),
    NAME.wide(),
];

/// The first of the members that is a text, or null.
fn first_text<'a>(object: &'a Value, members: &[&str]) -> &'a Value {
    members
        .iter()
        .map(|member| &object[*member])
        .find(|value| value.is_string())
        .unwrap_or(&Value::Null)
}

fn first_seen(object: &Value) -> &Value {
    first_text(
        object,
        &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"],
    )
}

fn last_seen(object: &Value) -> &Value {
    match &object["series"]["lastObservedTime"] {
        Value::Null => match first_text(object, &["lastTimestamp", "deprecatedLastTimestamp"]) {
            Value::Null => first_seen(object),
            time => time,
        },
        time => time,
    }
}

/// The object that the event is about.
fn regarding(object: &Value) -> &Value {
    object.get("involvedObject").unwrap_or(&object["regarding"])
}

fn target(object: &Value) -> String {
    let regarding = regarding(object);
    format!(
        "{}/{}",
        text(regarding, "/kind").to_lowercase(),
        text(regarding, "/name")
    )
}

/// The component that reports, and its host where it is known.
fn source(object: &Value) -> String {
    let reporter = ["/reportingController", "/reportingComponent"]
        .iter()
        .map(|at| text(object, at))
        .find(|text| !text.is_empty());
    let source = ["/source", "/deprecatedSource"]
        .iter()
        .find_map(|at| object.pointer(at))
        .unwrap_or(&Value::Null);
    let component = or(text(source, "/component"), reporter.unwrap_or_default());
    match text(source, "/host") {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}

fn message(object: &Value) -> &str {
    or(text(object, "/message"), text(object, "/note")).trim()
}

fn count(object: &Value) -> i64 {
    ["/series/count", "/count", "/deprecatedCount"]
        .iter()
        .map(|at| int(object, at))
        .find(|count| *count > 0)
        .unwrap_or(1)
}
