//! What expressions in CEL cost, computed before they are evaluated.
//!
//! Upstream counts the steps of an evaluation and stops it at a limit. Here the steps are computed
//! beforehand, as if each loop went over the longest list or map that the expression can see. A list that a
//! function makes of a text is not counted.

use crate::cel;
use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr};
use serde_json::Value;

/// The most steps that one evaluation may take; upstream's `PerCallLimit`.
pub const MOST_PER_CALL: u64 = 1_000_000;

/// The most steps that all rules of a custom resource may take together; upstream's `RuntimeCELCostBudget`.
pub const MOST_PER_OBJECT: u64 = 10_000_000;

/// What one expression costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How many parts of it are evaluated within how many loops, by the number of loops.
    parts: Vec<u64>,
    /// How many parts of it lie within each other.
    depth: usize,
}

impl Cost {
    /// The cost of a compiled expression.
    pub fn of(program: &Program) -> Self {
        let mut cost = Self::default();
        cel::compiling(|| cost.count(program.expression(), 0, 1));
        cost
    }

    /// How many parts of the expression lie within each other.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The steps of one evaluation where the longest list or map has so many items.
    pub fn steps(&self, longest: u64) -> u64 {
        // Horner's scheme: the part within most loops is multiplied most often.
        let within = |steps: u64, parts: &u64| steps.saturating_mul(longest).saturating_add(*parts);
        self.parts.iter().rev().fold(0, within)
    }

    /// Adds the parts of an expression that is evaluated within that many loops, and lies so deep.
    fn count(&mut self, expression: &IdedExpr, loops: usize, depth: usize) {
        self.depth = self.depth.max(depth);
        let depth = depth + 1;
        if self.parts.len() <= loops {
            self.parts.resize(loops + 1, 0);
        }
        if let Some(count) = self.parts.get_mut(loops) {
            *count += 1;
        }
        match &expression.expr {
            Expr::Call(call) => {
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    self.count(part, loops, depth);
                }
            }
            Expr::Comprehension(of) => {
                self.count(&of.iter_range, loops, depth);
                self.count(&of.accu_init, loops, depth);
                self.count(&of.loop_cond, loops + 1, depth);
                self.count(&of.loop_step, loops + 1, depth);
                self.count(&of.result, loops, depth);
            }
            Expr::List(list) => list
                .elements
                .iter()
                .for_each(|part| self.count(part, loops, depth)),
            Expr::Map(map) => map
                .entries
                .iter()
                .for_each(|one| self.count_entry(one, loops, depth)),
            Expr::Select(select) => self.count(&select.operand, loops, depth),
            Expr::Struct(of) => of
                .entries
                .iter()
                .for_each(|one| self.count_entry(one, loops, depth)),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }

    fn count_entry(&mut self, entry: &IdedEntryExpr, loops: usize, depth: usize) {
        match &entry.expr {
            EntryExpr::StructField(field) => self.count(&field.value, loops, depth),
            EntryExpr::MapEntry(entry) => {
                self.count(&entry.key, loops, depth);
                self.count(&entry.value, loops, depth);
            }
        }
    }
}

/// The items of the longest list or map in a value.
pub fn longest(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(longest).fold(items.len() as u64, u64::max),
        Value::Object(members) => members.values().map(longest).fold(members.len() as u64, u64::max),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_loop_multiplies() {
        let steps = |text: &str, longest| Cost::of(&Program::compile(text).unwrap()).steps(longest);
        assert_eq!(steps("self.a == 1", 1_000), steps("self.a == 1", 1));
        let (one, two) = ("self.all(a, a > 0)", "self.all(a, self.all(b, a > b))");
        assert!(
            (1_000..20_000).contains(&steps(one, 1_000)),
            "{}",
            steps(one, 1_000)
        );
        assert!(
            (1_000_000..20_000_000).contains(&steps(two, 1_000)),
            "{}",
            steps(two, 1_000)
        );
        assert_eq!(steps(two, u64::MAX), u64::MAX, "it does not overflow");
    }

    #[test]
    fn the_longest_is_found_at_any_depth() {
        assert_eq!(longest(&json!({"a": [1, {"b": [1, 2, 3]}]})), 3);
        assert_eq!(longest(&json!("text")), 0);
    }
}
