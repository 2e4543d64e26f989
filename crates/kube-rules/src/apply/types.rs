//! Types as ownership of fields sees them: what is a leaf, which lists and maps are merged by items.

use super::set::{Scalar, Step};
use crate::gofmt::go_quote;
use crate::schema::{self, Definition, Field, ListType};
use serde_json::{Value, json};

/// The type of a value.
#[derive(Clone, Copy)]
pub(crate) enum Type<'a> {
    /// Of a built-in kind.
    Builtin(&'static schema::Type),
    /// Of a field of a built-in kind, which says how lists and maps merge.
    Field(&'static Field),
    /// A built-in kind itself.
    Definition(&'static Definition),
    /// Of a custom resource, and whether a schema further up takes fields that it does not know.
    Custom(&'a dyn Custom, bool),
    /// A custom resource itself.
    Object(&'a dyn Custom),
    /// A text of a custom resource that its schema need not name, such as `apiVersion`.
    Text,
    /// Without a schema: a map merges by its members, a list is replaced as a whole.
    Deduced,
    /// Without a schema, and replaced as a whole.
    Untyped,
}

/// A schema of a custom resource.
pub(crate) trait Custom {
    /// What its values are made of; `unknown`: a schema further up takes unknown fields.
    fn shape(&self, unknown: bool) -> Shape<'_>;
    /// The type of a member.
    fn member(&self, name: &str, unknown: bool) -> Option<Member<'_>>;
    /// The default that the schema declares.
    fn default_value(&self) -> Option<Value>;
}

/// The type of a member of a map.
pub(crate) enum Member<'a> {
    /// The schema names it.
    Named(Type<'a>),
    /// One of any number of members.
    Any(Type<'a>),
}

impl<'a> Member<'a> {
    pub(super) fn ty(&self) -> Type<'a> {
        match self {
            Member::Named(ty) | Member::Any(ty) => *ty,
        }
    }
}

/// What the values of a type are made of.
pub(crate) enum Shape<'a> {
    /// One value.
    Scalar(Kind),
    /// A list, merged item by item or replaced as a whole.
    List(List<'a>),
    /// A map, merged member by member or replaced as a whole.
    Map(Map<'a>),
    /// Any of the three; the list is replaced as a whole.
    Any(Map<'a>),
}

/// What a single value has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A number.
    Number,
    /// A text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// Any of them.
    Any,
}

/// A list.
#[derive(Clone)]
pub(crate) struct List<'a> {
    pub(crate) items: Items,
    pub(crate) item: Type<'a>,
}

/// What identifies the items of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Items {
    /// Nothing: the list is replaced as a whole.
    Atomic,
    /// Their values.
    Set,
    /// The values of these fields.
    Keys(Vec<String>),
}

/// A map.
#[derive(Clone, Copy)]
pub(crate) struct Map<'a> {
    pub(crate) atomic: bool,
    pub(crate) members: Members<'a>,
}

/// What members a map has.
#[derive(Clone, Copy)]
pub(crate) enum Members<'a> {
    /// The fields of a definition.
    Definition(&'static Definition),
    /// Members of one type.
    All(Type<'a>),
    /// Those of a schema of a custom resource.
    Custom(&'a dyn Custom, bool),
    /// The same, and what each object has.
    Object(&'a dyn Custom, bool),
}

impl<'a> Map<'a> {
    /// `None`: the schema has no such member.
    pub(super) fn member(&self, name: &str) -> Option<Member<'a>> {
        match self.members {
            Members::Definition(definition) if definition.fields.is_empty() => {
                Some(Member::Any(Type::Deduced))
            }
            Members::Definition(definition) => definition
                .field(name)
                .map(|field| Member::Named(Type::Field(field))),
            Members::All(ty) => Some(Member::Any(ty)),
            Members::Object(..) if matches!(name, "apiVersion" | "kind") => Some(Member::Named(Type::Text)),
            Members::Object(..) if name == "metadata" => {
                schema::definition(OBJECT_META).map(|definition| Member::Named(Type::Definition(definition)))
            }
            Members::Custom(schema, unknown) | Members::Object(schema, unknown) => {
                schema.member(name, unknown)
            }
        }
    }
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

impl<'a> Type<'a> {
    /// What a value of this type is made of. Where the type leaves a choice, the value decides.
    pub(super) fn shape(self, value: Option<&Value>) -> Shape<'a> {
        match (self.declared(), value) {
            (Shape::Any(_), Some(Value::Bool(_) | Value::Number(_) | Value::String(_))) => {
                Shape::Scalar(Kind::Any)
            }
            (Shape::Any(_), Some(Value::Array(_))) => Shape::List(List {
                items: Items::Atomic,
                item: Type::Untyped,
            }),
            (Shape::Any(map), _) => Shape::Map(map),
            (shape, _) => shape,
        }
    }

    fn declared(self) -> Shape<'a> {
        match self {
            Type::Builtin(ty) => builtin(ty, &Items::Atomic, false),
            // The one reference to an object that is not replaced as a whole.
            Type::Field(field) if field.name == "claimRef" => {
                match builtin(&field.ty, &items(field), false) {
                    Shape::Map(map) => Shape::Map(Map { atomic: false, ..map }),
                    other => other,
                }
            }
            Type::Field(field) => builtin(&field.ty, &items(field), field.atomic_map),
            Type::Definition(definition) => of_definition(definition),
            Type::Custom(schema, unknown) => schema.shape(unknown),
            Type::Object(schema) => Shape::Map(Map {
                atomic: false,
                members: Members::Object(schema, false),
            }),
            Type::Text => Shape::Scalar(Kind::Text),
            Type::Deduced => any(false, Type::Deduced),
            Type::Untyped => any(true, Type::Untyped),
        }
    }
}

/// A value of any kind, whose maps merge by members or not.
pub(crate) fn any(atomic: bool, members: Type<'_>) -> Shape<'_> {
    Shape::Any(Map {
        atomic,
        members: Members::All(members),
    })
}

/// How the items of a field's list are told apart. What is declared for server-side apply holds before what
/// is declared for strategic merge patches.
fn items(field: &Field) -> Items {
    match field.list_type {
        Some(ListType::Map) => Items::Keys(field.list_map_keys.iter().map(|key| (*key).to_owned()).collect()),
        Some(ListType::Set) => Items::Set,
        Some(ListType::Atomic) => Items::Atomic,
        None if !field.merge => Items::Atomic,
        None if field.merge_key.is_empty() => Items::Set,
        None => Items::Keys(vec![field.merge_key.to_owned()]),
    }
}

fn builtin<'a>(ty: &'static schema::Type, items: &Items, atomic_map: bool) -> Shape<'a> {
    match ty {
        schema::Type::String | schema::Type::Bytes => Shape::Scalar(Kind::Text),
        schema::Type::Int32 | schema::Type::Int64 | schema::Type::Number => Shape::Scalar(Kind::Number),
        schema::Type::Boolean => Shape::Scalar(Kind::Boolean),
        schema::Type::Any => any(false, Type::Deduced),
        schema::Type::Ref(_) => ty
            .definition()
            .map_or_else(|| any(false, Type::Deduced), of_definition),
        schema::Type::List(item) => Shape::List(List {
            items: items.clone(),
            item: Type::Builtin(item),
        }),
        schema::Type::Map(item) => Shape::Map(Map {
            atomic: atomic_map,
            members: Members::All(Type::Builtin(item)),
        }),
    }
}

fn of_definition<'a>(definition: &'static Definition) -> Shape<'a> {
    match definition.shape {
        schema::Shape::Object => Shape::Map(Map {
            atomic: definition.atomic,
            members: Members::Definition(definition),
        }),
        schema::Shape::Any if definition.name == RAW_EXTENSION => any(true, Type::Untyped),
        schema::Shape::Any => any(false, Type::Deduced),
        schema::Shape::Quantity
        | schema::Shape::IntOrString
        | schema::Shape::Time
        | schema::Shape::MicroTime => Shape::Scalar(Kind::Any),
    }
}

