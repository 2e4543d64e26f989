//! From JSON to messages.
//!
//! A message is written from its end, as Go does: its length is known when it stands, and nothing is copied.

use super::layout::{self, Content, Layout};
use super::{MAGIC, Special, ZERO_TIME, wrapped};
use crate::gvk::Gvk;
use crate::schema::{self, JSON_SCHEMA, Shape, Type};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// An object in its envelope; `None` for a kind that has no messages.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let message = Message::of(object)?;
    Some(envelope(object, |out| message.write(out, object)))
}

/// A list in its envelope: `head` has its kind and metadata, and the items' kind may be told by them or not.
pub fn encode_list(head: &Value, items: &[Arc<Value>]) -> Option<Vec<u8>> {
    let item = match head["kind"].as_str()? {
        "PartialObjectMetadataList" => Message::Partial,
        _ => match Message::of(head)? {
            Message::Layout(list) => Message::Layout(list.iter().find_map(|slot| match &slot.content {
                Content::Field(field) if field.name == "items" => referred(&field.ty),
                _ => None,
            })?),
            Message::Partial => return None,
        },
    };
    let metadata = layout::of(schema::index("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")?);
    // The older list of partial metadata has its fields the other way around.
    let reversed = matches!(item, Message::Partial) && head["apiVersion"] == "meta.k8s.io/v1beta1";
    let (metadata_number, items_number) = if reversed { (2, 1) } else { (1, 2) };
    Some(envelope(head, |out| {
        let write_metadata = |out: &mut Backwards| {
            out.delimited(metadata_number, |out| write(out, metadata, &head["metadata"]));
        };
        if reversed {
            write_metadata(out);
        }
        for object in items.iter().rev() {
            out.delimited(items_number, |out| item.write(out, object));
        }
        if !reversed {
            write_metadata(out);
        }
    }))
}

/// A frame of a watch: a `WatchEvent` behind its length, without an envelope of its own. `object` is in one.
pub fn watch_event(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Backwards(Vec::with_capacity(object.len() + kind.len() + 32));
    out.delimited(2, |out| out.bytes(1, object));
    out.bytes(1, kind.as_bytes());
    let length = u32::try_from(out.0.len()).unwrap_or(u32::MAX);
    out.raw(&length.to_be_bytes());
    out.forwards()
}

/// The message of an object.
enum Message {
    Layout(&'static Layout),
    /// `PartialObjectMetadata`, which is in no schema: field 1 is the metadata.
    Partial,
}

impl Message {
    fn of(object: &Value) -> Option<Self> {
        let (kind, version) = (object["kind"].as_str()?, object["apiVersion"].as_str()?);
        if kind == "PartialObjectMetadata" {
            return Some(Self::Partial);
        }
        let definition = schema::kind(&Gvk::of(version, kind))?;
        Some(Self::Layout(layout::of_definition(definition)))
    }

