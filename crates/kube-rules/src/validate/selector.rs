//! LabelSelector objects.

use super::errors::{Errors, items, text};
use super::meta;
use crate::names;
use serde_json::Value;

/// A selector; null is none.
pub(super) fn selector(selector: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let path = format!("{path}.matchLabels");
        errors.invalid_text(&path, key, names::qualified(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_text(&path, value, names::label_value(value));
    }
    for (index, expression) in items(selector, "matchExpressions") {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = expression["values"].as_array().map_or(0, Vec::len);
        match text(expression, "operator") {
            "In" | "NotIn" if values == 0 => {
                errors.required(
                    &format!("{path}.values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if values > 0 => errors.forbidden(
                &format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(
                &format!("{path}.operator"),
                &expression["operator"],
                "not a valid selector operator",
            ),
        }
        let key = text(expression, "key");
        errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        for (number, value) in items(expression, "values") {
            let value = value.as_str().unwrap_or_default();
            errors.invalid_text(
                &format!("{path}.values[{number}]"),
                value,
                names::label_value(value),
            );
        }
    }
}

/// A selector of nodes, as affinities have it.
pub(super) fn node_selector(selector: &Value, path: &str, errors: &mut Errors) {
    let terms = format!("{path}.nodeSelectorTerms");
    if items(selector, "nodeSelectorTerms").next().is_none() {
        errors.required(&terms, "must have at least one node selector term");
    }
    for (index, term) in items(selector, "nodeSelectorTerms") {
        for list in ["matchExpressions", "matchFields"] {
            for (number, requirement) in items(term, list) {
                let path = format!("{terms}[{index}].{list}[{number}]");
                if list == "matchFields" {
                    node_field(requirement, &path, errors);
                } else {
                    node_label(requirement, &path, errors);
                }
            }
        }
    }
}

fn node_label(requirement: &Value, path: &str, errors: &mut Errors) {
    let values = items(requirement, "values").count();
    let field = format!("{path}.values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values == 0 => {
            errors.required(&field, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if values > 0 => errors.forbidden(
            &field,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "Gt" | "Lt" if values != 1 => errors.required(
            &field,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        operator => errors.invalid(
            &format!("{path}.operator"),
            &operator.into(),
            "not a valid selector operator",
        ),
    }
    let key = text(requirement, "key");
    errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
    for (number, value) in items(requirement, "values") {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_text(&format!("{field}[{number}]"), value, names::label_value(value));
    }
}

fn node_field(requirement: &Value, path: &str, errors: &mut Errors) {
    match text(requirement, "operator") {
        "In" | "NotIn" if items(requirement, "values").count() != 1 => errors.required(
            &format!("{path}.values"),
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        "In" | "NotIn" => {}
        operator => errors.invalid(
            &format!("{path}.operator"),
            &operator.into(),
            "not a valid selector operator",
        ),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        errors.invalid(
            &format!("{path}.key"),
            &key.into(),
            "not a valid field selector key",
        );
        return;
    }
    for (number, value) in items(requirement, "values") {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_text(
            &format!("{path}.values[{number}]"),
            value,
            names::dns_subdomain(value),
        );
    }
}

/// A plain map of labels that selects.
pub(super) fn map(map: &Value, path: &str, errors: &mut Errors) {
    meta::labels(map, path, errors);
}
