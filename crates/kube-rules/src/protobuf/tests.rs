use super::*;
use crate::gvk::Gvk;
use crate::schema::{self, Shape};
use crate::strict;
use serde_json::{Value, json};
use std::sync::Arc;

/// A field with a length.
fn put(number: u8, content: &[u8]) -> Vec<u8> {
    let varint = |value: usize| match value {
        0..128 => vec![value as u8],
        _ => vec![value as u8 | 0x80, (value >> 7) as u8],
    };
    [
        varint(usize::from(number) << 3 | 2),
        varint(content.len()),
        content.to_vec(),
    ]
    .concat()
}

/// Metadata of which only the name is set.
fn metadata(name: &[u8]) -> Vec<u8> {
    let texts = [
        put(1, name),
        put(2, b""),
        put(3, b""),
        put(4, b""),
        put(5, b""),
        put(6, b""),
    ];
    [texts.concat(), vec![7 << 3, 0], put(8, b"")].concat()
}

fn read(name: &str, message: &[u8]) -> Result<Value, Undecodable> {
    decode(schema::definition(name).unwrap(), message)
}

fn pod_spec(message: &[u8]) -> Result<Value, Undecodable> {
    read("io.k8s.api.core.v1.PodSpec", message)
}

/// Every kind can be written: what a kind refers to has numbers, but for kind and version, which stand in
/// the envelope.
#[test]
fn every_field_of_every_kind_has_a_number() {
    let kinds = schema::all()
        .iter()
        .filter(|definition| !definition.gvks.is_empty());
    let kinds: Vec<_> = kinds.map(|definition| definition.name).collect();
    for name in schema::closure(&kinds) {
        let definition = schema::definition(name).unwrap();
        let told = definition
            .fields
            .iter()
            .filter(|field| matches!(field.name, "apiVersion" | "kind"));
        let (numbered, all) = (count(layout::of_definition(definition)), definition.fields.len());
        let by_envelope = if definition.gvks.is_empty() {
            0
        } else {
            told.count()
        };
        assert!(
            definition.shape != Shape::Object || numbered + by_envelope == all,
            "{name}: {numbered} of {all}"
        );
    }
}

fn count(layout: &layout::Layout) -> usize {
    let counts = layout.iter().map(|slot| match &slot.content {
        layout::Content::Field(_) => 1,
        layout::Content::Embedded(inner) => count(inner),
    });
    counts.sum()
}

#[test]
fn a_message_has_what_go_writes() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "data": {"b": "", "a": "aGk="}, "type": "Opaque"});
    let entry = |key: &[u8], value: &[u8]| put(2, &[put(1, key), put(2, value)].concat());
    let message = [
        put(1, &metadata(b"s")),
        entry(b"a", b"hi"),
        entry(b"b", b""),
        put(3, b"Opaque"),
    ]
    .concat();
    let kind = [put(1, b"v1"), put(2, b"Secret")].concat();
    let body = [
        b"k8s\0".to_vec(),
        put(1, &kind),
        put(2, &message),
        put(3, b""),
        put(4, b""),
    ]
    .concat();
    assert_eq!(encode(&secret).unwrap(), body);
    let decoded = strict::decode_protobuf(&Gvk::of("v1", "Secret"), &body)
        .unwrap()
        .object;
    assert_eq!(
        (&decoded["data"], &decoded["type"]),
        (&secret["data"], &secret["type"])
    );
}

#[test]
fn fields_of_an_embedded_message_stand_among_those_around_it() {
    let source = put(2, &[put(19, &put(1, &put(1, b"m")))].concat());
    let volume = read("io.k8s.api.core.v1.Volume", &[put(1, b"v"), source].concat());
    assert_eq!(volume, Ok(json!({"name": "v", "configMap": {"name": "m"}})));
}

