//! The layer, its service, and the futures and bodies that it returns.

use super::GateClosed;
use super::registry::Registry;
use super::shared::Shared;
use super::slot::{Slot, Work};
use super::write::{Write, WriteBody, poll_head};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Either;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::{BoxError, Layer, Service};

/// Puts a [`GateService`] around a service. Made by [`Gate::layer`](super::Gate::layer).
#[derive(Clone)]
pub struct GateLayer {
    registry: Arc<Registry>,
}

impl GateLayer {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }
}

impl fmt::Debug for GateLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateLayer").finish_non_exhaustive()
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> GateService<S> {
        GateService {
            registry: Arc::clone(&self.registry),
            inner: Arc::new(Shared::new(inner)),
        }
    }
}

/// A service behind the gate. It is always ready; each request waits for the service below by itself. Clones
/// share that service, which need not be `Clone`.
pub struct GateService<S> {
    registry: Arc<Registry>,
    inner: Arc<Shared<S>>,
}

impl<S> Clone for GateService<S> {
    fn clone(&self) -> Self {
        Self {
            registry: Arc::clone(&self.registry),
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<S> fmt::Debug for GateService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateService").finish_non_exhaustive()
    }
}

impl<S, R, B> Service<Request<R>> for GateService<S>
where
    S: Service<Request<R>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    R: Send + 'static,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<GatedBody<B>>;
    type Error = BoxError;
    type Future = GateFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<R>) -> GateFuture<B> {
        if is_read(&request) {
            return GateFuture(Kind::Read(self.inner.send(request)));
        }
        let admitted = self
            .registry
            .admit(|| Slot::new(Work::Request(self.inner.send(request))));
        GateFuture(match admitted {
            Some((slot, ticket)) => Kind::Write(Some(Write::new(slot, ticket))),
            None => Kind::Refused(self.registry.refuse()),
        })
    }
}

/// Whether this is a read. Names of methods are compared exactly, as in client-go: an unknown method is a
/// write, and `get` is an unknown method. Exec, attach and port-forward are reads by their method, and change
/// what they like on the connection that they ask for.
fn is_read<R>(request: &Request<R>) -> bool {
    let upgrades = request.headers().contains_key(http::header::UPGRADE);
    !upgrades && matches!(request.method().as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE")
}

/// The answer to a request at the gate.
pub struct GateFuture<B>(Kind<B>);

enum Kind<B> {
    /// A read, which passes whatever the gate does.
    Read(BoxFuture<'static, Result<Response<B>, BoxError>>),
    /// A write in flight; `None` once it was answered.
    Write(Option<Write<B>>),
    /// A write that was refused.
    Refused(GateClosed),
}

impl<B> fmt::Debug for GateFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Read(_) => "GateFuture::Read",
            Kind::Write(_) => "GateFuture::Write",
            Kind::Refused(_) => "GateFuture::Refused",
        })
    }
}

impl<B> Future for GateFuture<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<GatedBody<B>>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Kind::Read(answer) => answer
                .poll_unpin(cx)
                .map_ok(|response| response.map(Either::Left)),
            Kind::Refused(closed) => Poll::Ready(Err((*closed).into())),
            Kind::Write(place) => {
                let Some(write) = place else {
                    return Poll::Ready(Err(GateClosed.into()));
                };
                let head = match write.poll_with(cx, poll_head) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(head) => head,
                };
                // The write moves into the response body. If there is none, its entry is removed here.
                let write = place.take();
                match (head, write) {
                    (Ok(Some(Ok(head))), Some(write)) => {
                        Poll::Ready(Ok(head.map(|()| Either::Right(WriteBody::new(write)))))
                    }
                    (Ok(Some(Err(error))), _) => Poll::Ready(Err(error)),
                    (Ok(_) | Err(GateClosed), _) => Poll::Ready(Err(GateClosed.into())),
                }
            }
        }
    }
}

/// The response body: unchanged for a read, and under the control of the gate for a write.
pub type GatedBody<B> = Either<B, WriteBody<B>>;
