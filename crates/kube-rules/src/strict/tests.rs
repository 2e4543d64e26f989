use super::*;

fn gvk(group: &str, kind: &str) -> Gvk {
    Gvk {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
    }
}

fn refusal(group: &str, kind: &str, body: &str) -> String {
    let error = decode(&gvk(group, kind), body.as_bytes(), FieldValidation::Strict).unwrap_err();
    assert_eq!(error.code, 400);
    error.message
}

#[test]
fn bytes_are_refused_where_go_gives_up() {
    for (text, at) in [
        ("dg==", None),
        ("ZGc\n=", None),
        ("dg==x", Some(4)),
        ("dg", Some(0)),
        ("dg=", Some(3)),
        ("dg=x", Some(2)),
        ("d===", Some(1)),
        ("ZGdnZ*==", Some(5)),
    ] {
        let body = json!({"data": {"k": text}}).to_string();
        let decoded = decode(&gvk("", "Secret"), body.as_bytes(), FieldValidation::Strict);
        let refusal = decoded.err().map(|error| error.message);
        let expected = at.map(|at: usize| format!("illegal base64 data at input byte {at}"));
        assert_eq!(refusal.is_some(), expected.is_some(), "{text:?}");
        if let (Some(refusal), Some(expected)) = (refusal, expected) {
            assert!(refusal.ends_with(&expected), "{text:?}: {refusal}");
        }
    }
}

