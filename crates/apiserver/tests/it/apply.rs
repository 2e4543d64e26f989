//! Server-side apply, and the owners of fields that every write notes.

use super::{code, config_map, server};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ServedApi, skipped};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

fn data(values: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": values})
}

fn as_manager(name: &str) -> PatchParams {
    PatchParams::apply(name)
}

/// `manager` or `manager/subresource`, `!` behind one who applied; sorted, because the server lists them by
/// the second of their last write.
fn owners(object: &impl ResourceExt) -> Vec<String> {
    let owner = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
        let part = entry.subresource.as_ref().map(|part| format!("/{part}"));
        let mark = if entry.operation.as_deref() == Some("Apply") {
            "!"
        } else {
            ""
        };
        format!(
            "{}{}{mark}",
            entry.manager.clone().unwrap_or_default(),
            part.unwrap_or_default()
        )
    };
    let mut owners: Vec<String> = object.managed_fields().iter().map(owner).collect();
    owners.sort();
    owners
}

#[tokio::test]
async fn what_is_applied_to_nothing_is_created_and_what_changes_nothing_is_not_written() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    let patch = Patch::Apply(data(&json!({"x": "1"})));
    let created = api
        .patch("a", &as_manager("one"), &patch)
        .await
        .expect("it is created");
    assert_eq!(owners(&created), ["one!"]);
    let again = api
        .patch("a", &as_manager("one"), &patch)
        .await
        .expect("it is the same");
    assert_eq!(again, created);
    let patch = Patch::Apply(data(&json!({"x": "2"})));
    let dry = PatchParams {
        dry_run: true,
        ..as_manager("one")
    };
    api.patch("a", &dry, &patch).await.expect("it would be taken");
    assert_eq!(api.get("a").await.expect("it is there"), created);
    assert_eq!(code(api.patch("a", &as_manager("two"), &patch).await), 409);
    let forced = api
        .patch("a", &as_manager("two").force(), &patch)
        .await
        .expect("it is forced");
    assert_eq!(owners(&forced), ["two!"]);
    let nameless = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    assert_eq!(code(api.patch("b", &as_manager("one"), &nameless).await), 400);
    let wrong = Patch::Apply(json!({"apiVersion": "v1", "kind": "Secret"}));
    assert_eq!(code(api.patch("a", &as_manager("one"), &wrong).await), 400);
}

#[tokio::test]
async fn every_write_notes_its_manager() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    let by = |name: &str| PostParams {
        field_manager: Some(name.to_owned()),
        ..PostParams::default()
    };
    let mut object = api
        .create(&by("creator"), &config_map("a"))
        .await
        .expect("it is created");
    assert_eq!(owners(&object), ["creator"]);
    object.data = Some([("k".to_owned(), "w".to_owned())].into());
    let replaced = api
        .replace("a", &by("writer"), &object)
        .await
        .expect("it is replaced");
    assert_eq!(owners(&replaced), ["creator", "writer"]);
    let params = PatchParams {
        field_manager: Some("patcher".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"data": {"l": "1"}}));
    let patched = api.patch("a", &params, &patch).await.expect("it is patched");
    assert_eq!(owners(&patched), ["creator", "patcher", "writer"]);
    let cleared = Patch::Merge(json!({"metadata": {"managedFields": [{}]}}));
    let cleared = api.patch("a", &params, &cleared).await.expect("it is patched");
    assert_eq!(owners(&cleared), [] as [String; 0]);
}

async fn deployment(client: Client) -> Api<Deployment> {
    let api = Api::<Deployment>::default_namespaced(client);
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    api.add(&serde_json::from_value(deployment).expect("a Deployment"))
        .await;
    api
}

#[tokio::test]
async fn subresources_have_owners_of_their_own() {
    let api = deployment(server().client()).await;
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {"observedGeneration": 1}});
    let applied = api
        .patch_status("d", &as_manager("controller"), &Patch::Apply(&status))
        .await
        .expect("a status is applied");
    assert!(
        owners(&applied).contains(&"controller/status!".to_owned()),
        "{:?}",
        owners(&applied)
    );
    let scale = |replicas: i32| -> Patch<Value> {
        Patch::Apply(json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}}))
    };
    assert_eq!(
        code(api.patch_scale("d", &as_manager("scaler"), &scale(3)).await),
        409
    );
    let forced: Scale = api
        .patch_scale("d", &as_manager("scaler").force(), &scale(0))
        .await
        .expect("a scale is forced");
    assert_eq!(forced.spec.and_then(|spec| spec.replicas).unwrap_or_default(), 0);
    let object = api.get("d").await.expect("it is there");
    assert_eq!(object.spec.as_ref().and_then(|spec| spec.replicas), Some(0));
    assert!(
        owners(&object).contains(&"scaler/scale!".to_owned()),
        "{:?}",
        owners(&object)
    );
}

#[tokio::test]
async fn a_patch_of_another_kind_neither_needs_a_manager_nor_may_force() {
    let client = server().client();
    let request = |query: &str, media: &str| {
        let uri = format!("/api/v1/namespaces/default/configmaps/a{query}");
        let body = data(&json!({"x": "1"})).to_string().into_bytes();
        let request = http::Request::patch(uri).header("content-type", media);
        client.request::<ConfigMap>(request.body(body).expect("a request"))
    };
    let apply = "application/apply-patch+yaml";
    assert_eq!(code(request("", apply).await), 422, "it needs a manager");
    let long = format!("?fieldManager={}", "m".repeat(129));
    assert_eq!(code(request(&long, apply).await), 422, "its manager is too long");
    request("?fieldManager=m", apply).await.expect("it is created");
    let merge = "application/merge-patch+json";
    assert_eq!(code(request("?force=true", merge).await), 422, "it cannot force");
    request("", merge).await.expect("it is patched");
}

#[tokio::test]
async fn kubectl_applies_diffs_and_sees_conflicts() {
    let Some(kubectl) = evenkeel_testkit::kubectl() else {
        return skipped("kubectl_applies_diffs_and_sees_conflicts", "no kubectl on PATH");
    };
    let served = ServedApi::start().await;
    let kubeconfig = served.direct("kubectl");
    let manifest = served.home.path().join("web.json");
    let write = |replicas: i64| {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        });
        std::fs::write(&manifest, deployment.to_string()).expect("a file is written");
    };
    let run = async |arguments: &str| {
        let output = tokio::process::Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments.split(' '))
            .arg("-f")
            .arg(&manifest)
            .env("HOME", served.home.path())
            .output()
            .await
            .expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    write(1);
    let (code, said) = run("apply --server-side").await;
    assert_eq!(
        (code, said.trim()),
        (Some(0), "deployment.apps/web serverside-applied")
    );
    let (code, said) = run("diff --server-side").await;
    assert_eq!(code, Some(0), "nothing differs: {said}");
    write(2);
    let (code, said) = run("diff --server-side").await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("+  replicas: 2"), "{said}");
    let (code, said) = run("apply --server-side --field-manager=other").await;
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("conflict with \"kubectl\": .spec.replicas"),
        "{said}"
    );
    let (code, said) = run("apply --server-side --field-manager=other --force-conflicts").await;
    assert_eq!(code, Some(0), "{said}");
}