#[test]
fn repeated_fields_are_gathered_packed_or_not_and_messages_merged() {
    let context = |message: &[u8]| read("io.k8s.api.core.v1.PodSecurityContext", message);
    let groups = context(&[put(4, &[1, 0xac, 2]), vec![4 << 3, 7]].concat());
    assert_eq!(groups, Ok(json!({"supplementalGroups": [1, 300, 7]})));
    let twice = context(
        &[
            put(1, &put(1, b"u")),
            put(1, &put(2, b"r")),
            vec![2 << 3, 1, 2 << 3, 2],
        ]
        .concat(),
    );
    assert_eq!(
        twice,
        Ok(json!({"seLinuxOptions": {"user": "u", "role": "r"}, "runAsUser": 2}))
    );
    let unknown = context(&[vec![0xf8, 0x7f, 1], put(15, b"x"), vec![2 << 3, 1]].concat());
    assert_eq!(unknown, Ok(json!({"runAsUser": 1})));
    let negative = [&[2 << 3][..], &[0xff; 9], &[1]].concat();
    assert_eq!(context(&negative), Ok(json!({"runAsUser": -1})));
    let selector = pod_spec(&[put(7, &put(1, b"k")), put(7, &put(2, b"v"))].concat());
    assert_eq!(selector, Ok(json!({"nodeSelector": {"k": "", "": "v"}})));
}

#[test]
fn what_is_neither_object_nor_list_has_a_message_of_its_own() {
    let port =
        |message: &[u8]| read("io.k8s.api.core.v1.HTTPGetAction", &put(2, message)).unwrap()["port"].clone();
    assert_eq!(port(&[8, 0, 16, 80, 26, 0]), 80);
    assert_eq!(port(&[&[8, 1, 16, 0][..], &put(3, b"http")].concat()), "http");
    let schema = |message: &[u8]| read(schema::JSON_SCHEMA, message).unwrap();
    let text = put(5, b"string");
    for (sent, value) in [
        (vec![8, 0], json!(false)),
        (vec![8, 1], json!(true)),
        ([vec![8, 1], put(2, &text)].concat(), json!({"type": "string"})),
    ] {
        assert_eq!(schema(&put(30, &sent))["additionalProperties"], value);
    }
    let revision = read(
        "io.k8s.api.apps.v1.ControllerRevision",
        &put(2, &put(1, br#"{"a":[1]}"#)),
    );
    assert_eq!(revision, Ok(json!({"data": {"a": [1]}})));
    let nested =
        encode(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})).unwrap();
    let list = read("io.k8s.api.apps.v1.ControllerRevision", &put(2, &put(1, &nested))).unwrap();
    assert_eq!(
        (&list["data"]["kind"], &list["data"]["metadata"]["name"]),
        (&json!("Namespace"), &json!("n"))
    );
}

