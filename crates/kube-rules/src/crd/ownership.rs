//! Custom resources as ownership of fields sees them.

use super::structural::Structural;
use crate::apply::types::{Custom, Items, Kind, List, Map, Member, Members, Shape, Type};
use serde_json::Value;

impl Custom for Structural {
    fn shape(&self, unknown: bool) -> Shape<'_> {
        let unknown = unknown || self.preserve_unknown;
        let map = Map {
            atomic: self.atomic_map,
            members: if self.embedded {
                Members::Object(self, unknown)
            } else {
                Members::Custom(self, unknown)
            },
        };
        match self.kind.as_str() {
            "object" => Shape::Map(map),
            "array" => Shape::List(List {
                items: match self.rules.list_type.as_str() {
                    "map" => Items::Keys(self.rules.list_keys.clone()),
                    "set" => Items::Set,
                    _ => Items::Atomic,
                },
                item: match &self.items {
                    Some(item) => Type::Custom(&**item, unknown),
                    None => Type::Untyped,
                },
            }),
            "integer" | "number" => Shape::Scalar(Kind::Number),
            "boolean" => Shape::Scalar(Kind::Boolean),
            "string" if matches!(self.rules.format.as_str(), "" | "byte") => Shape::Scalar(Kind::Text),
            "string" => Shape::Scalar(Kind::Any),
            _ if self.int_or_string => Shape::Scalar(Kind::Any),
            _ => Shape::Any(map),
        }
    }

    fn member(&self, name: &str, unknown: bool) -> Option<Member<'_>> {
        let unknown = unknown || self.preserve_unknown;
        if let Some(property) = self.properties.get(name) {
            return Some(Member::Named(Type::Custom(property, unknown)));
        }
        match &self.additional {
            Some(additional) => Some(Member::Any(Type::Custom(&**additional, unknown))),
            None if unknown || self.properties.is_empty() => Some(Member::Any(Type::Deduced)),
            None => None,
        }
    }

    fn default_value(&self) -> Option<Value> {
        self.default.clone()
    }
}
