//! Nodes, their Leases and pods as the watches deliver them.

use evenkeel_net::watch::{Delta, Unreadable, deltas};
use evenkeel_stock_rules::eviction::{PodFacts, PodKey};
use evenkeel_stock_rules::lifecycle::name;
use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug)]
pub(super) enum Notice {
    Node(Arc<Node>),
    NodeGone(String),
    /// A pod; `bound` if it was bound to its node just now (or is seen for the first time).
    Pod {
        pod: Arc<Pod>,
        bound: bool,
    },
    PodGone(PodKey),
}

/// Shared view of the cluster. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Cache {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    nodes: BTreeMap<String, Arc<Node>>,
    leases: BTreeMap<String, Option<Timestamp>>,
    pods: BTreeMap<PodKey, Arc<Pod>>,
    by_node: HashMap<String, BTreeSet<PodKey>>,
    complete: Complete,
}

#[derive(Clone, Copy, Default)]
struct Complete {
    nodes: bool,
    leases: bool,
    pods: bool,
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every watch has delivered a complete list.
    pub(super) fn is_complete(&self) -> bool {
        let complete = self.lock().complete;
        complete.nodes && complete.leases && complete.pods
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.lock().nodes.values().cloned().collect()
    }

    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.lock().nodes.get(name).cloned()
    }

    /// `renewTime` of a node's Lease.
    pub(super) fn lease(&self, node: &str) -> Option<Timestamp> {
        self.lock().leases.get(node).copied().flatten()
    }

    pub(super) fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let inner = self.lock();
        let keys = inner.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| inner.pods.get(key).cloned()).collect()
    }

    /// A node as the API server answered a read or a write, if it is newer than what the watch delivered.
    pub(super) fn put_node(&self, node: Arc<Node>) {
        let mut inner = self.lock();
        let Some(known) = inner.nodes.get(name(&node)) else {
            return;
        };
        let version = |node: &Node| {
            node.resource_version()
                .and_then(|version| version.parse::<u64>().ok())
        };
        if version(&node) > version(known) {
            inner.nodes.insert(name(&node).to_owned(), node);
        }
    }

    /// Feeds the cache and tells `listeners` of every change, until `shutdown`.
    pub(super) async fn watch(
        &self,
        client: &Client,
        listeners: Vec<mpsc::UnboundedSender<Notice>>,
        shutdown: CancellationToken,
    ) {
        let mut seen = all(client);
        loop {
            let seen = tokio::select! {
                () = shutdown.cancelled() => return,
                seen = seen.next() => seen,
            };
            let Some(seen) = seen else { return };
            for notice in self.take(seen) {
                for listener in &listeners {
                    // A listener that ended is told nothing; it ends only with the process.
                    let _ = listener.send(notice.clone());
                }
            }
        }
    }

    fn take(&self, seen: Seen) -> Vec<Notice> {
        let mut inner = self.lock();
        match seen {
            Seen::Node(Delta::Put(node)) => {
                let node = Arc::new(*node);
                inner.nodes.insert(node.name_any(), Arc::clone(&node));
                vec![Notice::Node(node)]
            }
            Seen::Node(Delta::Gone((_, name))) => inner.drop_node(&name).into_iter().collect(),
            Seen::Node(Delta::Listed(present)) => {
                inner.complete.nodes = true;
                let names: BTreeSet<String> = present.into_iter().map(|(_, name)| name).collect();
                let gone: Vec<String> = inner
                    .nodes
                    .keys()
                    .filter(|name| !names.contains(*name))
                    .cloned()
                    .collect();
                gone.iter().filter_map(|name| inner.drop_node(name)).collect()
            }
            Seen::Lease(Delta::Put(lease)) => {
                let renewed = lease
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.renew_time.as_ref())
                    .map(|time| time.0);
                inner.leases.insert(lease.name_any(), renewed);
                Vec::new()
            }
            Seen::Lease(Delta::Gone((_, name))) => {
                inner.leases.remove(&name);
                Vec::new()
            }
            Seen::Lease(Delta::Listed(present)) => {
                inner.complete.leases = true;
                let names: BTreeSet<String> = present.into_iter().map(|(_, name)| name).collect();
                inner.leases.retain(|name, _| names.contains(name));
                Vec::new()
            }
            Seen::Pod(Delta::Put(pod)) => vec![inner.put_pod(Arc::new(*pod))],
            Seen::Pod(Delta::Gone((namespace, name))) => {
                inner.drop_pod(&PodKey { namespace, name }).into_iter().collect()
            }
            Seen::Pod(Delta::Listed(present)) => {
                inner.complete.pods = true;
                let keys: BTreeSet<PodKey> = present
                    .into_iter()
                    .map(|(namespace, name)| PodKey { namespace, name })
                    .collect();
                let gone: Vec<PodKey> = inner
                    .pods
                    .keys()
                    .filter(|key| !keys.contains(*key))
                    .cloned()
                    .collect();
                gone.iter().filter_map(|key| inner.drop_pod(key)).collect()
            }
            Seen::Node(Delta::Broken) | Seen::Lease(Delta::Broken) | Seen::Pod(Delta::Broken) => Vec::new(),
        }
    }
}

