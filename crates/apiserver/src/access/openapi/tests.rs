use super::*;
use crate::kinds::Registry;
use rstest::rstest;

fn get(path: &str, accept: &str) -> Document {
    OpenApi::default()
        .answer(path, accept, "v1.36.2", &Registry::new().snapshot())
        .unwrap_or_else(|| panic!("{path} is not served"))
}

fn json_of(document: &Document) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

#[test]
fn the_index_names_each_group_and_version() {
    let index = json_of(&get("/openapi/v3", ""));
    for path in ["api/v1", "apis/apps/v1", "apis/coordination.k8s.io/v1"] {
        let url = index["paths"][path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
    }
}

#[test]
fn kubectl_finds_what_it_reads_of_a_patch() {
    let document = json_of(&get("/openapi/v3/api/v1", ""));
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(patch["x-kubernetes-action"], "patch");
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
}

/// Every reference of every document, and whether it has an end.
#[rstest]
#[case("/openapi/v3/api/v1", "#/components/schemas/", "/components/schemas")]
#[case("/openapi/v3/apis/apps/v1", "#/components/schemas/", "/components/schemas")]
#[case("/openapi/v3/apis/policy/v1", "#/components/schemas/", "/components/schemas")]
#[case("/openapi/v2", "#/definitions/", "/definitions")]
fn references_lead_somewhere(#[case] path: &str, #[case] prefix: &str, #[case] schemas: &str) {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = json_of(&get(path, ""));
    let schemas = document.pointer(schemas).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let name = reference
            .strip_prefix(prefix)
            .unwrap_or_else(|| panic!("{reference} in {path}"));
        assert!(schemas[name].is_object(), "{reference} in {path}");
    }
}

#[test]
fn v3_has_nothing_beside_a_reference() {
    let document = json_of(&get("/openapi/v3/apis/apps/v1", ""));
    let spec = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"];
    assert_eq!(
        spec["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"
    );
    assert!(
        spec["$ref"].is_null() && spec["description"].is_string(),
        "{spec}"
    );
}

#[test]
fn v2_comes_in_json_or_protobuf() {
    assert_eq!(json_of(&get("/openapi/v2", "application/json"))["swagger"], "2.0");
    let protobuf = get(
        "/openapi/v2",
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    );
    assert!(protobuf.content_type.ends_with("protobuf"));
    assert_eq!(&protobuf.body[..5], b"\x0a\x032.0");
}

#[test]
fn what_is_not_served_has_no_document() {
    let openapi = OpenApi::default();
    let kinds = Registry::new().snapshot();
    for path in [
        "/openapi/v3/apis/nope/v1",
        "/openapi/v3/nope",
        "/openapi/v4",
        "/apis",
    ] {
        assert_eq!(openapi.answer(path, "", "v1.36.2", &kinds), None, "{path}");
    }
}

#[test]
fn a_definition_brings_its_schema_and_another_hash() {
    let definition = |field: &str| {
        json!({
            "metadata": {"name": "widgets.x.io"},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}},
                }}}]},
        })
    };
    let (openapi, registry) = (OpenApi::default(), Registry::new());
    let hash = || index(&registry.snapshot())["paths"]["apis/x.io/v1"]["serverRelativeURL"].clone();
    let widget = || {
        let document = openapi
            .answer("/openapi/v3/apis/x.io/v1", "", "v1.36.2", &registry.snapshot())
            .unwrap();
        json_of(&document)["components"]["schemas"]["io.x.v1.Widget"].clone()
    };
    registry.define(&definition("size"));
    let before = hash();
    assert_eq!(
        widget()["properties"]["spec"]["properties"]["size"]["type"],
        "integer"
    );
    assert_eq!(
        widget()["x-kubernetes-group-version-kind"],
        json!([{"group": "x.io", "version": "v1", "kind": "Widget"}])
    );
    registry.define(&definition("weight"));
    assert_ne!(hash(), before);
    assert!(widget()["properties"]["spec"]["properties"]["weight"].is_object());
}
