//! `x-kubernetes-validations`: expressions that custom resources have to satisfy.

use super::validation::NO_FIELD;
use crate::cel;
use crate::cost::{Cost, MOST_PER_CALL, MOST_PER_OBJECT, longest};
use crate::status::FieldError;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;
use std::collections::BTreeMap;

/// The name of the rules in a schema.
const RULES: &str = "x-kubernetes-validations";

/// The compiled rules of a schema.
#[derive(Debug)]
pub(super) struct Rules {
    schema: CompiledSchema,
    /// What the rules cost, by their texts.
    costs: BTreeMap<String, Cost>,
    /// How many parts of the deepest one lie within each other.
    depth: usize,
}

/// The compiled rules of a schema; `None` where it has none.
pub(super) fn compile(document: &Value) -> Option<Rules> {
    let (mut costs, mut document) = (BTreeMap::new(), document.clone());
    add_costs(&mut document, &mut costs);
    (!costs.is_empty()).then(|| Rules {
        schema: cel::compiling(|| compile_schema(&document)),
        depth: costs.values().map(Cost::depth).max().unwrap_or(0),
        costs,
    })
}

/// Notes what the rules cost. What does not compile here is replaced by what fails, because the library's own
/// compiler bears less.
fn add_costs(schema: &mut Value, costs: &mut BTreeMap<String, Cost>) {
    match schema {
        Value::Object(members) => {
            let rules = members.get_mut(RULES).and_then(Value::as_array_mut);
            for rule in rules.into_iter().flatten() {
                for name in ["rule", "messageExpression"] {
                    let Some(text) = rule[name].as_str() else {
                        continue;
                    };
                    let cost = cel::compile(text).map(|program| Cost::of(&program)).ok();
                    let is_bad = cost.is_none();
                    costs.insert(text.to_owned(), cost.unwrap_or_default());
                    if is_bad {
                        rule[name] = Value::from("(");
                    }
                }
            }
            members.values_mut().for_each(|value| add_costs(value, costs));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| add_costs(value, costs)),
        _ => {}
    }
}

impl Rules {
    /// Adds the steps of all rules that the value and its parts have to satisfy. An error names the rule that
    /// alone takes too many.
    fn steps<'s>(&self, schema: &'s Value, value: &Value, steps: &mut u64) -> Result<(), &'s Value> {
        if value.is_null() {
            return Ok(());
        }
        for rule in schema[RULES].as_array().into_iter().flatten() {
            let cost = rule["rule"].as_str().and_then(|text| self.costs.get(text));
            let of_one = cost.map_or(0, |cost| cost.steps(longest(value).max(1)));
            if of_one > MOST_PER_CALL {
                return Err(rule);
            }
            *steps = steps.saturating_add(of_one);
        }
        match value {
            Value::Array(items) => items
                .iter()
                .try_for_each(|item| self.steps(&schema["items"], item, steps)),
            Value::Object(members) => members.iter().try_for_each(|(name, value)| {
                let part = match &schema["properties"][name] {
                    Value::Null => &schema["additionalProperties"],
                    property => property,
                };
                self.steps(part, value, steps)
            }),
            _ => Ok(()),
        }
    }

    /// What is wrong with an object whose rules cost too much to be evaluated.
    fn too_dear(&self, schema: &Value, object: &Value) -> Option<String> {
        let mut steps = 0;
        match self.steps(schema, object, &mut steps) {
            Err(rule) => {
                let text = |name: &str| rule[name].as_str().map(str::trim).filter(|text| !text.is_empty());
                let rule = text("message").or(text("rule")).unwrap_or_default();
                Some(format!(
                    "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                     call cost exceeds limit for rule: {rule}"
                ))
            }
            Ok(()) => (steps > MOST_PER_OBJECT).then(|| {
                "validation failed due to running out of cost budget, no further validation rules will be run".to_owned()
            }),
        }
    }
}

/// Adds to what is wrong with an object which rules it breaks. Where the object is not what its schema says,
/// no rule is evaluated, and that is what is added.
pub(super) fn add(
    (rules, document): (&Rules, &Value),
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let blocks = |error: &FieldError| {
        matches!(
            error.reason,
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    };
    if errors.iter().any(blocks) {
        errors.push(FieldError {
            reason: "FieldValueInvalid",
            field: NO_FIELD.to_owned(),
            message:
                "Invalid value: null: some validation rules were not checked because the object was invalid; \
                      correct the existing errors to complete validation"
                    .to_owned(),
        });
        return;
    }
    if let Some(why) = rules.too_dear(document, new) {
        errors.push(FieldError {
            reason: "FieldValueInvalid",
            field: NO_FIELD.to_owned(),
            message: format!("Invalid value: \"object\": {why}"),
        });
        return;
    }
    let validated = cel::evaluating(rules.depth, || {
        Validator::new().validate_compiled(&rules.schema, new, old)
    });
    let Err(broken) = validated else {
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
