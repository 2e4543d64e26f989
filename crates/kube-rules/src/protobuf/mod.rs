//! Kubernetes' protobuf encoding of built-in kinds (`application/vnd.kubernetes.protobuf`).
//!
//! A body is an envelope (`k8s`, a zero byte, then a `runtime.Unknown`) around the message of the kind. Field
//! numbers come with the schemas; types and what Go leaves out are the schemas' own. What is decoded is JSON
//! as a client could have sent it, which [`crate::strict`] then brings into canonical form. What is encoded
//! is, byte for byte, what Go writes: fields by ascending number, every field that is no pointer, maps by
//! sorted key.

mod decode;
mod encode;
mod layout;
#[cfg(test)]
mod tests;

pub use decode::{Envelope, Undecodable, decode, open};
pub use encode::{encode, encode_list, watch_event};

/// The media type.
pub const MEDIA: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Messages within messages that are read; more than any object has, but for schemas of custom resources.
const MAX_DEPTH: usize = 100;

/// The second of 0001-01-01T00:00:00Z, which is Go's zero time.
const ZERO_TIME: i64 = -62_135_596_800;

/// Whether a list is the field 1 of a message of its own, as lists within maps are.
fn wrapped(field: &crate::schema::Field) -> bool {
    field.go_type == "v1.Verbs"
}

/// The fields of a definition in the order of their numbers.
pub(crate) fn in_order(definition: &'static crate::schema::Definition) -> Vec<&'static crate::schema::Field> {
    fn flatten(layout: &'static layout::Layout, fields: &mut Vec<&'static crate::schema::Field>) {
        for slot in layout {
            match &slot.content {
                layout::Content::Field(field) => fields.push(field),
                layout::Content::Embedded(slots) => flatten(slots, fields),
            }
        }
    }
    let mut fields = Vec::new();
    flatten(layout::of_definition(definition), &mut fields);
    fields
}

/// How a definition that is not an object by its schema stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// Field 1 holds any JSON as bytes.
    Raw,
    /// A schema or a truth value.
    SchemaOrBool,
    /// A schema or a list of schemas.
    SchemaOrArray,
    /// A schema or a list of texts.
    SchemaOrTexts,
}

impl Special {
    fn of(definition: &crate::schema::Definition) -> Self {
        match definition.short_name() {
            "JSONSchemaPropsOrBool" => Self::SchemaOrBool,
            "JSONSchemaPropsOrArray" => Self::SchemaOrArray,
            "JSONSchemaPropsOrStringArray" => Self::SchemaOrTexts,
            _ => Self::Raw,
        }
    }
}