    fn write(&self, out: &mut Backwards, object: &Value) {
        match self {
            Self::Layout(layout) => write(out, layout, object),
            Self::Partial => {
                let metadata = schema::index("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
                let metadata = metadata.map_or(&[][..], layout::of);
                out.delimited(1, |out| write(out, metadata, &object["metadata"]));
            }
        }
    }
}

fn referred(ty: &Type) -> Option<&'static Layout> {
    match ty {
        Type::List(item) => referred(item),
        Type::Ref(index) => Some(layout::of(*index)),
        _ => None,
    }
}

fn envelope(head: &Value, content: impl FnOnce(&mut Backwards)) -> Vec<u8> {
    let text = |name: &str| head[name].as_str().unwrap_or_default().as_bytes();
    let mut out = Backwards(Vec::with_capacity(1024));
    out.bytes(4, b"");
    out.bytes(3, b"");
    out.delimited(2, content);
    out.delimited(1, |out| {
        out.bytes(2, text("kind"));
        out.bytes(1, text("apiVersion"));
    });
    out.raw(MAGIC);
    out.forwards()
}

/// Writes the fields of a message.
fn write(out: &mut Backwards, layout: &Layout, object: &Value) {
    for slot in layout.iter().rev() {
        match &slot.content {
            Content::Embedded(inner) => out.delimited(slot.number, |out| write(out, inner, object)),
            Content::Field(field) => {
                let value = &object[field.name];
                let wrapped = wrapped(field);
                let write = if wrapped { one } else { many };
                if !(value.is_null() && (field.pointer || wrapped)) {
                    write(out, slot.number, &field.ty, value);
                }
            }
        }
    }
}

/// Writes all that stands under one number.
fn many(out: &mut Backwards, number: u32, ty: &Type, value: &Value) {
    match (ty, value) {
        (Type::List(item), Value::Array(items)) => {
            for value in items.iter().rev() {
                one(out, number, item, value);
            }
        }
        (Type::Map(item), Value::Object(members)) => {
            // Sorted by key, as serde_json keeps them.
            for (key, value) in members.iter().rev() {
                out.delimited(number, |out| {
                    one(out, 2, item, value);
                    out.bytes(1, key.as_bytes());
                });
            }
        }
        (Type::List(_) | Type::Map(_), _) => {}
        (ty, value) => one(out, number, ty, value),
    }
}

fn one(out: &mut Backwards, number: u32, ty: &Type, value: &Value) {
    let text = value.as_str().unwrap_or_default();
    match ty {
        Type::String => out.bytes(number, text.as_bytes()),
        Type::Bytes => {
            if !value.is_null() {
                out.bytes(number, &STANDARD.decode(text).unwrap_or_default());
            }
        }
        Type::Int32 | Type::Int64 => out.number(number, value.as_i64().unwrap_or_default()),
        Type::Boolean => out.number(number, value.as_bool().unwrap_or_default().into()),
        Type::Number => {
            out.raw(&value.as_f64().unwrap_or_default().to_le_bytes());
            out.key(number, 1);
        }
        Type::Ref(index) => out.delimited(number, |out| reference(out, *index, value)),
        // No message holds lists of lists, or maps of them, but by a message that has the list as field 1.
        Type::List(_) | Type::Map(_) => out.delimited(number, |out| many(out, 1, ty, value)),
        Type::Any => {}
    }
}

/// Writes the content of a message that is a definition of its own.
fn reference(out: &mut Backwards, index: usize, value: &Value) {
    let Some(definition) = schema::all().get(index) else {
        return;
    };
    match definition.shape {
        Shape::Object => write(out, layout::of(index), value),
        Shape::Quantity => out.bytes(1, value.as_str().unwrap_or("0").as_bytes()),
        Shape::IntOrString => {
            out.bytes(3, value.as_str().unwrap_or_default().as_bytes());
            out.number(2, value.as_i64().unwrap_or_default());
            out.number(1, value.is_string().into());
        }
        Shape::Time | Shape::MicroTime => {
            let time = value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
            if let Some(time) =
                time.filter(|time| time.as_nanosecond() != i128::from(ZERO_TIME) * 1_000_000_000)
            {
                let micros = if definition.shape == Shape::MicroTime {
                    time.as_microsecond().rem_euclid(1_000_000)
                } else {
                    0
                };
                out.number(2, micros * 1_000);
                out.number(1, time.as_microsecond().div_euclid(1_000_000));
            }
        }
        Shape::Any => special(out, Special::of(definition), value),
    }
}

fn special(out: &mut Backwards, special: Special, value: &Value) {
    let schema = schema::index(JSON_SCHEMA).map_or(&[][..], layout::of);
    match (special, value) {
        (_, Value::Null) => {}
        (Special::Raw, value) => out.bytes(1, value.to_string().as_bytes()),
        (Special::SchemaOrBool, value) => {
            if value.is_object() {
                out.delimited(2, |out| write(out, schema, value));
            }
            out.number(1, (value != &Value::Bool(false)).into());
        }
        (Special::SchemaOrArray | Special::SchemaOrTexts, Value::Array(items)) => {
            for item in items.iter().rev() {
                match special {
                    Special::SchemaOrTexts => out.bytes(2, item.as_str().unwrap_or_default().as_bytes()),
                    _ => out.delimited(2, |out| write(out, schema, item)),
                }
            }
        }
        (Special::SchemaOrArray | Special::SchemaOrTexts, value) => {
            out.delimited(1, |out| write(out, schema, value));
        }
    }
}

/// Bytes in reverse: what is written first comes last.
struct Backwards(Vec<u8>);

impl Backwards {
    fn forwards(mut self) -> Vec<u8> {
        self.0.reverse();
        self.0
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    fn varint(&mut self, value: u64) {
        let groups = (64 - (value | 1).leading_zeros()).div_ceil(7);
        for group in (0..groups).rev() {
            let more = if group + 1 < groups { 0x80 } else { 0 };
            // Seven bits fit a byte.
            self.0.push((value >> (7 * group) & 0x7f) as u8 | more);
        }
    }

    fn key(&mut self, number: u32, wire: u64) {
        self.varint(u64::from(number) << 3 | wire);
    }

    fn number(&mut self, number: u32, value: i64) {
        self.varint(value.cast_unsigned());
        self.key(number, 0);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.delimited(number, |out| out.raw(bytes));
    }

    fn delimited(&mut self, number: u32, content: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        content(self);
        self.varint((self.0.len() - before) as u64);
        self.key(number, 2);
    }
}
