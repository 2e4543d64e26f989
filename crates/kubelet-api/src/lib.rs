//! The HTTP API of a kubelet, for anything that runs pods: logs, exec, attach, port-forward and statistics, over TLS, with the
//! kubelet's authentication and authorization, in the kubelet's words.
//!
//! Whoever runs the pods implements [`Backend`]. [`kubelet::KubeletApi`] puts together what a process needs to serve the
//! API for its nodes: each node has a listener of its own, since requests do not name the node; certificate, authentication
//! and authorization are shared.
//!
//! ```no_run
//! use evenkeel_kubelet_api::{Backend, auth::Rules, kubelet::*, listeners, tls::signed};
//! use std::{error::Error, net::SocketAddr, sync::Arc};
//! use tokio_util::sync::CancellationToken;
//!
//! async fn serve(backend: Arc<dyn Backend>, client: kube::Client) -> Result<SocketAddr, Box<dyn Error>> {
//!     let address = [10, 0, 0, 7].into();
//!     let api = KubeletApi {
//!         listeners: listeners::Settings { address, first_port: 10_250 },
//!         certificate: Certificate::Signed(signed::Settings::new("my-kubelet"), [address].into()),
//!         clients: Clients::Published,
//!         rules: Rules::default(),
//!     };
//!     let stop = CancellationToken::new();
//!     let listeners = api.prepare().await?.begin(&client, &stop).serve(backend, stop);
//!     Ok(listeners.open("my-node")?)
//! }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`kubelet`] | listeners, certificate, authority of clients and authorization, put together |
//! | [`listeners`] | one listener per node |
//! | [`auth`] | who may ask what: TokenReview and SubjectAccessReview |
//! | [`tls`] | certificates from files or from the cluster's signer, and whose client certificates count |
//! | [`stream`] | exec, attach and port-forward over SPDY and WebSocket, for who serves them under other paths |
//! | [`spdy`] | SPDY/3.1, as far as Kubernetes speaks it |

pub mod auth;
mod backend;
mod call;
mod fault;
mod health;
mod id;
mod io;
pub mod kubelet;
pub mod listeners;
mod logs;
mod metrics;
mod pods;
pub mod spdy;
mod stats;
pub mod stream;
mod streams;
mod term;
pub mod tls;
mod usage;

pub use backend::{Backend, Wanted};
pub use fault::{Fault, FaultKind};
pub use id::{ContainerId, PodId};
pub use io::{Duplex, ExecIo, LogOptions, LogStream, Streams, TerminalSize};
pub use term::Term;
pub use usage::{ContainerStats, NodeStats, PodStats};

use auth::Auth;
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

/// The virtual node that a request addresses. Each [listener](listeners) serves one node and stores this in the extensions of its
/// requests.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node.
    pub name: Arc<str>,
    /// Time in which this process serves the node. When it ends, streams end, and the backend is called no more.
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

/// The paths alone, of which each request needs a [`Node`] too. Who may ask is the caller's to decide: whoever reaches them runs
/// commands in containers.
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
