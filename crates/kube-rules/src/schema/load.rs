//! Unpacking. The layout is described in `xtask/src/gen_schemas/pack.rs`.

use super::{Definition, Field, ListType, Shape, Type};
use crate::gvk::Gvk;
use flate2::read::DeflateDecoder;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::OnceLock;

const PACKED: &[u8] = include_bytes!("../../data/schemas.bin");
const SOUND: &str = "schemas.bin is written by xtask and covered by a test";

pub(super) struct Hot {
    /// Sorted by name.
    pub(super) definitions: Vec<Definition>,
    pub(super) by_gvk: HashMap<Gvk, usize>,
}

pub(super) fn hot() -> &'static Hot {
    static HOT: OnceLock<Hot> = OnceLock::new();
    HOT.get_or_init(|| {
        let definitions = parse(leak(0));
        let mut by_gvk = HashMap::new();
        for (number, definition) in definitions.iter().enumerate() {
            for gvk in &definition.gvks {
                by_gvk.insert(gvk.clone(), number);
            }
        }
        Hot { definitions, by_gvk }
    })
}

pub(super) fn cold() -> &'static BTreeMap<&'static str, &'static str> {
    static COLD: OnceLock<BTreeMap<&'static str, &'static str>> = OnceLock::new();
    COLD.get_or_init(|| leak(1).lines().filter_map(|line| line.split_once('\t')).collect())
}

/// The text of a stream that lives as long as the process: everything borrows from it.
fn leak(stream: usize) -> &'static str {
    unpack(stream).leak()
}

/// Numbers in protobuf: a line for each definition, with those of its fields in their order.
pub(super) fn numbers() -> String {
    unpack(2)
}

fn unpack(stream: usize) -> String {
    let mut rest = PACKED;
    for _ in 0..stream {
        rest = split(rest).1;
    }
    let mut text = String::new();
    DeflateDecoder::new(split(rest).0)
        .read_to_string(&mut text)
        .expect(SOUND);
    text
}

fn split(bytes: &'static [u8]) -> (&'static [u8], &'static [u8]) {
    let (length, rest) = bytes.split_first_chunk::<4>().expect(SOUND);
    rest.split_at(u32::from_le_bytes(*length) as usize)
}

fn parse(text: &'static str) -> Vec<Definition> {
    let mut definitions: Vec<Definition> = Vec::with_capacity(800);
    for line in text.lines() {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        if next() == "D" {
            let name = next();
            let shape = match next() {
                "object" => Shape::Object,
                "quantity" => Shape::Quantity,
                "int-or-string" => Shape::IntOrString,
                "time" => Shape::Time,
                "micro-time" => Shape::MicroTime,
                _ => Shape::Any,
            };
            let atomic = next() == "atomic";
            let gvks = columns.filter_map(gvk).collect();
            definitions.push(Definition {
                name,
                shape,
                fields: Vec::new(),
                atomic,
                gvks,
            });
        } else {
            let field = field(&mut next);
            definitions.last_mut().expect(SOUND).fields.push(field);
        }
    }
    definitions
}

fn gvk(text: &str) -> Option<Gvk> {
    let mut parts = text.split('/');
    Some(Gvk {
        group: parts.next()?.to_owned(),
        version: parts.next()?.to_owned(),
        kind: parts.next()?.to_owned(),
    })
}

fn field(next: &mut dyn FnMut() -> &'static str) -> Field {
    let name = next();
    let ty = ty(next());
    let flags = next();
    let relation = next();
    let is_map = matches!(ty, Type::Map(_));
    let list_type = match relation {
        _ if is_map => None,
        "map" => Some(ListType::Map),
        "set" => Some(ListType::Set),
        "atomic" => Some(ListType::Atomic),
        _ => None,
    };
    let keys = next();
    let merge_key = next();
    let strategy = next();
    Field {
        name,
        ty,
        required: flags.contains('r'),
        pointer: flags.contains('*'),
        always: flags.contains('!'),
        omit_zero: flags.contains('z'),
        list_type,
        atomic_map: is_map && relation == "atomic",
        list_map_keys: if keys.is_empty() {
            Vec::new()
        } else {
            keys.split(',').collect()
        },
        merge_key,
        merge: strategy.split(',').any(|one| one == "merge"),
        replace: strategy == "replace",
        retain_keys: strategy.split(',').any(|one| one == "retainKeys"),
        go_type: next(),
    }
}

fn ty(code: &str) -> Type {
    let (first, rest) = code.split_at(1.min(code.len()));
    match first {
        "s" => Type::String,
        "y" => Type::Bytes,
        "i" => Type::Int32,
        "l" | "n" => Type::Int64,
        "d" => Type::Number,
        "b" => Type::Boolean,
        "@" => Type::Ref(rest.parse().expect(SOUND)),
        "[" => Type::List(Box::new(ty(rest))),
        "{" => Type::Map(Box::new(ty(rest))),
        _ => Type::Any,
    }
}
