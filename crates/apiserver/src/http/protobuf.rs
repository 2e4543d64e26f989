//! Bodies in Kubernetes' protobuf encoding, for the few kinds that kubectl writes in it and that are needed
//! here.
//!
//! A body is an envelope (`k8s`, a zero byte, then `runtime.Unknown`) around the message of the kind. The
//! layouts below hold the field numbers of the API's generated.proto files; what a layout does not list is
//! skipped.

use crate::kinds::Resource;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The media type.
pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// Type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bytes,
    Integer,
    Boolean,
    Time,
    Message(Layout),
    Texts,
    Messages(Layout),
    /// From texts to texts.
    Map,
    /// From texts to messages whose field 1 is a list of texts.
    MapOfTexts,
}

/// Number, JSON name and type of each field.
type Layout = &'static [(u64, &'static str, Kind)];

const ENVELOPE: Layout = &[(1, "type", Kind::Message(TYPE)), (2, "raw", Kind::Bytes)];
const TYPE: Layout = &[(1, "apiVersion", Kind::Text), (2, "kind", Kind::Text)];
const OWNER: Layout = &[
    (1, "kind", Kind::Text),
    (3, "name", Kind::Text),
    (4, "uid", Kind::Text),
    (5, "apiVersion", Kind::Text),
    (6, "controller", Kind::Boolean),
    (7, "blockOwnerDeletion", Kind::Boolean),
];
const METADATA: Layout = &[
    (1, "name", Kind::Text),
    (2, "generateName", Kind::Text),
    (3, "namespace", Kind::Text),
    (5, "uid", Kind::Text),
    (6, "resourceVersion", Kind::Text),
    (7, "generation", Kind::Integer),
    (8, "creationTimestamp", Kind::Time),
    (9, "deletionTimestamp", Kind::Time),
    (10, "deletionGracePeriodSeconds", Kind::Integer),
    (11, "labels", Kind::Map),
    (12, "annotations", Kind::Map),
    (13, "ownerReferences", Kind::Messages(OWNER)),
    (14, "finalizers", Kind::Texts),
];
const SIGNING_REQUEST: Layout = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[
            (1, "request", Kind::Bytes),
            (2, "username", Kind::Text),
            (3, "uid", Kind::Text),
            (4, "groups", Kind::Texts),
            (5, "usages", Kind::Texts),
            (6, "extra", Kind::MapOfTexts),
            (7, "signerName", Kind::Text),
            (8, "expirationSeconds", Kind::Integer),
        ]),
    ),
    (
        3,
        "status",
        Kind::Message(&[
            (
                1,
                "conditions",
                Kind::Messages(&[
                    (1, "type", Kind::Text),
                    (2, "reason", Kind::Text),
                    (3, "message", Kind::Text),
                    (4, "lastUpdateTime", Kind::Time),
                    (5, "lastTransitionTime", Kind::Time),
                    (6, "status", Kind::Text),
                ]),
            ),
            (2, "certificate", Kind::Bytes),
        ]),
    ),
];

fn layout(kind: &str) -> Option<Layout> {
    (kind == "CertificateSigningRequest").then_some(SIGNING_REQUEST)
}

/// Whether bodies of that kind are read.
pub(crate) fn reads(resource: &Resource) -> bool {
    resource.custom.is_none() && layout(&resource.kind).is_some()
}

/// The body as JSON.
pub(crate) fn to_json(body: &[u8]) -> ApiResult<Vec<u8>> {
    let undecodable = || {
        ApiError::bad_request(
            "cannot decode the request body: it is not an object in Kubernetes' protobuf encoding",
        )
    };
    let decode = || {
        let envelope = message(body.strip_prefix(MAGIC)?, ENVELOPE)?;
        let kind = envelope["type"]["kind"].as_str()?;
        let raw = STANDARD.decode(envelope["raw"].as_str()?).ok()?;
        let mut object = message(&raw, layout(kind)?)?;
        object["kind"] = json!(kind);
        object["apiVersion"] = envelope["type"]["apiVersion"].clone();
        Some(object.to_string().into_bytes())
    };
    decode().ok_or_else(undecodable)
}

/// What stands in one field.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let key = number(bytes)?;
    let wire = match key & 7 {
        0 => Wire::Number(number(bytes)?),
        1 => Wire::Bytes(take(bytes, 8)?),
        2 => {
            let length = number(bytes)?;
            Wire::Bytes(take(bytes, length)?)
        }
        5 => Wire::Bytes(take(bytes, 4)?),
        _ => return None,
    };
    Some((key >> 3, wire))
}

