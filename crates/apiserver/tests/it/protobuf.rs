//! Bodies and answers in Kubernetes' protobuf encoding.

use super::{config_map, create_node, pod, server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::{protobuf, schema, strict};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::interop::build_clientgo;
use evenkeel_testkit::{ServedApi, skipped};
use evenkeel_zone::fixture::fuzz::target;
use http::{Request, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::Api;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const MEDIA: &str = protobuf::MEDIA;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Status, media type and body of an answer.
type Answer = (u16, String, Vec<u8>);

async fn send(client: &Client, (method, path): (&str, &str), accept: &str, body: Vec<u8>) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, accept)
        .header(header::CONTENT_TYPE, MEDIA)
        .body(Body::from(body))
        .expect("a request");
    let response = client.send(request).await.expect("an answer");
    let media = response.headers()[header::CONTENT_TYPE]
        .to_str()
        .expect("text")
        .to_owned();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body");
    (status, media, body.to_bytes().to_vec())
}

/// An object in its envelope.
fn written(object: &Value) -> Vec<u8> {
    protobuf::encode(object).expect("a kind with messages")
}

/// The object of an envelope.
fn read(bytes: &[u8]) -> Value {
    let envelope = protobuf::open(bytes).expect("an envelope");
    let gvk = Gvk::of(&envelope.api_version, &envelope.kind);
    strict::decode_protobuf(&gvk, bytes)
        .expect("an object of a known kind")
        .object
}

async fn answered(client: &Client, (method, path): (&str, &str), body: &Value) -> (u16, Value) {
    let (status, media, body) = send(client, (method, path), MEDIA, written(body)).await;
    assert_eq!(
        media,
        MEDIA,
        "{method} {path}: {}",
        String::from_utf8_lossy(&body)
    );
    (status, read(&body))
}

#[tokio::test]
async fn an_object_is_created_read_updated_and_deleted() {
    let client = server().client();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let (status, created) = answered(&client, ("POST", CONFIG_MAPS), &map).await;
    assert_eq!((status, &created["data"]), (201, &map["data"]));
    let path = format!("{CONFIG_MAPS}/a");
    let mut changed = created.clone();
    changed["data"] = json!({"k": "w", "empty": ""});
    let (status, updated) = answered(&client, ("PUT", &path), &changed).await;
    assert_eq!((status, &updated["data"]), (200, &changed["data"]));
    let (status, error) = answered(&client, ("PUT", &path), &changed).await;
    assert_eq!((status, &error["reason"]), (409, &json!("Conflict")));
    let got = send(&client, ("GET", &path), MEDIA, Vec::new()).await;
    assert_eq!(read(&got.2), updated);
    let options =
        |uid: &Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    let (status, error) = answered(&client, ("DELETE", &path), &options(&json!("other"))).await;
    assert_eq!((status, &error["kind"]), (409, &json!("Status")));
    let uid = &created["metadata"]["uid"];
    let (status, gone) = answered(&client, ("DELETE", &path), &options(uid)).await;
    assert_eq!(
        (status, &gone["status"], &gone["details"]["uid"]),
        (200, &json!("Success"), uid)
    );
    let (status, error) = answered(&client, ("PUT", &path), &changed).await;
    assert_eq!((status, &error["details"]["name"]), (404, &json!("a")));
}

#[tokio::test]
async fn subresources_are_read_and_written() {
    let client = server().client();
    create_node(&client, "n").await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.add(&pod("p", None)).await;
    let account = serde_json::from_value(json!({"metadata": {"name": "s"}})).expect("a ServiceAccount");
    Api::<ServiceAccount>::default_namespaced(client.clone())
        .add(&account)
        .await;
    let core = "/api/v1/namespaces/default";
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"}});
    assert_eq!(
        answered(&client, ("POST", &format!("{core}/pods/p/binding")), &binding)
            .await
            .0,
        201
    );
    let mut bound = read(
        &send(&client, ("GET", &format!("{core}/pods/p")), MEDIA, Vec::new())
            .await
            .2,
    );
    assert_eq!(bound["spec"]["nodeName"], "n");
    bound["status"] = json!({"phase": "Running", "podIP": "10.0.0.1"});
    let (status, shown) = answered(&client, ("PUT", &format!("{core}/pods/p/status")), &bound).await;
    assert_eq!((status, &shown["status"]["podIP"]), (200, &json!("10.0.0.1")));
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
        "spec": {"audiences": [], "expirationSeconds": 600}});
    let (status, token) = answered(
        &client,
        ("POST", &format!("{core}/serviceaccounts/s/token")),
        &token,
    )
    .await;
    assert_eq!((status, token["status"]["token"].is_string()), (201, true));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert_eq!(
        answered(&client, ("POST", &format!("{core}/pods/p/eviction")), &eviction)
            .await
            .0,
        201
    );
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    let apps = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(answered(&client, ("POST", apps), &deployment).await.0, 201);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": 3}});
    let (status, scale) = answered(&client, ("PUT", &format!("{apps}/d/scale")), &scale).await;
    assert_eq!((status, &scale["spec"]["replicas"]), (200, &json!(3)));
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (status, review) = answered(&client, ("POST", reviews), &review).await;
    assert_eq!((status, &review["status"]["allowed"]), (201, &json!(true)));
}

