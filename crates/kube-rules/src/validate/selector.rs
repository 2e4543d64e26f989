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

/// A plain map of labels that selects.
pub(super) fn map(map: &Value, path: &str, errors: &mut Errors) {
    meta::labels(map, path, errors);
}
