//! Requests over as many connections as they need.
//!
//! With HTTP/2 a client puts everything on one connection. A Kubernetes API server takes 100 requests at a
//! time on it, and a watch is one of them for as long as it lasts. With 100 watches on a connection every
//! further request would wait for one of them to end, and the renewals of Leases with the others. So requests
//! beyond [`MOST`] go to a further connection.

use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tower::Service;

/// How many requests share a connection. Below the 100 that kube-apiserver takes, since what it counts as
/// open may have ended here a moment ago.
const MOST: usize = 64;

/// Gives each request to the first connection that has room for it, and makes one more where none has.
#[derive(Clone)]
pub(super) struct Connections<S> {
    make: Arc<dyn Fn() -> S + Send + Sync>,
    version: Arc<dyn Fn() -> u64 + Send + Sync>,
    made: Arc<Mutex<Made<S>>>,
}

/// Connections with one version of the credentials. Those with former ones end with their last request.
struct Made<S> {
    version: u64,
    connections: Vec<Connection<S>>,
}

struct Connection<S> {
    service: S,
    /// One more reference for each request whose answer has not come to its end.
    open: Arc<()>,
}

impl<S: Clone> Connections<S> {
    /// `version` is another number when requests may not go on the former connections any more.
    pub(super) fn new(
        version: impl Fn() -> u64 + Send + Sync + 'static,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        let made = Made {
            version: version(),
            connections: Vec::new(),
        };
        Self {
            make: Arc::new(make),
            version: Arc::new(version),
            made: Arc::new(Mutex::new(made)),
        }
    }

    fn pick(&self) -> (S, Arc<()>) {
        let version = (self.version)();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.version != version {
            made.connections.clear();
            made.version = version;
        }
        let has_room = |connection: &&Connection<S>| Arc::strong_count(&connection.open) <= MOST;
        if let Some(Connection { service, open }) = made.connections.iter().find(has_room) {
            return (service.clone(), Arc::clone(open));
        }
        let (service, open) = ((self.make)(), Arc::new(()));
        made.connections.push(Connection {
            service: service.clone(),
            open: Arc::clone(&open),
        });
        (service, open)
    }
}

impl<S, B> Service<Request<Body>> for Connections<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone,
    S::Future: Send + 'static,
{
    type Response = Response<OpenBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    /// Always ready: a client of hyper queues what it cannot send yet.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut service, open) = self.pick();
        let answer = service.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| OpenBody { body, _open: open })) })
    }
}

/// The body of an answer, whose request counts as open on its connection until this is dropped.
#[derive(Debug)]
pub struct OpenBody<B> {
    body: B,
    _open: Arc<()>,
}

impl<B: HttpBody + Unpin> HttpBody for OpenBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_connection_has_as_many_requests_as_it_takes_and_the_next_one_those_beyond() {
        let number = AtomicUsize::new(0);
        let version = Arc::new(AtomicU64::new(7));
        let asked = Arc::clone(&version);
        let make = move || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            tower::service_fn(move |_: Request<Body>| {
                std::future::ready(Ok::<_, Infallible>(Response::new(number.to_string())))
            })
        };
        let mut connections = Connections::new(move || asked.load(Ordering::Relaxed), make);
        let mut ask = async || {
            let answer = connections.call(Request::new(Body::empty())).await.unwrap();
            let body = answer.into_body();
            (body.body.clone(), body)
        };
        let mut watches = Vec::new();
        for _ in 0..MOST {
            let (number, body) = ask().await;
            assert_eq!(number, "0");
            watches.push(body);
        }
        for _ in 0..3 * MOST {
            assert_eq!(ask().await.0, "1", "what has ended leaves its room to others");
        }
        watches.pop();
        assert_eq!(ask().await.0, "0");
        version.store(8, Ordering::Relaxed);
        assert_eq!(ask().await.0, "2", "the others are of former credentials");
        assert_eq!(ask().await.0, "2");
    }
}
