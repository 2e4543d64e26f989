//! The packed Kubernetes 1.36 schemas.
//!
//! `data/schemas.bin` holds three streams. The first (types, merge keys, Go's facts) is unpacked on first
//! use; the second (descriptions) only when somebody asks for a document, the third (numbers in protobuf)
//! only when somebody speaks it.

mod load;
#[cfg(test)]
mod tests;

use crate::gvk::Gvk;
use serde_json::Value;

/// Schemas of custom resources, which some definitions of the shape `Any` hold beside something else.
pub(crate) const JSON_SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// One OpenAPI definition.
#[derive(Debug)]
pub struct Definition {
    /// As in `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// What it describes.
    pub shape: Shape,
    /// Fields in alphabetical order; empty for shapes other than `Object`.
    pub fields: Vec<Field>,
    /// Whether patches replace the object as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Kinds that it is, mostly one or none.
    pub gvks: Vec<Gvk>,
}

/// What a definition describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An object with the fields listed.
    Object,
    /// `resource.Quantity`: a string or a number, encoded in canonical form.
    Quantity,
    /// A string or an int32.
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Anything: raw extensions, JSON, managed fields.
    Any,
}

/// Type of a field.
#[derive(Debug, PartialEq, Eq)]
pub enum Type {
    /// A text.
    String,
    /// Bytes, written as base64.
    Bytes,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    /// A floating-point number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// Any JSON value.
    Any,
    /// A definition, by its number.
    Ref(usize),
    /// A list of items of one type.
    List(Box<Type>),
    /// A map with string keys.
    Map(Box<Type>),
}

/// How patches and server-side apply merge a list (`x-kubernetes-list-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// Items are identified by the values of keys.
    Map,
    /// Items are unique scalars.
    Set,
}

/// A field of a definition.
#[derive(Debug)]
pub struct Field {
    /// Name of the field in JSON.
    pub name: &'static str,
    /// Type of its values.
    pub ty: Type,
    /// Listed in `required`.
    pub required: bool,
    /// A pointer in Go: zero values are encoded if they were sent.
    pub pointer: bool,
    /// Without `omitempty` in Go: encoded even when empty.
    pub always: bool,
    /// With `omitzero` in Go: a struct, too, is left out when zero.
    pub omit_zero: bool,
    /// How server-side apply treats the list, where that is declared.
    pub list_type: Option<ListType>,
    /// Whether a map is replaced as a whole.
    pub atomic_map: bool,
    /// Keys of a `Map` list.
    pub list_map_keys: Vec<&'static str>,
    /// `x-kubernetes-patch-merge-key`, or empty.
    pub merge_key: &'static str,
    /// `x-kubernetes-patch-strategy` contains `merge`.
    pub merge: bool,
    /// `x-kubernetes-patch-strategy` is `replace`.
    pub replace: bool,
    /// `x-kubernetes-patch-strategy` contains `retainKeys`.
    pub retain_keys: bool,
    /// Type as Go's errors name it (`[]v1.Container`), or empty where unknown.
    pub go_type: &'static str,
}

impl Definition {
    /// A field by its JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields
            .binary_search_by(|field| field.name.cmp(name))
            .ok()
            .map(|index| &self.fields[index])
    }

    /// Name without package, as in `Pod`.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// Name as Go prints the type, as in `v1.Pod`.
    pub(crate) fn go_name(&self) -> &'static str {
        let start = self.name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
        &self.name[start..]
    }
}

impl Type {
    /// The definition, if it is a reference.
    pub fn definition(&self) -> Option<&'static Definition> {
        match self {
            Type::Ref(number) => load::hot().definitions.get(*number),
            _ => None,
        }
    }
}

/// The definition of a kind.
pub fn kind(gvk: &Gvk) -> Option<&'static Definition> {
    let hot = load::hot();
    hot.by_gvk
        .get(gvk)
        .and_then(|number| hot.definitions.get(*number))
}

/// A definition by name.
pub fn definition(name: &str) -> Option<&'static Definition> {
    index(name).map(|index| &all()[index])
}

/// All definitions, sorted by name; a `Type::Ref` is an index among them.
pub(crate) fn all() -> &'static [Definition] {
    &load::hot().definitions
}

/// The index of a definition.
pub(crate) fn index(name: &str) -> Option<usize> {
    all().binary_search_by(|one| one.name.cmp(name)).ok()
}

/// Numbers in protobuf: a line for each definition, with those of its fields in their order, `-` for none.
pub(crate) fn numbers() -> String {
    load::numbers()
}

/// Name of the OpenAPI definition of a kind, as in `io.k8s.api.core.v1.Pod`.
pub fn definition_name(gvk: &Gvk) -> Option<&'static str> {
    kind(gvk).map(|definition| definition.name)
}

/// All definition names, sorted.
pub fn names() -> Vec<&'static str> {
    all().iter().map(|definition| definition.name).collect()
}

/// A definition as an OpenAPI document has it, with descriptions; references are `#/definitions/NAME`.
/// Unpacks the descriptions on first use, which the rest of the server never needs.
pub fn definition_json(name: &str) -> Option<Value> {
    let text = load::cold().get(name)?;
    Some(serde_json::from_str(text).expect("schemas.bin is written by xtask and covered by a test"))
}

/// The definitions that `roots` refer to, directly or not, `roots` included; sorted.
pub fn closure(roots: &[&str]) -> Vec<&'static str> {
    let definitions = all();
    let mut seen = vec![false; definitions.len()];
    let mut queue: Vec<usize> = roots.iter().filter_map(|name| index(name)).collect();
    while let Some(number) = queue.pop() {
        if std::mem::replace(&mut seen[number], true) {
            continue;
        }
        queue.extend(
            definitions[number]
                .fields
                .iter()
                .filter_map(|field| referred(&field.ty)),
        );
    }
    (0..definitions.len())
        .filter(|number| seen[*number])
        .map(|number| definitions[number].name)
        .collect()
}

fn referred(ty: &Type) -> Option<usize> {
    match ty {
        Type::Ref(number) => Some(*number),
        Type::List(item) | Type::Map(item) => referred(item),
        _ => None,
    }
}
