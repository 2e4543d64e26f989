//! Typed decoding: what Go's `json.Unmarshal` into the kind's struct and `json.Marshal` of the result would
//! give.
//!
//! Upstream's objects pass through Go structs, so clients see: unknown fields gone, nulls and empty optional
//! fields gone (unless a pointer holds them), structs that are not pointers always there, quantities and
//! times in canonical form.

use super::json::{Node, number};
use crate::schema::{self, Definition, Field, JSON_SCHEMA, Shape, Type};
use crate::time;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_kube_values::quantity::{NotAQuantity, Quantity};
use serde_json::{Map, Value, json};

/// Strict errors are cut off here, as upstream's.
const MAX_STRICT_ERRORS: usize = 100;

/// The outcome of decoding.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first thing that does not fit its type. Go notes it and reads on.
    type_error: Option<String>,
    /// The first thing that a type with a decoder of its own refuses. Go stops there and forgets the rest.
    refused: Option<String>,
    /// Whether it is read as a Go map, as what a strategic merge patch or an apply makes, and not as JSON.
    of_map: bool,
    /// Unknown and duplicate fields, in the order of the document.
    pub(super) strict: Vec<String>,
}

/// Where we are.
#[derive(Clone, Copy)]
struct Context<'a> {
    /// Name of the innermost Go struct, empty at the top.
    owner: &'a str,
    /// Path as Go's type errors have it (no indices), dotted.
    fields: &'a str,
    /// Path as strict errors have it (with indices).
    path: &'a str,
}

impl<'a> Context<'a> {
    /// The same place of the Go structs, at another path.
    fn at(self, path: &'a str) -> Self {
        Self { path, ..self }
    }
}

/// Decodes a document of the kind `definition`.
pub(super) fn decode(definition: &'static Definition, node: Node, findings: &mut Findings) -> Value {
    let context = Context {
        owner: "",
        fields: "",
        path: "",
    };
    match node {
        Node::Object(members) => object(definition, members, context, findings),
        other => {
            findings.mismatch(&other, definition.go_name(), context);
            Value::Null
        }
    }
}

/// What Go's conversion of maps says of a value that does not fit.
fn cannot_restore(node: &Node, ty: &Type, go_type: &str) -> String {
    let (name, kind) = match node {
        Node::Object(_) => ("map[string]interface {}", "map"),
        Node::Array(_) => ("[]interface {}", "slice"),
        Node::Number(text) if text.parse::<i64>().is_ok() => ("int64", "int64"),
        Node::Number(_) => ("float64", "float64"),
        other => (other.go_kind(), other.go_kind()),
    };
    let simple = match ty {
        Type::List(_) | Type::Bytes => return format!("cannot restore slice from {kind}"),
        Type::Map(_) => return format!("cannot restore map from {kind}"),
        Type::Ref(_) | Type::Any => return format!("cannot restore struct from: {kind}"),
        Type::String => "string",
        Type::Boolean => "bool",
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Number => "float64",
    };
    // Go converts whole numbers to text, and numbers to one another, which Kubernetes does not want.
    let converts = match ty {
        Type::String => name == "int64",
        Type::Int32 | Type::Int64 | Type::Number => matches!(name, "int64" | "float64"),
        _ => false,
    };
    if converts {
        let target = if go_type.is_empty() { simple } else { go_type };
        format!("cannot convert {name} to {target}")
    } else {
        format!("unrecognized type: {simple}")
    }
}

impl Findings {
    /// Of a Go map.
    pub(super) fn of_map() -> Self {
        Self {
            of_map: true,
            ..Self::default()
        }
    }

    /// What decoding fails with.
    pub(super) fn error(&mut self) -> Option<String> {
        self.refused.take().or(self.type_error.take())
    }

    fn mismatch(&mut self, node: &Node, go_type: &str, context: Context) {
        let mut what = node.go_kind().to_owned();
        if let Node::Number(text) = node
            && matches!(go_type, "int32" | "int64")
        {
            what = format!("number {text}");
        }
        self.fail(cannot_unmarshal(&what, go_type, context));
    }

    fn fail(&mut self, text: String) {
        self.type_error.get_or_insert(text);
    }

    fn refuse(&mut self, text: String) {
        self.refused.get_or_insert(text);
    }

    /// What a decoder of its own says of a value of another kind. Of a map it does not know the place.
    fn refuse_kind(&mut self, what: &str, go_type: &str, context: Context) {
        let owner = if self.of_map { "" } else { context.owner };
        self.refuse(cannot_unmarshal(what, go_type, Context { owner, ..context }));
    }

    fn strict(&mut self, what: &str, path: &str) {
        let text = format!("{what} field {path:?}");
        if self.strict.len() < MAX_STRICT_ERRORS && !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }
}