#[test]
fn go_words_malformed_json() {
    for (text, error) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        (
            "{bad",
            "invalid character 'b' looking for beginning of object key string",
        ),
        ("[1 2]", "invalid character '2' after array element"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        (
            "{\"a\":1 \"b\"}",
            "invalid character '\"' after object key:value pair",
        ),
        ("{} x", "invalid character 'x' after top-level value"),
        ("tru", "invalid character ' ' in literal true (expecting 'e')"),
        ("[", "unexpected end of JSON input"),
        ("[1", "unexpected end of JSON input"),
        (
            "[1.",
            "invalid character ' ' after decimal point in numeric literal",
        ),
        ("1e+", "invalid character ' ' in exponent of numeric literal"),
        ("\"a", "unexpected end of JSON input"),
        ("\"\\", "invalid character ' ' in string escape code"),
        (
            "\"\\u12",
            "invalid character ' ' in \\u hexadecimal character escape",
        ),
        ("trx", "invalid character 'x' in literal true (expecting 'u')"),
        ("-", "invalid character ' ' in numeric literal"),
        (
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        ),
        ("\"\\q\"", "invalid character 'q' in string escape code"),
        ("'a'", r"invalid character '\'' looking for beginning of value"),
    ] {
        assert_eq!(json::parse(text.as_bytes()).unwrap_err(), error, "{text}");
    }
    assert_eq!(
        json::parse(br#"{"a":"\u00e9\ud83d\ude00\n"}"#)
            .unwrap()
            .into_value(),
        serde_json::json!({"a": "é😀\n"})
    );
}

#[test]
fn depth_is_bounded() {
    let deep = "[".repeat(100_000);
    assert_eq!(json::parse(deep.as_bytes()).unwrap_err(), "exceeded max depth");
}

#[test]
fn a_body_that_is_no_object_is_unrecognized() {
    let text = refusal("", "ConfigMap", "{\"kind\": ");
    assert!(
        text.starts_with("the object provided is unrecognized (must be of type ConfigMap): couldn't get"),
        "{text}"
    );
    assert!(refusal("", "ConfigMap", "").ends_with("unexpected end of JSON input (<empty>)"));
    assert!(refusal("", "ConfigMap", "[]").ends_with("(5b5d)"));
}

#[test]
fn go_words_type_mismatches() {
    let handled = |kind: &str, error: &str| {
        format!("{kind} in version \"v1\" cannot be handled as a {kind}: json: cannot unmarshal {error}")
    };
    for (group, kind, body, error) in [
        (
            "",
            "ConfigMap",
            r#"{"data":{"k":1}}"#,
            "number into Go struct field ConfigMap.data of type string",
        ),
        (
            "apps",
            "ReplicaSet",
            r#"{"spec":{"replicas":"2"}}"#,
            "string into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        ),
        (
            "apps",
            "ReplicaSet",
            r#"{"spec":{"replicas":1.5}}"#,
            "number 1.5 into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"containers":[{"name":"a","ports":{}}]}}"#,
            "object into Go struct field Container.spec.containers.ports of type []v1.ContainerPort",
        ),
        (
            "",
            "Pod",
            r#"{"spec":"x"}"#,
            "string into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            "",
            "Service",
            r#"{"spec":{"publishNotReadyAddresses":"yes"}}"#,
            "string into Go struct field ServiceSpec.spec.publishNotReadyAddresses of type bool",
        ),
        (
            "",
            "Service",
            r#"{"spec":{"ports":[{"targetPort":true}]}}"#,
            "bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"volumes":[{"name":"v","hostPath":3}]}}"#,
            "number into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
        ),
        // A port has a decoder of its own, whose error goes before those that were noted.
        (
            "",
            "Pod",
            r#"{"spec":{"hostname":1,"containers":[{"livenessProbe":{"httpGet":{"port":{}}}}]}}"#,
            "object into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
    ] {
        assert_eq!(refusal(group, kind, body), handled(kind, error), "{body}");
    }
}

#[test]
fn the_body_must_be_of_the_expected_kind() {
    assert_eq!(
        refusal("", "ConfigMap", r#"{"apiVersion":"v1","kind":"Secret"}"#),
        "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"
    );
    assert!(
        refusal("", "ConfigMap", r#"{"apiVersion":"v9","kind":"ConfigMap"}"#)
            .starts_with("ConfigMap in version \"v9\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v9\"")
    );
}

#[test]
fn unknown_and_duplicate_fields_in_document_order() {
    let body = r#"{"metadata":{"labelz":{}},"data":{"k":"1","k":"2"},"zz":1,"data":{}}"#;
    let strict = refusal("", "ConfigMap", body);
    assert!(
        strict.ends_with(
            r#"strict decoding error: unknown field "metadata.labelz", duplicate field "data.k", unknown field "zz", duplicate field "data""#
        ),
        "{strict}"
    );
    let warned = decode(&gvk("", "ConfigMap"), body.as_bytes(), FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings.len(), 4);
    assert_eq!(
        warned.object,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    );
    let nested = refusal(
        "",
        "Pod",
        r#"{"spec":{"containers":[{"name":"a"},{"imagee":"x"}]}}"#,
    );
    assert!(
        nested.ends_with(r#"unknown field "spec.containers[1].imagee""#),
        "{nested}"
    );
}

#[test]
fn the_result_is_what_go_would_encode() {
    let body = r#"{"metadata":{"name":"p","labels":{},"creationTimestamp":null},
        "spec":{"hostNetwork":false,"priority":0,"nodeName":"","containers":[{"name":"c","args":[],
          "resources":{"limits":{"cpu":1,"memory":"1024Mi"}},"stdin":null}],"volumes":[{"name":"v","emptyDir":{}}]},
        "status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00+00:00"}]}}"#;
    let object = decode(&gvk("", "Pod"), body.as_bytes(), FieldValidation::Strict)
        .unwrap()
        .object;
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"priority": 0, "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
                "volumes": [{"name": "v", "emptyDir": {}}]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    );
}

#[test]
fn decoding_is_idempotent() {
    let body = r#"{"spec":{"selector":{"a":"b"},"ports":[{"port":80}]}}"#;
    let once = decode(&gvk("", "Service"), body.as_bytes(), FieldValidation::Strict)
        .unwrap()
        .object;
    assert_eq!(once["status"], json!({"loadBalancer": {}}));
    let twice = check(&gvk("", "Service"), once.clone(), FieldValidation::Strict)
        .unwrap()
        .object;
    assert_eq!(once, twice);
}

#[test]
fn yaml_errors_are_worded_as_gos_and_a_second_document_is_not_read() {
    let error = |text: &str| {
        decode_yaml(&gvk("", "ConfigMap"), text.as_bytes(), FieldValidation::Warn)
            .unwrap_err()
            .message
    };
    assert!(error(r#"{"kind":"Con"#).contains(": yaml: found unexpected end of stream ("));
    assert!(error(r#"{"kind""ConfigMap"}"#).contains(": yaml: did not find expected ',' or '}' ("));
    let two = r#"{"metadata":{"name":"a"}}{"metadata":{"name":"b"}}"#;
    let first = decode_yaml(&gvk("", "ConfigMap"), two.as_bytes(), FieldValidation::Warn).unwrap();
    assert_eq!(first.object["metadata"]["name"], "a");
}

#[test]
fn null_is_an_object_with_nothing_in_it() {
    let decoded = decode(&gvk("", "ConfigMap"), b" null\n", FieldValidation::Strict).unwrap();
    assert_eq!(
        decoded.object,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    );
}

#[test]
fn what_a_strategic_merge_patch_made_is_read_as_a_map() {
    let error = |group: &str, kind: &str, object: Value| {
        check_map(&gvk(group, kind), object, FieldValidation::Warn).unwrap_err()
    };
    for (object, expected) in [
        (json!({"spec": "x"}), "cannot restore struct from: string"),
        (
            json!({"metadata": {"labels": ""}}),
            "cannot restore map from string",
        ),
        (
            json!({"spec": {"containers": 1}}),
            "cannot restore slice from int64",
        ),
        (json!({"spec": {"hostname": 1}}), "cannot convert int64 to string"),
        (json!({"spec": {"hostname": {}}}), "unrecognized type: string"),
        (json!({"spec": {"priority": "1"}}), "unrecognized type: int32"),
        (
            json!({"spec": {"priority": 1.5}}),
            "cannot convert float64 to int32",
        ),
        (json!({"spec": {"hostNetwork": 1}}), "unrecognized type: bool"),
        (
            json!({"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": true}}}]}}),
            "json: cannot unmarshal bool into Go value of type int32",
        ),
    ] {
        assert_eq!(error("", "Pod", object.clone()), expected, "{object}");
    }
    assert_eq!(
        error("", "ConfigMap", json!({"binaryData": {"a": "YQ==x"}})),
        "error decoding from json: illegal base64 data at input byte 4"
    );
}

