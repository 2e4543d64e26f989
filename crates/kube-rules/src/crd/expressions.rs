//! `x-kubernetes-validations`: expressions that custom resources have to satisfy.

use crate::status::FieldError;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

/// The name of the rules in a schema.
const RULES: &str = "x-kubernetes-validations";

/// The compiled rules of a schema; `None` where it has none.
pub(super) fn compile(document: &Value) -> Option<CompiledSchema> {
    has_rules(document).then(|| compile_schema(document))
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.contains_key(RULES) || members.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// Adds to what is wrong with an object which rules it breaks. Where the object is not what its schema says,
/// no rule is evaluated, and that is what is added.
pub(super) fn add(
    (compiled, document): (&CompiledSchema, &Value),
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let blocks = |error: &FieldError| {
        matches!(
            error.reason,
            "FieldValueRequired" | "FieldValueTooLong" | "FieldValueTooMany" | "FieldValueTypeInvalid"
        )
    };
    if errors.iter().any(blocks) {
        errors.push(FieldError {
            reason: "FieldValueInvalid",
            field: "<nil>".to_owned(),
            message:
                "Invalid value: null: some validation rules were not checked because the object was invalid; \
                      correct the existing errors to complete validation"
                    .to_owned(),
        });
        return;
    }
    let Err(broken) = Validator::new().validate_compiled(compiled, new, old) else {
        return;
    };
    for broken in broken.into_vec() {
        let (field, text) = (broken.field_path, broken.message);
        let value = value_of(document, new, &field, &broken.rule);
        let shown = value.map(|value| format!(" {value}:")).unwrap_or_default();
        let (reason, message) = match broken.reason.as_deref() {
            Some("FieldValueForbidden") => ("FieldValueForbidden", format!("Forbidden: {text}")),
            Some("FieldValueRequired") => ("FieldValueRequired", format!("Required value: {text}")),
            Some("FieldValueDuplicate") => {
                let shown = shown.trim_end_matches(':');
                (
                    "FieldValueDuplicate",
                    format!("Duplicate value:{shown}")
                        .trim_end_matches(':')
                        .to_owned(),
                )
            }
            _ => ("FieldValueInvalid", format!("Invalid value:{shown} {text}")),
        };
        errors.push(FieldError {
            reason,
            field,
            message,
        });
    }
}

/// The value that a rule is about: shown where it is a single one, and the rule stands in its own schema
/// rather than further up with a path to it.
fn value_of<'v>(document: &Value, object: &'v Value, path: &str, rule: &str) -> Option<&'v Value> {
    let (mut schema, mut value) = (document, object);
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        let name = part.trim_end_matches(']').trim_matches('"');
        if let Ok(at) = name.parse::<usize>()
            && value.is_array()
        {
            (schema, value) = (&schema["items"], value.get(at)?);
            continue;
        }
        value = value.get(name)?;
        schema = match &schema["properties"][name] {
            Value::Null => &schema["additionalProperties"],
            property => property,
        };
    }
    let is_its_own = schema[RULES].as_array()?.iter().any(|one| one["rule"] == rule);
    (is_its_own && !value.is_object() && !value.is_array()).then_some(value)
}
