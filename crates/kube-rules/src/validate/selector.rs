//! LabelSelector objects.

use super::checks::count;
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
    let path = format!("{path}.nodeSelectorTerms");
    if count(selector, "nodeSelectorTerms") == 0 {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in items(selector, "nodeSelectorTerms") {
        node_term(term, &format!("{path}[{index}]"), true, errors);
    }
}

/// One term of a selector of nodes. Labels of what is only preferred are not looked at (`with_values`): a
/// warning says what is wrong with them.
pub(super) fn node_term(term: &Value, path: &str, with_values: bool, errors: &mut Errors) {
    for (index, one) in items(term, "matchExpressions") {
        let path = format!("{path}.matchExpressions[{index}]");
        let (values, found) = (format!("{path}.values"), count(one, "values"));
        match text(one, "operator") {
            "In" | "NotIn" if found == 0 => {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if found > 0 => {
                errors.forbidden(
                    &values,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "Gt" | "Lt" if found != 1 => {
                errors.required(
                    &values,
                    "must be specified single value when `operator` is 'Lt' or 'Gt'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.bad(
                &format!("{path}.operator"),
                other,
                "not a valid selector operator",
            ),
        }
        let key = text(one, "key");
        errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        for (number, value) in items(one, "values").filter(|_| with_values) {
            let value = value.as_str().unwrap_or_default();
            errors.invalid_text(&format!("{values}[{number}]"), value, names::label_value(value));
        }
    }
    for (index, one) in items(term, "matchFields") {
        let path = format!("{path}.matchFields[{index}]");
        match text(one, "operator") {
            "In" | "NotIn" if count(one, "values") != 1 => errors.required(
                &format!("{path}.values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            other => errors.bad(
                &format!("{path}.operator"),
                other,
                "not a valid selector operator",
            ),
        }
        if text(one, "key") != "metadata.name" {
            errors.bad(
                &format!("{path}.key"),
                text(one, "key"),
                "not a valid field selector key",
            );
            continue;
        }
        for (number, value) in items(one, "values") {
            let value = value.as_str().unwrap_or_default();
            errors.invalid_text(
                &format!("{path}.values[{number}]"),
                value,
                names::dns_subdomain(value),
            );
        }
    }
}

/// A plain map of labels that selects.
pub(super) fn map(map: &Value, path: &str, errors: &mut Errors) {
    meta::labels(map, path, errors);
}