#[test]
fn yaml_is_decoded_as_json_is() {
    let yaml = b"kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  k: v\n  n: \"1\"\n";
    let object = decode_yaml(&gvk("", "ConfigMap"), yaml, FieldValidation::Strict)
        .unwrap()
        .object;
    assert_eq!(object["data"], json!({"k": "v", "n": "1"}));
}

mod random {
    use super::*;
    use crate::gofmt::go_print;
    use crate::patch::{json_patch, merge_patch, strategic_merge_patch};
    use crate::protobuf;
    use crate::schema::{self, Shape, Type};
    use crate::{defaults, strategy, table, validate};
    use proptest::prelude::*;

    /// A document that fits a definition, of random members, by a generator that `seed` determines.
    fn fitting(definition: &'static schema::Definition, seed: &mut u64, depth: usize) -> Value {
        let mut members = serde_json::Map::new();
        for field in &definition.fields {
            if !matches!(field.name, "apiVersion" | "kind") && next(seed).is_multiple_of(4) {
                members.insert(field.name.to_owned(), value(&field.ty, seed, depth));
            }
        }
        Value::Object(members)
    }

    fn value(ty: &Type, seed: &mut u64, depth: usize) -> Value {
        let pick = next(seed);
        if pick.is_multiple_of(20) {
            return Value::Null;
        }
        let text = |list: &[&str]| json!(list[pick as usize / 20 % list.len()]);
        match ty {
            Type::String => text(&[
                "",
                "a",
                "Bad Name",
                "None",
                "Always",
                "RollingUpdate",
                "Exists",
                "é\n",
                "10.0.0.1",
                "delete",
            ]),
            Type::Bytes => text(&["", "aGk=", "YQ=="]),
            Type::Int32 | Type::Int64 => json!(i64::from(pick as i16)),
            Type::Number => json!(1.5),
            Type::Boolean => json!(pick.is_multiple_of(2)),
            Type::Any => json!({"any": [1, "x", null]}),
            Type::List(item) => (0..next(seed) % 3).map(|_| value(item, seed, depth)).collect(),
            Type::Map(item) => {
                let keys = ["a", "cpu", "example.com/b", "Bad Key"];
                let members = keys
                    .iter()
                    .filter(|_| next(seed).is_multiple_of(2))
                    .collect::<Vec<_>>();
                Value::Object(
                    members
                        .into_iter()
                        .map(|key| ((*key).to_owned(), value(item, seed, depth)))
                        .collect(),
                )
            }
            Type::Ref(_) => match ty.definition() {
                Some(definition) => match definition.shape {
                    Shape::Object if depth == 0 => json!({}),
                    Shape::Object => fitting(definition, seed, depth - 1),
                    Shape::Quantity => text(&["1", "0.5", "100m", "2Gi", "-1", "1e3"]),
                    Shape::IntOrString => {
                        if pick.is_multiple_of(2) {
                            json!(80)
                        } else {
                            json!("10%")
                        }
                    }
                    Shape::Time | Shape::MicroTime => json!("2026-01-01T00:00:00.5+01:00"),
                    // A schema, or something else in its place.
                    Shape::Any if definition.short_name().starts_with("JSONSchemaPropsOr") => {
                        json!({"type": "string"})
                    }
                    Shape::Any => json!({"any": 1}),
                },
                None => Value::Null,
            },
        }
    }