#[test]
fn times_and_quantities_that_are_not_set_are_told_apart_from_those_that_are() {
    let metadata = |time: &[u8]| read("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &put(8, time));
    assert_eq!(metadata(&[]), Ok(json!({"creationTimestamp": null})));
    assert_eq!(
        metadata(&[8, 1, 16, 5]),
        Ok(json!({"creationTimestamp": "1970-01-01T00:00:01Z"}))
    );
    let far = [&[8][..], &[0xff; 8], &[0x7f]].concat();
    assert_eq!(metadata(&far), Err(Undecodable::OutOfRange));
    let lease = read(
        "io.k8s.api.coordination.v1.LeaseSpec",
        &put(4, &[8, 1, 16, 0xd0, 15]),
    );
    assert_eq!(lease, Ok(json!({"renewTime": "1970-01-01T00:00:01.000002Z"})));
    let usage = read(
        "io.k8s.api.core.v1.ResourceRequirements",
        &put(1, &[put(1, b"cpu"), put(2, &[])].concat()),
    );
    assert_eq!(usage, Ok(json!({"limits": {"cpu": "0"}})));
}

#[test]
fn what_is_no_message_is_refused() {
    // Schemas that another schema must not fit.
    let deep = (0..MAX_DEPTH).fold(Vec::new(), |inner: Vec<u8>, _| put(28, &inner));
    let wire = |found, field: &str| Undecodable::WireType {
        found,
        field: field.to_owned(),
    };
    for (message, error) in [
        (&[8][..], Undecodable::Truncated),
        (&[10, 5, 1], Undecodable::Truncated),
        (&[9, 0, 0], Undecodable::Truncated),
        (
            &[10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            Undecodable::Truncated,
        ),
        (&[0xff; 11], Undecodable::Overflow),
        (&[11, 12], Undecodable::IllegalWireType(3)),
        (&[12], Undecodable::IllegalWireType(4)),
        (&[14], Undecodable::IllegalWireType(6)),
        (&[2, 0], Undecodable::IllegalTag),
        (&[8, 1], wire(0, "volumes")),
        (&[24, 1], wire(0, "restartPolicy")),
        (
            &[33, 0, 0, 0, 0, 0, 0, 0, 0],
            wire(1, "terminationGracePeriodSeconds"),
        ),
    ] {
        assert_eq!(pod_spec(message), Err(error), "{message:?}");
    }
    assert_eq!(read(schema::JSON_SCHEMA, &deep), Err(Undecodable::TooDeep));
    let not_a_number = [&[9 << 3 | 1][..], &f64::NAN.to_le_bytes()].concat();
    assert_eq!(
        read(schema::JSON_SCHEMA, &not_a_number),
        Err(Undecodable::OutOfRange)
    );
    let raw = read("io.k8s.api.apps.v1.ControllerRevision", &put(2, &put(1, b"{")));
    assert!(matches!(raw, Err(Undecodable::Json(_))), "{raw:?}");
}

#[test]
fn the_kind_is_told_by_the_envelope_or_by_the_path() {
    let expected = Gvk::of("v1", "ConfigMap");
    let empty = [&b"k8s\0"[..], &put(2, &[])].concat();
    assert_eq!(
        strict::decode_protobuf(&expected, &empty).unwrap().object["kind"],
        "ConfigMap"
    );
    let other = encode(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})).unwrap();
    assert_eq!(
        strict::decode_protobuf(&expected, &other).unwrap_err().message,
        "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): \
         unknown conversion"
    );
    let broken = [&b"k8s\0"[..], &put(2, &[10])].concat();
    assert_eq!(
        strict::decode_protobuf(&expected, &broken).unwrap_err().message,
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: unexpected EOF"
    );
    assert_eq!(
        encode(&json!({"apiVersion": "example.com/v1", "kind": "Widget"})),
        None
    );
}

#[test]
fn lists_are_written_without_being_put_together() {
    let items: Vec<Value> = ["a", "b"]
        .map(|name| json!({"metadata": {"name": name}}))
        .to_vec();
    let head = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"}});
    let mut whole = head.clone();
    whole["items"] = json!(items);
    let shared: Vec<Arc<Value>> = items.into_iter().map(Arc::new).collect();
    assert_eq!(encode_list(&head, &shared), encode(&whole));
    let partial = |version: &str| {
        let head = json!({"apiVersion": version, "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "7"}});
        open(&encode_list(&head, &shared).unwrap()).unwrap().raw.to_vec()
    };
    let listed = [put(1, b""), put(2, b"7"), put(3, b"")].concat();
    let items = |number| {
        [b"a", b"b"]
            .map(|name| put(number, &put(1, &metadata(name))))
            .concat()
    };
    assert_eq!(partial("meta.k8s.io/v1"), [put(1, &listed), items(2)].concat());
    assert_eq!(
        partial("meta.k8s.io/v1beta1"),
        [items(1), put(2, &listed)].concat()
    );
}

#[test]
fn an_event_is_framed_by_its_length() {
    let event = [put(1, b"ADDED"), put(2, &put(1, b"object"))].concat();
    let length = (event.len() as u32).to_be_bytes();
    assert_eq!(watch_event("ADDED", b"object"), [&length[..], &event].concat());
}
