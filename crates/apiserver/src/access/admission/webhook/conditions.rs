//! `matchConditions`: CEL over `object`, `oldObject` and `request`. The variable `authorizer` is not there.

use super::review::Sent;
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The conditions of one webhook; all must hold.
pub(super) struct Conditions(Vec<Condition>);

struct Condition {
    name: String,
    expression: String,
    program: Result<Program, String>,
}

impl Conditions {
    pub(super) fn new(conditions: &Value) -> Self {
        let compile = |condition: &Value| {
            let expression = condition["expression"].as_str().unwrap_or_default();
            Condition {
                name: condition["name"].as_str().unwrap_or_default().to_owned(),
                expression: expression.to_owned(),
                program: Program::compile(expression).map_err(|error| error.to_string()),
            }
        };
        Self(conditions.as_array().into_iter().flatten().map(compile).collect())
    }

    /// Whether all hold. One that is false decides, even where another one fails.
    pub(super) fn hold(&self, sent: &Sent) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let mut context = Context::default().with_all();
        let request = &sent.review["request"];
        for (variable, value) in [
            ("object", &request["object"]),
            ("oldObject", &request["oldObject"]),
            ("request", request),
        ] {
            context.add_variable_from_value(variable, cel(value));
        }
        let mut errors = Vec::new();
        for condition in &self.0 {
            match condition.evaluate(&context) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

impl Condition {
    fn evaluate(&self, context: &Context<'_>) -> Result<bool, String> {
        let failed = |why: &str| {
            format!(
                "error evaluating match condition \"{}\": expression '{}' resulted in error: {why}",
                self.name, self.expression
            )
        };
        let program = self.program.as_ref().map_err(|error| failed(error))?;
        match program.execute(context) {
            Ok(Cel::Bool(value)) => Ok(value),
            Ok(other) => Err(failed(&format!("{:?} is not a boolean", other.type_of()))),
            Err(error) => Err(failed(&error.to_string().to_lowercase())),
        }
    }
}

/// JSON as CEL sees it: whole numbers are ints, objects are maps by their own keys.
fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Cel::Int(int),
            (None, Some(unsigned)) => Cel::UInt(unsigned),
            (None, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(cel).collect())),
        Value::Object(members) => Cel::Map(Map {
            map: Arc::new(
                members
                    .iter()
                    .map(|(key, value)| (Key::from(key.as_str()), cel(value)))
                    .collect::<HashMap<_, _>>(),
            ),
        }),
    }
}
