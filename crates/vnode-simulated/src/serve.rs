//! Servers of simulated containers: HTTP/1.1, HTTP/2 in the clear, gRPC health and bare TCP on one port, on
//! real sockets or within the process.
//!
//! | path | answer |
//! |---|---|
//! | what a probe asks | 200, or 503 as the probe's script says |
//! | `/healthz` | 200; 500 once `healthy-for` is over |
//! | `/echo` | the request's body |
//! | `/redirect` | 302 to `/healthz` |
//! | `/redirect?URL` | 302 to there, wherever that is |
//! | anything else | 200 and who answers |

use super::plan::{Answer, Serve};
use super::shape::Shape;
use super::{Inner, Simulated};
use bytes::Bytes;
use evenkeel_vnode::provider::{Fault, FaultKind};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longest body that is echoed.
const ECHO: usize = 1 << 20;
/// Connections of one container at a time.
const CONNECTIONS: usize = 256;

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Clone)]
struct Server {
    inner: Weak<Inner>,
    uid: Arc<str>,
    number: u64,
    port: u16,
}

/// Opens a container's sockets; they close when the guard is dropped.
pub(super) fn listen(
    provider: &Simulated,
    uid: &Arc<str>,
    number: u64,
    address: Option<IpAddr>,
    shape: &Arc<Shape>,
    _: &Serve,
) -> Result<DropGuard, Fault> {
    let failed = |message: String| Fault::new(FaultKind::Later, "RunContainerError", message);
    let address = address.ok_or_else(|| failed("the pod has no address to serve on".to_owned()))?;
    let (token, guard) = super::live::Live::token();
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    for port in shape.listens() {
        let socket = SocketAddr::new(address, port);
        let listener = bind(socket).map_err(|error| {
            failed(format!(
                "container {:?} cannot listen on {socket}: {error}; real sockets need an address in 127/8, a free port, \
                 and leave to use ports below 1024",
                shape.name
            ))
        })?;
        let server = Server {
            inner: Arc::downgrade(&provider.0),
            uid: uid.clone(),
            number,
            port,
        };
        tokio::spawn(accept(listener, server, token.clone(), connections.clone()));
    }
    Ok(guard)
}

fn bind(socket: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn accept(
    listener: TcpListener,
    server: Server,
    token: CancellationToken,
    connections: Arc<Semaphore>,
) {
    loop {
        let stream: TcpStream = tokio::select! {
            () = token.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a simulated container could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let Ok(permit) = connections.clone().try_acquire_owned() else {
            // As a server that is overloaded: the connection is closed at once.
            continue;
        };
        let server = server.clone();
        tokio::spawn(token.clone().run_until_cancelled_owned(async move {
            serve(server, stream).await;
            drop(permit);
        }));
    }
}

/// Answers on one connection within the process, until the token is cancelled.
pub(super) fn answer(
    provider: &Simulated,
    uid: Arc<str>,
    number: u64,
    port: u16,
    token: CancellationToken,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let server = Server {
        inner: Arc::downgrade(&provider.0),
        uid,
        number,
        port,
    };
    tokio::spawn(token.run_until_cancelled_owned(serve(server, stream)));
}

async fn serve(server: Server, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    let service = hyper::service::service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(server.respond(request).await) }
    });
    let connection = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
        // Clients that open a connection to see whether it opens end here.
        tracing::trace!(error, "a connection to a simulated container ended");
    }
}

/// What a server knows of its container at a moment.
struct Now {
    pod: String,
    shape: Arc<Shape>,
    since: Duration,
}

