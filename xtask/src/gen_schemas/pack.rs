//! The packed file: three deflate streams, each behind its length as four little-endian bytes.
//!
//! The first, *hot*, is all that the server needs at run time, one line per definition or field, columns
//! separated by tabs:
//!
//! ```text
//! D  NAME  SHAPE  MAP-TYPE  GROUP/VERSION/KIND ...
//! F  NAME  TYPE  FLAGS  RELATION  LIST-MAP-KEYS  MERGE-KEY  STRATEGY  GO-TYPE
//! ```
//!
//! A type is `s` string, `y` bytes, `i` int32, `l` int64, `n` integer, `d` number, `b` boolean, `?` anything,
//! `@N` the N-th definition, `[T` a list, `{T` a map. Flags: `r` required, `*` pointer in Go, `!` always
//! encoded, `z` left out when zero. RELATION says how a list or a map merges. The second, *cold*, has a line
//! for each definition: its name, a tab, its OpenAPI v2 JSON with descriptions. The third, *numbers*, has
//! one line per definition, too: the number that each of its fields has in protobuf, as `go-types.tsv`
//! writes it, or `-`.

use super::go_types::Facts;
use anyhow::{Context, Result, bail};
use flate2::{Compression, write::DeflateEncoder};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

const REFERENCE: &str = "#/$defs/";

/// Packs the definitions.
pub(super) fn pack(definitions: &Map<String, Value>, facts: &Facts) -> Result<Vec<u8>> {
    let index: BTreeMap<&str, usize> = definitions
        .keys()
        .enumerate()
        .map(|(number, name)| (name.as_str(), number))
        .collect();
    let mut hot = String::new();
    let mut cold = String::new();
    let mut numbers = String::new();
    for (name, definition) in definitions {
        hot_lines(&mut hot, name, definition, &index, facts)
            .with_context(|| format!("cannot pack {name}"))?;
        let mut document = definition.clone();
        openapi(&mut document, name);
        writeln!(cold, "{name}\t{document}")?;
        let numbered = definition["properties"].as_object().into_iter().flatten();
        let numbered = numbered.map(|(field, _)| {
            let fact = facts.get(&(name.clone(), field.clone()));
            fact.map_or("", |fact| &fact.number)
        });
        let numbered: Vec<_> = numbered
            .map(|one| if one.is_empty() { "-" } else { one })
            .collect();
        writeln!(numbers, "{}", numbered.join(" "))?;
    }
    let mut packed = Vec::new();
    for stream in [hot, cold, numbers] {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(stream.as_bytes())?;
        let bytes = encoder.finish()?;
        packed.extend(u32::try_from(bytes.len())?.to_le_bytes());
        packed.extend(bytes);
    }
    Ok(packed)
}

fn hot_lines(
    out: &mut String,
    name: &str,
    definition: &Value,
    index: &BTreeMap<&str, usize>,
    facts: &Facts,
) -> Result<()> {
    let properties = definition["properties"].as_object();
    let shape = match name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => "quantity",
        "IntOrString" => "int-or-string",
        "Time" => "time",
        "MicroTime" => "micro-time",
        _ if properties.is_some() => "object",
        "StorageVersionSpec" | "BasicSchedulingPolicy" | "CustomResourceSubresourceStatus" => "object",
        _ => "any",
    };
    write!(
        out,
        "D\t{name}\t{shape}\t{}",
        text(definition, "x-kubernetes-map-type")
    )?;
    for gvk in definition["x-kubernetes-group-version-kind"]
        .as_array()
        .into_iter()
        .flatten()
    {
        write!(
            out,
            "\t{}/{}/{}",
            text(gvk, "group"),
            text(gvk, "version"),
            text(gvk, "kind")
        )?;
    }
    out.push('\n');
    let required: Vec<&str> = definition["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (field, schema) in properties.into_iter().flatten() {
        let fact = facts.get(&(name.to_owned(), field.clone()));
        let mut flags = String::new();
        if required.contains(&field.as_str()) {
            flags.push('r');
        }
        if fact.is_some_and(|fact| fact.pointer) {
            flags.push('*');
        }
        if fact.is_some_and(|fact| !fact.omitempty) {
            flags.push('!');
        }
        if fact.is_some_and(|fact| fact.omitzero) {
            flags.push('z');
        }
        let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        writeln!(
            out,
            "F\t{field}\t{}\t{flags}\t{}\t{}\t{}\t{}\t{}",
            type_code(schema, index).with_context(|| format!("field {field}"))?,
            relation(schema),
            keys.join(","),
            text(schema, "x-kubernetes-patch-merge-key"),
            text(schema, "x-kubernetes-patch-strategy"),
            fact.map_or("", |fact| &fact.go_type),
        )?;
    }
    Ok(())
}

/// How a list or a map is merged, where that is declared.
fn relation(schema: &Value) -> &str {
    match text(schema, "x-kubernetes-list-type") {
        "" => text(schema, "x-kubernetes-map-type"),
        of_list => of_list,
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn type_code(schema: &Value, index: &BTreeMap<&str, usize>) -> Result<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference
            .strip_prefix(REFERENCE)
            .context("a reference outside the file")?;
        let number = index.get(name).with_context(|| format!("no definition {name}"))?;
        return Ok(format!("@{number}"));
    }
    let name = match &schema["type"] {
        Value::String(name) => name.as_str(),
        Value::Array(names) => names.first().and_then(Value::as_str).unwrap_or_default(),
        _ => "",
    };
    Ok(match (name, text(schema, "format")) {
        ("string", "byte") => "y".to_owned(),
        ("string", _) => "s".to_owned(),
        ("integer", "int32") => "i".to_owned(),
        ("integer", "int64") => "l".to_owned(),
        ("integer", _) => "n".to_owned(),
        ("number", _) => "d".to_owned(),
        ("boolean", _) => "b".to_owned(),
        ("array", _) => format!("[{}", type_code(&schema["items"], index)?),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("{{{}", type_code(&schema["additionalProperties"], index)?)
        }
        ("object" | "", _) => "?".to_owned(),
        (other, _) => bail!("unknown type {other}"),
    })
}

/// Undoes what kubernetes-validate changed for JSON Schema: nullable types, enums of one apiVersion,
/// references.
fn openapi(schema: &mut Value, name: &str) {
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            *schema = json!({"type": "string", "description": schema["description"]});
            return;
        }
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            *schema =
                json!({"type": "string", "format": "int-or-string", "description": schema["description"]});
            return;
        }
        _ => {}
    }
    let Value::Object(members) = schema else { return };
    members.remove("enum");
    if let Some(Value::Array(names)) = members.get("type") {
        let first = names.first().cloned().unwrap_or_default();
        members.insert("type".to_owned(), first);
    }
    if let Some(Value::String(reference)) = members.get_mut("$ref")
        && let Some(target) = reference.strip_prefix(REFERENCE)
    {
        *reference = format!("#/definitions/{target}");
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = members.get_mut(key) {
            openapi(inner, "");
        }
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        for inner in properties.values_mut() {
            openapi(inner, "");
        }
    }
}
