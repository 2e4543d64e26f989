//! Structural schemas: parsing, pruning, defaulting.

use crate::strict::json::Node;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A schema, ready to be walked.
#[derive(Clone, Debug, Default)]
pub(super) struct Structural {
    /// `type`, empty for any.
    pub(super) kind: String,
    pub(super) nullable: bool,
    /// `x-kubernetes-int-or-string`
    pub(super) int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub(super) preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`
    pub(super) embedded: bool,
    /// `x-kubernetes-map-type: atomic`
    pub(super) atomic_map: bool,
    pub(super) properties: BTreeMap<String, Structural>,
    /// `additionalProperties` with a schema; `true` is a schema that takes anything.
    pub(super) additional: Option<Box<Structural>>,
    pub(super) items: Option<Box<Structural>>,
    pub(super) default: Option<Value>,
    /// What values must satisfy.
    pub(super) rules: Rules,
}

/// Value validations of one level of a schema.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) required: Vec<String>,
    pub(super) allowed: Vec<Value>,
    pub(super) pattern: Option<(String, regex::Regex)>,
    pub(super) format: String,
    pub(super) minimum: Option<(f64, bool)>,
    pub(super) maximum: Option<(f64, bool)>,
    pub(super) multiple_of: Option<f64>,
    pub(super) length: (Option<u64>, Option<u64>),
    pub(super) items: (Option<u64>, Option<u64>),
    pub(super) properties: (Option<u64>, Option<u64>),
    pub(super) unique: bool,
    /// `x-kubernetes-list-type`
    pub(super) list_type: String,
    /// `x-kubernetes-list-map-keys`
    pub(super) list_keys: Vec<String>,
    pub(super) all_of: Vec<Structural>,
    pub(super) any_of: Vec<Structural>,
    pub(super) one_of: Vec<Structural>,
    pub(super) not: Option<Box<Structural>>,
}

impl Structural {
    /// A schema that takes every object as it is.
    pub(super) fn anything() -> Self {
        Self {
            preserve_unknown: true,
            ..Self::default()
        }
    }

    /// Parses an `openAPIV3Schema`. The error says where it does not hold.
    pub(super) fn parse(schema: &Value) -> Result<Self, String> {
        let text = |key: &str| schema[key].as_str().unwrap_or_default().to_owned();
        let flag = |key: &str| schema[key].as_bool().unwrap_or(false);
        let properties = schema["properties"].as_object().into_iter().flatten();
        let properties = properties
            .map(|(name, property)| {
                let parsed = Self::parse(property).map_err(|error| format!("{name}: {error}"))?;
                Ok::<_, String>((name.clone(), parsed))
            })
            .collect::<Result<_, _>>()?;
        let additional = match &schema["additionalProperties"] {
            Value::Bool(true) => Some(Box::new(Self::anything())),
            property @ Value::Object(_) => Some(Box::new(Self::parse(property)?)),
            _ => None,
        };
        let items = match &schema["items"] {
            item @ Value::Object(_) => Some(Box::new(Self::parse(item)?)),
            _ => None,
        };
        Ok(Self {
            kind: text("type"),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            atomic_map: schema["x-kubernetes-map-type"] == "atomic",
            properties,
            additional,
            items,
            default: schema
                .get("default")
                .filter(|default| !default.is_null())
                .cloned(),
            rules: Rules::parse(schema)?,
        })
    }

    /// The schema of a member, if it is specified.
    pub(super) fn member(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or(self.additional.as_deref())
    }
}

impl Rules {
    fn parse(schema: &Value) -> Result<Self, String> {
        let texts = |key: &str| -> Vec<String> {
            let list = schema[key].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let several = |key: &str| -> Result<Vec<Structural>, String> {
            schema[key]
                .as_array()
                .into_iter()
                .flatten()
                .map(Structural::parse)
                .collect()
        };
        let bound = |key: &str, exclusive: &str| {
            schema[key]
                .as_f64()
                .map(|limit| (limit, schema[exclusive].as_bool().unwrap_or(false)))
        };
        let range = |least: &str, most: &str| (schema[least].as_u64(), schema[most].as_u64());
        let pattern = schema["pattern"].as_str().filter(|pattern| !pattern.is_empty());
        let pattern = pattern
            .map(|pattern| {
                let compiled =
                    regex::Regex::new(pattern).map_err(|error| format!("pattern {pattern:?}: {error}"))?;
                Ok::<_, String>((pattern.to_owned(), compiled))
            })
            .transpose()?;
        Ok(Self {
            required: texts("required"),
            allowed: schema["enum"].as_array().cloned().unwrap_or_default(),
            pattern,
            format: schema["format"].as_str().unwrap_or_default().to_owned(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: schema["multipleOf"].as_f64(),
            length: range("minLength", "maxLength"),
            items: range("minItems", "maxItems"),
            properties: range("minProperties", "maxProperties"),
            unique: schema["uniqueItems"].as_bool().unwrap_or(false),
            list_type: schema["x-kubernetes-list-type"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            list_keys: texts("x-kubernetes-list-map-keys"),
            all_of: several("allOf")?,
            any_of: several("anyOf")?,
            one_of: several("oneOf")?,
            not: match &schema["not"] {
                Value::Null => None,
                not => Some(Box::new(Structural::parse(not)?)),
            },
        })
    }
}

/// Members that stand twice in the document.
pub(super) fn duplicates(members: &[(String, Node)], path: &str, found: &mut Vec<String>) {
    for (index, (name, node)) in members.iter().enumerate() {
        let path = join(path, name);
        if members.iter().take(index).any(|(earlier, _)| earlier == name) {
            let text = format!("duplicate field {path:?}");
            if !found.contains(&text) {
                found.push(text);
            }
        }
        nested_duplicates(node, &path, found);
    }
}

fn nested_duplicates(node: &Node, path: &str, found: &mut Vec<String>) {
    match node {
        Node::Object(members) => duplicates(members, path, found),
        Node::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                nested_duplicates(item, &format!("{path}[{index}]"), found);
            }
        }
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => {}
    }
}

/// Drops what the schema does not specify, and names it. `apiVersion`, `kind` and `metadata` of the object
/// stay.
pub(super) fn prune(schema: &Structural, object: &mut Value, found: &mut Vec<String>) {
    prune_at(schema, object, "", true, found);
}

fn prune_at(schema: &Structural, value: &mut Value, path: &str, is_resource: bool, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => prune_members(schema, members, path, is_resource || schema.embedded, found),
        Value::Array(items) => {
            if let Some(item_schema) = &schema.items {
                for (index, item) in items.iter_mut().enumerate() {
                    prune_at(item_schema, item, &format!("{path}[{index}]"), false, found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn prune_members(
    schema: &Structural,
    members: &mut Map<String, Value>,
    path: &str,
    is_resource: bool,
    found: &mut Vec<String>,
) {
    members.retain(|name, value| {
        let path = join(path, name);
        if is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            return true;
        }
        match schema.member(name) {
            Some(member) => {
                prune_at(member, value, &path, false, found);
                true
            }
            None if schema.preserve_unknown => true,
            None => {
                found.push(format!("unknown field {path:?}"));
                false
            }
        }
    });
}

/// Takes out members that are null though their schema does not allow that, where there is no default.
pub(super) fn forget_nulls(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                let of = schema.member(name);
                !member.is_null() || of.is_none_or(|of| of.nullable || of.default.is_some())
            });
            for (name, member) in members.iter_mut() {
                if let Some(schema) = schema.member(name) {
                    forget_nulls(schema, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    forget_nulls(schema, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fills in defaults where members are missing; a null that the schema does not allow counts as missing.
pub(super) fn apply_defaults(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else {
                    continue;
                };
                let missing = members
                    .get(name)
                    .is_none_or(|found| found.is_null() && !property.nullable);
                if missing {
                    members.insert(name.clone(), default.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                if let Some(schema) = schema.member(name) {
                    if member.is_null()
                        && !schema.nullable
                        && let Some(default) = &schema.default
                    {
                        *member = default.clone();
                    }
                    apply_defaults(schema, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    apply_defaults(schema, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