    fn next(seed: &mut u64) -> u64 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    /// Messages do not tell nothing from an empty list, nor null from either.
    fn without_empty(value: &Value) -> Value {
        let kept = |value: &Value| Some(without_empty(value)).filter(|value| !is_nothing(value));
        match value {
            Value::Object(members) => {
                let members = members
                    .iter()
                    .filter_map(|(name, inner)| Some((name.clone(), kept(inner)?)));
                Value::Object(members.collect())
            }
            Value::Array(items) => items.iter().map(without_empty).collect(),
            other => other.clone(),
        }
    }

    fn is_nothing(value: &Value) -> bool {
        let empty = value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        value.is_null() || empty
    }

    /// A patch that deletes, replaces and orders somewhere.
    fn with_directives(mut patch: Value, seed: &mut u64) -> Value {
        match &mut patch {
            Value::Object(members) => {
                for inner in members.values_mut() {
                    *inner = with_directives(inner.take(), seed);
                }
                let directives = [
                    ("$patch", json!("delete")),
                    ("$patch", json!("replace")),
                    ("$setElementOrder/containers", json!([{"name": "a"}])),
                    ("$retainKeys", json!(["type"])),
                    ("$deleteFromPrimitiveList/finalizers", json!(["a"])),
                ];
                if let Some((name, directive)) = directives.get(next(seed) as usize % 24) {
                    members.insert((*name).to_owned(), directive.clone());
                }
            }
            Value::Array(items) => {
                for inner in items {
                    *inner = with_directives(inner.take(), seed);
                }
            }
            _ => {}
        }
        patch
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn no_document_and_no_patch_brings_the_rules_down(seed in any::<u64>(), number in 0_usize..1000) {
            let seed = &mut seed.clone();
            let kinds: Vec<_> = schema::names()
                .into_iter()
                .filter_map(schema::definition)
                .filter(|definition| definition.gvks.len() == 1 && definition.field("metadata").is_some())
                .collect();
            let definition = kinds[number % kinds.len()];
            let gvk = &definition.gvks[0];
            let now = jiff::Timestamp::UNIX_EPOCH;
            let mut stored = Vec::new();
            for _ in 0..2 {
                let document = fitting(definition, seed, 6);
                let decoded = decode(gvk, document.to_string().as_bytes(), FieldValidation::Strict);
                prop_assert!(decoded.is_ok(), "{gvk:?} {document} {decoded:?}");
                let mut object = decoded.unwrap().object;
                let again = check(gvk, object.clone(), FieldValidation::Strict).unwrap().object;
                prop_assert_eq!(&again, &object);
                let message = protobuf::encode(&object).unwrap();
                let sent = decode_protobuf(gvk, &message).unwrap().object;
                prop_assert_eq!(without_empty(&sent), without_empty(&object));
                prop_assert_eq!(protobuf::encode(&sent).unwrap(), message);
                defaults::apply(gvk, &mut object);
                let once = object.clone();
                defaults::apply(gvk, &mut object);
                prop_assert_eq!(&once, &object);
                strategy::prepare_create(gvk, &mut object);
                validate::create(gvk, &object);
                prop_assert_eq!(table::row(gvk, &object, now).cells.len(), table::columns(gvk).len());
                stored.push(object);
            }
            let mut main = stored[1].clone();
            strategy::prepare_update(gvk, &stored[0], &mut main);
            validate::update(gvk, &stored[0], &main);
            let mut status = stored[1].clone();
            strategy::prepare_status_update(gvk, &stored[0], &mut status);
            prop_assert_eq!(stored[0].get("spec"), status.get("spec"));
            validate::status_update(gvk, &stored[0], &status);
            let patch = with_directives(fitting(definition, seed, 6), seed).to_string();
            for patched in [
                strategic_merge_patch(gvk, &stored[0], patch.as_bytes()),
                merge_patch(&stored[0], patch.as_bytes()),
                json_patch(&stored[0], patch.as_bytes()),
            ].into_iter().flatten() {
                prop_assert!(go_print(&patched).starts_with("map["));
                if let Ok(decoded) = check(gvk, patched, FieldValidation::Ignore) {
                    let mut object = decoded.object;
                    defaults::apply(gvk, &mut object);
                }
            }
        }

        #[test]
        fn no_bytes_bring_the_parser_down(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let parsed = json::parse(&bytes);
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let oracle = serde_json::from_str::<Value>(text);
                // The oracle refuses numbers and surrogates that Go accepts, never the other way round.
                prop_assert!(oracle.is_err() || parsed.is_ok(), "{text:?} {parsed:?}");
            }
        }
    }
}

