//! A kubelet that knows one pod and answers what its tests need.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use evenkeel_net::pki::{Ca, ServerNames, Validity};
use evenkeel_net::serve::{PeerIdentity, ServerTls, serve_https};
use futures::StreamExt;
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A small kubelet.
pub(crate) struct StandIn {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Seen>,
}

/// What it was asked, and what a test tells it.
pub(crate) struct Seen {
    /// Method, path and query, with the common name of the caller.
    pub(crate) requests: Mutex<Vec<String>>,
    /// Lines of a followed log so far.
    pub(crate) lines: watch::Sender<usize>,
    /// Followed logs that are being read.
    pub(crate) following: watch::Sender<usize>,
    /// Answer of `/stats/summary`.
    pub(crate) summary: Mutex<String>,
}

/// Counts a followed log down when it is dropped.
struct Following(Arc<Seen>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.following.send_modify(|count| *count -= 1);
    }
}

fn validity() -> Validity {
    let now = jiff::Timestamp::now().as_second();
    Validity {
        from: now - 60,
        until: now + 3_600,
    }
}

impl StandIn {
    pub(crate) async fn start(ca: &Ca, stop: CancellationToken) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let names = ServerNames {
            dns: Vec::new(),
            ips: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        };
        let identity = ca
            .issue_server("system:node:n1", &names, validity())
            .expect("a certificate");
        let tls = ServerTls::new(&identity, Some(ca.certificate_pem())).expect("TLS");
        let seen = Arc::new(Seen {
            requests: Mutex::default(),
            lines: watch::Sender::new(2),
            following: watch::Sender::new(0),
            summary: Mutex::default(),
        });
        let app =
            Router::new()
                .route("/healthz", get(|| async { "ok" }))
                .route(
                    "/moved",
                    get(|| async { (axum::http::StatusCode::FOUND, [("location", "/healthz")]) }),
                )
                .route("/echo", any(echo_body))
                .route("/containerLogs/{namespace}/{pod}/{container}", get(logs))
                .route("/exec/{namespace}/{pod}/{container}", any(upgraded))
                .route("/attach/{namespace}/{pod}/{container}", any(upgraded))
                .route("/portForward/{namespace}/{pod}", any(upgraded))
                .route(
                    "/stats/summary",
                    get(|State(seen): State<Arc<Seen>>| async move {
                        seen.summary.lock().expect("no panic").clone()
                    }),
                )
                .layer(axum::middleware::from_fn_with_state(seen.clone(), record))
                .with_state(seen.clone());
        tokio::spawn(serve_https(listener, tls, app, stop));
        Self { port, seen }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().expect("no panic").clone()
    }
}

async fn record(State(seen): State<Arc<Seen>>, request: Request, next: axum::middleware::Next) -> Response {
    let peer = request
        .extensions()
        .get::<PeerIdentity>()
        .cloned()
        .unwrap_or_default();
    let known = peer.certificate.is_some_and(|der| {
        let wanted = b"kube-apiserver-kubelet-client";
        der.windows(wanted.len()).any(|window| window == wanted)
    });
    let credentials = request.headers().contains_key("authorization");
    let line = format!("{} {}", request.method(), request.uri());
    seen.requests.lock().expect("no panic").push(line);
    if !known || credentials {
        return (axum::http::StatusCode::UNAUTHORIZED, "who are you?").into_response();
    }
    next.run(request).await
}

async fn echo_body(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = Response::new(body);
    let method = parts.method.as_str().parse().expect("a header");
    response.headers_mut().insert("x-method", method);
    response
}

fn line(number: usize, container: &str) -> String {
    format!("{number} of {container}\n")
}

async fn logs(
    State(seen): State<Arc<Seen>>,
    Path((_, pod, container)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    if pod == "waits" {
        let text = format!("container {container:?} in pod {pod:?} is waiting to start: ContainerCreating");
        return (axum::http::StatusCode::BAD_REQUEST, text).into_response();
    }
    let query = request.uri().query().unwrap_or_default();
    if !query.contains("follow=true") {
        return format!("1 of {container}\n2 of {container}\n").into_response();
    }
    seen.following.send_modify(|count| *count += 1);
    let following = Following(seen.clone());
    let lines = seen.lines.subscribe();
    let stream = futures::stream::unfold((0, lines, following), move |(mut at, mut lines, following)| {
        let container = container.clone();
        async move {
            let count = *lines.wait_for(|count| *count > at).await.ok()?;
            let mut text = String::new();
            while at < count {
                at += 1;
                text.push_str(&line(at, &container));
            }
            Some((Ok::<_, std::convert::Infallible>(text), (at, lines, following)))
        }
    });
    Response::new(Body::from_stream(stream.boxed()))
}

/// Speaks a protocol of its own: a greeting, then everything comes back in capitals.
async fn upgraded(mut request: Request) -> Response {
    let Some(protocol) = request.headers().get("upgrade").cloned() else {
        return (axum::http::StatusCode::BAD_REQUEST, "no upgrade").into_response();
    };
    if request.uri().path().contains("/refuses/") {
        return (axum::http::StatusCode::FORBIDDEN, "not in this pod").into_response();
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.expect("an upgraded connection"));
        io.write_all(b"hello\n").await.expect("a reader");
        let mut chunk = [0; 1024];
        while let Ok(read @ 1..) = io.read(&mut chunk).await {
            let loud = chunk[..read].to_ascii_uppercase();
            if io.write_all(&loud).await.is_err() {
                return;
            }
        }
        // What is said after the other side has ended still has to arrive.
        let _ = io.write_all(b"bye\n").await;
        let _ = io.shutdown().await;
    });
    Response::builder()
        .status(101)
        .header("connection", "Upgrade")
        .header("upgrade", protocol)
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .body(Body::empty())
        .expect("a response")
}
