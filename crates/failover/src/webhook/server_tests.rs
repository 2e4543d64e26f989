use super::*;
use crate::clock::Clock;
use arc_swap::ArcSwap;
use axum::body::Body;
use axum::http::Request as HttpRequest;
use evenkeel_failover_rules::admission::{Guarded, View};
use evenkeel_judge::Protection;
use evenkeel_net::admin::Admin;
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tower::ServiceExt as _;

fn answering() -> Answering {
    let clock = Clock::start();
    let all = Protection {
        evictions: true,
        readiness: true,
    };
    let node = Guarded {
        uid: "uid-2".to_owned(),
        now: all,
        if_stale: all,
        ..Guarded::default()
    };
    let view = View {
        made_at: Some(clock.now()),
        nodes: [("shore-2".to_owned(), node)].into(),
        last: BTreeSet::new(),
    };
    Answering {
        source: Source {
            view: Arc::new(ArcSwap::from_pointee(view)),
            clock,
        },
        metrics: Metrics::register(&Admin::new("test")),
    }
}

async fn post(body: impl Into<Body>) -> (StatusCode, Bytes) {
    let request = HttpRequest::post(MUTATE)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap();
    let response = router(answering()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, body)
}

fn review(user: &str) -> Value {
    let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "UPDATE", "name": "shore-2",
            "kind": {"group": "", "version": "v1", "kind": "Node"},
            "resource": {"group": "", "version": "v1", "resource": "nodes"},
            "userInfo": {"username": user, "groups": []},
            "object": {"metadata": {"name": "shore-2", "uid": "uid-2"}, "spec": {"taints": taints}},
            "oldObject": {"metadata": {"name": "shore-2", "uid": "uid-2"}, "spec": {}},
            "options": {}, "dryRun": false,
        },
    })
}

#[tokio::test]
async fn a_correction_is_answered_as_a_json_patch() {
    let (status, body) = post(review("system:kube-controller-manager").to_string()).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    let patch = STANDARD
        .decode(answer["response"]["patch"].as_str().unwrap())
        .unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    let tested = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    let expected = json!([
        {"op": "test", "path": "/spec/taints", "value": tested}, {"op": "remove", "path": "/spec/taints"},
    ]);
    assert_eq!(patch, expected);
}

#[tokio::test]
async fn what_is_left_alone_is_allowed_without_a_patch() {
    let (status, body) = post(review("alice").to_string()).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": true});
    assert_eq!(answer["response"], expected);
}

#[rstest]
#[case::not_json("{", "not an AdmissionReview")]
#[case::another_version(
    r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "1"}}"#,
    "v1beta1"
)]
#[case::another_kind(
    r#"{"apiVersion": "admission.k8s.io/v1", "kind": "Pod", "request": {}}"#,
    "got"
)]
#[case::no_request(
    r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#,
    "without request"
)]
#[case::wrong_shape(
    r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 7}}"#,
    "not an AdmissionReview"
)]
#[tokio::test]
async fn what_is_no_review_is_refused_and_says_why(#[case] body: &'static str, #[case] expected: &str) {
    let (status, body) = post(body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.contains(expected), "{body}");
}

#[tokio::test]
async fn a_body_beyond_every_object_is_refused() {
    let (status, _) = post(vec![b' '; BODY_LIMIT + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn readiness_follows_the_view() {
    let mut answering = answering();
    assert_eq!(answering.ready(), Ok(()));
    answering.source.clock = Clock::started_ago(Duration::from_secs(3));
    assert!(answering.ready().unwrap_err().contains("not refreshed"));
    answering.source.view.store(Arc::new(View::default()));
    assert!(answering.ready().unwrap_err().contains("complete list"));
    let request = HttpRequest::get("/readyz").body(Body::empty()).unwrap();
    let response = router(answering).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}
