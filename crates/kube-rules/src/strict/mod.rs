//! Decoding of what clients send.

mod applied;
mod decode;
pub(crate) mod json;
mod stored;
#[cfg(test)]
mod tests;

use crate::gvk::{Gvk, group_version, split_api_version};
use crate::protobuf;
use crate::schema::{self, Definition};
use crate::status::{ApiError, ApiResult};
use crate::strategy::TEMPLATE_GENERATION;
use json::Node;
use serde_json::{Value, json};

pub use applied::decode_apply;
pub(super) use decode::zero;
pub use stored::forget_empty;

/// The query parameter `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown and duplicate fields are dropped silently.
    Ignore,
    /// They are dropped with a warning. The server's default.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// A decoded object.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// In canonical form: as Go would encode it after decoding it (unknown fields, nulls and empty optional
    /// fields are gone, quantities and times are canonical), with `apiVersion` and `kind`.
    pub object: Value,
    /// Texts for `Warning: 299 - "TEXT"` headers.
    pub warnings: Vec<String>,
}

/// Decodes a JSON body into a built-in kind. A body without `kind` or `apiVersion` gets the expected ones;
/// one of another version of the kind stays of that version, which is for [`version_is`] to refuse.
pub fn decode(expected: &Gvk, body: &[u8], mode: FieldValidation) -> ApiResult<Decoded> {
    let node = parse_body(expected, body)?;
    decode_node(expected, node, body, mode)
}

/// The same for a YAML body.
pub fn decode_yaml(expected: &Gvk, body: &[u8], mode: FieldValidation) -> ApiResult<Decoded> {
    let (node, doubled) = parse_yaml(expected, body)?;
    told_of_doubled(expected, decode_node(expected, node, body, mode)?, doubled, mode)
}

/// The same for a body in Kubernetes' protobuf encoding. It names no fields, so none is unknown or duplicate.
pub fn decode_protobuf(expected: &Gvk, body: &[u8]) -> ApiResult<Decoded> {
    let envelope = protobuf::open(body).map_err(|error| {
        let kept = &body[..body.len().min(30)];
        let hex = if body.is_empty() {
            "<empty>".to_owned()
        } else {
            hex(kept)
        };
        let cut = if kept.len() < body.len() { " ..." } else { "" };
        unrecognized(expected, &format!("{error} ({hex}{cut})"))
    })?;
    let gvk = named(expected, &envelope.kind, &envelope.api_version);
    let decoded = known(&gvk).and_then(|definition| {
        let object = protobuf::decode(definition, envelope.raw).map_err(|error| error.to_string())?;
        let decoded = typed(&gvk, Node::from(object), FieldValidation::Ignore)?;
        convertible(expected, &gvk).map(|()| decoded)
    });
    decoded.map_err(|error| cannot_handle(expected, &gvk.kind, &gvk.version, &error))
}

/// An object of a built-in kind with nothing in it, as Go encodes it; `None` for a kind that there is not.
pub fn nothing(gvk: &Gvk) -> Option<Value> {
    let mut nothing = decode::zero(schema::kind(gvk)?);
    // Numbers that are no pointers in the form in which Go holds these kinds.
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet") => {
            nothing["spec"]["replicas"] = json!(0);
        }
        ("apps", "DaemonSet") => {
            nothing["metadata"]["annotations"] = json!({TEMPLATE_GENERATION: "0"});
        }
        _ => {}
    }
    Some(nothing)
}

/// The version in which clients sent evictions before `policy/v1`, with the same fields.
const OLD_EVICTION: &str = "policy/v1beta1";

/// What a body says it is, with what is expected where it says nothing.
fn named(expected: &Gvk, kind: &str, api_version: &str) -> Gvk {
    let kind = if kind.is_empty() { &expected.kind } else { kind };
    let mut named = Gvk::of(api_version, kind);
    if named.version.is_empty() && (named.group.is_empty() || named.group == expected.group) {
        named.group.clone_from(&expected.group);
        named.version.clone_from(&expected.version);
    }
    named
}

