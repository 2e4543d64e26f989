//! The HTTP server: it answers an AdmissionReview from memory, without a request to anybody.

use super::Source;
use super::metrics::Metrics;
use crate::clock;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_failover_rules::admission::{Decision, Request, decide};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tower_http::timeout::TimeoutLayer;

/// Path of the webhook.
pub(crate) const MUTATE: &str = "/mutate";
/// A review carries the object twice; the API server takes objects of 3 MiB.
const BODY_LIMIT: usize = 8 << 20;
/// As in the webhook's configuration: later answers are not waited for.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
const REVIEW_VERSION: &str = "admission.k8s.io/v1";
const REVIEW_KIND: &str = "AdmissionReview";

/// What a request needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Answering {
    pub(crate) source: Source,
    pub(crate) metrics: Metrics,
}

impl Answering {
    /// Whether requests are answered from a live view: one line for people if not.
    pub(crate) fn ready(&self) -> Result<(), String> {
        let view = self.source.view.load();
        if view.is_live(self.source.clock.now()) {
            return Ok(());
        }
        Err(match view.made_at {
            None => "not every watch has delivered a complete list yet".to_owned(),
            Some(_) => {
                "the view of the cluster is not refreshed any more; every write passes as it is".to_owned()
            }
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewIn {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewOut<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Answer<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
}

/// `POST /mutate` and `GET /readyz`.
pub(crate) fn router(answering: Answering) -> Router {
    Router::new()
        .route(MUTATE, post(mutate))
        .route("/readyz", get(readyz))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            TIMEOUT,
        ))
        .with_state(answering)
}

async fn readyz(State(answering): State<Answering>) -> Response {
    match answering.ready() {
        Ok(()) => "ok".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

async fn mutate(State(answering): State<Answering>, body: Bytes) -> Response {
    let started = clock::instant();
    let review: ReviewIn = match serde_json::from_slice(&body) {
        Ok(review) => review,
        Err(error) => return refuse(&answering, format!("not an {REVIEW_KIND}: {error}")),
    };
    if review.api_version != REVIEW_VERSION || review.kind != REVIEW_KIND {
        let got = format!("{} {}", review.api_version, review.kind);
        return refuse(
            &answering,
            format!("expected {REVIEW_VERSION} {REVIEW_KIND}, got {got}"),
        );
    }
    let Some(request) = review.request else {
        return refuse(&answering, format!("{REVIEW_KIND} without request"));
    };
    let decision = decide(
        &request,
        &answering.source.view.load(),
        answering.source.clock.now(),
    );
    let mut answer = Answer {
        uid: &request.uid,
        allowed: true,
        patch_type: None,
        patch: None,
        audit_annotations: BTreeMap::new(),
    };
    if let Decision::Patch(correction) = &decision {
        match serde_json::to_vec(&correction.patch) {
            Ok(patch) => {
                answer.patch_type = Some("JSONPatch");
                answer.patch = Some(STANDARD.encode(patch));
                answer.audit_annotations.insert("kept", correction.what.clone());
                tracing::info!(
                    nodes = correction.nodes.join(","),
                    user = request.user_info.username,
                    "kept {}",
                    correction.what
                );
            }
            Err(error) => {
                tracing::error!(%error, "patch cannot be written as JSON, the write passes as it is");
            }
        }
    }
    answering.metrics.decided(&request, &decision, started.elapsed());
    let review = ReviewOut {
        api_version: REVIEW_VERSION,
        kind: REVIEW_KIND,
        response: answer,
    };
    axum::Json(review).into_response()
}

fn refuse(answering: &Answering, why: String) -> Response {
    answering.metrics.refused();
    tracing::warn!(why, "request refused");
    (StatusCode::BAD_REQUEST, why).into_response()
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
