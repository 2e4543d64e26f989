//! The shape of JSON: which keys there are, and of which kind their values are; and how two differ in it.

use serde_json::Value;
use std::collections::BTreeSet;

/// Each place of `value` with its kind, such as `data.bizInfos[].bizName string`, or with its value where
/// `told` finds a text that counts by that key. The elements of a list count together.
pub(crate) fn of(value: &Value, told: &impl Fn(&str, &Value) -> Option<String>) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    note("", "", value, told, &mut places);
    places
}

fn note(
    place: &str,
    key: &str,
    value: &Value,
    told: &impl Fn(&str, &Value) -> Option<String>,
    places: &mut BTreeSet<String>,
) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(elements) => {
            for element in elements {
                note(&format!("{place}[]"), key, element, told, places);
            }
            "list"
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let dot = if place.is_empty() { "" } else { "." };
                note(&format!("{place}{dot}{key}"), key, field, told, places);
            }
            "object"
        }
    };
    let kind = told(key, value).unwrap_or_else(|| kind.to_owned());
    places.insert(format!("{place} {kind}"));
}

/// What `ours` lacks of `theirs` (`-`), and has besides (`+`).
pub(crate) fn difference(
    theirs: &Value,
    ours: &Value,
    told: &impl Fn(&str, &Value) -> Option<String>,
) -> Vec<String> {
    let (theirs, ours) = (of(theirs, told), of(ours, told));
    let missing = theirs.difference(&ours).map(|place| format!("-{place}"));
    let added = ours.difference(&theirs).map(|place| format!("+{place}"));
    missing.chain(added).collect()
}

#[test]
fn a_shape_has_keys_and_kinds_and_what_is_told() {
    let told = |key: &str, value: &Value| (key == "b").then(|| value.to_string());
    let one = serde_json::json!({ "a": [{ "b": 1 }, { "c": "x" }], "d": {}, "e": [] });
    let places: Vec<_> = of(&one, &told).into_iter().collect();
    assert_eq!(
        places,
        [
            " object",
            "a list",
            "a[] object",
            "a[].b 1",
            "a[].c string",
            "d object",
            "e list"
        ]
    );
    let other = serde_json::json!({ "a": [{ "b": 7, "c": "y" }], "d": {}, "e": "text" });
    assert_eq!(
        difference(&one, &other, &told),
        ["-a[].b 1", "-e list", "+a[].b 7", "+e string"]
    );
}
