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
