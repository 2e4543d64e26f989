//! From messages to JSON.

use super::layout::{self, Content, Layout};
use super::{MAGIC, MAX_DEPTH, Special, ZERO_TIME, wrapped};
use crate::gvk::Gvk;
use crate::schema::{self, Definition, JSON_SCHEMA, Shape, Type};
use crate::time::{rfc3339, rfc3339_micros};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value, json};
use std::borrow::Cow;
use std::fmt;

/// Why bytes are no object. The texts are upstream's, which clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// No bytes.
    Empty,
    /// They do not begin as an envelope does.
    NoEnvelope,
    /// Nothing but the beginning of an envelope.
    EmptyBody,
    /// They end within a field.
    Truncated,
    /// A number of more than 64 bits.
    Overflow,
    /// A field that is encoded in a way that its type does not have.
    WireType {
        /// What the wire says.
        found: u64,
        /// Name of the field.
        field: String,
    },
    /// A way to encode fields that does not exist, or a group.
    IllegalWireType(u64),
    /// Field numbers begin with one.
    IllegalTag,
    /// Messages within messages within messages.
    TooDeep,
    /// A number that JSON does not have, or a time that no calendar has.
    OutOfRange,
    /// Raw JSON that is none; the parser's text.
    Json(String),
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty data"),
            Self::NoEnvelope => write!(
                f,
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
            ),
            Self::EmptyBody => f.write_str("empty body"),
            Self::Truncated => f.write_str("unexpected EOF"),
            Self::Overflow => f.write_str("proto: integer overflow"),
            Self::WireType { found, field } => write!(f, "proto: wrong wireType = {found} for field {field}"),
            Self::IllegalWireType(found) => write!(f, "proto: illegal wireType {found}"),
            Self::IllegalTag => f.write_str("proto: illegal tag 0"),
            Self::TooDeep => f.write_str("proto: exceeded max depth"),
            Self::OutOfRange => f.write_str("proto: value out of range"),
            Self::Json(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for Undecodable {}

type Result<T> = std::result::Result<T, Undecodable>;

/// What an envelope holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// As in `apps/v1`; may be empty.
    pub api_version: Cow<'a, str>,
    /// As in `Deployment`; may be empty.
    pub kind: Cow<'a, str>,
    /// The message of the kind.
    pub raw: &'a [u8],
}

/// Reads an envelope.
pub fn open(body: &[u8]) -> Result<Envelope<'_>> {
    if body.is_empty() {
        return Err(Undecodable::Empty);
    }
    let unknown = body.strip_prefix(MAGIC).ok_or(Undecodable::NoEnvelope)?;
    if unknown.is_empty() {
        return Err(Undecodable::EmptyBody);
    }
    let mut envelope = Envelope::default();
    for field in fields(unknown) {
        match field? {
            (1, Wire::Bytes(meta)) => {
                for field in fields(meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => envelope.api_version = String::from_utf8_lossy(text),
                        (2, Wire::Bytes(text)) => envelope.kind = String::from_utf8_lossy(text),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(raw)) => envelope.raw = raw,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes the message of a definition. Unknown fields are skipped. What the message says is there, also
/// where Go would leave it out of JSON; what it does not say is not.
pub fn decode(definition: &Definition, message: &[u8]) -> Result<Value> {
    let mut object = Map::new();
    read(&mut object, layout::of_definition(definition), message, MAX_DEPTH)?;
    Ok(Value::Object(object))
}

/// What stands in one field.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Wire<'a> {
    fn refused(self, field: &str) -> Undecodable {
        let found = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        };
        let field = field.to_owned();
        Undecodable::WireType { found, field }
    }

    fn bytes(self, field: &str) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.refused(field)),
        }
    }
}

/// The fields of a message, which end with the first that is none.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u64, Wire<'_>)>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let next = next_field(&mut bytes);
        if next.is_err() {
            bytes = &[];
        }
        Some(next)
    })
}

