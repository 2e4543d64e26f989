//! The service below the gate, for which several requests may wait.
//!
//! tower asks a layer whether it is ready before it passes the request, so a layer that asks the service
//! below would make writes wait that are refused anyway. The gate is always ready, and each request waits by
//! itself. No request holds a lock or blocks a queue while it waits: one that nobody polls does not delay the
//! others.

use super::registry::lock;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tower::{BoxError, Service};

pub(super) struct Shared<S> {
    service: Mutex<S>,
    waiting: Arc<Waiting>,
}

/// A service wakes only the waker that it got last. So it gets one that wakes all waiting requests.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *lock(&self.0));
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = lock(&self.0);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}

impl<S> Shared<S> {
    pub(super) fn new(service: S) -> Self {
        Self {
            service: Mutex::new(service),
            waiting: Arc::default(),
        }
    }

    /// Sends a request as soon as the service is ready. Nothing happens before the first poll.
    pub(super) fn send<R, B>(
        self: &Arc<Self>,
        request: Request<R>,
    ) -> BoxFuture<'static, Result<Response<B>, BoxError>>
    where
        S: Service<Request<R>, Response = Response<B>> + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        R: Send + 'static,
    {
        let shared = Arc::clone(self);
        Box::pin(async move {
            let mut request = Some(request);
            let answer = poll_fn(|cx| shared.poll_call(cx, &mut request)).await?;
            drop(shared);
            answer.await.map_err(Into::into)
        })
    }

    fn poll_call<R, B>(
        &self,
        cx: &mut Context<'_>,
        request: &mut Option<Request<R>>,
    ) -> Poll<Result<S::Future, BoxError>>
    where
        S: Service<Request<R>, Response = Response<B>>,
        S::Error: Into<BoxError>,
    {
        let waker = Waker::from(Arc::clone(&self.waiting));
        let mut all = Context::from_waker(&waker);
        let mut service = lock(&self.service);
        let mut ready = service.poll_ready(&mut all);
        if ready.is_pending() {
            self.waiting.add(cx.waker());
            // Polled again, because the service may have become ready before this waker was added.
            ready = service.poll_ready(&mut all);
        }
        match ready {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(())) => match request.take() {
                Some(request) => Poll::Ready(Ok(service.call(request))),
                None => Poll::Pending,
            },
        }
    }
}
