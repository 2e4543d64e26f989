//! Tables of cases for custom resources and their definitions.

use super::*;
use rstest::rstest;

fn definition() -> Value {
    json!({
        "metadata": {"name": "gears.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1, "maximum": 10},
                        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "x-kubernetes-list-type": "set"},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "nested": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}},
                        "opt": {"type": "string", "nullable": true},
                        "port": {"x-kubernetes-int-or-string": true},
                        "when": {"type": "string", "format": "date-time"},
                    }},
                    "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
                }}},
            }],
        },
    })
}

fn kind() -> CustomKind {
    CustomKind::compile(&definition(), "v1").unwrap()
}

fn gear(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "a"}, "spec": spec})
}

fn decode(text: &str, mode: FieldValidation) -> ApiResult<Decoded> {
    kind().decode(text.as_bytes(), mode)
}

#[test]
fn what_the_schema_does_not_specify_is_pruned_and_named() {
    let body = gear(
        json!({"size": 1, "unknown": 1, "free": {"any": 1}, "labels": {"a": "b"}, "nested": {"off": 1}}),
    );
    let decoded = decode(&body.to_string(), FieldValidation::Warn).unwrap();
    assert_eq!(
        decoded.object["spec"],
        json!({"size": 1, "free": {"any": 1}, "labels": {"a": "b"}, "nested": {}})
    );
    let mut warnings = decoded.warnings;
    warnings.sort();
    assert_eq!(
        warnings,
        [
            r#"unknown field "spec.nested.off""#,
            r#"unknown field "spec.unknown""#
        ]
    );
}

