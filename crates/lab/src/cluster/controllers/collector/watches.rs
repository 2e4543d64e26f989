//! The metadata of all objects, kept by a watch for each kind.

use super::graph::{Graph, Key, Node, key_of};
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, PartialObjectMeta},
    discovery::{Discovery, Scope, verbs},
    runtime::{WatchStreamExt as _, watcher},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Between two looks at which kinds there are: custom resources come and go.
const DISCOVERY: Duration = Duration::from_secs(5);
/// Kinds that own nothing and are owned by nobody, and that are many.
const IGNORED: [&str; 1] = ["Event"];

/// The watches, and what they have seen. They end with `shutdown`.
#[derive(Clone)]
pub(super) struct Watches {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    graph: Graph,
    /// Each kind with its resource, whether it belongs to namespaces, and what ends its watch.
    kinds: BTreeMap<Key, (ApiResource, bool, DropGuard)>,
}

impl Watches {
    pub(super) fn start(client: &Client, shutdown: &CancellationToken) -> Self {
        let watches = Self {
            state: Arc::default(),
            changed: watch::Sender::new(()),
        };
        let (client, shutdown) = (client.clone(), shutdown.clone());
        let discovering = watches.clone();
        tokio::spawn(async move {
            loop {
                if let Err(error) = discovering.discover(&client, &shutdown).await {
                    tracing::warn!(%error, "cannot discover kinds, trying again");
                }
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(DISCOVERY) => {}
                }
            }
        });
        watches
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn with<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        look(&self.lock().graph)
    }

    /// The resource of an owner, and whether it belongs to namespaces.
    pub(super) fn resource(&self, owner: &OwnerReference) -> Option<(ApiResource, bool)> {
        self.by_key(&key_of(owner))
    }

    pub(super) fn by_key(&self, key: &Key) -> Option<(ApiResource, bool)> {
        let state = self.lock();
        let (resource, namespaced, _) = state.kinds.get(key)?;
        Some((resource.clone(), *namespaced))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn discover(&self, client: &Client, shutdown: &CancellationToken) -> Result<(), kube::Error> {
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let mut found = BTreeMap::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let all = [verbs::LIST, verbs::WATCH, verbs::DELETE];
                let followed = all.iter().all(|verb| capabilities.supports_operation(verb));
                if followed && !IGNORED.contains(&resource.kind.as_str()) {
                    let key = (resource.group.clone(), resource.kind.clone());
                    found.insert(key, (resource, capabilities.scope == Scope::Namespaced));
                }
            }
        }
        let mut state = self.lock();
        let State { graph, kinds } = &mut *state;
        kinds.retain(|key, _| found.contains_key(key));
        graph.listed.retain(|key| found.contains_key(key));
        graph.namespaced.retain(|key| found.contains_key(key));
        graph.nodes.retain(|_, node| found.contains_key(&node.key));
        for (key, (resource, namespaced)) in found {
            if kinds.contains_key(&key) {
                continue;
            }
            let ends = shutdown.child_token();
            if namespaced {
                graph.namespaced.insert(key.clone());
            }
            let following = self
                .clone()
                .follow(client.clone(), key.clone(), resource.clone(), ends.clone());
            tokio::spawn(following);
            kinds.insert(key, (resource, namespaced, ends.drop_guard()));
        }
        Ok(())
    }

    async fn follow(self, client: Client, key: Key, resource: ApiResource, ends: CancellationToken) {
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource);
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        let mut listing = Vec::new();
        loop {
            let event = tokio::select! {
                () = ends.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                None => return,
                Some(Ok(event)) => self.take(&key, event, &mut listing),
                Some(Err(error)) => {
                    tracing::debug!(%error, kind = %key.1, "watch of metadata failed, trying again");
                }
            }
        }
    }

    fn take(
        &self,
        key: &Key,
        event: watcher::Event<PartialObjectMeta<DynamicObject>>,
        listing: &mut Vec<Node>,
    ) {
        let mut state = self.lock();
        let graph = &mut state.graph;
        let node = |object: &PartialObjectMeta<DynamicObject>| Node::new(key, &object.metadata);
        let matters = match event {
            watcher::Event::Init => {
                listing.clear();
                false
            }
            watcher::Event::InitApply(object) => {
                listing.push(node(&object));
                false
            }
            watcher::Event::InitDone => {
                graph.nodes.retain(|_, other| other.key != *key);
                let listed = listing.drain(..).map(|node| (node.uid.clone(), node));
                graph.nodes.extend(listed);
                graph.listed.insert(key.clone());
                true
            }
            watcher::Event::Apply(object) => {
                let node = node(&object);
                let before = graph.nodes.insert(node.uid.clone(), node.clone());
                // Most changes are none of owners, finalizers or life.
                before.is_none_or(|before| {
                    Node {
                        version: node.version.clone(),
                        ..before
                    } != node
                })
            }
            watcher::Event::Delete(object) => {
                let uid = object.metadata.uid.as_deref().unwrap_or_default();
                graph.nodes.remove(uid);
                true
            }
        };
        drop(state);
        if matters {
            self.changed.send_replace(());
        }
    }
}
