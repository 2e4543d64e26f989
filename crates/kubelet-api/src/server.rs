//! The kubelet's paths, and who answers them.

use crate::auth::{self, Auth};
use crate::{Backend, Term, health, logs, metrics, pods, stats, stream, streams};
use axum::Router;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, on};
use http::{StatusCode, header};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Deadlines of requests and streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of a call to the backend that is not a stream. Default 30 s.
    pub call: Duration,
    /// Of exec, attach and port-forward streams.
    pub streams: stream::Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(30),
            streams: stream::Limits {
                idle: Duration::from_secs(4 * 3_600),
                creation: Duration::from_secs(30),
            },
        }
    }
}

/// The virtual node that a request addresses. Each [listener](crate::listeners) serves one node and stores
/// this in the extensions of its requests.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node.
    pub name: Arc<str>,
    /// Time in which this process serves the node. When it ends, streams end, and the backend is called no
    /// more.
    pub term: Term,
    /// The tasks of its streams: connections that were upgraded and are no requests any more.
    pub streams: TaskTracker,
}

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) settings: Settings,
}

/// The kubelet's paths for all nodes. Each request needs a [`Node`] in its extensions; `auth` decides about
/// all of them, those for paths that do not exist included.
pub fn router(backend: Arc<dyn Backend>, settings: Settings, auth: Auth) -> Router {
    routes(backend, settings).layer(axum::middleware::from_fn_with_state(auth, auth::guard))
}

/// The paths alone, of which each request needs a [`Node`] too. Who may ask is the caller's to decide:
/// whoever reaches them runs commands in containers.
pub fn routes(backend: Arc<dyn Backend>, settings: Settings) -> Router {
    /// Methods of streams: WebSocket clients come with GET, SPDY's with POST.
    const STREAM: MethodFilter = MethodFilter::GET.or(MethodFilter::POST);
    let mut router = Router::new()
        // Of these the kubelet looks at no method.
        .route("/healthz", any(health::all))
        .route("/healthz/{check}", any(health::one));
    for path in ["/metrics/resource", "/metrics/resource/"] {
        router = router.route(path, any(metrics::resource));
    }
    for path in ["/pods", "/pods/"] {
        router = router.route(path, only(MethodFilter::GET, "GET", pods::all));
    }
    for path in ["/runningpods", "/runningpods/"] {
        router = router.route(path, only(MethodFilter::GET, "GET", pods::running));
    }
    for path in ["/stats/summary", "/stats/summary/"] {
        router = router.route(path, only(STREAM, "GET, POST", stats::summary));
    }
    router = router.route(
        "/containerLogs/{namespace}/{pod}/{container}",
        only(MethodFilter::GET, "GET", logs::container),
    );
    for path in [
        "/{namespace}/{pod}/{container}",
        "/{namespace}/{pod}/{uid}/{container}",
    ] {
        router = router
            .route(&format!("/exec{path}"), only(STREAM, "GET, POST", streams::exec))
            .route(
                &format!("/attach{path}"),
                only(STREAM, "GET, POST", streams::attach),
            )
            .route(
                &format!("/run{path}"),
                only(MethodFilter::POST, "POST", streams::run),
            );
    }
    for path in [
        "/portForward/{namespace}/{pod}",
        "/portForward/{namespace}/{pod}/{uid}",
    ] {
        router = router.route(path, only(STREAM, "GET, POST", streams::port_forward));
    }
    // What a kubelet has beside: said in words rather than looked for in vain.
    for (path, why) in [
        (
            "/metrics",
            "the process that serves virtual nodes tells its own metrics on its --admin address",
        ),
        ("/metrics/slis", "virtual nodes have no component SLIs"),
        (
            "/metrics/cadvisor",
            "virtual nodes have no cAdvisor: see /metrics/resource and /stats/summary",
        ),
        (
            "/metrics/probes",
            "the process that serves virtual nodes tells their probes' metrics on its --admin address",
        ),
        (
            "/checkpoint/{*rest}",
            "virtual nodes cannot checkpoint containers",
        ),
        ("/configz", "virtual nodes have no kubelet configuration"),
        ("/flagz", "virtual nodes have no kubelet flags"),
        ("/statusz", "virtual nodes have no status page"),
        ("/logs", "virtual nodes have no system logs"),
        ("/logs/{*rest}", "virtual nodes have no system logs"),
        ("/debug/{*rest}", "virtual nodes have no profiling or debug flags"),
    ] {
        router = router.route(
            path,
            any(move || async move { text(StatusCode::NOT_FOUND, format!("{why}\n")) }),
        );
    }
    router
        .fallback(|| async { text(StatusCode::NOT_FOUND, "404 page not found\n") })
        .with_state(Server { backend, settings })
}

/// A handler for some methods; all others, HEAD among them, are answered as go-restful does.
fn only<H, T>(methods: MethodFilter, allow: &'static str, handler: H) -> MethodRouter<Server>
where
    H: Handler<T, Server>,
    T: 'static,
{
    let refuse = move || async move {
        let refusal = text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        ([(header::ALLOW, allow)], refusal)
    };
    on(methods, handler).head(refuse).fallback(refuse)
}

/// An answer in words.
pub(crate) fn text(status: StatusCode, words: impl Into<String>) -> Response {
    (status, words.into()).into_response()
}

/// An answer in JSON that is written down already.
pub(crate) fn json(body: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}