#[test]
fn strict_refuses_unknown_and_duplicate_fields_also_in_metadata() {
    let cases = [
        (
            r#""metadata":{"name":"a"},"spec":{"size":1,"size":2}"#,
            r#"duplicate field "spec.size""#,
        ),
        (
            r#""metadata":{"name":"a","x":1},"spec":{"size":1}"#,
            r#"unknown field "metadata.x""#,
        ),
        (
            r#""metadata":{"name":"a"},"spec":{"size":1},"top":1"#,
            r#"unknown field "top""#,
        ),
    ];
    for (members, wanted) in cases {
        let body = format!(r#"{{"apiVersion":"example.com/v1","kind":"Gear",{members}}}"#);
        let error = decode(&body, FieldValidation::Strict).unwrap_err();
        let text =
            format!("Gear in version \"v1\" cannot be handled as a Gear: strict decoding error: {wanted}");
        assert_eq!((error.code, error.message), (400, text));
        assert!(
            decode(&body, FieldValidation::Ignore)
                .unwrap()
                .warnings
                .is_empty()
        );
    }
}

#[test]
fn a_body_says_its_kind_and_version() {
    use FieldValidation::{Ignore, Warn};
    let no_type =
        |error: &str| format!("the object provided is unrecognized (must be of type Gear): {error}");
    let unread = |named: &str, error: &str| format!("{named} cannot be handled as a Gear: {error}");
    let missing = |body: &str| format!("Object 'Kind' is missing in '{body}'");
    let other = |found: &str| {
        format!(
            "the API version in the data ({found}) does not match the expected API version (example.com/v1)"
        )
    };
    let known = "Gear in version \"v1\"";
    let null = ".apiVersion accessor error: <nil> is of the type <nil>, expected string";
    for (mode, body, wanted) in [
        (Warn, "{}", no_type(&(missing("{}") + " ({})"))),
        (Warn, "null", no_type(&(missing("null") + " (6e756c6c)"))),
        (Warn, "", no_type(&(missing("") + " (<empty>)"))),
        // A lenient reader has only what was read.
        (Ignore, "# c", unread(known, &missing("null"))),
        (Ignore, "spec: {}", unread(known, &missing(r#"{"spec":{}}"#))),
        (Warn, "kind: Gear", other("")),
        (
            Warn,
            "{kind: Gear, apiVersion: example.com/v2}",
            other("example.com/v2"),
        ),
        (
            Warn,
            "{kind: X, apiVersion: null}",
            unread("X in version \"\"", null),
        ),
        (
            Warn,
            "apiVersion: a/b/c",
            no_type("unexpected GroupVersion string: a/b/c (61706956657273696f6e3a20612f622f63)"),
        ),
    ] {
        let decoded = kind().decode_yaml(body.as_bytes(), mode);
        let accepted = decoded.and_then(|decoded| strict::version_is(&kind().gvk, &decoded.object));
        let error = accepted.unwrap_err();
        assert_eq!((error.code, error.message), (400, wanted), "{body}");
    }
}

#[test]
fn defaults_fill_what_is_missing_and_replace_nulls_that_are_not_allowed() {
    let cases = [
        (json!({"size": 1}), json!({"size": 1, "color": "red"})),
        (
            json!({"size": 1, "color": null, "opt": null}),
            json!({"size": 1, "color": "red", "opt": null}),
        ),
        (
            json!({"size": 1, "nested": {}}),
            json!({"size": 1, "color": "red", "nested": {"on": true}}),
        ),
        (
            json!({"size": 1, "color": "blue"}),
            json!({"size": 1, "color": "blue"}),
        ),
    ];
    for (spec, wanted) in cases {
        let mut object = gear(spec);
        kind().apply_defaults(&mut object);
        assert_eq!(object["spec"], wanted);
    }
}

#[test]
fn values_are_validated_with_upstreams_texts() {
    let cases = [
        (json!({}), "spec.size", "FieldValueRequired", "Required value"),
        (
            json!({"size": 99}),
            "spec.size",
            "FieldValueInvalid",
            "Invalid value: 99: spec.size in body should be less than or equal to 10",
        ),
        (
            json!({"size": 0}),
            "spec.size",
            "FieldValueInvalid",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": "x"}),
            "spec.size",
            "FieldValueTypeInvalid",
            "Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1, "color": "green"}),
            "spec.color",
            "FieldValueNotSupported",
            "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (
            json!({"size": 1, "name": "TOO-LONG"}),
            "spec.name",
            "FieldValueTooLong",
            "Too long: may not be more than 5 bytes",
        ),
        (
            json!({"size": 1, "name": "A"}),
            "spec.name",
            "FieldValueInvalid",
            "Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
        ),
        (
            json!({"size": 1, "tags": ["a", "b", "c"]}),
            "spec.tags",
            "FieldValueTooMany",
            "Too many: 3: must have at most 2 items",
        ),
        (
            json!({"size": 1, "tags": ["a", "a"]}),
            "spec.tags[1]",
            "FieldValueDuplicate",
            "Duplicate value: \"a\"",
        ),
        (
            json!({"size": 1, "port": true}),
            "spec.port",
            "FieldValueTypeInvalid",
            "Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"size": 1, "when": 5}),
            "spec.when",
            "FieldValueTypeInvalid",
            "Invalid value: \"int64\": spec.when in body must be of type date-time: \"int64\"",
        ),
        (
            json!({"size": 1, "tags": ["<", "<"]}),
            "spec.tags[1]",
            "FieldValueDuplicate",
            "Duplicate value: \"\\u003c\"",
        ),
        (
            json!({"size": 1, "when": "yesterday"}),
            "spec.when",
            "FieldValueTypeInvalid",
            "Invalid value: \"yesterday\": spec.when in body must be of type date-time: \"yesterday\"",
        ),
        (
            json!({"size": 1, "color": null}),
            "spec.color",
            "FieldValueTypeInvalid",
            "Invalid value: \"null\": spec.color in body must be of type string: \"null\"",
        ),
    ];
    for (spec, field, reason, message) in cases {
        let errors = kind().validate_create(&gear(spec.clone()));
        let wanted = FieldError {
            reason,
            field: field.to_owned(),
            message: message.to_owned(),
        };
        assert_eq!(errors, [wanted], "{spec}");
    }
    let fine =
        json!({"size": 1, "port": "50%", "opt": null, "when": "2026-01-01T00:00:00Z", "tags": ["a", "b"]});
    assert_eq!(kind().validate_create(&gear(fine)), []);
}

#[test]
fn another_kind_and_a_bad_name_are_refused() {
    let mut wrong = gear(json!({"size": 1}));
    wrong["kind"] = json!("Wrong");
    assert_eq!(
        kind().validate_create(&wrong)[0].message,
        "Invalid value: \"Wrong\": must be Gear"
    );
    let mut named = gear(json!({"size": 1}));
    named["metadata"]["name"] = json!("Not_A_Name");
    assert_eq!(kind().validate_create(&named)[0].field, "metadata.name");
}

#[test]
fn generations_count_changes_of_the_spec_and_status_has_its_own_door() {
    let mut old = gear(json!({"size": 1}));
    old["status"] = json!({"ready": true});
    old["metadata"]["generation"] = json!(4);

    let mut same = old.clone();
    same["metadata"]["labels"] = json!({"a": "b"});
    same["status"] = json!({"ready": false});
    kind().prepare_update(&old, &mut same);
    assert_eq!(
        (&same["metadata"]["generation"], &same["status"]),
        (&json!(4), &json!({"ready": true}))
    );

    let mut changed = old.clone();
    changed["spec"]["size"] = json!(2);
    kind().prepare_update(&old, &mut changed);
    assert_eq!(changed["metadata"]["generation"], 5);

    let mut status = old.clone();
    status["spec"]["size"] = json!(9);
    status["status"] = json!({"ready": false});
    kind().prepare_status_update(&old, &mut status);
    assert_eq!(
        (&status["spec"]["size"], &status["status"]["ready"]),
        (&json!(1), &json!(false))
    );

    let mut new = old.clone();
    kind().prepare_create(&mut new);
    assert_eq!(
        (new.get("status"), &new["metadata"]["generation"]),
        (None, &json!(1))
    );
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut definition = definition();
    *definition.pointer_mut(pointer).unwrap() = value;
    definition
}

#[test]
fn definitions_that_cannot_work_are_refused() {
    assert_eq!(validate_definition(&definition()), []);
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let cases = [
        (changed("/metadata/name", json!("x.example.com")), "metadata.name"),
        (changed("/spec/scope", json!("Nope")), "spec.scope"),
        (changed("/spec/group", json!("nodot")), "metadata.name"),
        (changed("/spec/names/plural", json!("Gears")), "metadata.name"),
        (
            changed("/spec/names/listKind", json!("Gear")),
            "spec.names.listKind",
        ),
        (
            changed(schema, json!({"type": "object", "properties": {"x": {}}})),
            "spec.validation.openAPIV3Schema.properties[x].type",
        ),
        (
            changed(schema, json!({"type": "string"})),
            "spec.validation.openAPIV3Schema.type",
        ),
        (
            changed(
                schema,
                json!({"type": "object", "properties": {"x": {"type": "array"}}}),
            ),
            "spec.validation.openAPIV3Schema.properties[x].items",
        ),
        (
            changed(
                schema,
                json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}}),
            ),
            "spec.validation.openAPIV3Schema",
        ),
        (
            changed(
                schema,
                json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.foo("}]}),
            ),
            "spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule",
        ),
        (changed("/spec/versions/0/storage", json!(false)), "spec.versions"),
    ];
    for (definition, field) in cases {
        let errors = validate_definition(&definition);
        assert_eq!(
            errors.first().map(|error| error.field.as_str()),
            Some(field),
            "{errors:?}"
        );
    }
}

#[test]
fn scope_and_group_of_a_definition_never_change() {
    let errors = validate_definition_update(&definition(), &changed("/spec/scope", json!("Cluster")));
    assert_eq!(
        errors[0].message,
        "Invalid value: \"Cluster\": field is immutable"
    );
}

#[test]
fn a_definition_is_established_unless_its_names_are_taken() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut first = definition();
    establish(&mut first, &[], now);
    assert_eq!(first["status"]["acceptedNames"]["plural"], "gears");
    assert_eq!(first["status"]["conditions"][1]["status"], "True");
    assert_eq!(first["status"]["storedVersions"], json!(["v1"]));

    let mut second = changed("/spec/names/plural", json!("cogs"));
    establish(&mut second, &[&first], now);
    assert_eq!(second["status"]["conditions"][0]["reason"], "SingularConflict");
    assert_eq!(second["status"]["conditions"][1]["status"], "False");

    let later: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    let before = first.clone();
    establish(&mut first, &[], later);
    assert_eq!(first, before, "nothing changed, so no time does");
}

/// A kind with rules: about the whole, with a path to a member, about a transition, with a text that is
/// computed.
fn ruled() -> CustomKind {
    let rules = json!([
        {"rule": "self.min <= self.max", "fieldPath": ".min", "reason": "FieldValueForbidden"},
        {"rule": "self.max < 100", "messageExpression": "'max is ' + string(self.max)"},
    ]);
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "required": ["min", "max"],
        "x-kubernetes-validations": rules,
        "properties": {
            "min": {"type": "integer"},
            "max": {"type": "integer"},
            "fixed": {"type": "string", "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "fixed is immutable"}]},
        },
    }}});
    let crd = json!({"spec": {"group": "example.com", "names": {"kind": "Rule", "plural": "rules"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    CustomKind::compile(&crd, "v1").unwrap()
}

/// A list of lists, each of which has a rule with one loop; the whole has one with three.
fn costly(rule: &str) -> CustomKind {
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {"rows": {
            "type": "array",
            "x-kubernetes-validations": [{"rule": rule}],
            "items": {
                "type": "array", "items": {"type": "integer"},
                "x-kubernetes-validations": [{"rule": "self.all(a, a >= 0 && a < 10 && a != 7)"}],
            },
        }},
    }}});
    let crd = json!({"spec": {"group": "example.com", "names": {"kind": "Cost", "plural": "costs"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    CustomKind::compile(&crd, "v1").unwrap()
}

const CUBE: &str = "self.all(a, self.all(b, self.all(c, true)))";

#[rstest]
#[case::cheap("true", 100, "")]
#[case::one_that_is_too_dear(
    CUBE,
    200,
    "'operation cancelled: actual cost limit exceeded': no further validation rules will be \
    run due to call cost exceeds limit for rule: self.all(a, self.all(b, self.all(c, true)))"
)]
#[case::the_same_on_less(CUBE, 20, "")]
#[case::all_together(
    "true",
    1_100,
    "validation failed due to running out of cost budget, no further validation rules will \
    be run"
)]
fn rules_that_cost_too_much_are_not_evaluated(#[case] rule: &str, #[case] size: usize, #[case] wrong: &str) {
    let rows = vec![vec![1; size]; size];
    let object = json!({"apiVersion": "example.com/v1", "kind": "Cost", "metadata": {"name": "a"}, "spec": {"rows": rows}});
    let errors = costly(rule).validate_create(&object);
    let shown: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
    let expected = format!("Invalid value: \"object\": {wrong}");
    assert_eq!(shown, if wrong.is_empty() { vec![] } else { vec![expected] });
}

