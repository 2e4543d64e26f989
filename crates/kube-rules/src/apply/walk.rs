//! Walks over values beside their types: what is wrong with a value, which fields it has, how two differ.

use super::set::{FieldSet, Scalar, Step, show};
use super::types::{Items, Kind, List, Map, Member, Shape, Type};
use crate::gofmt::go_print;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with a value, with upstream's texts. A list may have an item twice where `duplicates` says
/// so: live objects may.
pub(super) fn check(ty: Type<'_>, value: &Value, duplicates: bool) -> Result<(), String> {
    let mut checker = Checker {
        duplicates,
        path: Vec::new(),
        errors: Vec::new(),
    };
    checker.check(ty, value);
    match checker.errors.as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

struct Checker {
    duplicates: bool,
    path: Vec<Step>,
    errors: Vec<String>,
}

impl Checker {
    fn wrong(&mut self, text: impl AsRef<str>) {
        let at = show(&self.path);
        let gap = if at.is_empty() { "" } else { ": " };
        self.errors.push(format!("{at}{gap}{}", text.as_ref()));
    }

    fn below(&mut self, step: Step, ty: Type<'_>, value: &Value) {
        self.path.push(step);
        self.check(ty, value);
        self.path.pop();
    }

    fn check(&mut self, ty: Type<'_>, value: &Value) {
        match (ty.shape(Some(value)), value) {
            (_, Value::Null) => {}
            (Shape::Scalar(kind), _) => {
                if let Some(text) = mismatch(kind, value) {
                    self.wrong(text);
                }
            }
            (Shape::Map(map) | Shape::Any(map), Value::Object(members)) => {
                for (name, member) in members {
                    let step = Step::Field(name.clone());
                    let Some(found) = map.member(name) else {
                        self.path.push(step);
                        self.wrong("field not declared in schema");
                        self.path.pop();
                        // Upstream looks at no further member.
                        return;
                    };
                    self.below(step, found.ty(), member);
                }
            }
            (Shape::List(list), Value::Array(items)) => self.items(&list, items),
            (Shape::Map(_) | Shape::Any(_), _) => self.wrong(format!("expected map, got {}", shown(value))),
            (Shape::List(_), _) => self.wrong(format!("expected list, got {}", shown(value))),
        }
    }

    fn items(&mut self, list: &List<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let step = if list.items == Items::Atomic {
                Step::Index(i64::try_from(at).unwrap_or(i64::MAX))
            } else {
                match list.step(item) {
                    Ok(step) => step,
                    Err(text) => return self.wrong(format!("element {at}: {text}")),
                }
            };
            if !seen.insert(step.clone()) && !self.duplicates {
                self.wrong(format!("duplicate entries for key {step}"));
            }
            self.below(step, list.item, item);
        }
    }
}

/// A value as Go prints what upstream wraps it in.
fn shown(value: &Value) -> String {
    format!("&{{{}}}", go_print(value))
}

fn mismatch(kind: Kind, value: &Value) -> Option<String> {
    match (kind, value) {
        (Kind::Number, Value::Number(_))
        | (Kind::Text, Value::String(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Kind::Number, _) => {
            let got = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            Some(format!("expected numeric (int or float), got {got}"))
        }
        (Kind::Text, _) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go_print(value)
        )),
        (Kind::Boolean, _) => Some(format!("expected boolean, got {}", shown(value))),
        (Kind::Any, _) => Some(format!("expected any scalar, got {}", shown(value))),
    }
}

/// The fields and items that a value mentions: its leaves, the items of its lists, and members of maps that
/// no schema names.
pub(super) fn fields(ty: Type<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(ty, value, &mut Vec::new(), &mut set);
    set
}

