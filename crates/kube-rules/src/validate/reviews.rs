//! Reviews of access.

use super::errors::{Errors, has, items, text};
use crate::godump;
use crate::names;
use crate::status::FieldError;
use serde_json::{Value, json};

const RESOURCE: &str = "spec.resourceAttributes";
const NO_RESOURCE: &str = "spec.nonResourceAttributes";

/// What is wrong with a review of `authorization.k8s.io`, whose user is named where it is not the caller.
pub fn access_review(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = &object["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_null(), path.is_null()) {
        (false, false) => errors.invalid_dump(
            NO_RESOURCE,
            "io.k8s.api.authorization.v1.NonResourceAttributes",
            path,
            "cannot be specified in combination with resourceAttributes",
        ),
        (true, true) => errors.invalid(
            RESOURCE,
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    let named = !text(spec, "user").is_empty() || items(spec, "groups").next().is_some();
    if kind != "SelfSubjectAccessReview" && !named {
        errors.invalid(
            "spec.user",
            &json!(""),
            "at least one of user or group must be specified",
        );
    }
    for name in ["fieldSelector", "labelSelector"] {
        if has(resource, name) {
            selector(
                &resource[name],
                &format!("{RESOURCE}.{name}"),
                name == "labelSelector",
                &mut errors,
            );
        }
    }
    let local = kind == "LocalSubjectAccessReview";
    metadata(&object["metadata"], local, &mut errors);
    if local && !resource.is_null() && text(resource, "namespace") != text(&object["metadata"], "namespace") {
        errors.invalid(
            &format!("{RESOURCE}.namespace"),
            &json!(text(resource, "namespace")),
            "must match metadata.namespace",
        );
    }
    if local && !path.is_null() {
        errors.invalid_dump(
            NO_RESOURCE,
            "io.k8s.api.authorization.v1.NonResourceAttributes",
            path,
            "disallowed on this kind of request",
        );
    }
    errors.list
}

/// Reviews are asked, not stored: their metadata stay empty, but for the namespace where there is one.
fn metadata(metadata: &Value, local: bool, errors: &mut Errors) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let left = |name: &str| name == "managedFields" || local && name == "namespace";
    let members = metadata.as_object().into_iter().flatten();
    if members
        .into_iter()
        .any(|(name, value)| !left(name) && !is_empty(value))
    {
        let except = if local { " except for namespace" } else { "" };
        let shown = godump::dump("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", metadata);
        errors.list.push(FieldError {
            reason: "FieldValueInvalid",
            field: "metadata".to_owned(),
            message: format!("Invalid value: {shown}: must be empty{except}"),
        });
    }
}

fn selector(selector: &Value, path: &str, of_labels: bool, errors: &mut Errors) {
    let raw = text(selector, "rawSelector");
    let listed = items(selector, "requirements").next().is_some();
    if !raw.is_empty() && listed {
        errors.invalid(
            &format!("{path}.rawSelector"),
            &raw.into(),
            "may not specified at the same time as requirements",
        );
    }
    if raw.is_empty() && !listed {
        errors.required(
            &format!("{path}.requirements"),
            &format!("when {path} is specified, requirements or rawSelector is required"),
        );
    }
    for (index, requirement) in items(selector, "requirements") {
        let path = format!("{path}.requirements[{index}]");
        let (key, values) = (text(requirement, "key"), items(requirement, "values").count());
        if !of_labels && key.is_empty() {
            errors.required(&format!("{path}.key"), "must be specified");
        }
        match text(requirement, "operator") {
            "In" | "NotIn" if values == 0 => errors.required(
                &format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if values > 0 => errors.forbidden(
                &format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            _ => {}
        }
        if !of_labels {
            continue;
        }
        errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        for (number, value) in items(requirement, "values") {
            let value = value.as_str().unwrap_or_default();
            let field = format!("{path}.values[{number}]");
            errors.invalid_text(&field, value, names::label_value(value));
        }
    }
}