impl List<'_> {
    /// What identifies an item. The error says why nothing does.
    pub(super) fn step(&self, item: &Value) -> Result<Step, String> {
        let keys = match (&self.items, item) {
            (Items::Atomic, _) => return Err("invalid indexing of non-associative list".to_owned()),
            (Items::Set, Value::Object(_)) => {
                return Err("associative list without keys has an element that's a map type".to_owned());
            }
            (Items::Set, Value::Array(_)) => {
                return Err("not supported: associative list with lists as elements".to_owned());
            }
            (Items::Set, Value::Null) => {
                return Err(
                    "associative list without keys has an element that's an explicit null".to_owned(),
                );
            }
            (Items::Set, value) => return Ok(Step::Value(Scalar(value.clone()))),
            (Items::Keys(keys), _) => keys,
        };
        match item {
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            Value::Object(_) => {}
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        }
        let value = |key: &String| item.get(key).cloned().or_else(|| self.default(key));
        let mut found: Vec<_> = keys
            .iter()
            .filter_map(|key| Some((key.clone(), Scalar(value(key)?))))
            .collect();
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| go_quote(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                 default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort();
        Ok(Step::Key(found))
    }

    /// What stands for a key that an item leaves out.
    fn default(&self, key: &str) -> Option<Value> {
        match self.item {
            Type::Builtin(ty) => {
                let definition = ty.definition()?;
                let field = definition.field(key)?;
                if field.always && !field.pointer {
                    return Some(match field.ty {
                        schema::Type::Int32 | schema::Type::Int64 | schema::Type::Number => json!(0),
                        schema::Type::Boolean => json!(false),
                        _ => json!(""),
                    });
                }
                // Keys with a default of their own.
                match (definition.short_name(), key) {
                    ("ContainerPort" | "ServicePort", "protocol") => Some(json!("TCP")),
                    ("LocalObjectReference", "name") => Some(json!("")),
                    _ => None,
                }
            }
            Type::Custom(schema, unknown) => match schema.member(key, unknown)?.ty() {
                Type::Custom(member, _) => member.default_value(),
                _ => None,
            },
            _ => None,
        }
    }
}
