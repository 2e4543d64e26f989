//! Values against a structural schema, with the texts of upstream's validation.

use super::structural::{Structural, join};
use crate::gofmt::{go_json, go_quote};
use crate::status::FieldError;
use crate::time;
use serde_json::Value;
use std::collections::HashMap;

/// Stands for the whole of what was sent.
pub(super) const NO_FIELD: &str = "<nil>";

/// What is wrong with an object.
pub(super) fn validate(schema: &Structural, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    at(schema, object, "", true, &mut errors);
    errors
}

fn at(schema: &Structural, value: &Value, path: &str, is_resource: bool, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema.nullable {
        return;
    }
    if !has_type(schema, value) {
        // Where there is a format, upstream looks at what is in a list and not at the list.
        let numeric = matches!(schema.kind.as_str(), "integer" | "number");
        if numeric || schema.rules.format.is_empty() || !value.is_array() {
            errors.push(type_error(schema, value, path));
        }
        if value.is_number() && schema.kind == "integer" {
            unfit(schema, path, errors);
        }
        if !(value.is_null() || numeric && value.is_number()) {
            allowed(schema, value, path, errors);
        }
        return;
    }
    if schema.kind == "integer"
        && schema.rules.format == "int32"
        && value.as_i64().is_none_or(|it| i32::try_from(it).is_err())
    {
        unfit(schema, path, errors);
    }
    allowed(schema, value, path, errors);
    match value {
        Value::Object(members) => {
            count(members.len(), schema.rules.properties, "properties", path, errors);
            for name in &schema.rules.required {
                if !members.contains_key(name) {
                    push(
                        errors,
                        "FieldValueRequired",
                        &join(path, name),
                        "Required value".to_owned(),
                    );
                }
            }
            for (name, member) in members {
                let typed = is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
                if let (false, Some(schema)) = (typed, schema.member(name)) {
                    at(schema, member, &join(path, name), schema.embedded, errors);
                }
            }
        }
        Value::Array(items) => {
            count(items.len(), schema.rules.items, "items", path, errors);
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    at(schema, item, &format!("{path}[{index}]"), schema.embedded, errors);
                }
            }
            let twice = |(index, item): (usize, &Value)| items[..index].contains(item);
            if schema.rules.unique && items.iter().enumerate().any(twice) {
                let text = format!("Invalid value: null: {path} in body shouldn't contain duplicates");
                push(errors, "FieldValueInvalid", path, text);
            }
        }
        Value::String(text) => string(schema, text, path, errors),
        Value::Number(number) => {
            if let Some(number_value) = number.as_f64() {
                bounds(schema, number_value, &number.to_string(), path, errors);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    combinations(schema, value, path, errors);
}

/// A number that is none of its format.
fn unfit(schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    let format = match schema.rules.format.as_str() {
        "" => "(default format)".to_owned(),
        format => format!("with format {format}"),
    };
    let text = format!("Invalid value: \"\": Checked value must be of type integer {format} in {path}");
    push(errors, "FieldValueInvalid", "", text);
}

fn push(errors: &mut Vec<FieldError>, reason: &'static str, field: &str, message: String) {
    let field = if field.is_empty() {
        NO_FIELD.to_owned()
    } else {
        field.to_owned()
    };
    errors.push(FieldError {
        reason,
        field,
        message,
    });
}

fn invalid(errors: &mut Vec<FieldError>, path: &str, shown: &str, text: &str) {
    push(
        errors,
        "FieldValueInvalid",
        path,
        format!("Invalid value: {shown}: {path} in body {text}"),
    );
}

fn has_type(schema: &Structural, value: &Value) -> bool {
    if schema.int_or_string {
        return value.is_string() || is_integer(value);
    }
    match schema.kind.as_str() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => is_integer(value),
        "number" => value.is_number(),
        _ => true,
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_error(schema: &Structural, value: &Value, path: &str) -> FieldError {
    let wanted = if schema.int_or_string {
        "integer,string"
    } else {
        &schema.kind
    };
    // Where there is a format, what is neither text nor list is named as Go holds it.
    let format = schema.rules.format.as_str();
    let (wanted, found) = match value {
        Value::Null | Value::String(_) | Value::Array(_) => (wanted, type_name(value)),
        _ if format.is_empty() => (wanted, type_name(value)),
        Value::Number(number) if number.is_f64() => (format, "float64"),
        Value::Number(_) => (format, "int64"),
        Value::Bool(_) | Value::Object(_) => (format, ""),
    };
    FieldError {
        reason: "FieldValueTypeInvalid",
        field: if path.is_empty() {
            NO_FIELD.to_owned()
        } else {
            path.to_owned()
        },
        message: format!("Invalid value: {found:?}: {path} in body must be of type {wanted}: {found:?}"),
    }
}

fn allowed(schema: &Structural, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let allowed = &schema.rules.allowed;
    if allowed.is_empty() || allowed.contains(value) {
        return;
    }
    let known = allowed.iter().map(|one| match one {
        Value::String(text) => go_quote(text),
        other => go_quote(&other.to_string()),
    });
    let known: Vec<String> = known.collect();
    let message = format!(
        "Unsupported value: {value}: supported values: {}",
        known.join(", ")
    );
    push(errors, "FieldValueNotSupported", path, message);
}

fn count(
    found: usize,
    (least, most): (Option<u64>, Option<u64>),
    what: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let found = found as u64;
    if let Some(most) = most.filter(|most| found > *most) {
        push(
            errors,
            "FieldValueTooMany",
            path,
            format!("Too many: {found}: must have at most {most} items"),
        );
    }
    if let Some(least) = least.filter(|least| found < *least) {
        invalid(
            errors,
            path,
            &found.to_string(),
            &format!("should have at least {least} {what}"),
        );
    }
}

/// The first thing that is wrong with a text, as upstream stops there.
fn string(schema: &Structural, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let rules = &schema.rules;
    let shown = Value::from(text).to_string();
    let length = text.chars().count() as u64;
    if let Some(most) = rules.length.1.filter(|most| length > *most) {
        push(
            errors,
            "FieldValueTooLong",
            path,
            format!("Too long: may not be more than {most} bytes"),
        );
    } else if let Some(least) = rules.length.0.filter(|least| length < *least) {
        invalid(
            errors,
            path,
            &shown,
            &format!("should be at least {least} chars long"),
        );
    } else if let Some((pattern, regex)) = &rules.pattern
        && !regex.is_match(text)
    {
        invalid(errors, path, &shown, &format!("should match '{pattern}'"));
    }
    if !has_format(&rules.format, text) {
        let format = &rules.format;
        push(
            errors,
            "FieldValueTypeInvalid",
            path,
            format!("Invalid value: {shown}: {path} in body must be of type {format}: {shown}"),
        );
    }
}

/// The formats of upstream that are checked here; others pass, as unknown formats do upstream.
fn has_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => time::seconds(text).is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => is_uuid(text),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    }
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let hex = |group: &str| group.chars().all(|c| c.is_ascii_hexdigit());
    (lengths == [8, 4, 4, 4, 12] || lengths == [32]) && groups.iter().all(|group| hex(group))
}