/// Decodes a message. Empty texts and zeros are left out: Go writes them for fields that are not set.
fn message(mut bytes: &[u8], layout: Layout) -> Option<Value> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let (id, wire) = field(&mut bytes)?;
        let Some((_, name, kind)) = layout.iter().find(|(number, ..)| *number == id) else {
            continue;
        };
        add(&mut object, name, *kind, &wire)?;
    }
    Some(Value::Object(object))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn push(object: &mut Map<String, Value>, name: &str, item: Value) {
    if let Value::Array(items) = object.entry(name).or_insert_with(|| json!([])) {
        items.push(item);
    }
}

fn add(object: &mut Map<String, Value>, name: &str, kind: Kind, wire: &Wire<'_>) -> Option<()> {
    match (kind, wire) {
        (Kind::Integer, Wire::Number(number)) => {
            object.insert(name.to_owned(), json!(number.cast_signed()));
        }
        (Kind::Boolean, Wire::Number(number)) => {
            object.insert(name.to_owned(), json!(*number != 0));
        }
        (Kind::Text, Wire::Bytes(bytes)) => {
            if !bytes.is_empty() {
                object.insert(name.to_owned(), json!(text(bytes)?));
            }
        }
        (Kind::Bytes, Wire::Bytes(bytes)) => {
            if !bytes.is_empty() {
                object.insert(name.to_owned(), json!(STANDARD.encode(bytes)));
            }
        }
        (Kind::Time, Wire::Bytes(bytes)) => {
            let time = message(bytes, &[(1, "seconds", Kind::Integer)])?;
            if let Some(seconds) = time["seconds"].as_i64() {
                let time = Timestamp::from_second(seconds).ok()?;
                object.insert(name.to_owned(), json!(rfc3339(time)));
            }
        }
        (Kind::Message(layout), Wire::Bytes(bytes)) => {
            object.insert(name.to_owned(), message(bytes, layout)?);
        }
        (Kind::Texts, Wire::Bytes(bytes)) => push(object, name, json!(text(bytes)?)),
        (Kind::Messages(layout), Wire::Bytes(bytes)) => push(object, name, message(bytes, layout)?),
        (Kind::Map | Kind::MapOfTexts, Wire::Bytes(bytes)) => {
            let value = match kind {
                Kind::Map => Kind::Text,
                _ => Kind::Message(&[(1, "items", Kind::Texts)]),
            };
            let (mut key, mut found, mut rest) = (String::new(), Map::new(), *bytes);
            while !rest.is_empty() {
                match field(&mut rest)? {
                    (1, Wire::Bytes(bytes)) => text(bytes)?.clone_into(&mut key),
                    (2, wire) => add(&mut found, "value", value, &wire)?,
                    _ => {}
                }
            }
            let found = found.remove("value").unwrap_or(Value::Null);
            let found = match (kind, found) {
                (Kind::Map, Value::Null) => json!(""),
                (Kind::Map, found) => found,
                (_, found) => found.get("items").cloned().unwrap_or_else(|| json!([])),
            };
            let map = object.entry(name).or_insert_with(|| json!({}));
            map[key.as_str()] = found;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with a length.
    fn put(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short");
        [&[number << 3 | 2, length], content].concat()
    }

    #[test]
    fn a_signing_request_is_read() {
        let extra = put(6, &[put(1, b"k"), put(2, &put(1, b"v"))].concat());
        let spec = [
            put(1, b"PEM"),
            put(2, b""),
            put(4, b"a"),
            put(4, b"b"),
            extra,
            vec![8 << 3, 0xd8, 0x04],
        ]
        .concat();
        let labels = put(11, &[put(1, b"l"), put(2, b"")].concat());
        let metadata = [put(1, b"x"), put(8, b""), labels, put(4, b"skipped")].concat();
        let condition = [put(1, b"Approved"), put(4, &[1 << 3, 1]), put(6, b"True")].concat();
        let raw = [put(1, &metadata), put(2, &spec), put(3, &put(1, &condition))].concat();
        let kind = [
            put(1, b"certificates.k8s.io/v1"),
            put(2, b"CertificateSigningRequest"),
        ]
        .concat();
        let body = [MAGIC.to_vec(), put(1, &kind), put(2, &raw)].concat();
        let object: Value = serde_json::from_slice(&to_json(&body).expect("good")).expect("JSON");
        assert_eq!(
            object,
            json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": {"name": "x", "labels": {"l": ""}},
                "spec": {"request": "UEVN", "groups": ["a", "b"], "extra": {"k": ["v"]}, "expirationSeconds": 600},
                "status": {"conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": "1970-01-01T00:00:01Z"}]},
            })
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for body in [
            &b""[..],
            b"k8s\0",
            b"k8s\0\xff",
            b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"{}",
        ] {
            assert_eq!(to_json(body).expect_err("no object").code, 400);
        }
    }
}