#[rstest]
#[case::holds(json!({"min": 1, "max": 2, "fixed": "x"}), &[])]
#[case::path(json!({"min": 3, "max": 2}), &["spec.min: Forbidden: failed rule: self.min <= self.max"])]
#[case::text(json!({"min": 3, "max": 200}), &["spec: Invalid value: max is 200"])]
#[case::transition(json!({"min": 1, "max": 2, "fixed": "y"}),
    &["spec.fixed: Invalid value: \"y\": fixed is immutable"])]
#[case::blocked(json!({"min": 1}), &["spec.max: Required value",
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the \
     existing errors to complete validation"])]
fn custom_resources_satisfy_the_rules_of_their_schema(#[case] spec: Value, #[case] wrong: &[&str]) {
    let kind = ruled();
    let object = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Rule", "metadata": {"name": "a"}, "spec": spec});
    let old = object(json!({"min": 1, "max": 2, "fixed": "x"}));
    let shown = |errors: Vec<FieldError>| -> Vec<String> {
        errors
            .iter()
            .map(|error| format!("{}: {}", error.field, error.message))
            .collect()
    };
    assert_eq!(shown(kind.validate_update(&old, &object(spec.clone()))), wrong);
    let on_create = shown(kind.validate_create(&object(spec)));
    assert_eq!(
        on_create.len(),
        wrong.iter().filter(|text| !text.contains("immutable")).count(),
        "{on_create:?}"
    );
}

