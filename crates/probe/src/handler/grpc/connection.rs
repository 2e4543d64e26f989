//! One HTTP/2 connection for one health check.

use crate::core::Tls;
use evenkeel_probe_handlers::wording::{self, quote};
use evenkeel_probe_handlers::{dial, tls};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use preface::{Opened, Watched};
use rustls::ClientConfig;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

mod preface;

/// What the server is told of us.
const AGENT: HeaderValue = HeaderValue::from_static("kube-probe/1.36");
/// What the content type of gRPC begins with.
const GRPC: &[u8] = b"application/grpc";
/// Largest answer that is read. One that says what we ask for has three bytes.
const MESSAGE: usize = 64 << 10;
/// Largest list of headers that is read.
const HEADERS: u32 = 64 << 10;
/// How much the peer may send ahead; also HTTP/2's own default.
const WINDOW: u32 = 0xffff;

/// How a check went.
pub(super) enum Attempted {
    /// The call ended: a serving status, or why there is none.
    Answered(Result<i32, Status>),
    /// Nobody who speaks HTTP/2 was reached, and why.
    NotConnected(String),
}

/// Where to connect, and whether that has worked.
pub(super) struct Connection<'a> {
    address: SocketAddr,
    source: Option<IpAddr>,
    tls: Option<&'a Tls>,
    opened: Opened,
}

impl<'a> Connection<'a> {
    pub(super) fn new(address: SocketAddr, source: Option<IpAddr>, tls: Option<&'a Tls>) -> Self {
        Self {
            address,
            source,
            tls,
            opened: Opened::default(),
        }
    }

    /// Whether the peer has greeted us as an HTTP/2 server does: that is when grpc-go calls a connection
    /// ready.
    pub(super) fn is_open(&self) -> bool {
        self.opened.get()
    }

    /// Connects and asks for the health of `service`. `deadline` is what the peer is told; the caller
    /// enforces it.
    pub(super) async fn check(&self, service: &str, deadline: Instant) -> Attempted {
        let connection = match dial::connect(self.address, self.source).await {
            Ok(connection) => connection,
            Err(error) => {
                return Attempted::NotConnected(wording::dial(self.address, self.source, &error));
            }
        };
        let ends = connection.ends();
        let stream = match connection.into_stream() {
            Ok(stream) => stream,
            Err(error) => return Attempted::NotConnected(wording::system(&error)),
        };
        match self.tls {
            None => self.call(stream, service, deadline).await,
            Some(trust) => match self.shake_hands(stream, trust, ends).await {
                Ok(stream) => self.call(stream, service, deadline).await,
                Err(why) => Attempted::NotConnected(why),
            },
        }
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        trust: &Tls,
        ends: wording::Ends,
    ) -> Result<TlsStream<tls::RecordedStream>, String> {
        let name = tls::server_name(trust, &self.address.ip().to_string(), &stream)?;
        let mut settings = ClientConfig::clone(&*tls::settings(trust)?);
        settings.alpn_protocols = vec![b"h2".to_vec()];
        tls::connect(stream, Arc::new(settings), name, ends).await
    }

    async fn call<S>(&self, stream: S, service: &str, deadline: Instant) -> Attempted
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (tasks, queue) = mpsc::unbounded_channel();
        let tasks = Tasks(tasks);
        let call = async {
            let io = TokioIo::new(Watched::new(stream, self.opened.clone()));
            let (sender, connection) = Builder::new(tasks.clone())
                .timer(TokioTimer::new())
                .max_header_list_size(HEADERS)
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOW)
                .handshake(io)
                .await
                .map_err(|error| Status::from_error(Box::new(error)))?;
            tasks.execute(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "the connection of a gRPC probe broke");
                }
            });
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            let origin = Uri::builder()
                .scheme(scheme)
                .authority(self.address.to_string())
                .path_and_query("/")
                .build()
                .map_err(|error| Status::from_error(Box::new(error)))?;
            let mut request = tonic::Request::new(HealthCheckRequest {
                service: service.to_owned(),
            });
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
            HealthClient::with_origin(Sender(sender), origin)
                .max_decoding_message_size(MESSAGE)
                .check(request)
                .await
        };
        let answer = drive(call, queue).await;
        match answer {
            Err(status) if !self.is_open() => {
                let source = || std::error::Error::source(&status);
                Attempted::NotConnected(match (self.opened.why_not(), source()) {
                    (Some(why), _) => why.to_owned(),
                    (None, Some(source)) => evenkeel_net::log::causes(source),
                    (None, None) => status.message().to_owned(),
                })
            }
            answer => Attempted::Answered(answer.map(|response| response.into_inner().status)),
        }
    }
}

/// Takes the tasks of a connection, to be run by [`drive`] instead of the runtime.
#[derive(Clone)]
struct Tasks(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        // Nobody takes it only when the call is over, and the task with it.
        let _ = self.0.send(Box::pin(async move {
            task.await;
        }));
    }
}

/// Runs `call` and the tasks that it queues; drops the latter with it.
async fn drive<T>(
    call: impl Future<Output = T>,
    mut queue: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>,
) -> T {
    let mut running = FuturesUnordered::new();
    tokio::pin!(call);
    loop {
        tokio::select! {
            done = &mut call => return done,
            Some(task) = queue.recv() => running.push(task),
            Some(()) = running.next() => {}
        }
    }
}

/// The connection as a client of tonic's wants it.
struct Sender(SendRequest<Body>);

impl tower::Service<Request<Body>> for Sender {
    type Response = Response<Incoming>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().insert(USER_AGENT, AGENT);
        let answer = self.0.send_request(request);
        Box::pin(async move {
            let answer = answer.await?;
            match foreign(&answer) {
                None => Ok(answer),
                Some(status) => Err(status.into()),
            }
        })
    }
}

/// What grpc-go says of an answer that is no gRPC: a page, an error of a proxy.
fn foreign<B>(answer: &Response<B>) -> Option<Status> {
    let why = match answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes) {
        None => "malformed header: missing HTTP content-type".to_owned(),
        Some(kind) => {
            let rest = kind
                .get(..GRPC.len())
                .filter(|begin| begin.eq_ignore_ascii_case(GRPC))
                .map(|begin| &kind[begin.len()..]);
            if rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';'))) {
                return None;
            }
            format!("transport: received unexpected content-type {}", quote(kind))
        }
    };
    let status = answer.status();
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    let reason = status.canonical_reason().unwrap_or_default();
    let number = status.as_u16();
    Some(Status::new(
        code,
        format!("unexpected HTTP status code received from server: {number} ({reason}); {why}"),
    ))
}
