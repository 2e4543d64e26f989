//! Collecting what is wrong, as upstream's `field.ErrorList`.

use crate::godump;
use crate::gofmt::go_quote;
use crate::status::FieldError;
use serde_json::Value;

/// Errors in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    pub(crate) list: Vec<FieldError>,
}

/// A value as upstream's messages show it.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        other => other.to_string(),
    }
}

impl Errors {
    fn push(&mut self, reason: &'static str, field: &str, message: String) {
        self.list.push(FieldError {
            reason,
            field: field.to_owned(),
            message,
        });
    }

    /// A value is missing.
    pub(crate) fn required(&mut self, field: &str, detail: &str) {
        let colon = if detail.is_empty() { "" } else { ": " };
        self.push(
            "FieldValueRequired",
            field,
            format!("Required value{colon}{detail}"),
        );
    }

    /// A value is wrong.
    pub(crate) fn invalid(&mut self, field: &str, value: &Value, detail: &str) {
        let colon = if detail.is_empty() { "" } else { ": " };
        self.push(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {}{colon}{detail}", shown(value)),
        );
    }

    /// A value is wrong, which upstream does not show.
    pub(crate) fn invalid_unshown(&mut self, field: &str, detail: &str) {
        self.push("FieldValueInvalid", field, format!("Invalid value: {detail}"));
    }

    /// A value of a definition is wrong, which upstream shows as Go's encoder writes it.
    pub(crate) fn invalid_dump(&mut self, field: &str, definition: &str, value: &Value, detail: &str) {
        let shown = godump::dump(definition, value);
        self.push(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {shown}: {detail}"),
        );
    }

    /// The same, of a list of such values.
    pub(crate) fn invalid_dumps(&mut self, field: &str, definition: &str, values: &Value, detail: &str) {
        let shown = godump::dump_list(definition, values);
        self.push(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {shown}: {detail}"),
        );
    }

    /// A value of a definition that must be unique is not.
    pub(crate) fn duplicate_dump(&mut self, field: &str, definition: &str, value: &Value, detail: &str) {
        let shown = godump::dump(definition, value);
        let colon = if detail.is_empty() { "" } else { ": " };
        self.push(
            "FieldValueDuplicate",
            field,
            format!("Duplicate value: {shown}{colon}{detail}"),
        );
    }

    /// Several things are wrong with one text.
    pub(crate) fn invalid_text(&mut self, field: &str, text: &str, details: Vec<String>) {
        for detail in details {
            self.push(
                "FieldValueInvalid",
                field,
                format!("Invalid value: {}: {detail}", go_quote(text)),
            );
        }
    }

    /// A value that must be unique is not.
    pub(crate) fn duplicate(&mut self, field: &str, value: &Value) {
        self.push(
            "FieldValueDuplicate",
            field,
            format!("Duplicate value: {}", shown(value)),
        );
    }

    /// A value that refers to nothing.
    pub(crate) fn not_found(&mut self, field: &str, value: &Value) {
        self.push(
            "FieldValueNotFound",
            field,
            format!("Not found: {}", shown(value)),
        );
    }

    /// A value that may not be there.
    pub(crate) fn forbidden(&mut self, field: &str, detail: &str) {
        self.push("FieldValueForbidden", field, format!("Forbidden: {detail}"));
    }

    /// A value that is none of those known; they are shown in the order given.
    pub(crate) fn not_supported(&mut self, field: &str, value: &Value, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|one| go_quote(one)).collect();
        let list = supported.join(", ");
        self.push(
            "FieldValueNotSupported",
            field,
            format!("Unsupported value: {}: supported values: {list}", shown(value)),
        );
    }

    /// A value that is too long.
    pub(crate) fn too_long(&mut self, field: &str, most: usize) {
        self.push(
            "FieldValueTooLong",
            field,
            format!("Too long: may not be more than {most} bytes"),
        );
    }

    /// A list that has too many items.
    pub(crate) fn too_many(&mut self, field: &str, count: usize, most: usize) {
        self.push(
            "FieldValueTooMany",
            field,
            format!("Too many: {count}: must have at most {most} items"),
        );
    }

    /// What upstream takes for a fault of its own.
    pub(crate) fn internal(&mut self, field: &str, detail: &str) {
        self.push("InternalError", field, format!("Internal error: {detail}"));
    }

    /// One of `supported`, or an error, also for empty text; absent is fine.
    pub(crate) fn one_of_given(&mut self, field: &str, value: &Value, supported: &[&str]) {
        if !value.is_null() && !supported.contains(&value.as_str().unwrap_or_default()) {
            self.not_supported(field, value, supported);
        }
    }

    /// A text that is there and is a good name.
    pub(crate) fn named(&mut self, field: &str, value: &Value, wrong: impl Fn(&str) -> Vec<String>) {
        match value.as_str().unwrap_or_default() {
            "" => self.required(field, ""),
            text => self.invalid_text(field, text, wrong(text)),
        }
    }

    /// One of `supported`, or an error; empty text is missing.
    pub(crate) fn one_of(&mut self, field: &str, value: &Value, supported: &[&str]) {
        let text = value.as_str().unwrap_or_default();
        if text.is_empty() {
            self.required(field, "");
        } else if !supported.contains(&text) {
            self.not_supported(field, value, supported);
        }
    }

    /// Not below zero; absent is fine.
    pub(crate) fn non_negative(&mut self, field: &str, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(field, value, "must be greater than or equal to 0");
        }
    }

    /// A port number.
    pub(crate) fn port(&mut self, field: &str, value: &Value) {
        if !value
            .as_i64()
            .is_some_and(|number| (1..=65_535).contains(&number))
        {
            self.invalid(field, value, "must be between 1 and 65535, inclusive");
        }
    }

    /// A port number or the name of a port.
    pub(crate) fn port_or_name(&mut self, field: &str, value: &Value) {
        match value {
            Value::String(name) => self.invalid_text(field, name, crate::names::port_name(name)),
            number => self.port(field, number),
        }
    }

    /// A field that may not change.
    pub(crate) fn immutable(&mut self, field: &str, old: &Value, new: &Value) {
        if old != new {
            self.invalid(field, new, "field is immutable");
        }
    }
}

/// Text of a member.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Items of a member, with their indices.
pub(super) fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
}

/// Whether a member is there and not null.
pub(super) fn has(value: &Value, name: &str) -> bool {
    value.get(name).is_some_and(|value| !value.is_null())
}