fn cannot_unmarshal(what: &str, go_type: &str, context: Context) -> String {
    let target = if context.owner.is_empty() {
        format!("value of type {go_type}")
    } else {
        format!(
            "struct field {}.{} of type {go_type}",
            context.owner, context.fields
        )
    };
    format!("json: cannot unmarshal {what} into Go {target}")
}

/// The Go structs embedded in `owner` through which it has `field`, as Go's paths of type errors show them.
fn embedded(owner: &str, field: &str) -> Option<&'static str> {
    let through = |own: &[&str], name| (!own.contains(&field)).then_some(name);
    match owner {
        "NamedRuleWithOperations" if field == "operations" => Some("RuleWithOperations"),
        "NamedRuleWithOperations" => through(&["resourceNames"], "RuleWithOperations.Rule"),
        "RuleWithOperations" => through(&["operations"], "Rule"),
        "ConfigMapEnvSource"
        | "ConfigMapKeySelector"
        | "ConfigMapProjection"
        | "ConfigMapVolumeSource"
        | "SecretEnvSource"
        | "SecretKeySelector"
        | "SecretProjection" => (field == "name").then_some("LocalObjectReference"),
        "EphemeralContainer" => through(&["targetContainerName"], "EphemeralContainerCommon"),
        "IngressRule" => through(&["host"], "IngressRuleValue"),
        "PersistentVolumeSpec" => through(
            &[
                "accessModes",
                "capacity",
                "claimRef",
                "mountOptions",
                "nodeAffinity",
                "persistentVolumeReclaimPolicy",
                "storageClassName",
                "volumeAttributesClassName",
                "volumeMode",
            ],
            "PersistentVolumeSource",
        ),
        "Probe" => matches!(field, "exec" | "grpc" | "httpGet" | "tcpSocket").then_some("ProbeHandler"),
        "Volume" => through(&["name"], "VolumeSource"),
        _ => None,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn object(
    definition: &'static Definition,
    members: Vec<(String, Node)>,
    context: Context,
    findings: &mut Findings,
) -> Value {
    let mut out = Map::new();
    let mut seen: Vec<&'static str> = Vec::with_capacity(members.len());
    for (name, node) in members {
        let path = join(context.path, &name);
        let Some(field) = definition.field(&name) else {
            findings.strict("unknown", &path);
            continue;
        };
        if seen.contains(&field.name) {
            findings.strict("duplicate", &path);
        }
        seen.push(field.name);
        let fields = match embedded(definition.short_name(), field.name) {
            Some(through) => join(context.fields, &format!("{through}.{name}")),
            None => join(context.fields, &name),
        };
        let inner = Context {
            owner: definition.short_name(),
            fields: &fields,
            path: &path,
        };
        match decode_field(field, node, inner, findings) {
            Some(value) => out.insert(name, value),
            None => out.remove(&name),
        };
    }
    for field in &definition.fields {
        if !out.contains_key(field.name)
            && let Some(value) = absent(field)
        {
            out.insert(field.name.to_owned(), value);
        }
    }
    Value::Object(out)
}

/// The field's value as it is encoded again, `None` if it is left out.
fn decode_field(field: &Field, node: Node, context: Context, findings: &mut Findings) -> Option<Value> {
    if node == Node::Null {
        return None;
    }
    let value = typed(&field.ty, field.go_type, node, context, findings);
    let empty = match &value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty() && field.ty.definition().is_none(),
    };
    let known = !field.go_type.is_empty();
    let kept = !empty || field.pointer || field.always || !known || is_struct(&field.ty);
    kept.then_some(value)
}

fn is_struct(ty: &Type) -> bool {
    ty.definition().is_some()
}

/// What Go encodes for a field that was not sent.
fn absent(field: &Field) -> Option<Value> {
    if field.pointer {
        return field.always.then_some(Value::Null);
    }
    // Metadata are embedded, so that Go names no type for the field.
    if field.go_type.is_empty() && field.name != "metadata" {
        return None;
    }
    if let Some(definition) = field.ty.definition() {
        return (!field.omit_zero).then(|| match definition.shape {
            Shape::Object => zero(definition),
            Shape::Quantity => json!("0"),
            Shape::IntOrString => json!(0),
            Shape::Time | Shape::MicroTime | Shape::Any => Value::Null,
        });
    }
    field.always.then(|| match &field.ty {
        Type::String => json!(""),
        Type::Int32 | Type::Int64 | Type::Number => json!(0),
        Type::Boolean => json!(false),
        _ => Value::Null,
    })
}

/// The zero value of a struct.
pub(crate) fn zero(definition: &'static Definition) -> Value {
    let members = definition
        .fields
        .iter()
        .filter_map(|field| Some((field.name.to_owned(), absent(field)?)))
        .collect::<Map<_, _>>();
    Value::Object(members)
}

