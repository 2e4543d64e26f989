//! Expressions in CEL over `object`, `oldObject` and `request`. The variable `authorizer` is not there.

use super::versioned::Versioned;
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The most steps that one evaluation may take (upstream's `PerCallLimit`). Upstream counts them while it
/// evaluates; here they are computed beforehand, as if each loop went over the longest list or map of the
/// request. A list that a function makes of a text is not counted.
const MOST_STEPS: u64 = 1_000_000;

/// An expression, compiled once.
pub(super) struct Expression {
    text: String,
    program: Result<Program, String>,
    /// How many parts of it are evaluated within how many loops, by the number of loops.
    parts: Vec<u64>,
}

impl Expression {
    pub(super) fn new(text: &str) -> Self {
        let program = Program::compile(text).map_err(|error| error.to_string());
        let mut parts = Vec::new();
        if let Ok(program) = &program {
            count(program.expression(), 0, &mut parts);
        }
        Self {
            text: text.to_owned(),
            program,
            parts,
        }
    }

    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }

    /// Its value, or why it has none.
    pub(super) fn evaluate(&self, scope: &Scope) -> Result<Cel, String> {
        let failed = |why: &str| format!("expression '{}' resulted in error: {why}", self.text);
        let program = self.program.as_ref().map_err(|error| failed(error))?;
        if self.steps(scope.longest) > MOST_STEPS {
            return Err(failed("operation cancelled: actual cost limit exceeded"));
        }
        program
            .execute(&scope.context)
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

    fn steps(&self, longest: u64) -> u64 {
        // Horner's scheme: the part within most loops is multiplied most often.
        let within = |steps: u64, parts: &u64| steps.saturating_mul(longest).saturating_add(*parts);
        self.parts.iter().rev().fold(0, within)
    }
}

/// Adds the parts of an expression that is evaluated within that many loops.
fn count(expression: &IdedExpr, loops: usize, parts: &mut Vec<u64>) {
    if parts.len() <= loops {
        parts.resize(loops + 1, 0);
    }
    if let Some(count) = parts.get_mut(loops) {
        *count += 1;
    }
    let entry = |entry: &IdedEntryExpr, parts: &mut Vec<u64>| match &entry.expr {
        EntryExpr::StructField(field) => count(&field.value, loops, parts),
        EntryExpr::MapEntry(entry) => {
            count(&entry.key, loops, parts);
            count(&entry.value, loops, parts);
        }
    };
    match &expression.expr {
        Expr::Call(call) => {
            for part in call.target.as_deref().into_iter().chain(&call.args) {
                count(part, loops, parts);
            }
        }
        Expr::Comprehension(of) => {
            count(&of.iter_range, loops, parts);
            count(&of.accu_init, loops, parts);
            count(&of.loop_cond, loops + 1, parts);
            count(&of.loop_step, loops + 1, parts);
            count(&of.result, loops, parts);
        }
        Expr::List(list) => list.elements.iter().for_each(|part| count(part, loops, parts)),
        Expr::Map(map) => map.entries.iter().for_each(|one| entry(one, parts)),
        Expr::Select(select) => count(&select.operand, loops, parts),
        Expr::Struct(of) => of.entries.iter().for_each(|one| entry(one, parts)),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
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

fn longest(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(longest).fold(items.len() as u64, u64::max),
        Value::Object(members) => members.values().map(longest).fold(members.len() as u64, u64::max),
        _ => 0,
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
