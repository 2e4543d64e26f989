//! Expressions in CEL over `object`, `oldObject` and `request`. The variable `authorizer` is not there.

use super::versioned::Versioned;
use evenkeel_kube_rules::cel;
use evenkeel_kube_rules::cost::{Cost, MOST_PER_CALL, longest};
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// An expression, compiled once.
pub(super) struct Expression {
    text: String,
    program: Result<Program, String>,
    cost: Cost,
}

impl Expression {
    pub(super) fn new(text: &str) -> Self {
        let program = cel::compile(text);
        Self {
            text: text.to_owned(),
            cost: program.as_ref().map(Cost::of).unwrap_or_default(),
            program,
        }
    }

    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }

    /// Its value, or why it has none.
    pub(super) fn evaluate(&self, scope: &Scope) -> Result<Cel, String> {
        let failed = |why: &str| format!("expression '{}' resulted in error: {why}", self.text);
        let program = self.program.as_ref().map_err(|error| failed(error))?;
        if self.cost.steps(scope.longest) > MOST_PER_CALL {
            return Err(failed("operation cancelled: actual cost limit exceeded"));
        }
        cel::evaluating(self.cost.depth(), || program.execute(&scope.context))
            .map_err(|error| failed(&error.to_string().to_lowercase()))
    }

    /// As [`Expression::evaluate`], of an expression that is true or false.
    pub(super) fn holds(&self, scope: &Scope) -> Result<bool, String> {
        match self.evaluate(scope)? {
            Cel::Bool(value) => Ok(value),
            other => Err(format!(
                "expression '{}' resulted in error: {:?} is not a boolean",
                self.text,
                other.type_of()
            )),
        }
    }
}

/// What the variables of an expression stand for.
pub(super) struct Scope {
    context: Context<'static>,
    /// Items of the longest list or map in it.
    longest: u64,
}

impl Scope {
    /// `object`, `oldObject` and `request`.
    pub(super) fn new(versioned: &Versioned) -> Self {
        let mut scope = Self {
            context: Context::default().with_all(),
            longest: 1,
        };
        scope.add("object", &versioned.object);
        scope.add("oldObject", &versioned.old_object);
        scope.add("request", &versioned.request);
        scope
    }

    pub(super) fn add(&mut self, name: &str, value: &Value) {
        self.longest = self.longest.max(longest(value));
        self.context.add_variable_from_value(name, cel(value));
    }

    /// `variables` by their names, each of which may use those before it. One that fails is not there, so
    /// that only an expression that uses it fails.
    pub(super) fn add_variables(&mut self, variables: &[(String, Expression)]) {
        let mut values: HashMap<Key, Cel> = HashMap::new();
        for (name, expression) in variables {
            let map = Map {
                map: Arc::new(values.clone()),
            };
            self.context.add_variable_from_value("variables", Cel::Map(map));
            if let Ok(value) = expression.evaluate(self) {
                values.insert(Key::from(name.as_str()), value);
            }
        }
        let map = Arc::new(values);
        self.context
            .add_variable_from_value("variables", Cel::Map(Map { map }));
    }
}

/// `matchConditions`; all must hold.
pub(super) struct Conditions(Vec<(String, Expression)>);

impl Conditions {
    pub(super) fn new(conditions: &Value) -> Self {
        Self(named(conditions))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all hold. One that is false decides, even where another one fails.
    pub(super) fn hold(&self, scope: &Scope) -> Result<bool, String> {
        let mut errors = Vec::new();
        for (name, condition) in &self.0 {
            match condition.holds(scope) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => errors.push(format!("error evaluating match condition \"{name}\": {error}")),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

/// A list of named expressions.
pub(super) fn named(list: &Value) -> Vec<(String, Expression)> {
    let one = |item: &Value| {
        let text = |key: &str| item[key].as_str().unwrap_or_default();
        (text("name").to_owned(), Expression::new(text("expression")))
    };
    list.as_array().into_iter().flatten().map(one).collect()
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