impl Inner {
    fn drop_node(&mut self, name: &str) -> Option<Notice> {
        self.nodes.remove(name).map(|_| Notice::NodeGone(name.to_owned()))
    }

    fn put_pod(&mut self, pod: Arc<Pod>) -> Notice {
        let key = pod_key(&pod);
        let node = node_of(&pod).to_owned();
        let before = self.pods.insert(key.clone(), Arc::clone(&pod));
        let before = before.as_deref().map(node_of).unwrap_or_default().to_owned();
        let bound = !node.is_empty() && before != node;
        if before != node {
            self.unindex(&before, &key);
        }
        if !node.is_empty() {
            self.by_node.entry(node).or_default().insert(key);
        }
        Notice::Pod { pod, bound }
    }

    fn drop_pod(&mut self, key: &PodKey) -> Option<Notice> {
        let pod = self.pods.remove(key)?;
        self.unindex(node_of(&pod), key);
        Some(Notice::PodGone(key.clone()))
    }

    fn unindex(&mut self, node: &str, key: &PodKey) {
        if let Some(keys) = self.by_node.get_mut(node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(node);
            }
        }
    }
}

/// Key of a pod.
pub(super) fn pod_key(pod: &Pod) -> PodKey {
    PodKey {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
    }
}

/// Node that a pod is bound to, or empty.
pub(super) fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// What counts of a pod for eviction.
pub(super) fn pod_facts(pod: &Pod) -> PodFacts {
    let spec = pod.spec.as_ref();
    PodFacts {
        key: pod_key(pod),
        node: node_of(pod).to_owned(),
        tolerations: spec.and_then(|spec| spec.tolerations.clone()).unwrap_or_default(),
    }
}

enum Seen {
    Node(Delta<Node>),
    Lease(Delta<Lease>),
    Pod(Delta<Pod>),
}

fn all(client: &Client) -> SelectAll<BoxStream<'static, Seen>> {
    let leases = Api::namespaced(client.clone(), evenkeel_api::names::NODE_LEASE_NAMESPACE);
    select_all([
        follow("Node", Api::all(client.clone())).map(Seen::Node).boxed(),
        follow("Lease", leases).map(Seen::Lease).boxed(),
        follow("Pod", Api::all(client.clone())).map(Seen::Pod).boxed(),
    ])
}

/// A watch; an object that cannot be read is kept as it was known before.
fn follow<K>(what: &'static str, api: Api<DeserializeGuard<K>>) -> impl Stream<Item = Delta<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    deltas(what, api, watcher::Config::default(), Unreadable::StaysAsKnown)
}