impl Server {
    fn now(&self) -> Option<Now> {
        let inner = self.inner.upgrade()?;
        let now = inner.now();
        let mut table = inner.table();
        let (record, _) = table.pod(&self.uid)?;
        let pod = record.id.to_string();
        let instance = record
            .instance(self.number)
            .filter(|instance| instance.ended.is_none())?;
        Some(Now {
            pod,
            shape: instance.shape.clone(),
            since: Duration::try_from(now.duration_since(instance.started)).unwrap_or_default(),
        })
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let Some(now) = self.now() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "the container has ended\n");
        };
        let path = request.uri().path().to_owned();
        if path == "/grpc.health.v1.Health/Check" {
            return self.health(&now, request).await;
        }
        if request
            .headers()
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
        {
            return grpc(None, 12);
        }
        if let Some(answer) = self.script(&now, &path) {
            return match answer {
                Answer::Good => plain(StatusCode::OK, "ok\n"),
                Answer::Bad | Answer::Broken => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
                Answer::Silent => std::future::pending().await,
            };
        }
        match path.as_str() {
            "/healthz" => {
                let healthy_for = now.shape.plan.serve.as_ref().and_then(|serve| serve.healthy_for);
                if healthy_for.is_some_and(|span| now.since >= span) {
                    plain(StatusCode::INTERNAL_SERVER_ERROR, "unhealthy\n")
                } else {
                    plain(StatusCode::OK, "ok\n")
                }
            }
            "/echo" => match Limited::new(request.into_body(), ECHO).collect().await {
                Ok(body) => Response::new(Full::new(body.to_bytes()).boxed_unsync()),
                Err(error) => plain(StatusCode::PAYLOAD_TOO_LARGE, &format!("{error}\n")),
            },
            "/redirect" => {
                let to = request.uri().query().filter(|query| !query.is_empty());
                let mut response = plain(StatusCode::FOUND, "");
                if let Ok(to) = to.unwrap_or("/healthz").parse() {
                    response.headers_mut().insert(http::header::LOCATION, to);
                }
                response
            }
            _ => plain(
                StatusCode::OK,
                &format!(
                    "{} of {} on port {}: {} {path}\n",
                    now.shape.name,
                    now.pod,
                    self.port,
                    request.method()
                ),
            ),
        }
    }

    /// What the scripts of the probes that ask this say; the worst of them. `None`: no probe with a script
    /// asks this.
    fn script(&self, now: &Now, what: &str) -> Option<Answer> {
        let asked = now
            .shape
            .asked
            .iter()
            .filter(|asked| asked.port == self.port && asked.what.as_deref() == Some(what));
        let answers = asked.filter_map(|asked| Some(now.shape.plan.script(asked.kind)?.at(now.since)));
        let mut found = None;
        for answer in answers {
            if found.is_none() || answer != Answer::Good {
                found = Some(answer);
            }
        }
        found
    }

    async fn health(&self, now: &Now, request: Request<Incoming>) -> Response<Body> {
        let service = match Limited::new(request.into_body(), 4096).collect().await {
            Ok(body) => service(&body.to_bytes()),
            Err(error) => {
                tracing::debug!(error, "no request for a gRPC health check");
                return grpc(None, 3);
            }
        };
        match self.script(now, &service) {
            Some(Answer::Good) | None => grpc(Some(1), 0),
            Some(Answer::Bad) => grpc(Some(2), 0),
            // Unavailable.
            Some(Answer::Broken) => grpc(None, 14),
            Some(Answer::Silent) => std::future::pending().await,
        }
    }
}

/// The service's name in `HealthCheckRequest`: a frame of five bytes of head, then field 1 as a string.
fn service(frame: &[u8]) -> String {
    match frame.get(5..) {
        Some([0x0a, length, name @ ..]) if *length < 0x80 => {
            String::from_utf8_lossy(name.get(..usize::from(*length)).unwrap_or_default()).into_owned()
        }
        _ => String::new(),
    }
}

/// A `HealthCheckResponse` with field 1 as this number, and the call's status.
fn grpc(serving: Option<u8>, status: u32) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    let message = serving.map(|serving| Frame::data(Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 0x08, serving])));
    let frames = message.into_iter().chain([Frame::trailers(trailers)]).map(Ok);
    let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)).boxed_unsync());
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/grpc"),
    );
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())).boxed_unsync());
    *response.status_mut() = status;
    response
}