fn typed(ty: &Type, go_type: &str, node: Node, context: Context, findings: &mut Findings) -> Value {
    match (ty, node) {
        (Type::Any, node) => node.into_value(),
        (Type::Ref(_), node) => reference(ty, go_type, node, context, findings),
        (Type::String, Node::String(text)) => Value::String(text),
        (Type::Bytes, Node::String(text)) => {
            if let Some(at) = bad_base64(&text) {
                let text = format!("illegal base64 data at input byte {at}");
                if findings.of_map {
                    findings.refuse(format!("error decoding from json: {text}"));
                } else {
                    findings.fail(text);
                }
            }
            Value::String(text)
        }
        (Type::Boolean, Node::Bool(value)) => Value::Bool(value),
        (Type::Number, Node::Number(text)) => number(&text),
        (Type::Int32 | Type::Int64, Node::Number(text)) => {
            let parsed = match ty {
                Type::Int32 => text.parse::<i32>().ok().map(i64::from),
                _ => text.parse::<i64>().ok(),
            };
            if let Some(value) = parsed {
                return Value::from(value);
            }
            let name = if *ty == Type::Int32 { "int32" } else { "int64" };
            findings.unfit(&Node::Number(text), ty, name, context);
            Value::Null
        }
        (Type::List(item), Node::Array(nodes)) => {
            let inner = go_type.strip_prefix("[]").unwrap_or_default();
            let item_type = inner.trim_start_matches('*');
            let values = nodes.into_iter().enumerate().map(|(index, node)| {
                let path = format!("{}[{index}]", context.path);
                if node == Node::Null {
                    return if inner.starts_with('*') {
                        Value::Null
                    } else {
                        zero_of(item)
                    };
                }
                typed(item, item_type, node, context.at(&path), findings)
            });
            Value::Array(values.collect())
        }
        (Type::Map(item), Node::Object(members)) => map(item, go_type, members, context, findings),
        // Go reads a list of numbers as bytes, and names the first item that is none.
        (Type::Bytes, Node::Array(items)) => bytes(items, context, findings),
        (Type::Bytes, node) => {
            findings.unfit(&node, ty, "[]uint8", context);
            Value::Null
        }
        (ty, node) => {
            let name = if go_type.is_empty() {
                fallback_name(ty)
            } else {
                // Errors name the type behind the alias.
                go_type.replace("[]byte", "[]uint8")
            };
            findings.unfit(&node, ty, &name, context);
            Value::Null
        }
    }
}

fn bytes(items: Vec<Node>, context: Context, findings: &mut Findings) -> Value {
    let mut bytes = Vec::with_capacity(items.len());
    for item in items {
        match &item {
            Node::Null => bytes.push(0),
            Node::Number(text) => match text.parse::<u8>() {
                Ok(byte) => bytes.push(byte),
                Err(_) => findings.mismatch_kind(&item, "uint8", context),
            },
            other => findings.mismatch_kind(other, "uint8", context),
        }
    }
    Value::String(STANDARD.encode(bytes))
}

impl Findings {
    /// A value that does not fit its type. Go quotes numbers only where a number of another kind is wanted.
    fn unfit(&mut self, node: &Node, ty: &Type, go_type: &str, context: Context) {
        if self.of_map {
            self.refuse(cannot_restore(node, ty, go_type));
        } else if matches!((ty, node), (Type::Int32 | Type::Int64, Node::Number(_))) {
            self.mismatch(node, go_type, context);
        } else {
            self.mismatch_kind(node, go_type, context);
        }
    }

    fn mismatch_kind(&mut self, node: &Node, go_type: &str, context: Context) {
        self.fail(cannot_unmarshal(node.go_kind(), go_type, context));
    }
}

fn map(
    item: &Type,
    go_type: &str,
    members: Vec<(String, Node)>,
    context: Context,
    findings: &mut Findings,
) -> Value {
    let rounded = go_type.ends_with(".ResourceList");
    let item_type = go_type.split_once(']').map_or("", |(_, rest)| rest);
    let mut out = Map::new();
    for (name, node) in members {
        let path = join(context.path, &name);
        if out.contains_key(&name) {
            findings.strict("duplicate", &path);
        }
        let value = if node == Node::Null {
            zero_of(item)
        } else {
            typed(item, item_type, node, context.at(&path), findings)
        };
        let value = if rounded { round_up(value) } else { value };
        out.insert(name, value);
    }
    Value::Object(out)
}

/// Resource lists have no more than milli precision.
fn round_up(value: Value) -> Value {
    match value.as_str().map(Quantity::parse) {
        Some(Ok(quantity)) => Value::String(quantity.round_up_to_milli().to_string()),
        _ => value,
    }
}

