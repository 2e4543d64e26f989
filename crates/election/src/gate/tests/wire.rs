//! Over real connections: what the server sees of it.

use super::*;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rstest::rstest;
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tower::Layer as _;

/// What the server sees.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A request, by method and path.
    Request(String),
    /// The request before was given up by its client.
    GivenUp,
}

struct TellsOnDrop(mpsc::UnboundedSender<Seen>);

impl Drop for TellsOnDrop {
    fn drop(&mut self) {
        let _the_test_is_over = self.0.send(Seen::GivenUp).is_err();
    }
}

/// A server of HTTP/1 and 2 that answers `/half…` with half a body, `/never…` never, and the rest with `{}`.
pub(super) async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, seen) = mpsc::unbounded_channel();
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let tell = tell.clone();
        async move {
            let path = request.uri().path().to_owned();
            let line = format!("{} {path}", request.method());
            // Not all tests listen to the end.
            let _the_test_is_over = tell.send(Seen::Request(line)).is_err();
            let body = if path.starts_with("/never") {
                let _tells = TellsOnDrop(tell);
                std::future::pending::<TestBody>().await
            } else if path.starts_with("/half") {
                let parts = futures::stream::unfold((TellsOnDrop(tell), false), |(tells, sent)| async move {
                    if sent {
                        std::future::pending::<()>().await;
                    }
                    Some((
                        Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"half"))),
                        (tells, true),
                    ))
                });
                StreamBody::new(parts).boxed_unsync()
            } else {
                full("{}")
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _cut = builder
                    .serve_connection_with_upgrades(TokioIo::new(stream), service)
                    .await
                    .is_err();
            });
        }
    });
    (address, seen)
}

pub(super) async fn next(seen: &mut mpsc::UnboundedReceiver<Seen>) -> Seen {
    evenkeel_testkit::ends("the server sees something", seen.recv())
        .await
        .unwrap()
}

#[rstest]
#[case::http1(false)]
#[case::http2(true)]
#[tokio::test]
async fn the_server_sees_writes_cancelled_and_none_that_was_refused(#[case] http2: bool) {
    let (address, mut seen) = server().await;
    let gate = open_gate();
    let client = Client::builder(TokioExecutor::new())
        .http2_only(http2)
        .build_http::<Full<Bytes>>();
    let mut service = gate.layer().layer(client);
    let request = |method: &str, path: &str| {
        Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .body(Full::new(Bytes::from_static(b"{}")))
            .unwrap()
    };
    // Done, and unaffected by what comes.
    let done = service.call(request("POST", "/now")).await.unwrap();
    assert_eq!(done.into_body().collect().await.unwrap().to_bytes(), "{}");
    assert_eq!(next(&mut seen).await, Seen::Request("POST /now".into()));

    // A watch, which must outlive all this.
    let mut watch = service
        .call(request("GET", "/half/watch"))
        .await
        .unwrap()
        .into_body();
    assert_eq!(next(&mut seen).await, Seen::Request("GET /half/watch".into()));
    assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "half");

    let unanswered = tokio::spawn(service.call(request("PUT", "/never")));
    assert_eq!(next(&mut seen).await, Seen::Request("PUT /never".into()));
    gate.close();
    assert_eq!(next(&mut seen).await, Seen::GivenUp);
    assert!(is_closed(&ended(unanswered).await.err().unwrap()));

    gate.open(term(2), Duration::MAX);
    let mut body = service.call(request("PATCH", "/half")).await.unwrap().into_body();
    assert_eq!(next(&mut seen).await, Seen::Request("PATCH /half".into()));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    let reader = tokio::spawn(async move { body.frame().await.unwrap().unwrap_err() });
    gate.close();
    assert_eq!(next(&mut seen).await, Seen::GivenUp);
    assert!(is_closed(&ended(reader).await));

    assert!(is_closed(
        &service.call(request("DELETE", "/now")).await.err().unwrap()
    ));
    let read = service.call(request("GET", "/now")).await.unwrap();
    assert_eq!(read.into_body().collect().await.unwrap().to_bytes(), "{}");
    // Nothing came between: not the refused one, nor an end of the watch.
    assert_eq!(next(&mut seen).await, Seen::Request("GET /now".into()));
    assert!(futures::poll!(watch.frame()).is_pending());
}
