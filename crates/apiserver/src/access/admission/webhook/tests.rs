//! Webhooks end to end: a TLS server in this process answers what the test says.

use super::*;
use crate::access::admission::matching::Rule;
use crate::access::testing::{Objects, config_map, create};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_kube_rules::gvk::{Gvk, Gvr};
use rstest::rstest;
use serde_json::json;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Handler = Box<dyn Fn(&Value) -> Value + Send + Sync>;

/// An HTTPS server that answers each review with what `handler` makes of it.
struct Hook {
    url: String,
    ca: String,
    seen: Arc<Mutex<Vec<Value>>>,
    connections: Arc<AtomicUsize>,
}

impl Hook {
    async fn new(handler: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let ca = BASE64.encode(certified.cert.pem());
        let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let hook = Self {
            url,
            ca,
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let (seen, connections) = (hook.seen.clone(), hook.connections.clone());
        let handler: Arc<Handler> = Arc::new(Box::new(handler));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, handler, seen) = (acceptor.clone(), handler.clone(), seen.clone());
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream, &handler, &seen).await;
                    }
                });
            }
        });
        hook
    }

    fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }
}

/// Requests on one connection, one after the other. A body `{"http": CODE}` is an HTTP error.
async fn answer<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    mut stream: S,
    handler: &Handler,
    seen: &Mutex<Vec<Value>>,
) {
    let mut buffer = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
        let length: usize = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap()
            .parse()
            .unwrap();
        while buffer.len() < head + length {
            stream.read_buf(&mut buffer).await.unwrap();
        }
        let review: Value = serde_json::from_slice(&buffer[head..head + length]).unwrap();
        buffer.drain(..head + length);
        seen.lock().unwrap().push(review.clone());
        let body = handler(&review);
        let code = body["http"].as_u64().unwrap_or(200);
        let body = body.to_string();
        let reply = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The answer to a review with these members in `response`.
fn response(review: &Value, members: Value) -> Value {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    response
        .as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn patch(review: &Value, operations: Value) -> Value {
    response(
        review,
        json!({"patchType": "JSONPatch", "patch": BASE64.encode(operations.to_string())}),
    )
}

/// A webhook for creates and updates of configmaps, with more members.
fn webhook(hook: &Hook, name: &str, members: Value) -> Value {
    let mut webhook = json!({
        "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "clientConfig": {"url": format!("{}/{name}", hook.url), "caBundle": hook.ca},
        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    webhook
        .as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    webhook
}

fn world(kind: &'static str, webhooks: Value) -> Objects {
    Objects::with([
        (
            "",
            "namespaces",
            json!({"metadata": {"name": "ns", "labels": {"env": "test"}}}),
        ),
        (
            "admissionregistration.k8s.io",
            if kind == "mutating" {
                "mutatingwebhookconfigurations"
            } else {
                "validatingwebhookconfigurations"
            },
            json!({"metadata": {"name": "c"}, "webhooks": webhooks}),
        ),
    ])
}

async fn validate(world: &Objects, object: Value) -> ApiResult<Warnings> {
    Webhooks::default().validate(&create(object), world).await
}

#[rstest]
#[case::exact(json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}), ("pods", ""), true)]
#[case::other_operation(json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}), ("pods", ""), false)]
#[case::other_version(json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v2"], "resources": ["pods"]}), ("pods", ""), false)]
#[case::other_group(json!({"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["pods"]}), ("pods", ""), false)]
#[case::not_its_status(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods"]}), ("pods", "status"), false)]
#[case::its_status(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods/status"]}), ("pods", "status"), true)]
#[case::status_is_not_the_pod(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods/status"]}), ("pods", ""), false)]
#[case::all_of_a_pod(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods/*"]}), ("pods", "binding"), true)]
#[case::star_is_no_subresource(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}), ("pods", "status"), false)]
#[case::everything(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}), ("pods", "status"), true)]
#[case::any_status(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/status"]}), ("nodes", "status"), true)]
#[case::namespaced(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Namespaced"}), ("pods", ""), true)]
#[case::cluster(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Cluster"}), ("pods", ""), false)]
fn rules(#[case] rule: Value, #[case] (resource, subresource): (&str, &str), #[case] expected: bool) {
    let mut attributes = create(config_map(json!({})));
    attributes.gvr.resource = resource.to_owned();
    attributes.subresource = subresource.to_owned();
    assert_eq!(Rule::new(&rule).matches(&attributes, &attributes.gvr), expected);
}

#[rstest]
#[case::namespace_selected(json!({"namespaceSelector": {"matchLabels": {"env": "test"}}}), json!({}), 1)]
#[case::another_namespace(json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}), json!({}), 0)]
#[case::object_selected(json!({"objectSelector": {"matchLabels": {"a": "b"}}}), json!({"a": "b"}), 1)]
#[case::another_object(json!({"objectSelector": {"matchLabels": {"a": "b"}}}), json!({"a": "c"}), 0)]
#[case::empty_selectors(json!({"objectSelector": {}, "namespaceSelector": {}}), json!({}), 1)]
#[case::condition_holds(json!({"matchConditions": [{"name": "n", "expression": "request.userInfo.username == 'jane' && request.namespace.startsWith('n')"}]}), json!({}), 1)]
#[case::condition_fails(json!({"matchConditions": [{"name": "n", "expression": "!('skip' in object.metadata.labels)"}]}), json!({"skip": "1"}), 0)]
#[case::one_of_two_fails(json!({"matchConditions": [{"name": "x", "expression": "object.nope == 1"}, {"name": "n", "expression": "has(object.metadata.labels.on)"}]}), json!({}), 0)]
#[case::group_of_the_user(json!({"matchConditions": [{"name": "n", "expression": "!('system:nodes' in request.userInfo.groups)"}]}), json!({}), 1)]
#[case::no_old_object(json!({"matchConditions": [{"name": "n", "expression": "oldObject == null"}]}), json!({}), 1)]
#[tokio::test]
async fn a_webhook_is_asked_about_what_it_wants(
    #[case] members: Value,
    #[case] labels: Value,
    #[case] calls: usize,
) {
    let hook = Hook::new(|review| response(review, json!({}))).await;
    let world = world("validating", json!([webhook(&hook, "v", members)]));
    validate(&world, config_map(labels)).await.unwrap();
    assert_eq!(hook.seen().len(), calls);
}

#[tokio::test]
async fn a_condition_that_cannot_be_evaluated_follows_the_failure_policy() {
    let hook = Hook::new(|review| response(review, json!({}))).await;
    let members = |policy: &str| json!({"failurePolicy": policy, "matchConditions": [{"name": "x", "expression": "object.nope == 1"}]});
    let strict = world("validating", json!([webhook(&hook, "v", members("Fail"))]));
    let error = validate(&strict, config_map(json!({}))).await.unwrap_err();
    assert_eq!(error.code, 403, "{error}");
    let lax = world("validating", json!([webhook(&hook, "v", members("Ignore"))]));
    validate(&lax, config_map(json!({}))).await.unwrap();
    assert_eq!(hook.seen(), Vec::<Value>::new());
}

#[tokio::test]
async fn the_review_says_who_does_what() {
    let hook =
        Hook::new(|review| response(review, json!({"warnings": ["careful", "careful", "second"]}))).await;
    let world = world("validating", json!([webhook(&hook, "v", json!({}))]));
    let object = config_map(json!({}));
    assert_eq!(
        validate(&world, object.clone()).await.unwrap(),
        ["careful", "second"]
    );
    let mut request = hook.seen()[0]["request"].clone();
    assert_eq!(request["uid"].as_str().unwrap().len(), 36);
    request["uid"] = Value::Null;
    assert_eq!(
        request,
        json!({
            "uid": null,
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "a", "namespace": "ns", "operation": "CREATE",
            "userInfo": {"username": "jane", "groups": ["devs"]},
            "object": object, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        })
    );
}

#[rstest]
#[case::with_status(json!({"allowed": false, "status": {"message": "not on my watch", "code": 418, "reason": "Teapot"}}),
    418, "Teapot", "admission webhook \"v\" denied the request: not on my watch")]
#[case::plain(json!({"allowed": false}), 400, "", "admission webhook \"v\" denied the request without explanation")]
#[case::with_reason(json!({"allowed": false, "status": {"reason": "Because"}}), 400, "Because", "admission webhook \"v\" denied the request: Because")]
#[case::with_a_code_that_is_no_error(json!({"allowed": false, "status": {"code": 200, "message": "no"}}), 400, "", "admission webhook \"v\" denied the request: no")]
#[tokio::test]
async fn a_refusal_reaches_the_client(
    #[case] said: Value,
    #[case] code: u16,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let hook = Hook::new(move |review| response(review, said.clone())).await;
    let world = world("validating", json!([webhook(&hook, "v", json!({}))]));
    let error = validate(&world, config_map(json!({}))).await.unwrap_err();
    assert_eq!(
        (error.code, error.reason, error.message.as_str()),
        (code, reason, message)
    );
}

#[rstest]
#[case::http_error(json!({"http": 500}), "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding")]
#[case::not_found(json!({"http": 404}), "failed to call webhook: the server could not find the requested resource")]
#[case::nonsense(json!({"kind": "Nope"}), "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got , Kind=Nope")]
#[tokio::test]
async fn failures_follow_the_failure_policy(#[case] said: Value, #[case] why: &str) {
    let hook = Hook::new(move |_| said.clone()).await;
    let strict = world(
        "validating",
        json!([webhook(&hook, "v", json!({"failurePolicy": "Fail"}))]),
    );
    let error = validate(&strict, config_map(json!({}))).await.unwrap_err();
    let text = format!("failed calling webhook \"v\": {why}");
    assert_eq!(
        (error.code, error.message),
        (500, format!("Internal error occurred: {text}"))
    );
    assert_eq!(error.details, json!({"causes": [{"message": text}]}));
    let lax = world(
        "validating",
        json!([webhook(&hook, "v", json!({"failurePolicy": "Ignore"}))]),
    );
    validate(&lax, config_map(json!({}))).await.unwrap();
    assert_eq!(hook.seen().len(), 2);
}

#[tokio::test]
async fn a_webhook_that_is_not_there_is_named_with_its_address() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let mut hook = Hook::new(|_| Value::Null).await;
    hook.url = format!("https://{address}");
    let world = world("validating", json!([webhook(&hook, "v", json!({}))]));
    let error = validate(&world, config_map(json!({}))).await.unwrap_err();
    assert_eq!(
        error.message,
        format!(
            "Internal error occurred: failed calling webhook \"v\": failed to call webhook: Post \"https://{address}/v?timeout=5s\": dial tcp {address}: connect: connection refused"
        )
    );
}

#[tokio::test]
async fn a_certificate_that_the_bundle_does_not_vouch_for_is_refused() {
    let (hook, stranger) = (
        Hook::new(|review| response(review, json!({}))).await,
        Hook::new(|_| Value::Null).await,
    );
    let mut wrong = webhook(&hook, "v", json!({}));
    wrong["clientConfig"]["caBundle"] = json!(stranger.ca);
    let error = validate(&world("validating", json!([wrong])), config_map(json!({})))
        .await
        .unwrap_err();
    assert!(error.message.contains("x509: "), "{error}");
    assert_eq!(hook.seen(), Vec::<Value>::new());
}

#[tokio::test]
async fn calls_reuse_a_connection() {
    let hook = Hook::new(|review| response(review, json!({}))).await;
    let world = world("validating", json!([webhook(&hook, "v", json!({}))]));
    let webhooks = Webhooks::default();
    for _ in 0..5 {
        webhooks
            .validate(&create(config_map(json!({}))), &world)
            .await
            .unwrap();
    }
    // A write to some configuration makes all anew, but not the connections of those that stay as they are.
    world.put("", "secrets", json!({"metadata": {"name": "s"}}));
    webhooks
        .validate(&create(config_map(json!({}))), &world)
        .await
        .unwrap();
    assert_eq!(
        (hook.seen().len(), hook.connections.load(Ordering::SeqCst)),
        (6, 1)
    );
}

#[tokio::test]
async fn a_dry_run_needs_a_webhook_without_side_effects() {
    let hook = Hook::new(|review| response(review, json!({}))).await;
    let mut attributes = create(config_map(json!({})));
    attributes.dry_run = true;
    for (side_effects, expected) in [("None", None), ("NoneOnDryRun", None), ("Some", Some(400))] {
        let world = world(
            "validating",
            json!([webhook(&hook, "v", json!({"sideEffects": side_effects}))]),
        );
        let got = Webhooks::default().validate(&attributes, &world).await;
        assert_eq!(got.err().map(|error| error.code), expected, "{side_effects}");
    }
}

/// Mutates with these webhooks; the built-in plugins add `plugin` once they see `injected`.
async fn mutate(world: &Objects) -> ApiResult<Value> {
    let mut attributes = create(config_map(json!({})));
    let again = |attributes: &mut Attributes| {
        if let Some(object) = &mut attributes.object {
            object["data"]["plugin"] = json!("ran");
        }
        Ok(())
    };
    let redefault = |object: &mut Value| object["data"]["defaulted"] = json!("yes");
    Webhooks::default()
        .mutate(&mut attributes, world, &redefault, &again)
        .await?;
    Ok(attributes.object.unwrap())
}

#[tokio::test]
async fn a_patch_is_applied_and_what_it_left_out_is_defaulted() {
    let hook = Hook::new(|review| {
        patch(
            review,
            json!([{"op": "add", "path": "/data", "value": {"injected": "1"}}]),
        )
    })
    .await;
    let world = world("mutating", json!([webhook(&hook, "m", json!({}))]));
    let object = mutate(&world).await.unwrap();
    assert_eq!(
        object["data"],
        json!({"injected": "1", "defaulted": "yes", "plugin": "ran"})
    );
}

#[rstest]
#[case::never("Never", &["first", "second"])]
#[case::if_needed("IfNeeded", &["first", "second", "first"])]
#[tokio::test]
async fn an_earlier_webhook_sees_later_changes_if_it_asks(#[case] policy: &str, #[case] expected: &[&str]) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = |name: &'static str| {
        let order = order.clone();
        move |review: &Value| {
            order.lock().unwrap().push(name);
            patch(
                review,
                json!([{"op": "add", "path": "/metadata/labels", "value": {"by": name}}]),
            )
        }
    };
    let (first, second) = (Hook::new(log("first")).await, Hook::new(log("second")).await);
    let webhooks = json!([
        webhook(&first, "a", json!({"reinvocationPolicy": policy})),
        webhook(&second, "b", json!({}))
    ]);
    mutate(&world("mutating", webhooks)).await.unwrap();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_patch_that_does_not_apply_fails_the_request() {
    let hook = Hook::new(|review| patch(review, json!([{"op": "remove", "path": "/nope"}]))).await;
    let error = mutate(&world("mutating", json!([webhook(&hook, "m", json!({}))])))
        .await
        .unwrap_err();
    assert_eq!(error.code, 500, "{error}");
}

#[tokio::test]
async fn a_webhook_that_wants_another_version_sees_that_version() {
    let hook = Hook::new(|review| {
        assert_eq!(review["request"]["object"]["apiVersion"], "x.io/v1");
        patch(
            review,
            json!([{"op": "add", "path": "/spec", "value": {"by": "hook"}}]),
        )
    })
    .await;
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["x.io"], "apiVersions": ["v1"], "resources": ["things"]}]);
    for (policy, expected) in [("Equivalent", json!({"by": "hook"})), ("Exact", Value::Null)] {
        let world = world(
            "mutating",
            json!([webhook(
                &hook,
                "m",
                json!({"rules": rules, "matchPolicy": policy})
            )]),
        );
        let version = |name: &str| json!({"name": name, "served": true});
        world.put(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            json!({"metadata": {"name": "things.x.io"}, "spec": {"versions": [version("v1"), version("v2")]}}),
        );
        let mut attributes =
            create(json!({"apiVersion": "x.io/v2", "kind": "Thing", "metadata": {"name": "t"}}));
        attributes.gvk = Gvk {
            group: "x.io".to_owned(),
            version: "v2".to_owned(),
            kind: "Thing".to_owned(),
        };
        attributes.gvr = Gvr {
            group: "x.io".to_owned(),
            version: "v2".to_owned(),
            resource: "things".to_owned(),
        };
        Webhooks::default()
            .mutate(&mut attributes, &world, &|_| {}, &|_| Ok(()))
            .await
            .unwrap();
        let object = attributes.object.unwrap();
        assert_eq!(
            (&object["apiVersion"], &object["spec"]),
            (&json!("x.io/v2"), &expected),
            "{policy}"
        );
    }
    assert_eq!(hook.seen()[0]["request"]["requestKind"]["version"], "v2");
}

