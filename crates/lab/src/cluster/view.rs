//! What the controllers see: a copy of the API server's objects, kept by watches.

use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::{ConfigMap, Endpoints, Namespace, Node, PersistentVolumeClaim, Pod, Service, ServiceAccount},
    discovery::v1::EndpointSlice,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{Store, store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use std::{
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The objects as they stood at one moment.
#[derive(Clone, Debug, Default)]
#[expect(
    missing_docs,
    reason = "each field holds all objects of the kind it is named after"
)]
pub struct Snapshot {
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
    pub config_maps: Vec<Arc<ConfigMap>>,
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    pub deployments: Vec<Arc<Deployment>>,
    pub endpoint_slices: Vec<Arc<EndpointSlice>>,
    pub endpoints: Vec<Arc<Endpoints>>,
    pub namespaces: Vec<Arc<Namespace>>,
    pub nodes: Vec<Arc<Node>>,
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    pub pods: Vec<Arc<Pod>>,
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    pub service_accounts: Vec<Arc<ServiceAccount>>,
    pub services: Vec<Arc<Service>>,
    pub stateful_sets: Vec<Arc<StatefulSet>>,
}

/// Stores behind the snapshots, and how far each watch has come.
#[derive(Clone)]
pub struct View {
    budgets: Store<PodDisruptionBudget>,
    config_maps: Store<ConfigMap>,
    daemon_sets: Store<DaemonSet>,
    deployments: Store<Deployment>,
    endpoint_slices: Store<EndpointSlice>,
    endpoints: Store<Endpoints>,
    namespaces: Store<Namespace>,
    nodes: Store<Node>,
    claims: Store<PersistentVolumeClaim>,
    pods: Store<Pod>,
    replica_sets: Store<ReplicaSet>,
    service_accounts: Store<ServiceAccount>,
    services: Store<Service>,
    stateful_sets: Store<StatefulSet>,
    progress: Arc<Progress>,
}

/// How far the watches have come. The embedded server numbers all writes in one sequence, so that
/// resourceVersions can be compared.
struct Progress {
    seen: Mutex<HashMap<String, u64>>,
    changed: watch::Sender<u64>,
}

impl Progress {
    fn note(&self, kind: &str, resource_version: Option<String>) {
        if let Some(version) = resource_version.and_then(|text| text.parse::<u64>().ok()) {
            let mut seen = self
                .seen
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let newest = seen.entry(kind.to_owned()).or_default();
            *newest = version.max(*newest);
        }
        self.changed.send_modify(|count| *count += 1);
    }
}

impl View {
    /// Starts the watches; they end with `shutdown`. Returns when every kind was listed once.
    pub async fn start(client: &Client, shutdown: &CancellationToken) -> Self {
        let progress = Arc::new(Progress {
            seen: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        let view = Self {
            budgets: follow(client, &progress, shutdown),
            config_maps: follow(client, &progress, shutdown),
            daemon_sets: follow(client, &progress, shutdown),
            deployments: follow(client, &progress, shutdown),
            endpoint_slices: follow(client, &progress, shutdown),
            endpoints: follow(client, &progress, shutdown),
            namespaces: follow(client, &progress, shutdown),
            nodes: follow(client, &progress, shutdown),
            claims: follow(client, &progress, shutdown),
            pods: follow(client, &progress, shutdown),
            replica_sets: follow(client, &progress, shutdown),
            service_accounts: follow(client, &progress, shutdown),
            services: follow(client, &progress, shutdown),
            stateful_sets: follow(client, &progress, shutdown),
            progress,
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = view.listed() => {}
        }
        view
    }

    async fn listed(&self) {
        // An error means that the watch ended, which happens only at shutdown.
        let _ = futures::join!(
            self.budgets.wait_until_ready(),
            self.config_maps.wait_until_ready(),
            self.daemon_sets.wait_until_ready(),
            self.deployments.wait_until_ready(),
            self.endpoint_slices.wait_until_ready(),
            self.endpoints.wait_until_ready(),
            self.namespaces.wait_until_ready(),
            self.nodes.wait_until_ready(),
            self.claims.wait_until_ready(),
            self.pods.wait_until_ready(),
            self.replica_sets.wait_until_ready(),
            self.service_accounts.wait_until_ready(),
            self.services.wait_until_ready(),
            self.stateful_sets.wait_until_ready(),
        );
    }

    /// The objects as they stand now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            budgets: self.budgets.state(),
            config_maps: self.config_maps.state(),
            daemon_sets: self.daemon_sets.state(),
            deployments: self.deployments.state(),
            endpoint_slices: self.endpoint_slices.state(),
            endpoints: self.endpoints.state(),
            namespaces: self.namespaces.state(),
            nodes: self.nodes.state(),
            claims: self.claims.state(),
            pods: self.pods.state(),
            replica_sets: self.replica_sets.state(),
            service_accounts: self.service_accounts.state(),
            services: self.services.state(),
            stateful_sets: self.stateful_sets.state(),
        }
    }

    /// The pods as they stand now.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.state()
    }

    /// Changes with every event of any watch.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.progress.changed.subscribe()
    }

    /// Whether the watch of `kind` has delivered `resource_version` or something later.
    pub fn has_seen(&self, kind: &str, resource_version: u64) -> bool {
        let seen = self
            .progress
            .seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        seen.get(kind).is_some_and(|newest| *newest >= resource_version)
    }
}

fn follow<K>(client: &Client, progress: &Arc<Progress>, shutdown: &CancellationToken) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, mut writer) = store::<K>();
    let api = Api::<K>::all(client.clone());
    let (progress, shutdown) = (Arc::clone(progress), shutdown.clone());
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        loop {
            let event = tokio::select! {
                () = shutdown.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                None => return,
                Some(Ok(event)) => {
                    writer.apply_watcher_event(&event);
                    let version = match &event {
                        watcher::Event::Apply(object)
                        | watcher::Event::InitApply(object)
                        | watcher::Event::Delete(object) => object.resource_version(),
                        watcher::Event::Init | watcher::Event::InitDone => None,
                    };
                    progress.note(&K::kind(&()), version);
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, kind = %K::kind(&()), "watch failed, trying again");
                }
            }
        }
    });
    reader
}
