//! Connections to an API server that has more than one address.
//!
//! Addresses are tried as [`Choice`] orders them, each with a head start before the next one is tried beside
//! it (as RFC 8305 does for the addresses of one name): an address that drops packets costs half a second,
//! not a whole time-out, and only until it is known.

use super::endpoints::{Choice, Endpoint};
use super::stream::Tracked;
use crate::log::causes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt as _};

/// For how long a TCP connection may take to open.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// The same with the look-up of a name before it.
const DIAL: Duration = Duration::from_secs(7);
/// For how long opening a connection may take in all: every address, and the TLS handshake.
const OPEN: Duration = Duration::from_secs(10);
/// How long an address has for itself before the next one is tried too. Below every time-out of a request, so
/// that a silent address is passed by within the first one.
const HEAD_START: Duration = Duration::from_millis(500);

/// The addresses of one API server, and what is known of them. Shared by all clients made of one
/// configuration.
#[derive(Debug)]
pub(super) struct Endpoints {
    addresses: Vec<(Endpoint, Uri)>,
    choice: Mutex<Choice>,
    start: Instant,
}

impl Endpoints {
    /// At least one address.
    pub(super) fn new(first: Endpoint, further: &[Endpoint]) -> Result<Arc<Self>, http::Error> {
        let mut addresses: Vec<(Endpoint, Uri)> = Vec::new();
        for endpoint in std::iter::once(first).chain(further.iter().cloned()) {
            if addresses.iter().any(|(known, _)| *known == endpoint) {
                continue;
            }
            let uri = Uri::builder()
                .scheme("http")
                .authority(endpoint.to_string())
                .path_and_query("/")
                .build()?;
            addresses.push((endpoint, uri));
        }
        Ok(Arc::new(Self {
            choice: Mutex::new(Choice::new(addresses.len())),
            addresses,
            start: Instant::now(),
        }))
    }

    fn choice(&self) -> MutexGuard<'_, Choice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_order(self: &Arc<Self>) -> Vec<Target> {
        let order = self.choice().order(self.start.elapsed());
        let target = |index| Target {
            endpoints: Arc::clone(self),
            index,
        };
        order.into_iter().map(target).collect()
    }
}

/// One of the addresses.
#[derive(Clone, Debug)]
pub(super) struct Target {
    endpoints: Arc<Endpoints>,
    index: usize,
}

impl Target {
    fn name(&self) -> &Endpoint {
        &self.endpoints.addresses[self.index].0
    }

    /// The address has sent bytes.
    pub(super) fn answered(&self) {
        let before = self.endpoints.choice().answered(self.index);
        if let Some(before) = before {
            let left = &self.endpoints.addresses[before].0;
            tracing::warn!(endpoint = %self.name(), %left, "the API server is reached at another address now");
        }
    }

    /// The address refused the connection, or was silent.
    pub(super) fn failed(&self, why: &str) {
        tracing::debug!(endpoint = %self.name(), why, "this address of the API server fails");
        let now = self.endpoints.start.elapsed();
        self.endpoints.choice().failed(self.index, now);
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// None of the addresses could be connected to. Worth a retry.
    #[error("cannot connect to the API server: {}", .0.join("; "))]
    Nowhere(Vec<String>),
    /// The TLS handshake was not finished in time. Worth a retry.
    #[error("no connection to the API server within {} s", OPEN.as_secs())]
    Slow,
}

/// An attempt to connect. Dropped before it is settled, it counts against its address if that had its head
/// start.
struct Attempt {
    target: Target,
    begun: Instant,
    settled: bool,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.settled && self.begun.elapsed() >= HEAD_START {
            self.target
                .failed("no answer before the caller or another address was done");
        }
    }
}

impl Attempt {
    async fn run(mut self, http: HttpConnector) -> Result<Tracked, String> {
        let uri = self.target.endpoints.addresses[self.target.index].1.clone();
        let connected = tokio::time::timeout(DIAL, http.oneshot(uri)).await;
        self.settled = true;
        let why = match connected {
            Ok(Ok(stream)) => return Ok(Tracked::new(stream.into_inner(), self.target.clone())),
            Ok(Err(error)) => causes(&error),
            Err(_) => format!("no answer within {} s", DIAL.as_secs()),
        };
        self.target.failed(&why);
        Err(format!("{}: {why}", self.target.name()))
    }
}

/// Connects to whichever address answers. The URI it is called with names the server for TLS, not the
/// address.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    endpoints: Arc<Endpoints>,
    http: HttpConnector,
}

impl Dialer {
    pub(super) fn new(endpoints: Arc<Endpoints>, http: HttpConnector) -> Self {
        Self { endpoints, http }
    }

    async fn dial(self) -> Result<Tracked, DialError> {
        let mut waiting = self.endpoints.in_order().into_iter();
        let mut attempts = FuturesUnordered::new();
        let mut failures = Vec::new();
        loop {
            if let Some(target) = waiting.next() {
                let attempt = Attempt {
                    target,
                    begun: Instant::now(),
                    settled: false,
                };
                attempts.push(attempt.run(self.http.clone()));
            } else if attempts.is_empty() {
                return Err(DialError::Nowhere(failures));
            }
            let head_start = async {
                if waiting.as_slice().is_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(HEAD_START).await;
            };
            tokio::select! {
                biased;
                Some(done) = attempts.next() => match done {
                    Ok(stream) => return Ok(stream),
                    Err(failure) => failures.push(failure),
                },
                () = head_start => {}
            }
        }
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Tracked>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move { dialer.dial().await.map(TokioIo::new) })
    }
}

/// Bounds the opening of a connection as a whole, handshake included.
#[derive(Clone, Debug)]
pub(super) struct Prompt<S>(pub(super) S);

impl<S> Service<Uri> for Prompt<S>
where
    S: Service<Uri, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let opening = tokio::time::timeout(OPEN, self.0.call(uri));
        Box::pin(async move { opening.await.unwrap_or_else(|_| Err(DialError::Slow.into())) })
    }
}