#[tokio::test]
async fn lists_are_written_whole_by_their_metadata_and_not_as_tables() {
    let client = server().client();
    let api = Api::<ConfigMap>::default_namespaced(client.clone());
    api.add(&config_map("a")).await;
    api.add(&config_map("b")).await;
    let (_, media, body) = send(&client, ("GET", CONFIG_MAPS), MEDIA, Vec::new()).await;
    let list = read(&body);
    let (_, _, text) = send(&client, ("GET", CONFIG_MAPS), "application/json", Vec::new()).await;
    assert_eq!(media, MEDIA);
    assert_eq!(list, serde_json::from_slice::<Value>(&text).expect("JSON"));
    let shape = |kind: &str| format!("{MEDIA};as={kind};v=v1;g=meta.k8s.io,application/json");
    let partial = shape("PartialObjectMetadataList");
    let (_, media, body) = send(&client, ("GET", CONFIG_MAPS), &partial, Vec::new()).await;
    assert_eq!(
        (media.as_str(), protobuf::open(&body).expect("an envelope").kind),
        (MEDIA, "PartialObjectMetadataList".into())
    );
    assert!(
        !body.windows(5).any(|bytes| bytes == b"\x0a\x01k\x12\x01"),
        "no data"
    );
    let (status, media, _) = send(&client, ("GET", CONFIG_MAPS), &shape("Table"), Vec::new()).await;
    assert_eq!((status, media.as_str()), (200, "application/json"));
}

/// Frames of four bytes and as many more as they say.
fn frames(mut bytes: &[u8]) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let definition =
            schema::definition("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent").expect("it is known");
        let event = protobuf::decode(definition, frame).expect("an event");
        found.push((
            event["type"].as_str().unwrap_or_default().to_owned(),
            event["object"].clone(),
        ));
        bytes = rest;
    }
    found
}

#[tokio::test]
async fn a_watch_is_frames_with_objects_in_envelopes() {
    let client = server().client();
    let api = crate::config_maps(client.clone()).await;
    let created = api.add(&config_map("a")).await;
    let path = "/api/v1/namespaces/empty/configmaps?watch=true&timeoutSeconds=3&allowWatchBookmarks=true";
    let accept = format!("{MEDIA};stream=watch,{MEDIA}");
    let (_, media, body) = send(&client, ("GET", path), &accept, Vec::new()).await;
    let seen = frames(&body);
    assert_eq!(media, format!("{MEDIA};stream=watch"));
    let kinds: Vec<_> = seen
        .iter()
        .map(|(kind, object)| (kind.as_str(), object["kind"].as_str()))
        .collect();
    assert_eq!(
        kinds[..2],
        [("ADDED", Some("ConfigMap")), ("BOOKMARK", Some("ConfigMap"))]
    );
    assert_eq!(
        seen[0].1["metadata"]["uid"].as_str(),
        created.metadata.uid.as_deref()
    );
    let past = format!("{path}&resourceVersion=1");
    let (_, _, body) = send(&client, ("GET", &past), &accept, Vec::new()).await;
    let (kind, error) = &frames(&body)[0];
    assert_eq!(
        (kind.as_str(), &error["kind"], &error["code"]),
        ("ERROR", &json!("Status"), &json!(410))
    );
}

#[tokio::test]
async fn custom_resources_have_no_messages() {
    let client = server().client();
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    }))
    .expect("a CustomResourceDefinition");
    Api::<CustomResourceDefinition>::all(client.clone())
        .add(&definition)
        .await;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let body = written(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
    let (status, error) = {
        let (status, _, body) = send(&client, ("POST", path), "application/json", body).await;
        (status, serde_json::from_slice::<Value>(&body).expect("JSON"))
    };
    let text = "Widget in version \"v1\" cannot be handled as a Widget: object *unstructured.Unstructured does not \
                implement the protobuf marshalling interface and cannot be encoded to a protobuf message";
    assert_eq!((status, error["message"].as_str()), (400, Some(text)));
    let (status, media, body) = send(&client, ("GET", path), MEDIA, Vec::new()).await;
    let text = "only the following media types are accepted: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf";
    assert_eq!(
        (status, media.as_str(), read(&body)["message"].as_str()),
        (406, MEDIA, Some(text))
    );
    let fallback = format!("{MEDIA},application/json");
    let (status, media, _) = send(&client, ("GET", path), &fallback, Vec::new()).await;
    assert_eq!((status, media.as_str()), (200, "application/json"));
    let partial = format!("{MEDIA};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let (status, media, _) = send(&client, ("GET", path), &partial, Vec::new()).await;
    assert_eq!((status, media.as_str()), (200, MEDIA));
}

#[rstest]
#[case(b"", "empty data (<empty>)")]
#[case(
    b"{}",
    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (7b7d)"
)]
#[case(b"k8s\0", "empty body (6b387300)")]
#[tokio::test]
async fn what_is_no_envelope_is_unrecognized(#[case] body: &[u8], #[case] why: &str) {
    let client = server().client();
    let (status, _, answer) = send(&client, ("POST", CONFIG_MAPS), MEDIA, body.to_vec()).await;
    let text = format!("the object provided is unrecognized (must be of type ConfigMap): {why}");
    assert_eq!(
        (status, read(&answer)["message"].as_str()),
        (400, Some(text.as_str()))
    );
}

