//! Requests passed on to a kubelet or a pod: plain ones as streams, upgraded ones byte by byte.
//!
//! One connection carries one request. What the client drops is dropped towards the peer, too: a body that
//! nobody reads closes its connection.

use super::transport::{Endpoint, Kubelets};
use axum::body::Body;
use bytes::Bytes;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_net::serve::subprotocol;
use futures::{StreamExt, TryStreamExt};
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

/// Headers that concern one connection (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// An upgraded connection of which one side has ended is closed once the other has said nothing for this
/// long.
const DRAIN: Duration = Duration::from_secs(10);
/// Bytes copied at once.
const CHUNK: usize = 32 * 1024;
/// How much of a kubelet's error is read; upstream's number.
const MOST_OF_AN_ERROR: usize = 50_000;

/// Whether a request wants another protocol on its connection.
pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|text| text.to_ascii_lowercase().contains("upgrade"))
    })
}

/// The client's headers without those that are for this server, or for this connection.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut passed = headers.clone();
    for name in HOP_BY_HOP {
        passed.remove(name);
    }
    for name in headers.get_all(header::CONNECTION) {
        for name in name.to_str().unwrap_or_default().split(',') {
            if let Ok(name) = HeaderName::try_from(name.trim()) {
                passed.remove(name);
            }
        }
    }
    // Who the client is at this server is nothing that the peer needs to know.
    let ours: Vec<HeaderName> = passed
        .keys()
        .filter(|name| {
            **name == header::AUTHORIZATION
                || **name == header::HOST
                || name.as_str().starts_with("impersonate-")
        })
        .cloned()
        .collect();
    for name in ours {
        passed.remove(name);
    }
    subprotocol::remove_tokens(&mut passed);
    passed
}

fn request(
    endpoint: &Endpoint,
    method: Method,
    path: &str,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Request<Body>> {
    let refuse = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("cannot pass on the request for {path:?}: {error}"))
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .body(body)
        .map_err(|error| refuse(&error))?;
    *request.headers_mut() = headers;
    let host = HeaderValue::try_from(endpoint.authority()).map_err(|error| refuse(&error))?;
    request.headers_mut().insert(header::HOST, host);
    Ok(request)
}

/// Sends a request over a connection of its own.
async fn send(
    kubelets: &Kubelets,
    endpoint: &Endpoint,
    request: Request<Body>,
) -> Result<Response<Incoming>, String> {
    let stream = kubelets.open(endpoint).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // Ends with the response's body, or when that is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to a kubelet ended");
        }
    });
    sender
        .send_request(request)
        .await
        .map_err(|error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
}

/// `GET` for the server itself. The error is one line in Go's words.
pub(crate) async fn get(
    kubelets: &Kubelets,
    endpoint: &Endpoint,
    path: &str,
) -> Result<Response<Incoming>, String> {
    let headers = HeaderMap::from_iter([(
        header::USER_AGENT,
        HeaderValue::from_static("kube-apiserver (evenkeel)"),
    )]);
    let failed = |why: String| format!("Get \"{}{path}\": {why}", endpoint.url());
    let request = request(endpoint, Method::GET, path, headers, Body::empty())
        .map_err(|error| failed(error.message))?;
    send(kubelets, endpoint, request).await.map_err(failed)
}

/// The body of a response as it comes, until the server stops.
pub(crate) fn stream(body: Incoming, shutdown: Option<CancellationToken>) -> Body {
    let data = body.into_data_stream().map_err(axum::Error::new);
    match shutdown {
        Some(shutdown) => Body::from_stream(data.take_until(shutdown.cancelled_owned())),
        None => Body::from_stream(data),
    }
}

/// The beginning of an error's text.
pub(crate) async fn error_text(body: Incoming) -> String {
    match Limited::new(body, MOST_OF_AN_ERROR).collect().await {
        Ok(collected) => String::from_utf8_lossy(&collected.to_bytes()).into_owned(),
        Err(error) => format!("the error's text cannot be read: {error}"),
    }
}

/// A request that is passed on with all it says.
pub(crate) struct Passed<'a> {
    pub(crate) endpoint: Endpoint,
    /// Path and query at the peer.
    pub(crate) path: String,
    /// Path of the proxy at this server, without final slash; empty where the peer is not proxied as a
    /// website.
    pub(crate) prefix: &'a str,
    pub(crate) shutdown: Option<CancellationToken>,
}

