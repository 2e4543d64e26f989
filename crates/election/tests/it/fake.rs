//! One Lease behind an API that can fail on purpose. It knows no watch: candidates must do without.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Requests are taken and never answered.
    Silent,
    Forbidden,
}

#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    mood: Mood,
    requests: u32,
    version: u64,
    lease: Option<Value>,
}

impl FakeApi {
    pub(crate) fn client(&self) -> kube::Client {
        let app = Router::new()
            .route(
                "/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}",
                get(read).put(replace),
            )
            .route(
                "/apis/coordination.k8s.io/v1/namespaces/default/leases",
                post(create),
            )
            .fallback(|| async { status(StatusCode::NOT_FOUND, "NotFound") })
            .with_state(self.clone());
        kube::Client::new(app, "default")
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.inner.lock().unwrap().mood = mood;
    }

    pub(crate) fn requests(&self) -> u32 {
        self.inner.lock().unwrap().requests
    }

    pub(crate) fn holder(&self) -> Option<String> {
        let inner = self.inner.lock().unwrap();
        Some(
            inner.lease.as_ref()?["spec"]["holderIdentity"]
                .as_str()?
                .to_owned(),
        )
    }

    async fn answer(&self, serve: impl FnOnce(&mut Inner) -> Response) -> Response {
        let mood = {
            let mut inner = self.inner.lock().unwrap();
            inner.requests += 1;
            inner.mood
        };
        match mood {
            Mood::Well => serve(&mut self.inner.lock().unwrap()),
            Mood::Silent => std::future::pending().await,
            Mood::Forbidden => status(StatusCode::FORBIDDEN, "Forbidden"),
        }
    }
}

impl Inner {
    fn store(&mut self, mut lease: Value) -> Response {
        self.version += 1;
        lease["metadata"]["uid"] = json!("uid-1");
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        Json(lease).into_response()
    }
}

async fn read(State(api): State<FakeApi>, Path(_name): Path<String>) -> Response {
    api.answer(|inner| match &inner.lease {
        Some(lease) => Json(lease.clone()).into_response(),
        None => status(StatusCode::NOT_FOUND, "NotFound"),
    })
    .await
}

async fn create(State(api): State<FakeApi>, Json(lease): Json<Value>) -> Response {
    api.answer(|inner| match inner.lease {
        None => inner.store(lease),
        Some(_) => status(StatusCode::CONFLICT, "AlreadyExists"),
    })
    .await
}

async fn replace(
    State(api): State<FakeApi>,
    Path(_name): Path<String>,
    Json(lease): Json<Value>,
) -> Response {
    api.answer(|inner| {
        let current = inner
            .lease
            .as_ref()
            .map(|lease| lease["metadata"]["resourceVersion"].clone());
        match current {
            Some(current) if current == lease["metadata"]["resourceVersion"] => inner.store(lease),
            Some(_) => status(StatusCode::CONFLICT, "Conflict"),
            None => status(StatusCode::NOT_FOUND, "NotFound"),
        }
    })
    .await
}

fn status(code: StatusCode, reason: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16()});
    (code, Json(body)).into_response()
}
