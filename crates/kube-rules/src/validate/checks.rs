//! Checks of single members that pods and their templates share.

use super::errors::{Errors, has, text};
use crate::gofmt::{go_json, go_quote};
use crate::status::FieldError;
use evenkeel_kube_values::Quantity;
use regex::Regex;
use serde_json::{Value, json};

/// Mode of a file.
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

impl Errors {
    /// A text is wrong in one way.
    pub(super) fn bad(&mut self, field: &str, text: &str, detail: &str) {
        self.invalid(field, &json!(text), detail);
    }

    /// The same of a text behind a pointer, which upstream writes as JSON for pages.
    pub(super) fn bad_pointer(&mut self, field: &str, text: &str, detail: &str) {
        let shown = go_json(&json!(text));
        self.list.push(FieldError {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message: format!("Invalid value: {shown}: {detail}"),
        });
    }

    /// These members, texts or lists, must not be empty.
    pub(super) fn need(&mut self, object: &Value, path: &str, names: &[&str]) {
        for name in names {
            let is_empty = match &object[*name] {
                Value::String(text) => text.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => true,
            };
            if is_empty {
                self.required(&format!("{path}.{name}"), "");
            }
        }
    }

    /// A member that is there is one of these texts.
    pub(super) fn known(&mut self, object: &Value, path: &str, name: &str, supported: &[&str]) {
        if has(object, name) && !supported.contains(&text(object, name)) {
            self.not_supported(&format!("{path}.{name}"), &object[name], supported);
        }
    }

    /// A member that is there lies between two numbers.
    pub(super) fn range(&mut self, object: &Value, path: &str, name: &str, (low, high): (i64, i64)) {
        if has(object, name) && !(low..=high).contains(&integer(&object[name])) {
            let detail = format!("must be between {low} and {high}, inclusive");
            self.invalid(&format!("{path}.{name}"), &object[name], &detail);
        }
    }

    /// A name that refers to nothing, and what there is.
    pub(super) fn not_found_among(&mut self, field: &str, name: &str, detail: &str) {
        self.list.push(FieldError {
            reason: "FieldValueNotFound",
            field: field.to_owned(),
            message: format!("Not found: {}: {detail}", go_quote(name)),
        });
    }

    /// A member that holds the mode of files.
    pub(super) fn file_mode(&mut self, object: &Value, path: &str, name: &str) {
        if has(object, name) && !(0..=0o777).contains(&integer(&object[name])) {
            self.invalid(&format!("{path}.{name}"), &object[name], FILE_MODE);
        }
    }

    /// A path that does not leave where it begins.
    pub(super) fn without_backsteps(&mut self, field: &str, place: &str) {
        if place.split('/').any(|part| part == "..") {
            self.bad(field, place, "must not contain '..'");
        }
    }

    /// A path below some directory.
    pub(super) fn descending(&mut self, field: &str, place: &str) {
        if place.starts_with('/') {
            self.bad(field, place, "must be a relative path");
        }
        self.without_backsteps(field, place);
    }

    /// The same, where names that begin with two dots are taken.
    pub(super) fn unreserved(&mut self, field: &str, place: &str) {
        self.descending(field, place);
        if place.starts_with("..") && !place.starts_with("../") {
            self.bad(field, place, "must not start with '..'");
        }
    }
}

/// A whole number; absent is zero.
pub(super) fn integer(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// A pattern that is part of this crate.
pub(super) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is written here")
}

/// An amount.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

/// Whether a member is `true`.
pub(super) fn is_true(object: &Value, name: &str) -> bool {
    object[name] == json!(true)
}

/// Members of a map, or of nothing.
pub(super) fn members(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    map.as_object().into_iter().flatten()
}

/// How many items a list has.
pub(super) fn count(object: &Value, name: &str) -> usize {
    object[name].as_array().map_or(0, Vec::len)
}

/// Members of which at most one is used, in the order in which they are looked at: calls back for the first,
/// refuses the others.
pub(super) fn first_of<'a>(
    object: &'a Value,
    path: &str,
    names: &[&'static str],
    more: &str,
    errors: &mut Errors,
    mut check: impl FnMut(&'static str, &'a Value, &mut Errors),
) -> bool {
    let mut found = false;
    for name in names.iter().copied().filter(|name| has(object, name)) {
        if std::mem::replace(&mut found, true) {
            errors.forbidden(&format!("{path}.{name}"), more);
        } else {
            check(name, &object[name], errors);
        }
    }
    found
}

/// All containers of a pod with their paths, those that start first first.
pub(super) fn containers<'a>(spec: &'a Value, path: &str) -> impl Iterator<Item = (String, &'a Value)> {
    const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
    LISTS.into_iter().flat_map(move |list| {
        let path = path.to_owned();
        let items = spec[list].as_array().into_iter().flatten().enumerate();
        items.map(move |(index, container)| (format!("{path}.{list}[{index}]"), container))
    })
}
