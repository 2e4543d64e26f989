//! Sets of fields, and how `fieldsV1` writes them.

use crate::gofmt::{go_print, go_quote};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One step of a path into an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A member of a map.
    Field(String),
    /// An item of a list of maps, by its keys in the order of their names.
    Key(Vec<(String, Scalar)>),
    /// An item of a set.
    Value(Scalar),
    /// An item of another list, by its place. Only clients write it.
    Index(i64),
}

/// A value that identifies an item. Numbers that are equal are one value, however they are written.
#[derive(Clone, Debug)]
pub(super) struct Scalar(pub(super) Value);

impl Scalar {
    /// Numbers come before texts, texts before booleans.
    fn rank(&self) -> u8 {
        match self.0 {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Number(one), Value::Number(two)) => {
                if let (Some(one), Some(two)) = (one.as_i64(), two.as_i64()) {
                    return one.cmp(&two);
                }
                let float = |number: &serde_json::Number| number.as_f64().unwrap_or_default();
                float(one).total_cmp(&float(two))
            }
            (Value::String(one), Value::String(two)) => one.cmp(two),
            (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
            // No item is identified by a list or a map; the texts give some order to what clients make up.
            (one, two) if self.rank() == other.rank() => one.to_string().cmp(&two.to_string()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => f.write_str(&go_quote(text)),
            Value::Null => f.write_str("null"),
            other => f.write_str(&go_print(other)),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Field(name) => write!(f, ".{name}"),
            Step::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", keys.join(","))
            }
            Step::Value(value) => write!(f, "[={value}]"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Step {
    fn to_text(&self) -> String {
        match self {
            Step::Field(name) => format!("f:{name}"),
            Step::Key(keys) => {
                let keys: Map<String, Value> = keys
                    .iter()
                    .map(|(name, value)| (name.clone(), value.0.clone()))
                    .collect();
                format!("k:{}", Value::Object(keys))
            }
            Step::Value(value) => format!("v:{}", value.0),
            Step::Index(index) => format!("i:{index}"),
        }
    }

    /// `Ok(None)`: a kind of step that nobody knows yet, which is left out.
    fn parse(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(format!("missing colon in path element {}", go_quote(text)));
        };
        let value = || serde_json::from_str::<Value>(rest).map_err(|error| error.to_string());
        Ok(match kind {
            "f" => Some(Step::Field(rest.to_owned())),
            "v" => Some(Step::Value(Scalar(value()?))),
            "i" => Some(Step::Index(rest.parse().map_err(|error| format!("{error}"))?)),
            "k" => {
                let Value::Object(keys) = value()? else {
                    return Err(format!("{} is no map of keys", go_quote(rest)));
                };
                let mut keys: Vec<_> = keys
                    .into_iter()
                    .map(|(name, value)| (name, Scalar(value)))
                    .collect();
                keys.sort();
                Some(Step::Key(keys))
            }
            _ => None,
        })
    }
}

/// A path as messages show it.
pub(super) fn show(path: &[Step]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// Fields and items of an object. That a field is in the set says nothing of what is below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    members: BTreeSet<Step>,
    /// None of them is empty.
    children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    /// The set of these paths of fields.
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let steps: Vec<Step> = path.iter().map(|name| Step::Field((*name).to_owned())).collect();
            set.insert(&steps);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    pub(super) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(super) fn has(&self, step: &Step) -> bool {
        self.members.contains(step)
    }

    pub(super) fn child(&self, step: &Step) -> Option<&FieldSet> {
        self.children.get(step)
    }

    /// The steps from here, each once.
    pub(super) fn steps(&self) -> BTreeSet<&Step> {
        self.members.iter().chain(self.children.keys()).collect()
    }

    /// Puts what is below a step in its place.
    pub(super) fn replace_child(&mut self, step: &Step, child: FieldSet) {
        if child.is_empty() {
            self.children.remove(step);
        } else {
            self.children.insert(step.clone(), child);
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            let mine = all.children.entry(step.clone()).or_default();
            *mine = mine.union(child);
        }
        all
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(step, child)| {
            let both = child.intersection(other.children.get(step)?);
            (!both.is_empty()).then(|| (step.clone(), both))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Without the members of another set. What is below them stays.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Without the members of another set, and without what is below them.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, recursive: bool) -> Self {
        let children = self.children.iter().filter_map(|(step, child)| {
            if recursive && other.members.contains(step) {
                return None;
            }
            let left = match other.children.get(step) {
                Some(taken) => child.without(taken, recursive),
                None => child.clone(),
            };
            (!left.is_empty()).then(|| (step.clone(), left))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// All paths: at each place first its members, then what is below.
    pub(super) fn paths(&self) -> Vec<Vec<Step>> {
        let mut all = Vec::new();
        self.collect(&mut Vec::new(), &mut all);
        all
    }

    fn collect(&self, prefix: &mut Vec<Step>, all: &mut Vec<Vec<Step>>) {
        for step in &self.members {
            all.push(prefix.iter().chain([step]).cloned().collect());
        }
        for (step, child) in &self.children {
            prefix.push(step.clone());
            child.collect(prefix, all);
            prefix.pop();
        }
    }

    /// As `fieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut out = Map::new();
        for step in self.steps() {
            let mut below = match self.children.get(step) {
                Some(child) => child.to_json(),
                None => json!({}),
            };
            if self.members.contains(step) && self.children.contains_key(step) {
                below["."] = json!({});
            }
            out.insert(step.to_text(), below);
        }
        Value::Object(out)
    }

    /// Reads `fieldsV1`.
    pub(super) fn parse(fields: &Value) -> Result<Self, String> {
        let Value::Object(entries) = fields else {
            return Err("fieldsV1 is no map".to_owned());
        };
        let mut set = Self::default();
        for (text, below) in entries.iter().filter(|(text, _)| *text != ".") {
            let Some(step) = Step::parse(text)? else { continue };
            let child = Self::parse(below)?;
            if child.is_empty() || below.get(".").is_some() {
                set.members.insert(step.clone());
            }
            if !child.is_empty() {
                set.children.insert(step, child);
            }
        }
        Ok(set)
    }
}
