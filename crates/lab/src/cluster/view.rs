//! What the controllers see: a copy of the API server's objects, kept by watches.

use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::{
        ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service,
        ServiceAccount,
    },
    discovery::v1::EndpointSlice,
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
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
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Messages of refused creations, by the UID of the owner.
pub type Refused = BTreeMap<String, String>;

/// Has a field for each kind in the snapshot and in the view.
macro_rules! kinds {
    ($($field:ident: $kind:ty,)+) => {
        /// The objects as they stood at one moment.
        #[derive(Clone, Debug, Default)]
        #[expect(
            missing_docs,
            reason = "each field holds all objects of the kind it is named after"
        )]
        pub struct Snapshot {
            $(pub $field: Vec<Arc<$kind>>,)+
            /// Why the API server refused what the asking controller last made for an owner, by the owner's
            /// UID.
            pub refused: Refused,
        }

        /// Stores behind the snapshots, and how far each watch has come.
        #[derive(Clone)]
        pub struct View {
            $($field: Store<$kind>,)+
            progress: Arc<Progress>,
        }

        impl View {
            fn begin(client: &Client, shutdown: &CancellationToken) -> Self {
                let progress = Arc::new(Progress {
                    seen: Mutex::default(),
                    changed: watch::Sender::new(0),
                });
                Self {
                    $($field: follow(client, &progress, shutdown),)+
                    progress,
                }
            }

            async fn listed(&self) {
                // An error means that the watch ended, which happens only at shutdown.
                let _ = futures::join!($(self.$field.wait_until_ready(),)+);
            }

            /// The objects as they stand now.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($field: self.$field.state(),)+
                    refused: Refused::new(),
                }
            }
        }
    };
}

kinds! {
    budgets: PodDisruptionBudget,
    claims: PersistentVolumeClaim,
    config_maps: ConfigMap,
    daemon_sets: DaemonSet,
    deployments: Deployment,
    endpoint_slices: EndpointSlice,
    endpoints: Endpoints,
    namespaces: Namespace,
    nodes: Node,
    pods: Pod,
    replica_sets: ReplicaSet,
    revisions: ControllerRevision,
    service_accounts: ServiceAccount,
    services: Service,
    stateful_sets: StatefulSet,
    storage_classes: StorageClass,
    volumes: PersistentVolume,
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
        let view = Self::begin(client, shutdown);
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = view.listed() => {}
        }
        view
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