fn collect(ty: Type<'_>, value: &Value, path: &mut Vec<Step>, set: &mut FieldSet) {
    match ty.shape(Some(value)) {
        Shape::Scalar(_) => set.insert(path),
        Shape::List(list) if list.items == Items::Atomic => set.insert(path),
        Shape::Map(map) | Shape::Any(map) if map.atomic => set.insert(path),
        Shape::List(list) => {
            for (step, same) in by_step(&list, value) {
                path.push(step);
                if let [item] = same.as_slice() {
                    collect(list.item, item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Shape::Map(map) | Shape::Any(map) => {
            for (name, member) in value.as_object().into_iter().flatten() {
                let Some(found) = map.member(name) else { continue };
                path.push(Step::Field(name.clone()));
                collect(found.ty(), member, path, set);
                let is_empty = member.is_null() || member.as_object().is_some_and(serde_json::Map::is_empty);
                if is_empty || matches!(found, Member::Any(_)) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

/// The items of a list by what identifies them. Items that nothing identifies are left out.
fn by_step<'v>(list: &List<'_>, value: &'v Value) -> BTreeMap<Step, Vec<&'v Value>> {
    let mut all: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for item in value.as_array().into_iter().flatten() {
        if let Ok(step) = list.step(item) {
            all.entry(step).or_default().push(item);
        }
    }
    all
}

/// How two values differ.
#[derive(Clone, Debug, Default)]
pub(super) struct Difference {
    pub(super) added: FieldSet,
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
}

impl Difference {
    /// From one value to another of the same type.
    pub(super) fn between(ty: Type<'_>, old: &Value, new: &Value) -> Self {
        let mut difference = Self::default();
        difference.compare(ty, (Some(old), Some(new)), &mut Vec::new(), false);
        difference
    }

    /// Without these fields and what is below them.
    pub(super) fn without(self, fields: &FieldSet) -> Self {
        Self {
            added: self.added.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
        }
    }

    /// `in_leaf`: something further up is replaced as a whole, and was noted.
    fn compare(&mut self, ty: Type<'_>, values: Pair<'_>, path: &mut Vec<Step>, in_leaf: bool) {
        let old = ty.shape(values.0);
        let new = ty.shape(values.1);
        let is_leaf = match values {
            (_, None) => self.by_shape(&old, values, path, in_leaf),
            (Some(_), _) if !is_alike(&old, &new) => {
                self.by_shape(&old, values, path, in_leaf);
                self.by_shape(&new, values, path, in_leaf)
            }
            _ => self.by_shape(&new, values, path, in_leaf),
        };
        if !is_leaf {
            match values {
                (None, _) => self.added.insert(path),
                (_, None) => self.removed.insert(path),
                _ => {}
            }
        }
    }

    /// Returns whether the value is a leaf, or in one.
    fn by_shape(&mut self, shape: &Shape<'_>, values: Pair<'_>, path: &mut Vec<Step>, in_leaf: bool) -> bool {
        let is_empty = |value: Option<&Value>| match shape {
            Shape::List(_) => value.and_then(Value::as_array).is_none_or(Vec::is_empty),
            _ => value
                .and_then(Value::as_object)
                .is_none_or(serde_json::Map::is_empty),
        };
        let is_whole = match shape {
            Shape::Scalar(_) => true,
            Shape::List(list) => list.items == Items::Atomic,
            Shape::Map(map) | Shape::Any(map) => map.atomic,
        };
        // Two that are both empty differ where one of them is null.
        if is_whole || (is_empty(values.0) && is_empty(values.1)) {
            if !in_leaf {
                self.leaf(values, path);
            }
            return true;
        }
        match shape {
            Shape::Scalar(_) => {}
            Shape::List(list) => self.items(list, values, path, in_leaf),
            Shape::Map(map) | Shape::Any(map) => self.members(map, values, path, in_leaf),
        }
        in_leaf
    }

    fn leaf(&mut self, values: Pair<'_>, path: &[Step]) {
        match values {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if !is_same(old, new) => self.modified.insert(path),
            _ => {}
        }
    }

    fn members(&mut self, map: &Map<'_>, values: Pair<'_>, path: &mut Vec<Step>, in_leaf: bool) {
        let old = values.0.and_then(Value::as_object);
        let new = values.1.and_then(Value::as_object);
        let names: BTreeSet<&String> = old
            .into_iter()
            .chain(new)
            .flat_map(serde_json::Map::keys)
            .collect();
        for name in names {
            let Some(found) = map.member(name) else { continue };
            let pair = (
                old.and_then(|old| old.get(name)),
                new.and_then(|new| new.get(name)),
            );
            path.push(Step::Field(name.clone()));
            self.compare(found.ty(), pair, path, in_leaf);
            path.pop();
        }
    }

    fn items(&mut self, list: &List<'_>, values: Pair<'_>, path: &mut Vec<Step>, in_leaf: bool) {
        let old = values.0.map(|old| by_step(list, old)).unwrap_or_default();
        let new = values.1.map(|new| by_step(list, new)).unwrap_or_default();
        let steps: BTreeSet<&Step> = old.keys().chain(new.keys()).collect();
        for step in steps {
            let old = old.get(step).map(Vec::as_slice).unwrap_or_default();
            let new = new.get(step).map(Vec::as_slice).unwrap_or_default();
            let (first, other) = (old.first().copied(), new.first().copied());
            path.push(step.clone());
            match (old.len(), new.len()) {
                (0 | 1, 0 | 1) => self.compare(list.item, (first, other), path, in_leaf),
                // An item that is there several times is a leaf.
                (0 | 1, _) => {
                    if first.is_some() {
                        self.compare(list.item, (first, None), path, in_leaf);
                    }
                    self.added.insert(path);
                }
                (_, 0 | 1) => {
                    if other.is_some() {
                        self.compare(list.item, (None, other), path, in_leaf);
                    }
                    self.removed.insert(path);
                }
                _ => {
                    if old.len() != new.len() || !old.iter().zip(new).all(|(old, new)| is_same(old, new)) {
                        self.modified.insert(path);
                    }
                }
            }
            path.pop();
        }
    }
}

/// The old and the new value, each where there is one.
type Pair<'v> = (Option<&'v Value>, Option<&'v Value>);

fn is_alike(one: &Shape<'_>, two: &Shape<'_>) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(two)
}

/// Whether two values are equal, numbers however they are written.
pub(super) fn is_same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(_), Value::Number(_)) => Scalar(one.clone()) == Scalar(two.clone()),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_same(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            let same =
                |(name, value): (&String, &Value)| two.get(name).is_some_and(|other| is_same(value, other));
            one.len() == two.len() && one.iter().all(same)
        }
        (one, two) => one == two,
    }
}