fn next_field<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Wire<'a>)> {
    let key = varint(bytes)?;
    let wire = match key & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => {
            let (fixed, rest) = bytes.split_first_chunk().ok_or(Undecodable::Truncated)?;
            *bytes = rest;
            Wire::Fixed64(*fixed)
        }
        2 => {
            let length = varint(bytes)?;
            Wire::Bytes(take(bytes, length)?)
        }
        5 => {
            take(bytes, 4)?;
            Wire::Fixed32
        }
        other => return Err(Undecodable::IllegalWireType(other)),
    };
    if key >> 3 == 0 {
        return Err(Undecodable::IllegalTag);
    }
    Ok((key >> 3, wire))
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Undecodable::Truncated)?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Undecodable::Overflow)
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8]> {
    let length = usize::try_from(length).ok();
    let (taken, rest) = length
        .and_then(|length| bytes.split_at_checked(length))
        .ok_or(Undecodable::Truncated)?;
    *bytes = rest;
    Ok(taken)
}

/// Reads the fields of a message into an object. A message that comes twice is merged.
fn read(
    object: &mut Map<String, Value>,
    layout: &'static Layout,
    message: &[u8],
    depth: usize,
) -> Result<()> {
    let depth = depth.checked_sub(1).ok_or(Undecodable::TooDeep)?;
    for field in fields(message) {
        let (number, wire) = field?;
        match layout::slot(layout, number) {
            None => {}
            Some(Content::Embedded(inner)) => read(object, inner, wire.bytes("embedded")?, depth)?,
            Some(Content::Field(field)) => {
                let before = object.remove(field.name);
                let value = if wrapped(field) { one } else { many };
                let value = value(before, field.name, &field.ty, wire, depth)?;
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

/// The value of a field, given what came of it before.
fn many(before: Option<Value>, name: &str, ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Value> {
    match ty {
        Type::List(item) => {
            let mut items = match before {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            match (&**item, wire) {
                (Type::Int32 | Type::Int64 | Type::Boolean, Wire::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        let wire = Wire::Varint(varint(&mut packed)?);
                        items.push(one(None, name, item, wire, depth)?);
                    }
                }
                _ => items.push(one(None, name, item, wire, depth)?),
            }
            Ok(Value::Array(items))
        }
        Type::Map(item) => {
            let mut members = match before {
                Some(Value::Object(members)) => members,
                _ => Map::new(),
            };
            let (mut key, mut value) = (Cow::default(), None);
            for field in fields(wire.bytes(name)?) {
                match field? {
                    (1, wire) => key = String::from_utf8_lossy(wire.bytes(name)?),
                    (2, wire) => value = Some(one(value.take(), name, item, wire, depth)?),
                    _ => {}
                }
            }
            members.insert(key.into_owned(), value.unwrap_or_else(|| nothing(item)));
            Ok(Value::Object(members))
        }
        ty => one(before, name, ty, wire, depth),
    }
}

/// A value of a map that only its key tells of.
fn nothing(ty: &Type) -> Value {
    match ty {
        Type::Int32 | Type::Int64 | Type::Number => json!(0),
        Type::Boolean => json!(false),
        Type::String | Type::Bytes => json!(""),
        _ => Value::Null,
    }
}

fn one(before: Option<Value>, name: &str, ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Value> {
    Ok(match (ty, wire) {
        (Type::String, Wire::Bytes(text)) => json!(String::from_utf8_lossy(text)),
        (Type::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        // As Go does, what does not fit is cut off.
        (Type::Int32, Wire::Varint(number)) => json!(number as i32),
        (Type::Int64, Wire::Varint(number)) => json!(number.cast_signed()),
        (Type::Boolean, Wire::Varint(number)) => json!(number != 0),
        (Type::Number, Wire::Fixed64(bytes)) => {
            let number = Number::from_f64(f64::from_le_bytes(bytes));
            Value::Number(number.ok_or(Undecodable::OutOfRange)?)
        }
        (Type::Ref(index), Wire::Bytes(message)) => reference(before, *index, message, depth)?,
        // A list in a list or a map is the field 1 of a message of its own.
        (Type::List(_) | Type::Map(_), Wire::Bytes(message)) => {
            let depth = depth.checked_sub(1).ok_or(Undecodable::TooDeep)?;
            let mut value = before;
            for field in fields(message) {
                if let (1, wire) = field? {
                    value = Some(many(value.take(), name, ty, wire, depth)?);
                }
            }
            value.unwrap_or_else(|| json!([]))
        }
        (_, wire) => return Err(wire.refused(name)),
    })
}

/// The message of a definition of its own.
fn reference(before: Option<Value>, index: usize, message: &[u8], depth: usize) -> Result<Value> {
    let Some(definition) = schema::all().get(index) else {
        return Ok(Value::Null);
    };
    if definition.shape == Shape::Object {
        let mut object = match before {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        read(&mut object, layout::of(index), message, depth)?;
        return Ok(Value::Object(object));
    }
    if definition.shape == Shape::Any {
        return special(Special::of(definition), message, depth);
    }
    let (mut numbers, mut text) = ([0_i64; 2], None);
    for field in fields(message) {
        match field? {
            (number @ (1 | 2), Wire::Varint(value)) => {
                numbers[usize::from(number == 2)] = value.cast_signed();
            }
            (1 | 3, Wire::Bytes(bytes)) => text = Some(String::from_utf8_lossy(bytes)),
            _ => {}
        }
    }
    let [first, second] = numbers;
    Ok(match definition.shape {
        Shape::Quantity => json!(text.unwrap_or(Cow::Borrowed("0"))),
        Shape::IntOrString if first == 1 => json!(text.unwrap_or_default()),
        Shape::IntOrString => json!(second as i32),
        _ if message.is_empty() || first == ZERO_TIME => Value::Null,
        shape => {
            let micros = shape == Shape::MicroTime;
            let nanos = if micros { second as i32 / 1_000 * 1_000 } else { 0 };
            let time = Timestamp::new(first, 0)
                .and_then(|time| time.checked_add(jiff::SignedDuration::from_nanos(nanos.into())));
            let time = time.map_err(|_| Undecodable::OutOfRange)?;
            json!(if micros {
                rfc3339_micros(time)
            } else {
                rfc3339(time)
            })
        }
    })
}

fn special(special: Special, message: &[u8], depth: usize) -> Result<Value> {
    let depth = depth.checked_sub(1).ok_or(Undecodable::TooDeep)?;
    let schema = schema::definition(JSON_SCHEMA).map_or(&[][..], layout::of_definition);
    let mut value = match special {
        Special::SchemaOrBool => json!(false),
        _ => Value::Null,
    };
    for field in fields(message) {
        match (special, field?) {
            (Special::Raw, (1, Wire::Bytes(raw))) => value = any(raw, depth)?,
            (Special::SchemaOrBool, (1, Wire::Varint(allows))) if !value.is_object() => {
                value = json!(allows != 0);
            }
            (Special::SchemaOrBool, (2, Wire::Bytes(message)))
            | (Special::SchemaOrArray | Special::SchemaOrTexts, (1, Wire::Bytes(message))) => {
                let mut object = Map::new();
                read(&mut object, schema, message, depth)?;
                value = Value::Object(object);
            }
            (Special::SchemaOrArray | Special::SchemaOrTexts, (2, Wire::Bytes(item))) => {
                let item = if special == Special::SchemaOrTexts {
                    json!(String::from_utf8_lossy(item))
                } else {
                    let mut object = Map::new();
                    read(&mut object, schema, item, depth)?;
                    Value::Object(object)
                };
                match &mut value {
                    Value::Array(items) => items.push(item),
                    value => *value = json!([item]),
                }
            }
            _ => {}
        }
    }
    Ok(value)
}

/// Raw bytes: JSON, or an object in an envelope.
fn any(raw: &[u8], depth: usize) -> Result<Value> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    if !raw.starts_with(MAGIC) {
        return serde_json::from_slice(raw).map_err(|error| Undecodable::Json(error.to_string()));
    }
    let envelope = open(raw)?;
    let gvk = Gvk::of(&envelope.api_version, &envelope.kind);
    let mut object = Map::new();
    if let Some(definition) = schema::kind(&gvk) {
        read(
            &mut object,
            layout::of_definition(definition),
            envelope.raw,
            depth,
        )?;
    }
    object.insert("apiVersion".to_owned(), json!(envelope.api_version));
    object.insert("kind".to_owned(), json!(envelope.kind));
    Ok(Value::Object(object))
}