/// 400 for a decoded object that was sent to the path of another version.
pub fn version_is(expected: &Gvk, object: &Value) -> ApiResult<()> {
    let (group, version) = split_api_version(object["apiVersion"].as_str().unwrap_or_default());
    let (found, wanted) = (group_version(group, version), api_version(expected));
    if found == wanted || expected.kind == "Eviction" && found == OLD_EVICTION {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({wanted})"
    )))
}

/// Checks and canonicalises an object that came out of a JSON or merge patch. The error is text for
/// [`crate::patch::undecodable`].
pub fn check(expected: &Gvk, object: Value, mode: FieldValidation) -> Result<Decoded, String> {
    check_kind(expected, &object)?;
    typed(expected, Node::from(object), mode)
}

/// The same for a strategic merge patch and for what was applied, which upstream reads as Go maps.
pub fn check_map(expected: &Gvk, object: Value, mode: FieldValidation) -> Result<Decoded, String> {
    check_kind(expected, &object)?;
    typed_with(expected, Node::from(object), mode, decode::Findings::of_map())
}

/// What is said of a text without its kind or version.
pub fn missing(what: &str, text: impl std::fmt::Display) -> String {
    format!("Object '{what}' is missing in '{text}'")
}

/// What is said of an object without a version.
pub fn no_version() -> String {
    missing("apiVersion", "object has no apiVersion field")
}

/// The kind that a body names, of a kind that Go has no structure for.
pub(super) fn kind_of(expected: &Gvk, node: &Node, body: &[u8], mode: FieldValidation) -> ApiResult<String> {
    let kind = node.get("kind").and_then(Node::as_str).unwrap_or_default();
    if !kind.is_empty() {
        return Ok(kind.to_owned());
    }
    let missing = |body: &str| missing("Kind", body);
    let text = String::from_utf8_lossy(body);
    if mode != FieldValidation::Ignore {
        return Err(unrecognized(
            expected,
            &format!("{} ({})", missing(&text), shown(body)),
        ));
    }
    let version = node.get("apiVersion").and_then(Node::as_str).unwrap_or_default();
    let version = named(expected, "", version).version;
    // A lenient reader has only what was read of YAML.
    let error = match (json::parse(body), applied::document(body)) {
        (Err(_), Ok((read, _))) => missing(&read.to_string()),
        _ => missing(&text),
    };
    Err(cannot_handle(expected, &expected.kind, &version, &error))
}

/// A JSON body as a document; errors are those of upstream's recognition of kinds.
pub(super) fn parse_body(expected: &Gvk, body: &[u8]) -> ApiResult<Node> {
    read_json(body).map_err(|error| unrecognized(expected, &format!("{error} ({})", shown(body))))
}

/// A YAML body as a document, and what is said of a key that stands in it twice.
pub(super) fn parse_yaml(expected: &Gvk, body: &[u8]) -> ApiResult<(Node, Option<String>)> {
    read_yaml(body).map_err(|error| unrecognized(expected, &format!("{error} ({})", shown(body))))
}

fn read_json(body: &[u8]) -> Result<Node, String> {
    // Go decodes `null` to an object with nothing in it.
    let node = if body.trim_ascii() == b"null" {
        Node::Object(Vec::new())
    } else {
        json::parse(body).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?
    };
    head_is_text(&node)?;
    Ok(node)
}

fn read_yaml(body: &[u8]) -> Result<(Node, Option<String>), String> {
    let (value, doubled) = applied::document(body)?;
    let node = Node::from(if value.is_null() { json!({}) } else { value });
    head_is_text(&node)?;
    Ok((node, doubled))
}

