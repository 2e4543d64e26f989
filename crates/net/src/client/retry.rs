//! Which requests are sent again when the server is overloaded.

use http::header::UPGRADE;
use http::{Method, Request, Response};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use tower::BoxError;
use tower::retry::Policy;

/// Repeats reads, as kube's policy does, but never a write. When an overloaded server lets a repeated write
/// through, the facts on which a leader or planner decided may have changed. A caller whose write failed has
/// to look again first.
#[derive(Clone)]
pub(super) struct ReadsAgain(RetryPolicy);

impl ReadsAgain {
    pub(super) fn new() -> Self {
        Self(RetryPolicy::server_retry())
    }
}

impl<Res> Policy<Request<Body>, Response<Res>, BoxError> for ReadsAgain {
    type Future = <RetryPolicy as Policy<Request<Body>, Response<Res>, BoxError>>::Future;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<Res>, BoxError>,
    ) -> Option<Self::Future> {
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // A command that is run in a container is asked for by a GET, too.
        if request.method() != Method::GET || request.headers().contains_key(UPGRADE) {
            return None;
        }
        Policy::<Request<Body>, Response<Res>, BoxError>::clone_request(&mut self.0, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::retry::RetryLayer;
    use tower::{ServiceBuilder, ServiceExt as _};

    /// How often a request is sent to a server that is overloaded twice.
    async fn sent(method: Method) -> usize {
        let request = Request::builder().method(method).body(Body::empty()).unwrap();
        passed(request).await
    }

    async fn passed(request: Request<Body>) -> usize {
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&seen);
        let server = tower::service_fn(move |_: Request<Body>| {
            let code = if counted.fetch_add(1, Ordering::Relaxed) < 2 {
                503
            } else {
                200
            };
            async move { Response::builder().status(code).body(()).map_err(BoxError::from) }
        });
        let service = ServiceBuilder::new()
            .layer(RetryLayer::new(ReadsAgain::new()))
            .service(server);
        service.oneshot(request).await.unwrap();
        seen.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_command_is_not_run_twice() {
        let exec = Request::builder().header(UPGRADE, "websocket");
        assert_eq!(passed(exec.body(Body::empty()).unwrap()).await, 1);
    }

    #[tokio::test]
    async fn a_read_is_sent_again_and_a_write_is_its_writers_to_repeat() {
        assert_eq!(sent(Method::GET).await, 3);
        for write in [Method::DELETE, Method::PATCH, Method::POST, Method::PUT] {
            assert_eq!(sent(write.clone()).await, 1, "{write}");
        }
    }
}