#[test]
fn a_body_may_leave_out_its_version() {
    let expected = Gvk::of("autoscaling/v2", "HorizontalPodAutoscaler");
    for (version, wanted) in [
        ("autoscaling/", ""),
        ("/", ""),
        (
            "autoscaling/v1",
            "the API version in the data (autoscaling/v1) does not match the expected",
        ),
        (
            "a/b/c",
            "the object provided is unrecognized (must be of type HorizontalPodAutoscaler): unexpected GroupVersion string: a/b/c",
        ),
        (
            "/v2",
            "HorizontalPodAutoscaler in version \"v2\" cannot be handled as a HorizontalPodAutoscaler: no kind",
        ),
    ] {
        let body = format!(r#"{{"apiVersion":"{version}"}}"#);
        let decoded = decode(&expected, body.as_bytes(), FieldValidation::Strict);
        let accepted = decoded.and_then(|decoded| version_is(&expected, &decoded.object));
        let error = accepted.err().map(|error| error.message).unwrap_or_default();
        assert!(
            error.starts_with(wanted) && error.is_empty() == wanted.is_empty(),
            "{version}: {error}"
        );
    }
}

#[test]
fn options_of_a_deletion_have_types() {
    let refused = |body: &str| decode_delete_options(body.as_bytes(), false).map_err(|error| error.message);
    for (body, wanted) in [
        (
            r#"{"dryRun":"All"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string",
        ),
        (
            "{\"gracePeriodSeconds\":1.5}",
            "json: cannot unmarshal number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (
            "tru",
            "couldn't get version/kind; json parse error: invalid character ' ' in literal true (expecting 'e')",
        ),
        (
            r#"{"apiVersion":"/","kind":"Other"}"#,
            "no kind \"Other\" is registered for version \"meta.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            r#"{"apiVersion":"apps/"}"#,
            "Object 'apiVersion' is missing in '{\"apiVersion\":\"apps/\"}'",
        ),
        (
            r#"{"apiVersion":"a/b/c"}"#,
            "unexpected GroupVersion string: a/b/c",
        ),
    ] {
        assert_eq!(refused(body), Err(wanted.to_owned()), "{body}");
    }
    let options = refused(r#"{"apiVersion":"apps/v1","gracePeriodSeconds":5,"unknown":1}"#);
    assert_eq!(
        options,
        Ok(json!({"apiVersion": "apps/v1", "gracePeriodSeconds": 5}))
    );
}

#[test]
fn an_empty_list_of_managers_resets_them() {
    let config = |managers: &str| format!(r#"{{"metadata":{{"managedFields":{managers}}}}}"#);
    for (managers, wanted) in [("[]", json!([{}])), ("[{}]", json!([{}])), ("null", json!(null))] {
        let decoded = decode(
            &gvk("", "ConfigMap"),
            config(managers).as_bytes(),
            FieldValidation::Strict,
        );
        assert_eq!(
            decoded.unwrap().object["metadata"]["managedFields"],
            wanted,
            "{managers}"
        );
    }
}

#[test]
fn evictions_come_in_two_versions() {
    let expected = Gvk::of("policy/v1", "Eviction");
    for (version, accepted) in [
        ("policy/v1", true),
        ("policy/v1beta1", true),
        ("policy/v1alpha1", false),
    ] {
        let body = format!(r#"{{"apiVersion":"{version}","kind":"Eviction","metadata":{{"name":"p"}}}}"#);
        let decoded = decode(&expected, body.as_bytes(), FieldValidation::Strict);
        let read = decoded.and_then(|decoded| version_is(&expected, &decoded.object));
        assert_eq!(read.is_ok(), accepted, "{version}");
    }
}