/// Decodes the body of a deletion, which every kind has.
pub fn decode_delete_options(body: &[u8], is_yaml: bool) -> ApiResult<Value> {
    let expected = Gvk::of("meta.k8s.io/v1", "DeleteOptions");
    let read = || {
        let node = if is_yaml {
            read_yaml(body)?.0
        } else {
            read_json(body)?
        };
        let text = |name: &str| node.get(name).and_then(Node::as_str).unwrap_or_default();
        let named = named(&expected, text("kind"), text("apiVersion"));
        if named.version.is_empty() {
            return Err(missing("apiVersion", String::from_utf8_lossy(body)));
        }
        if named.kind != expected.kind {
            return Err(not_registered(&named, "pkg/runtime/scheme.go:111"));
        }
        decode_part(delete_options()?, node).map(|(options, _)| options)
    };
    read().map_err(ApiError::bad_request)
}

/// The same in protobuf.
pub fn decode_delete_options_protobuf(body: &[u8]) -> ApiResult<Value> {
    let read = || {
        let envelope = protobuf::open(body).map_err(|error| error.to_string())?;
        protobuf::decode(delete_options()?, envelope.raw).map_err(|error| error.to_string())
    };
    read().map_err(|error| ApiError::bad_request(format!("cannot decode the request body: {error}")))
}

fn delete_options() -> Result<&'static Definition, String> {
    let definition = schema::definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    definition.ok_or_else(|| "there is no schema of DeleteOptions".to_owned())
}

/// A YAML body in which a key stands twice is refused, warned of, or taken as it is.
pub(super) fn told_of_doubled(
    expected: &Gvk,
    mut decoded: Decoded,
    doubled: Option<String>,
    mode: FieldValidation,
) -> ApiResult<Decoded> {
    match (doubled, mode) {
        (Some(text), FieldValidation::Strict) => {
            let error = format!("strict decoding error: yaml: unmarshal errors:\n  {text}");
            return Err(cannot_handle(expected, &expected.kind, &expected.version, &error));
        }
        (Some(text), FieldValidation::Warn) => decoded.warnings.insert(0, text),
        _ => {}
    }
    Ok(decoded)
}

fn head_is_text(node: &Node) -> Result<(), String> {
    const INTO: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let unread = |node: &Node, into: &str| {
        let kind = node.go_kind();
        format!("couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go {into}")
    };
    if !matches!(node, Node::Object(_)) {
        return Err(unread(node, &format!("value of type {INTO}")));
    }
    for name in ["apiVersion", "kind"] {
        match node.get(name) {
            None | Some(Node::String(_) | Node::Null) => {}
            Some(value) => return Err(unread(value, &format!("struct field .{name} of type string"))),
        }
    }
    let version = node.get("apiVersion").and_then(Node::as_str).unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// A body in an error message: its beginning, in hexadecimal where it is no JSON object.
fn shown(body: &[u8]) -> String {
    const MOST: usize = 30;
    let start = &body[..body.len().min(MOST)];
    let more = if body.len() > MOST { " ..." } else { "" };
    let text = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => hex(start),
    };
    text + more
}

fn unrecognized(expected: &Gvk, error: &str) -> ApiError {
    let kind = &expected.kind;
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {error}"
    ))
}

fn decode_node(expected: &Gvk, node: Node, body: &[u8], mode: FieldValidation) -> ApiResult<Decoded> {
    let text = |name: &str| node.get(name).and_then(Node::as_str).unwrap_or_default();
    let gvk = named(expected, text("kind"), text("apiVersion"));
    if gvk.version.is_empty() {
        let error = missing("apiVersion", String::from_utf8_lossy(body));
        return Err(cannot_handle(expected, &gvk.kind, "", &error));
    }
    let convertible = convertible(expected, &gvk);
    // What is only strict is told of after the conversion.
    let mode = convertible.as_ref().map_or(FieldValidation::Ignore, |()| mode);
    typed(&gvk, node, mode)
        .and_then(|decoded| convertible.map(|()| decoded))
        .map_err(|error| cannot_handle(expected, &gvk.kind, &gvk.version, &error))
}

