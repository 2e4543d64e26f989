//! The kubelet's own endpoint: what neighbours check and people look at.

use super::Shown;
use axum::{Json, Router, extract::State, routing::get};
use evenkeel_net::serve::{ServerTls, serve_https};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves `/healthz` and `/pods` until `shutdown`.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    tls: ServerTls,
    shown: Shown,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let app = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/pods", get(pods))
        .with_state(shown);
    serve_https(listener, tls, app, shutdown).await
}

async fn pods(State(shown): State<Shown>) -> Json<Value> {
    let items = shown
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone();
    Json(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}