/// Passes a request on, and the answer back as it comes.
pub(crate) async fn plain(
    kubelets: &Kubelets,
    parts: &Parts,
    body: Body,
    passed: Passed<'_>,
) -> ApiResult<Response<Body>> {
    let mut headers = passed_on(&parts.headers);
    let host = parts
        .headers
        .get(header::HOST)
        .cloned()
        .or_else(|| HeaderValue::from_str(parts.uri.authority()?.as_str()).ok());
    let forwarded = HeaderName::from_static("x-forwarded-uri");
    if let Ok(uri) = HeaderValue::from_str(parts.uri.path()) {
        headers.insert(forwarded, uri);
    }
    if let Some(host) = host {
        headers.insert(HeaderName::from_static("x-forwarded-host"), host);
    }
    headers.insert(
        HeaderName::from_static("x-forwarded-proto"),
        HeaderValue::from_static("https"),
    );
    let request = request(
        &passed.endpoint,
        parts.method.clone(),
        &passed.path,
        headers,
        body,
    )?;
    let response = send(kubelets, &passed.endpoint, request).await.map_err(|why| {
        ApiError::new(
            503,
            "ServiceUnavailable",
            format!("error trying to reach service: {why}"),
        )
    })?;
    let mut answer = echo(response, passed.shutdown.clone());
    if !passed.prefix.is_empty() {
        rewrite_location(answer.headers_mut(), &passed);
    }
    Ok(answer)
}

/// A peer's answer without what concerned the connection to it.
fn echo(response: Response<Incoming>, shutdown: Option<CancellationToken>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    head.headers = passed_on(&head.headers);
    head.extensions.clear();
    head.version = http::Version::default();
    Response::from_parts(head, stream(body, shutdown))
}

/// A redirect to another path of the peer is one to a path below the proxy.
fn rewrite_location(headers: &mut HeaderMap, passed: &Passed<'_>) {
    let Some(location) = headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
    else {
        return;
    };
    let path = location.strip_prefix(&passed.endpoint.url()).unwrap_or(location);
    let below = path.starts_with('/') && !path.starts_with("//") && !path.starts_with(passed.prefix);
    if below && let Ok(value) = HeaderValue::from_str(&format!("{}{path}", passed.prefix)) {
        headers.insert(header::LOCATION, value);
    }
}

/// Passes a request for another protocol on, and then all bytes both ways.
pub(crate) async fn upgrade(
    kubelets: &Kubelets,
    parts: &mut Parts,
    passed: Passed<'_>,
) -> ApiResult<Response<Body>> {
    let mut headers = passed_on(&parts.headers);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    for value in parts.headers.get_all(header::UPGRADE) {
        headers.append(header::UPGRADE, value.clone());
    }
    // The body of such a request is empty; what the client sends next belongs to the new protocol.
    headers.remove(header::CONTENT_LENGTH);
    let request = request(
        &passed.endpoint,
        parts.method.clone(),
        &passed.path,
        headers,
        Body::empty(),
    )?;
    let Some(client) = parts.extensions.remove::<OnUpgrade>() else {
        return Err(ApiError::unforeseen(
            "request connection cannot be hijacked: it is no HTTP/1.1 connection",
        ));
    };
    let mut response = send(kubelets, &passed.endpoint, request)
        .await
        .map_err(|why| ApiError::unforeseen(format!("error dialing backend: {why}")))?;
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let peer = hyper::upgrade::on(&mut response);
        let (mut head, _empty) = response.into_parts();
        head.extensions.clear();
        tokio::spawn(join(client, peer, passed.shutdown.unwrap_or_default()));
        return Ok(Response::from_parts(head, Body::empty()));
    }
    if status.is_client_error() || status.is_server_error() {
        return Ok(echo(response, passed.shutdown));
    }
    Err(ApiError::unforeseen(format!(
        "invalid upgrade response: status code {}",
        status.as_u16()
    )))
}

async fn join(client: OnUpgrade, peer: OnUpgrade, shutdown: CancellationToken) {
    let both = async {
        match tokio::try_join!(client, peer) {
            Ok((client, peer)) => copy_both(TokioIo::new(client), TokioIo::new(peer)).await,
            Err(error) => tracing::debug!(%error, "an upgraded connection ended before it began"),
        }
    };
    // A stop cuts what is open.
    let _ = shutdown.run_until_cancelled(both).await;
}