fn bounds(schema: &Structural, number: f64, shown: &str, path: &str, errors: &mut Vec<FieldError>) {
    let rules = &schema.rules;
    if let Some((most, exclusive)) = rules.maximum
        && (number > most || exclusive && number >= most)
    {
        let text = if exclusive {
            "less than"
        } else {
            "less than or equal to"
        };
        invalid(errors, path, shown, &format!("should be {text} {most}"));
    }
    if let Some((least, exclusive)) = rules.minimum
        && (number < least || exclusive && number <= least)
    {
        let text = if exclusive {
            "greater than"
        } else {
            "greater than or equal to"
        };
        invalid(errors, path, shown, &format!("should be {text} {least}"));
    }
    // Upstream divides whole numbers by the whole part of the step.
    let whole = shown.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let step = match rules.multiple_of {
        Some(step) if whole => Some(step.trunc()),
        step => step,
    };
    if step.is_some_and(|step| step <= 0.0) {
        let text = format!("Invalid value: 0: factor MultipleOf declared for {path} must be positive: 0");
        push(errors, "FieldValueInvalid", path, text);
    }
    if let Some(step) = step
        && step > 0.0
        && (number / step).fract().abs() > 1e-9
    {
        invalid(errors, path, shown, &format!("should be a multiple of {step}"));
    }
}

/// What is wrong with the status of an object, in messages that know the status alone.
pub(super) fn validate_status(schema: &Structural, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Some(status), Some(schema)) = (object.get("status"), schema.member("status")) {
        at(schema, status, "", false, &mut errors);
    }
    for error in &mut errors {
        error.field = match error.field.as_str() {
            NO_FIELD => "status".to_owned(),
            field => join("status", field),
        };
    }
    errors
}

/// What is there twice in a list of type set or map. An item that is there more often is told of once.
pub(super) fn validate_lists(schema: &Structural, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    lists(schema, object, "", &mut errors);
    errors
}

fn lists(schema: &Structural, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(schema) = schema.member(name) {
                    lists(schema, member, &join(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.rules.list_type.as_str() {
                "set" => repeated(items.iter().cloned(), path, errors),
                "map" => list_map(&schema.rules.list_keys, items, path, errors),
                _ => {}
            }
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    lists(schema, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Null stands for an item without any key.
fn list_map(keys: &[String], items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let no_item = |(_, item): &(usize, &Value)| !item.is_object() && !item.is_null();
    if let Some((index, item)) = items.iter().enumerate().find(no_item) {
        let text = format!("Invalid value: {item}: must be an object for an array of list-type map");
        push(errors, "FieldValueInvalid", &format!("{path}[{index}]"), text);
        return;
    }
    let identity = |item: &Value| -> Value {
        let given = keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(given.collect())
    };
    repeated(items.iter().map(identity), path, errors);
}

fn repeated(identities: impl Iterator<Item = Value>, path: &str, errors: &mut Vec<FieldError>) {
    let mut times: HashMap<String, usize> = HashMap::new();
    for (index, identity) in identities.enumerate() {
        let text = go_json(&identity);
        let message = format!("Duplicate value: {text}");
        let times = times.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            push(
                errors,
                "FieldValueDuplicate",
                &format!("{path}[{index}]"),
                message,
            );
        }
    }
}

fn combinations(schema: &Structural, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let holds = |schema: &Structural| {
        let mut inner = Vec::new();
        at(schema, value, path, false, &mut inner);
        inner.is_empty()
    };
    for part in &schema.rules.all_of {
        at(part, value, path, false, errors);
    }
    let shown = || serde_json::Value::from(type_name(value)).to_string();
    if !schema.rules.any_of.is_empty() && !schema.rules.any_of.iter().any(holds) {
        invalid(
            errors,
            path,
            &shown(),
            "must validate at least one schema (anyOf)",
        );
    }
    if !schema.rules.one_of.is_empty() && schema.rules.one_of.iter().filter(|part| holds(part)).count() != 1 {
        invalid(
            errors,
            path,
            &shown(),
            "must validate one and only one schema (oneOf)",
        );
    }
    if schema.rules.not.as_deref().is_some_and(holds) {
        invalid(errors, path, &shown(), "must not validate the schema (not)");
    }
}
