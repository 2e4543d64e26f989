//! Custom resources.

use super::{code, server};
use evenkeel_testkit::cluster::Objects as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

fn definition() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}},
                    "status": {"type": "object", "properties": {"seen": {"type": "boolean"}}},
                }}},
            }],
        },
    }))
    .expect("a definition")
}

fn widget(spec: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec,
        "status": {"seen": true},
    }))
    .expect("a widget")
}

#[tokio::test]
async fn a_definition_is_served_until_it_is_gone() {
    let client = server().client();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets = Api::<DynamicObject>::default_namespaced_with(client.clone(), &kind);
    assert_eq!(code(widgets.list(&ListParams::default()).await), 404);
    definitions.add(&definition()).await;
    await_condition(definitions.clone(), "widgets.example.com", is_crd_established())
        .await
        .expect("it is established");
    let created = widgets.add(&widget(json!({"unknown": 1}))).await;
    assert_eq!(created.data["spec"], json!({"size": 3}), "pruned and defaulted");
    assert!(created.data["status"].is_null(), "it has a subresource");
    let by = |fields: &str| ListParams::default().fields(fields);
    let named = widgets.list(&by("metadata.name=w")).await;
    assert_eq!(named.expect("a list").items.len(), 1);
    assert_eq!(
        code(widgets.list(&by("spec.size=3")).await),
        400,
        "it is not selectable"
    );
    let unseen = PostParams::default();
    assert_eq!(
        code(widgets.replace("w", &unseen, &widget(json!({}))).await),
        422,
        "without a version"
    );
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({"spec": {"size": 4}, "status": {"seen": true}}));
    let changed = widgets.patch("w", &params, &patch).await.expect("a patch");
    assert_eq!(
        (&changed.data["spec"]["size"], changed.metadata.generation),
        (&json!(4), Some(2))
    );
    assert!(changed.data["status"].is_null());
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"size": 5}, "status": {"seen": true}});
    let changed = widgets
        .patch_status("w", &params, &Patch::Merge(patch))
        .await
        .expect("a status");
    assert_eq!(changed.data["status"]["seen"], true);
    assert_eq!(
        (&changed.data["spec"]["size"], changed.metadata.labels),
        (&json!(4), None)
    );
    definitions.remove("widgets.example.com").await;
    assert_eq!(code(widgets.list(&ListParams::default()).await), 404);
}

#[tokio::test]
async fn an_object_is_validated_in_the_version_that_it_came_in() {
    let client = server().client();
    let mut definition = serde_json::to_value(definition()).expect("a definition");
    let mut newer = definition["spec"]["versions"][0].clone();
    newer["name"] = json!("v2");
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["versions"] = json!([definition["spec"]["versions"][0], newer]);
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions
        .add(&serde_json::from_value(definition).expect("a definition"))
        .await;
    await_condition(definitions, "widgets.example.com", is_crd_established())
        .await
        .expect("it is established");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets = Api::<DynamicObject>::default_namespaced_with(client, &kind);
    let created = widgets.add(&widget(json!({}))).await;
    assert_eq!(
        created.types.map(|types| types.api_version),
        Some("example.com/v1".to_owned())
    );
    let patch = Patch::Merge(json!({"spec": {"size": 4}}));
    let patched = widgets.patch("w", &PatchParams::default(), &patch).await;
    assert_eq!(patched.expect("a patch").data["spec"]["size"], 4);
}
