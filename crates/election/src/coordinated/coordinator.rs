//! The coordinator: watches candidates and Leases, and writes what an election comes to.

use super::desk::Desk;
use crate::core::coordinated::{Strategies, Timing};
use crate::{Election, State};
use futures::stream::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::coordination::v1beta1::LeaseCandidate;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Resource};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Elects leaders for all Leases that have candidates.
///
/// Only one may be at work in a cluster: [`Coordinator::run_while_leading`] sees to it, and keeps it apart from the API
/// server's own. Two at once would do no harm beyond contradicting each other: every write but the creation of a Lease is
/// conditional on what was read, and that one fails if the Lease is there.
///
/// The account needs `get`, `list`, `watch`, `patch` and `delete` on LeaseCandidates and `list`, `watch`, `create`
/// and `patch` on Leases.
#[derive(Clone)]
pub struct Coordinator {
    client: Client,
    namespace: Option<String>,
    pub(super) strategies: Strategies,
    pub(super) timing: Timing,
}

impl Coordinator {
    /// For all namespaces, with Kubernetes' strategy and constants.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespace: None,
            strategies: Strategies::default(),
            timing: Timing::default(),
        }
    }

    /// Only for one namespace. In a large cluster this spares it the Leases of all nodes.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// With more strategies than the built-in one.
    #[must_use]
    pub fn with_strategies(mut self, strategies: Strategies) -> Self {
        self.strategies = strategies;
        self
    }

    /// With other constants.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Works in each term of an election, which is to be one for [`crate::core::coordinated::COORDINATOR_LEASE`] in
    /// `kube-system`; its writes pass the election's gate. Ends when the election does.
    pub async fn run_while_leading(self, mut election: Election) {
        let client = election.gate().client(&self.client);
        let gated = Self { client, ..self };
        while let Some(state) = election.next().await {
            if let State::Leading { .. } = state
                && let Some(work) = election.work()
            {
                gated.clone().run(work.stop_token()).await;
            }
        }
    }

    /// Works until `shutdown`. Failures are logged and tried again.
    pub async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.work()).await;
    }

    async fn work(self) {
        let (candidates, candidate_writer) = reflector::store();
        let (leases, lease_writer) = reflector::store();
        let mut candidate_events = watcher(self.all::<LeaseCandidate>(), watcher::Config::default())
            .default_backoff()
            .reflect(candidate_writer)
            .boxed();
        let mut lease_events = watcher(self.all::<Lease>(), watcher::Config::default())
            .default_backoff()
            .reflect(lease_writer)
            .boxed();
        let mut collect = tokio::time::interval(self.timing.candidate_valid);
        let mut desk = Desk::new(self, candidates, leases);
        loop {
            let ready = desk.is_ready();
            let next = desk.next();
            tokio::select! {
                Some(event) = candidate_events.next() => match event {
                    Ok(event) => desk.candidate_event(event),
                    Err(error) => tracing::warn!(%error, "cannot watch lease candidates; trying again"),
                },
                Some(event) = lease_events.next() => match event {
                    Ok(event) => desk.lease_event(event),
                    Err(error) => tracing::warn!(%error, "cannot watch leases; trying again"),
                },
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if ready && next.is_some() => {
                    desk.look_at_what_is_due().await;
                }
                _ = collect.tick(), if ready => desk.collect().await,
            }
        }
    }

    fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    pub(super) fn in_one<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}
