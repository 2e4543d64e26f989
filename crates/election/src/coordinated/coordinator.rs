//! The coordinator: watches candidates and Leases, and writes what an election comes to.

use super::state::CoordinatorState;
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
/// Only one should run in a cluster: [`Coordinator::run_while_leading`] takes care of that, also beside the
/// API server's own. Two at once would contradict each other, but do no other harm: the creation of a Lease
/// fails if there is one, and every other write is conditional on what was read.
///
/// The account needs `get`, `list`, `watch`, `patch` and `delete` on LeaseCandidates and `list`, `watch`,
/// `create` and `patch` on Leases.
#[derive(Clone)]
pub struct Coordinator {
    client: Client,
    namespace: Option<String>,
    pub(super) strategies: Strategies,
    pub(super) timing: Timing,
}

impl Coordinator {
    /// A coordinator for all namespaces, with Kubernetes' strategy and timing.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespace: None,
            strategies: Strategies::default(),
            timing: Timing::default(),
        }
    }

    /// Restricts the coordinator to one namespace. In a large cluster it then need not watch the Leases of
    /// all nodes.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Sets the strategies that it carries out; by default only the one that is built into Kubernetes.
    #[must_use]
    pub fn with_strategies(mut self, strategies: Strategies) -> Self {
        self.strategies = strategies;
        self
    }

    /// Sets its timing; by default that of Kubernetes.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Runs the coordinator in each term of an election, and ends with that election. Its writes pass the
    /// election's gate. The election should be for the Lease [`crate::core::coordinated::COORDINATOR_LEASE`]
    /// in `kube-system`.
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

    /// Runs the coordinator until `shutdown`. Requests that fail are logged and repeated.
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
        let mut cleanup = tokio::time::interval(self.timing.candidate_valid);
        let mut state = CoordinatorState::new(self, candidates, leases);
        loop {
            let ready = state.is_ready();
            let next = state.next_due();
            tokio::select! {
                Some(event) = candidate_events.next() => match event {
                    Ok(event) => state.candidate_event(event),
                    Err(error) => tracing::warn!(%error, "cannot watch lease candidates; trying again"),
                },
                Some(event) = lease_events.next() => match event {
                    Ok(event) => state.lease_event(event),
                    Err(error) => tracing::warn!(%error, "cannot watch leases; trying again"),
                },
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if ready && next.is_some() => {
                    state.reconcile_due().await;
                }
                _ = cleanup.tick(), if ready => state.delete_expired_candidates().await,
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