/// Copies until both sides have ended, or one has and the other says nothing more for a while, or either
/// fails: then nobody is left to speak with, and both connections are closed.
async fn copy_both(client: impl AsyncRead + AsyncWrite, peer: impl AsyncRead + AsyncWrite) {
    let (mut client_reads, mut client_writes) = tokio::io::split(client);
    let (mut peer_reads, mut peer_writes) = tokio::io::split(peer);
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let up = copy(&mut client_reads, &mut peer_writes, &sent);
    let down = copy(&mut peer_reads, &mut client_writes, &received);
    tokio::pin!(up, down);
    let ended = tokio::select! {
        ended = &mut up => match ended {
            Ok(()) => drain(down, &received).await,
            failed => failed,
        },
        ended = &mut down => match ended {
            Ok(()) => drain(up, &sent).await,
            failed => failed,
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an upgraded connection failed");
    }
}

/// The direction that is left, until it ends or nothing has moved for a while.
async fn drain(rest: impl Future<Output = std::io::Result<()>>, moved: &AtomicU64) -> std::io::Result<()> {
    tokio::pin!(rest);
    loop {
        let before = moved.load(Ordering::Relaxed);
        match tokio::time::timeout(DRAIN, &mut rest).await {
            Ok(ended) => return ended,
            Err(_elapsed) if moved.load(Ordering::Relaxed) == before => return Ok(()),
            Err(_elapsed) => {}
        }
    }
}

/// Copies one direction to its end, and passes the end on. Counts chunks in `moved`.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            break;
        }
        to.write_all(&chunk[..read]).await?;
        to.flush().await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
    match tokio::time::timeout(DRAIN, to.shutdown()).await {
        Ok(Ok(())) => Ok(()),
        // It may have been closed already, with something to read in it still.
        Ok(Err(error)) => {
            tracing::debug!(%error, "an upgraded connection was closed already");
            Ok(())
        }
        Err(_elapsed) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read(response: Response<Incoming>, limit: usize) -> Result<Bytes, String> {
    Limited::new(response.into_body(), limit)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context as TaskContext, Poll};
    use tokio::time::Instant;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn credentials_and_hop_by_hop_headers_stay_here() {
        let passed = passed_on(&headers(&[
            ("authorization", "Bearer secret"),
            ("impersonate-user", "bob"),
            ("connection", "keep-alive, x-mine"),
            ("x-mine", "1"),
            ("upgrade", "SPDY/3.1"),
            ("accept", "*/*"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.czNjcmV0",
            ),
        ]));
        let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = ["accept", "sec-websocket-protocol", "x-stream-protocol-version"];
        assert_eq!(names, expected);
        let offered = &passed[header::SEC_WEBSOCKET_PROTOCOL];
        assert_eq!(
            offered, "base64url.bearer.authorization.k8s.io.",
            "without the token"
        );
    }

    /// A side of a connection, on which every read fails and every write succeeds.
    struct Broken;

    impl AsyncRead for Broken {
        fn poll_read(
            self: Pin<&mut Self>,
            _context: &mut TaskContext<'_>,
            _into: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()))
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(
            self: Pin<&mut Self>,
            _context: &mut TaskContext<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _context: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_fails_ends_both_at_once() {
        for client_fails in [true, false] {
            let (ours, _theirs) = tokio::io::duplex(64);
            let start = Instant::now();
            if client_fails {
                copy_both(Broken, ours).await;
            } else {
                copy_both(ours, Broken).await;
            }
            assert_eq!(
                start.elapsed(),
                Duration::ZERO,
                "the client failed: {client_fails}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_end_of_one_side_the_other_may_speak_as_long_as_it_does_not_fall_silent() {
        let (client, mut at_client) = tokio::io::duplex(64);
        let (peer, mut at_peer) = tokio::io::duplex(64);
        let copying = tokio::spawn(copy_both(client, peer));
        at_client.shutdown().await.unwrap();
        let mut rest = Vec::new();
        at_peer.read_to_end(&mut rest).await.unwrap();
        let start = Instant::now();
        for _ in 0..5 {
            tokio::time::sleep(DRAIN * 3 / 4).await;
            at_peer.write_all(b"x").await.unwrap();
        }
        at_client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"xxxxx");
        copying.await.unwrap();
        let most = DRAIN * 3 / 4 * 5 + DRAIN * 2;
        assert!(
            start.elapsed() <= most,
            "silence ended it after {:?}",
            start.elapsed()
        );
        assert_eq!(at_peer.read(&mut [0]).await.unwrap(), 0, "both are closed");
        assert!(at_peer.write_all(b"x").await.is_err(), "both are closed");
    }

    #[test]
    fn an_upgrade_is_one_option_of_the_connection() {
        assert!(wants_upgrade(&headers(&[("connection", "keep-alive, Upgrade")])));
        assert!(!wants_upgrade(&headers(&[("connection", "keep-alive")])));
        assert!(!wants_upgrade(&headers(&[("upgrade", "SPDY/3.1")])));
    }

    #[rstest::rstest]
    #[case("/a", "/p/proxy/a")]
    #[case("https://10.0.0.1:10250/a/", "/p/proxy/a/")]
    #[case("https://elsewhere/a", "https://elsewhere/a")]
    #[case("//elsewhere/a", "//elsewhere/a")]
    #[case("relative", "relative")]
    #[case("/p/proxy/a", "/p/proxy/a")]
    fn redirects_stay_below_the_proxy(#[case] location: &str, #[case] expected: &str) {
        let mut headers = HeaderMap::from_iter([(
            header::LOCATION,
            HeaderValue::from_str(location).expect("a header"),
        )]);
        let passed = Passed {
            endpoint: Endpoint {
                transport: crate::kubelet::Transport::Kubelet,
                host: "10.0.0.1".to_owned(),
                port: "10250".to_owned(),
            },
            path: String::new(),
            prefix: "/p/proxy",
            shutdown: None,
        };
        rewrite_location(&mut headers, &passed);
        assert_eq!(headers[header::LOCATION], expected);
    }
}
