//! The HTTP API of a kubelet.
//!
//! Each node has a listener of its own, since requests do not name the node; certificate, authentication and
//! authorization are shared.

pub mod auth;
mod call;
pub mod doors;
mod health;
pub mod kubelet;
mod logs;
mod metrics;
mod pods;
pub mod spdy;
mod stats;
pub mod stream;
mod streams;
pub mod tls;

use crate::ownership::Term;
use crate::provider::{ContainerId, Fault, PodId, Provider};
use auth::Auth;
use axum::Router;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, on};
use futures::future::BoxFuture;
use http::{StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// What the server asks of who runs the pods.
pub trait Backend: Send + Sync + 'static {
    /// The provider behind it.
    fn provider(&self) -> &Arc<dyn Provider>;

    /// The pods of a node, as they are now.
    fn pods<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Vec<Arc<Pod>>>;

    /// A container's newest instance, or the one before it. `uid`: of the pod, where the request names it.
    fn container<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<(PodId, ContainerId), Fault>>;

    /// A pod by name.
    fn pod<'a>(
        &'a self,
        node: &'a str,
        namespace: &'a str,
        name: &'a str,
        uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(PodId, Arc<Pod>), Fault>>;

    /// Why a node is not well; `None` if it is.
    fn ill(&self, node: &str) -> Option<String>;
}

/// A container that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose kubelet was asked.
    pub node: Arc<str>,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// UID of its pod, where told.
    pub uid: Option<String>,
    /// Its name.
    pub container: String,
    /// The instance before the newest.
    pub previous: bool,
}

/// How the server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Deadline of a provider's call that is not a stream. 30 s.
    pub call: Duration,
    /// Of exec, attach and port-forward.
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

/// Whose kubelet is asked; in the extensions of each request that comes by a [door](doors).
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node.
    pub name: Arc<str>,
    /// For how long the node is served here: then streams end, and nothing more is asked of the provider.
    pub term: Term,
    /// The tasks of its streams: connections that were upgraded and are no requests any more.
    pub streams: TaskTracker,
}

/// What handlers share.
#[derive(Clone)]
struct Server {
    backend: Arc<dyn Backend>,
    settings: Settings,
}

/// The kubelet's paths for all nodes. Each request needs a [`Node`] in its extensions; `auth` decides about all of
/// them, those for paths that do not exist included.
pub fn router(backend: Arc<dyn Backend>, settings: Settings, auth: Auth) -> Router {
    routes(backend, settings).layer(axum::middleware::from_fn_with_state(auth, auth::guard))
}

/// The paths alone.
pub(crate) fn routes(backend: Arc<dyn Backend>, settings: Settings) -> Router {
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
fn text(status: StatusCode, words: impl Into<String>) -> Response {
    (status, words.into()).into_response()
}

/// An answer in JSON that is written down already.
fn json(body: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