/// Items by keys, of which one has a default; what was stored twice before stays allowed.
#[rstest]
#[case::twice(json!([{"port": 1}, {"port": 1}]), &["[1] Duplicate value: {\"port\":1,\"protocol\":\"TCP\"}"])]
#[case::three_times(json!([{"port": 1}, {"port": 1}, {"port": 1}]), &["[1] Duplicate value: {\"port\":1,\"protocol\":\"TCP\"}"])]
#[case::a_key_of_one_is_missing(
    json!([{"port": 1}, {}, {"port": 1}]),
    &["[1].port Required value", "[2] Duplicate value: {\"port\":1,\"protocol\":\"TCP\"}"],
)]
#[case::null_and_missing_differ(
    json!([{"port": null}, {}]),
    &[
        "[0].port Invalid value: \"null\": spec.ports[0].port in body must be of type integer: \"null\"",
        "[1].port Required value",
    ],
)]
#[case::null_is_an_item_without_keys(
    json!([null, {"port": 1}]),
    &["[0] Invalid value: \"null\": spec.ports[0] in body must be of type object: \"null\""],
)]
#[case::the_first_that_is_no_object(
    json!(["a", 1, {"port": 1}, {"port": 1}]),
    &[
        "[0] Invalid value: \"string\": spec.ports[0] in body must be of type object: \"string\"",
        "[1] Invalid value: \"integer\": spec.ports[1] in body must be of type object: \"integer\"",
        "[0] Invalid value: \"a\": must be an object for an array of list-type map",
    ],
)]
fn lists_of_type_map_hold_each_key_once(#[case] ports: Value, #[case] wanted: &[&str]) {
    let mut definition = definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ports"] = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {"type": "object", "required": ["port"], "properties": {
            "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}
        }},
    });
    let kind = CustomKind::compile(&definition, "v1").unwrap();
    let body = gear(json!({"size": 1, "ports": ports})).to_string();
    let mut object = kind
        .decode(body.as_bytes(), FieldValidation::Ignore)
        .unwrap()
        .object;
    kind.apply_defaults(&mut object);
    let found = |errors: Vec<FieldError>| -> Vec<String> {
        let text =
            |error: &FieldError| format!("{} {}", error.field.replace("spec.ports", ""), error.message);
        errors.iter().map(text).collect()
    };
    assert_eq!(found(kind.validate_create(&object)), wanted);

    let no_list = |text: &&&str| !text.contains("Duplicate") && !text.contains("list-type");
    let stored: Vec<&str> = wanted.iter().filter(no_list).copied().collect();
    assert_eq!(found(kind.validate_update(&object, &object)), stored);
}

#[test]
fn a_status_is_told_of_by_itself() {
    let old = gear(json!({"size": 1}));
    // What is wrong beside the status was so before.
    let mut new = gear(json!({"size": "x"}));
    for (status, wanted) in [
        (
            json!(3),
            "status Invalid value: \"integer\":  in body must be of type object: \"integer\"",
        ),
        (
            json!({"ready": "x"}),
            "status.ready Invalid value: \"string\": ready in body must be of type boolean: \"string\"",
        ),
    ] {
        new["status"] = status;
        let errors = kind().validate_status_update(&old, &new);
        let texts: Vec<String> = errors
            .iter()
            .map(|error| format!("{} {}", error.field, error.message))
            .collect();
        assert_eq!(texts, [wanted]);
    }
}
