//! Requests for one Lease, each bounded in time, as events of the elector.

use crate::core::{Config, Event, Observation, ReadResult, Record, WriteResult};
use crate::lease;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The Lease at the API server.
pub(crate) struct Leases {
    api: Api<Lease>,
    namespace: String,
    name: String,
    timeout: Duration,
    /// The Lease as it was last read or written. Its metadata (labels of others) is sent back with each update.
    cached: Arc<std::sync::Mutex<Option<Lease>>>,
    /// Whether the last request failed, so that an outage is told once and not every second.
    failing: Arc<AtomicBool>,
}

impl Leases {
    pub(crate) fn new(client: Client, config: &Config) -> Self {
        Self {
            api: Api::namespaced(client, &config.namespace),
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            timeout: config.request_timeout(),
            cached: Arc::default(),
            failing: Arc::default(),
        }
    }

    /// `namespace/name`.
    pub(crate) fn describe(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Longest time of one request.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn get(&self) -> BoxFuture<'static, Event> {
        let (api, name, report) = (self.api.clone(), self.name.clone(), self.reporter("read"));
        let request = async move { api.get_opt(&name).await };
        let bounded = self.bounded(request);
        async move {
            Event::Read(match bounded.await {
                Ok(Some(lease)) => ReadResult::Found(report.done(lease)),
                Ok(None) => {
                    report.answered();
                    ReadResult::Missing
                }
                Err(failure) => {
                    report.failed(&failure);
                    ReadResult::Failed
                }
            })
        }
        .boxed()
    }

    pub(crate) fn create(&self, record: &Record) -> BoxFuture<'static, Event> {
        let lease = lease::new(&self.namespace, &self.name, record);
        let api = self.api.clone();
        let request = async move { api.create(&PostParams::default(), &lease).await };
        self.write("create", request)
    }

    pub(crate) fn update(&self, record: &Record, version: String) -> BoxFuture<'static, Event> {
        let cached = self
            .cached
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let mut lease = cached.unwrap_or_else(|| lease::new(&self.namespace, &self.name, record));
        lease.metadata.resource_version = Some(version);
        lease.spec = Some(lease::spec(record));
        let (api, name) = (self.api.clone(), self.name.clone());
        let request = async move { api.replace(&name, &PostParams::default(), &lease).await };
        self.write("update", request)
    }

    /// Changes that come without asking. Errors are not worth more than a debug line: the elector asks by itself.
    pub(crate) fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        let lease = self.describe();
        watcher::watch_object(self.api.clone(), &self.name)
            .default_backoff()
            .filter_map(move |change| {
                let change = change
                    .inspect_err(|error| tracing::debug!(%lease, %error, "cannot watch the lease"))
                    .ok()
                    .map(|lease| lease.as_ref().map(lease::observation));
                std::future::ready(change)
            })
            .boxed()
    }

    fn write(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<Lease>> + Send + 'static,
    ) -> BoxFuture<'static, Event> {
        let report = self.reporter(verb);
        let bounded = self.bounded(request);
        async move {
            Event::Written(match bounded.await {
                Ok(lease) => WriteResult::Done(report.done(lease)),
                Err(Failure::Answer(kube::Error::Api(status))) if status.code == 409 => {
                    report.answered();
                    WriteResult::Conflict
                }
                Err(failure) => {
                    report.failed(&failure);
                    WriteResult::Failed
                }
            })
        }
        .boxed()
    }

    fn bounded<T>(
        &self,
        request: impl Future<Output = kube::Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Failure>> + Send + 'static
    where
        T: Send + 'static,
    {
        let timeout = self.timeout;
        async move {
            match tokio::time::timeout(timeout, request).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(Failure::Answer(error)),
                Err(_) => Err(Failure::Silence(timeout)),
            }
        }
    }

    fn reporter(&self, verb: &'static str) -> Reporter {
        Reporter {
            verb,
            lease: self.describe(),
            cached: self.cached.clone(),
            failing: self.failing.clone(),
        }
    }
}

/// Why a request gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Answer(kube::Error),
    #[error("no answer within {0:?}")]
    Silence(Duration),
}

/// What a request leaves behind: the Lease as it is now, and a line in the log when things begin or cease to fail.
struct Reporter {
    verb: &'static str,
    lease: String,
    cached: Arc<std::sync::Mutex<Option<Lease>>>,
    failing: Arc<AtomicBool>,
}

impl Reporter {
    fn done(&self, lease: Lease) -> Observation {
        self.answered();
        let observation = lease::observation(&lease);
        *self
            .cached
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(lease);
        observation
    }

    fn answered(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(lease = %self.lease, "the lease can be reached again");
        }
    }

    fn failed(&self, failure: &Failure) {
        let (verb, lease) = (self.verb, &self.lease);
        if self.failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(%lease, %failure, "cannot {verb} the lease");
        } else {
            tracing::warn!(%lease, %failure, "cannot {verb} the lease; trying again every retry period");
        }
    }
}