#[rstest]
#[case::of_the_pod_network("127.0.0.1", PodRoutes::default())]
#[case::by_its_route("10.244.7.2", PodRoutes::new(|_| [127, 0, 0, 1].into()))]
#[tokio::test]
async fn a_service_is_called_at_its_endpoint(#[case] address: &str, #[case] pods: PodRoutes) {
    let hook = Hook::new(|review| response(review, json!({}))).await;
    let port: u64 = hook.url.rsplit_once(':').unwrap().1.parse().unwrap();
    let mut by_service = webhook(&hook, "v", json!({}));
    by_service["clientConfig"] = json!({"caBundle": hook.ca, "service": {"namespace": "ns", "name": "svc", "port": 8443, "path": "//y/.././x/"}});
    let world = world("validating", json!([by_service]));
    world.put(
        "",
        "services",
        json!({"metadata": {"name": "svc", "namespace": "ns"}, "spec": {"ports": [{"port": 8443}]}}),
    );
    world.put(
        "discovery.k8s.io",
        "endpointslices",
        json!({
            "metadata": {"name": "svc-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "svc"}},
            "ports": [{"port": port}], "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        }),
    );
    // It is reached, but its certificate is for 127.0.0.1 and not for svc.ns.svc.
    let error = Webhooks::new(pods)
        .validate(&create(config_map(json!({}))), &world)
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "Internal error occurred: failed calling webhook \"v\": failed to call webhook: Post \"https://svc.ns.svc:8443/x?timeout=5s\": tls: failed to verify certificate: x509: certificate is not valid for the server's name"
    );
}
