//! Requests that a silent server cannot hold.
//!
//! A host that drops packets, or a link that was cut, answers nothing and closes nothing; TCP alone gives up
//! after a quarter of an hour. So every request has a time for its response head and between two parts of its
//! body. A connection of HTTP/1.1 is closed with its request; one of HTTP/2 is left when it was silent
//! ([`super::exchange`]).

use http::{Request, Response};
use kube::client::Body;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{BoxError, Service};
use tower_http::timeout::TimeoutBody;

/// For how long a request may wait for its response head, or for the next part of a response that is not a
/// stream. Time-outs of requests that matter more, such as those of an elector, are their callers' own.
pub(super) const REQUEST: Duration = Duration::from_secs(15);
/// For how long a watch may be silent: a little over the 295 s after which the longest watches of
/// kube-runtime are ended by the server. A real server sends a bookmark every minute.
const STREAM: Duration = Duration::from_secs(310);

/// For how long a followed log may be silent: as long as the kubelet keeps a stream on which nothing happens.
/// Whoever writes it may have nothing to say; a server that is gone is found by pings and by TCP.
const LOG: Duration = Duration::from_secs(4 * 60 * 60);

/// The server did not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the API server within {} s", .0.as_secs())]
pub struct SilentServer(Duration);

#[derive(Clone, Debug)]
pub(super) struct Silence<S> {
    pub(super) inner: S,
}

impl<S, B> Service<Request<Body>> for Silence<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let between_parts = between_parts(request.uri().query().unwrap_or_default());
        let answer = tokio::time::timeout(REQUEST, self.inner.call(request));
        Box::pin(async move {
            match answer.await {
                Ok(Ok(response)) => Ok(response.map(|body| TimeoutBody::new(between_parts, body))),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(SilentServer(REQUEST).into()),
            }
        })
    }
}

/// For how long the answer to a request with this query may be silent. Watches and followed logs go on for as
/// long as there is something to tell.
fn between_parts(query: &str) -> Duration {
    let is_set = |name: &str| {
        query.split('&').any(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, "true"));
            key == name && matches!(value, "true" | "1")
        })
    };
    if is_set("follow") {
        LOG
    } else if is_set("watch") {
        STREAM
    } else {
        REQUEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_and_followed_logs_are_streams() {
        for (query, expected) in [
            ("", REQUEST),
            ("watch=true", STREAM),
            ("limit=5&watch=1&timeoutSeconds=290", STREAM),
            ("watch", STREAM),
            ("watch=false", REQUEST),
            ("follow=true", LOG),
            ("container=base&follow=true", LOG),
            ("follow=false", REQUEST),
            ("labelSelector=watch%3Dtrue", REQUEST),
        ] {
            assert_eq!(between_parts(query), expected, "{query}");
        }
    }

    /// A server whose body never comes after the head, and with `false` whose head does not come either.
    fn silent(
        heads: bool,
    ) -> impl Service<Request<Body>, Response = Response<axum::body::Body>, Error = BoxError, Future: Send + 'static>
    {
        tower::service_fn(move |_request: Request<Body>| async move {
            if !heads {
                std::future::pending::<()>().await;
            }
            let never = futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>();
            Ok(Response::new(axum::body::Body::new(
                http_body_util::StreamBody::new(never),
            )))
        })
    }

    async fn silence_of(heads: bool, uri: &str) -> (Duration, String) {
        use http_body_util::BodyExt as _;
        let start = tokio::time::Instant::now();
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let mut service = Silence { inner: silent(heads) };
        let error = match service.call(request).await {
            Err(error) => error.to_string(),
            Ok(response) => Box::pin(response.into_body())
                .frame()
                .await
                .unwrap()
                .unwrap_err()
                .to_string(),
        };
        (start.elapsed(), error)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up() {
        let (after, error) = silence_of(false, "/api/v1/nodes?watch=true").await;
        assert_eq!(
            (after, error.as_str()),
            (REQUEST, "no answer from the API server within 15 s")
        );
        let (after, _) = silence_of(true, "/api/v1/nodes").await;
        assert_eq!(after, REQUEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_be_silent_until_the_server_ends_it() {
        let (after, _) = silence_of(true, "/api/v1/nodes?watch=true").await;
        assert!(after > Duration::from_secs(295), "{after:?}");
    }
}