/// 400 as upstream words it for a body whose kind is known.
pub(super) fn cannot_handle(expected: &Gvk, kind: &str, version: &str, error: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {error}",
        expected.kind
    ))
}

/// Decodes a part of an object by a definition of its own: the value, and unknown and duplicate fields by
/// their path within the part.
pub(super) fn decode_part(
    definition: &'static Definition,
    node: Node,
) -> Result<(Value, Vec<String>), String> {
    let mut findings = decode::Findings::default();
    let value = decode::decode(definition, node, &mut findings);
    match findings.error() {
        Some(error) => Err(error),
        None => Ok((value, findings.strict)),
    }
}

/// `apiVersion` and `kind` must be the expected ones, or absent.
fn check_kind(expected: &Gvk, object: &Value) -> Result<(), String> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let gvk = named(expected, text("kind"), text("apiVersion"));
    known(&gvk)?;
    if gvk == *expected {
        return Ok(());
    }
    Err(unknown_conversion(expected, &gvk))
}

/// An object of another version of the expected kind becomes one of that kind.
fn convertible(expected: &Gvk, gvk: &Gvk) -> Result<(), String> {
    if gvk.kind == expected.kind && internal_package(&gvk.group) == internal_package(&expected.group) {
        return Ok(());
    }
    Err(unknown_conversion(expected, gvk))
}

fn unknown_conversion(expected: &Gvk, gvk: &Gvk) -> String {
    format!(
        "converting ({}.{}) to ({}.{}): unknown conversion",
        gvk.version,
        gvk.kind,
        internal_package(&expected.group),
        expected.kind
    )
}

/// Go package of the unversioned types of a group.
fn internal_package(group: &str) -> &str {
    // Events of both groups are the core's.
    if group.is_empty() || group == "events.k8s.io" {
        "core"
    } else {
        group.split('.').next().unwrap_or(group)
    }
}

/// `apiVersion` of a kind.
pub(super) fn api_version(gvk: &Gvk) -> String {
    group_version(&gvk.group, &gvk.version)
}

fn known(expected: &Gvk) -> Result<&'static Definition, String> {
    let found = if expected.kind == "Eviction" && api_version(expected) == OLD_EVICTION {
        schema::kind(&Gvk::of("policy/v1", "Eviction"))
    } else {
        schema::kind(expected)
    };
    found.ok_or_else(|| not_registered(expected, "pkg/api/legacyscheme/scheme.go:30"))
}

/// `scheme` is where Go's table of types is.
fn not_registered(gvk: &Gvk, scheme: &str) -> String {
    let (kind, version) = (&gvk.kind, api_version(gvk));
    format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}")
}

fn typed(expected: &Gvk, node: Node, mode: FieldValidation) -> Result<Decoded, String> {
    typed_with(expected, node, mode, decode::Findings::default())
}

fn typed_with(
    expected: &Gvk,
    node: Node,
    mode: FieldValidation,
    mut findings: decode::Findings,
) -> Result<Decoded, String> {
    let definition = known(expected)?;
    let managers = node
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    let resets = matches!(managers, Some(Node::Array(list)) if list.is_empty());
    let mut object = decode::decode(definition, node, &mut findings);
    if resets {
        // An empty list, which is dropped here, resets the managers as one empty manager does.
        object["metadata"]["managedFields"] = json!([{}]);
    }
    if let Some(error) = findings.error() {
        return Err(error);
    }
    let warnings = strictness(findings.strict, mode)?;
    object["apiVersion"] = json!(api_version(expected));
    object["kind"] = json!(expected.kind);
    Ok(Decoded { object, warnings })
}

/// What unknown and duplicate fields mean under `fieldValidation`.
pub(super) fn strictness(found: Vec<String>, mode: FieldValidation) -> Result<Vec<String>, String> {
    match mode {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(found),
        FieldValidation::Strict if found.is_empty() => Ok(found),
        FieldValidation::Strict => Err(format!("strict decoding error: {}", found.join(", "))),
    }
}
