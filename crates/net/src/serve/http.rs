//! HTTP on one connection.

use super::limit::Permit;
use super::{DRAIN, HANDSHAKE, IDLE, PeerIdentity};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

/// With what a client of HTTP/2 begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// HTTP/1.1, or 1.0.
    One,
    /// HTTP/2.
    Two,
}

impl Version {
    /// What TLS has agreed upon; `None` without an agreement.
    pub(super) fn of_alpn(protocol: Option<&[u8]>) -> Option<Self> {
        match protocol? {
            b"h2" => Some(Self::Two),
            _ => Some(Self::One),
        }
    }
}

/// A connection with what was read of it already. It holds its permit until it is closed, upgraded or not.
struct Begun<S> {
    read: Bytes,
    stream: S,
    _permit: Option<Permit>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let count = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..count]);
        self.read.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }
}

/// Reads what tells the version; `None` where nothing more comes.
async fn version(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(Version, Bytes)>> {
    let mut read = BytesMut::with_capacity(PREFACE.len());
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
        let known = read.len().min(PREFACE.len());
        if read[..known] != PREFACE[..known] {
            return Ok(Some((Version::One, read.freeze())));
        }
        if known == PREFACE.len() {
            return Ok(Some((Version::Two, read.freeze())));
        }
    }
}

/// The requests under way on a connection.
#[derive(Clone)]
struct UnderWay(watch::Sender<usize>);

/// One of them, until its answer has been written or given up.
struct Request(watch::Sender<usize>);

impl UnderWay {
    fn begin(&self) -> Request {
        self.0.send_modify(|open| *open += 1);
        Request(self.0.clone())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Waits until no request has been under way for `limit`.
async fn idle(mut open: watch::Receiver<usize>, limit: Duration) {
    loop {
        if open.wait_for(|open| *open == 0).await.is_err() {
            return std::future::pending().await;
        }
        // Also a request that came and went meanwhile is a change.
        if tokio::time::timeout(limit, open.changed()).await.is_err() {
            return;
        }
    }
}

/// An answer's body with its request.
struct Answer {
    body: axum::body::Body,
    _request: Request,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves a connection until it ends, is idle for too long, or `closing`. Without a `version` it is what the
/// client begins with.
pub(super) async fn serve<S, T>(
    mut stream: S,
    version: Option<Version>,
    permit: Option<Permit>,
    peer: PeerIdentity,
    app: axum::Router,
    tag: T,
    closing: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    let address = peer.address;
    let (version, read) = if let Some(version) = version {
        (version, Bytes::new())
    } else {
        let told = tokio::select! {
            // Nobody waits for an answer on it yet.
            () = closing.cancelled() => return,
            told = tokio::time::timeout(HANDSHAKE, self::version(&mut stream)) => told,
        };
        match told {
            Ok(Ok(Some(told))) => told,
            Ok(Ok(None)) => return,
            Ok(Err(error)) => {
                tracing::debug!(?address, %error, "a connection ended before its first request");
                return;
            }
            Err(_) => {
                tracing::debug!(?address, after = ?HANDSHAKE, "a client opened a connection and said nothing");
                return;
            }
        }
    };
    let under_way = UnderWay(watch::Sender::new(0));
    let idle = idle(under_way.0.subscribe(), IDLE);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(tag.clone());
        // A router is always ready, so `call` needs no `ready` before it.
        let (answer, guard) = (app.clone().call(request), under_way.begin());
        async move {
            answer.await.map(|answer| {
                answer.map(|body| Answer {
                    body,
                    _request: guard,
                })
            })
        }
    });
    let io = TokioIo::new(Begun {
        read,
        stream,
        _permit: permit,
    });
    // Both kinds of connections have a graceful shutdown, but no trait has it.
    macro_rules! until_done {
        ($connection:expr, $idle:expr) => {{
            let mut connection = std::pin::pin!($connection);
            tokio::select! {
                served = connection.as_mut() => served,
                () = async { tokio::select! { () = closing.cancelled() => {}, () = $idle => {} } } => {
                    // What is under way may be finished; nothing new is begun.
                    connection.as_mut().graceful_shutdown();
                    let Ok(served) = tokio::time::timeout(DRAIN, connection).await else {
                        tracing::info!(?address, "cutting a connection that did not end by itself");
                        return;
                    };
                    served
                }
            }
        }};
    }
    let served = match version {
        Version::One => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
            // Its own timer ends it when it is idle.
            until_done!(
                builder.serve_connection(io, service).with_upgrades(),
                std::future::pending::<()>()
            )
        }
        Version::Two => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                // As kube-apiserver, so that clients which need more are found out here.
                .max_concurrent_streams(100)
                .keep_alive_interval(Duration::from_secs(30))
                .keep_alive_timeout(Duration::from_secs(20));
            until_done!(builder.serve_connection(io, service), idle)
        }
    };
    if let Err(error) = served {
        tracing::debug!(?address, %error, "connection ended with an error");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncWriteExt as _, DuplexStream};
    use tokio::task::JoinHandle;

    fn served(version: Option<Version>) -> (DuplexStream, JoinHandle<()>) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let endless = || async {
            let first = futures::stream::iter([Ok::<_, io::Error>("first")]);
            axum::body::Body::from_stream(futures::StreamExt::chain(first, futures::stream::pending()))
        };
        let app = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/endless", get(endless));
        let peer = PeerIdentity::default();
        let task = tokio::spawn(serve(
            ours,
            version,
            None,
            peer,
            app,
            (),
            CancellationToken::new(),
        ));
        (theirs, task)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_say_what_it_speaks_is_not_waited_for() {
        for begin in [&b""[..], b"PRI", &PREFACE[..23]] {
            let begun = tokio::time::Instant::now();
            let (mut client, task) = served(None);
            client.write_all(begin).await.unwrap();
            tokio::time::timeout(IDLE, task)
                .await
                .expect("it is closed")
                .unwrap();
            assert_eq!(begun.elapsed().as_secs(), HANDSHAKE.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_begins_in_pieces_is_understood() {
        let (mut client, _task) = served(None);
        for piece in [
            &b"P"[..],
            b"OST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        ] {
            client.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_http_2_connections_are_closed_and_those_with_a_request_are_not() {
        for version in [None, Some(Version::Two)] {
            let (client, task) = served(version);
            let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client));
            let (mut requests, connection) = connected.await.unwrap();
            let connection = tokio::spawn(connection);
            let request = |path: &str| {
                let uri = format!("http://x{path}");
                hyper::Request::get(uri).body(String::new()).unwrap()
            };
            let mut endless = requests.send_request(request("/endless")).await.unwrap();
            assert!(endless.frame().await.unwrap().is_ok());
            tokio::time::sleep(3 * IDLE).await;
            let short = requests.send_request(request("/")).await.unwrap();
            assert_eq!(short.collect().await.unwrap().to_bytes(), "here");
            tokio::time::sleep(3 * IDLE).await;
            assert!(!task.is_finished(), "a watch is under way");
            drop(endless);
            tokio::time::timeout(2 * IDLE, task)
                .await
                .expect("it is closed")
                .unwrap();
            connection.await.unwrap().unwrap();
        }
    }
}