fn zero_of(ty: &Type) -> Value {
    match ty {
        Type::String | Type::Bytes => json!(""),
        Type::Int32 | Type::Int64 | Type::Number => json!(0),
        Type::Boolean => json!(false),
        Type::Ref(_) => match ty.definition() {
            Some(definition) if definition.shape == Shape::Object => zero(definition),
            Some(definition) if definition.shape == Shape::Quantity => json!("0"),
            _ => Value::Null,
        },
        _ => Value::Null,
    }
}

fn fallback_name(ty: &Type) -> String {
    match ty {
        Type::String => "string".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::List(item) => format!("[]{}", fallback_name(item)),
        Type::Map(item) => format!("map[string]{}", fallback_name(item)),
        Type::Ref(_) => ty
            .definition()
            .map_or_else(String::new, |definition| definition.go_name().to_owned()),
        Type::Any => "interface {}".to_owned(),
    }
}

fn reference(ty: &Type, go_type: &str, node: Node, context: Context, findings: &mut Findings) -> Value {
    let Some(definition) = ty.definition() else {
        return Value::Null;
    };
    match (definition.shape, node) {
        (Shape::Any, node) if is_schema_or_other(definition) => schema_or_other(node, context, findings),
        (Shape::Any, node) => node.into_value(),
        (Shape::Object, Node::Object(members)) => object(definition, members, context, findings),
        (Shape::Object, node) => {
            let name = if go_type.is_empty() {
                definition.go_name()
            } else {
                go_type
            };
            findings.unfit(&node, ty, name, context);
            Value::Null
        }
        (Shape::Quantity, Node::String(text) | Node::Number(text)) => match Quantity::parse(text.trim()) {
            Ok(quantity) => Value::String(quantity.to_string()),
            Err(error) => {
                findings.refuse(error.to_string());
                Value::Null
            }
        },
        (Shape::Quantity, _) => {
            findings.refuse(NotAQuantity.to_string());
            Value::Null
        }
        (Shape::IntOrString, Node::String(text)) => Value::String(text),
        (Shape::IntOrString, Node::Number(text)) => {
            if let Ok(value) = text.parse::<i32>() {
                return Value::from(value);
            }
            findings.refuse_kind(&format!("number {text}"), "int32", context);
            Value::Null
        }
        (Shape::IntOrString, node) => {
            findings.refuse_kind(node.go_kind(), "int32", context);
            Value::Null
        }
        (Shape::Time | Shape::MicroTime, Node::String(text)) => {
            let canonical = if definition.shape == Shape::Time {
                time::seconds(&text)
            } else {
                time::micros(&text)
            };
            match canonical {
                Ok(text) => Value::String(text),
                Err(error) => {
                    findings.refuse(error);
                    Value::Null
                }
            }
        }
        (Shape::Time | Shape::MicroTime, node) => {
            findings.refuse_kind(node.go_kind(), "string", context);
            Value::Null
        }
    }
}

fn is_schema_or_other(definition: &Definition) -> bool {
    definition.short_name().starts_with("JSONSchemaPropsOr")
}

/// A schema of a custom resource's, a list of schemas, or something that is neither.
fn schema_or_other(node: Node, context: Context, findings: &mut Findings) -> Value {
    match (schema::definition(JSON_SCHEMA), node) {
        (Some(definition), Node::Object(members)) => object(definition, members, context, findings),
        (Some(_), Node::Array(nodes)) => nodes
            .into_iter()
            .enumerate()
            .map(|(index, node)| {
                let path = format!("{}[{index}]", context.path);
                schema_or_other(node, context.at(&path), findings)
            })
            .collect(),
        (_, node) => node.into_value(),
    }
}

/// Where Go's decoder of standard, padded base64 gives up. Line breaks are ignored, as there.
fn bad_base64(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let skip_breaks = |mut at: usize| {
        while matches!(bytes.get(at), Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    // `digit` counts within a group of four.
    let (mut at, mut digit) = (0, 0);
    loop {
        match bytes.get(at) {
            None => return (digit > 0).then(|| at - digit),
            Some(b'\n' | b'\r') => {}
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => {
                digit = (digit + 1) % 4;
            }
            Some(b'=') if digit >= 2 => {
                at += 1;
                if digit == 2 {
                    at = skip_breaks(at);
                    match bytes.get(at) {
                        None => return Some(at),
                        Some(b'=') => at += 1,
                        Some(_) => return Some(at - 1),
                    }
                }
                at = skip_breaks(at);
                return (at < bytes.len()).then_some(at);
            }
            Some(_) => return Some(at),
        }
        at += 1;
    }
}