/// Objects whose messages have every form that fields have.
fn samples() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"},
            "managedFields": [{"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}},
                "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": "http"}},
                "env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}],
                "volumes": [{"name": "v", "configMap": {"name": "m", "defaultMode": -1}}],
                "securityContext": {"supplementalGroups": [1, 300]}}}),
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
            "spec": {"request": "YWJj", "signerName": "a/b", "extra": {"k": ["v", ""]}}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"renewTime": "2026-01-01T00:00:00.000001Z"}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "c"},
            "spec": {"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Cluster",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "maximum": 1.5, "default": {"a": [1]}, "additionalProperties": {"type": "string"},
                    "properties": {"x": {"items": {"not": {"enum": [1, "b"]}}}}}}}]}}),
    ]
}

#[test]
fn bodies_are_borne() {
    let samples = samples();
    let seeds: Vec<Vec<u8>> = samples.iter().map(written).collect();
    // A message of two bytes has all the fields of its kind when it is written again.
    target("bodies in protobuf", &seeds, (64, 4_000), |bytes| {
        let envelope = protobuf::open(bytes).ok()?;
        let gvk = Gvk::of(&envelope.api_version, &envelope.kind);
        let object = strict::decode_protobuf(&gvk, bytes).ok()?.object;
        let written = written(&object);
        let again = strict::decode_protobuf(&gvk, &written)
            .expect("what we wrote")
            .object;
        assert_eq!(self::written(&again), written);
        Some(written.len())
    });
}

/// Objects of every kind that Kubernetes' own code has made and encoded.
#[test]
fn objects_are_read_and_written_as_go_does() {
    let Some(go) = evenkeel_testkit::go() else {
        return skipped("objects_are_read_and_written_as_go_does", "no go on PATH");
    };
    let program =
        build_clientgo(&go, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|why| panic!("{why}"));
    let output = std::process::Command::new(program)
        .arg("objects")
        .output()
        .expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut kinds = std::collections::BTreeSet::new();
    for line in output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let line: Value = serde_json::from_slice(line).expect("JSON");
        let (object, bytes) = (
            &line["json"],
            STANDARD
                .decode(line["proto"].as_str().expect("text"))
                .expect("base64"),
        );
        let gvk = Gvk::of(
            object["apiVersion"].as_str().expect("text"),
            object["kind"].as_str().expect("text"),
        );
        if schema::kind(&gvk).is_some() {
            let decoded =
                strict::decode_protobuf(&gvk, &bytes).unwrap_or_else(|error| panic!("{gvk:?}: {error:?}"));
            assert_eq!(&decoded.object, object, "{gvk:?}");
        } else if !gvk.kind.starts_with("PartialObjectMetadata") {
            continue;
        }
        let encoded = match object.get("items") {
            Some(items) => {
                let items = items.as_array().into_iter().flatten();
                let items: Vec<Arc<Value>> = items.cloned().map(Arc::new).collect();
                protobuf::encode_list(object, &items)
            }
            None => protobuf::encode(object),
        };
        assert!(encoded == Some(bytes), "{object}");
        kinds.insert(gvk);
    }
    assert!(kinds.len() > 240, "{}", kinds.len());
}

#[tokio::test]
async fn kubectl_creates_without_files() {
    let Some(kubectl) = evenkeel_testkit::kubectl() else {
        return skipped("kubectl_creates_without_files", "no kubectl on PATH");
    };
    let served = ServedApi::start().await;
    let kubeconfig = served.direct("kubectl");
    for arguments in [
        "create deployment web --image=nginx --replicas=2 --port=80",
        "create configmap settings --from-literal=key=value",
        "create secret generic keys --from-literal=key=value",
        "create service clusterip web --tcp=80:8080",
        "create namespace apart",
        "create serviceaccount robot",
        "create role reader --verb=get --resource=pods",
        "create rolebinding reader --role=reader --serviceaccount=default:robot",
        "create job once --image=busybox -- true",
        "create cronjob often --image=busybox --schedule=@hourly",
        "create ingress web --rule=example.com/*=web:80",
        "create poddisruptionbudget web --selector=app=web --min-available=1",
        "create quota small --hard=pods=3",
        "create priorityclass high --value=10",
        "create token robot",
        "run one --image=nginx",
        "scale deployment web --replicas=3",
    ] {
        let output = tokio::process::Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments.split(' '))
            .env("HOME", served.home.path())
            .output()
            .await
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {said}");
    }
}
