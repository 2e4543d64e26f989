//! Takes a connection out of the pool when a request on it was given up and nothing was heard on it.
//!
//! HTTP/2 puts all requests on one connection, and notices by its pings that the other side is gone; but that
//! takes [`super::PING`] and [`super::PONG`] together, and an elector that has to renew a Lease within 3 s
//! cannot wait so long. So a request that is given up (by its caller's time-out or ours) after nothing at all
//! was heard on its connection takes the connection out of the pool, and the next request opens a new one.
//! Other exchanges on the old connection, such as a watch, go on until the pings find that it is dead.

use super::stream::{Activity, SILENT};
use http::{Extensions, Request};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use kube::client::Body;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tower::Service;

#[derive(Clone, Debug)]
pub(super) struct Exchange<S> {
    pub(super) inner: S,
}

impl<S> Service<Request<Body>> for Exchange<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let open = Open {
            connection: capture_connection(&mut request),
            begun: Instant::now(),
            ended: false,
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            open.end();
            answer
        })
    }
}

/// A request whose response head is awaited.
struct Open {
    connection: CaptureConnection,
    begun: Instant,
    ended: bool,
}

impl Open {
    /// Answered, or failed by itself.
    fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.ended || self.begun.elapsed() < SILENT {
            return;
        }
        if let Some(connected) = self.connection.connection_metadata().as_ref() {
            let mut extras = Extensions::new();
            connected.get_extras(&mut extras);
            let heard = extras
                .get::<Activity>()
                .is_some_and(|activity| activity.received_since(self.begun));
            if !heard {
                tracing::debug!(waited = ?self.begun.elapsed(), "a request was given up in silence, its connection is left");
                connected.poison();
            }
        }
    }
}
