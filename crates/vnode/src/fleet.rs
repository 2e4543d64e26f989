//! Many nodes in one process: one watch of pods, one of the nodes' metadata, one timer wheel, one actor per
//! node.
//!
//! ```text
//! Ownership ──▶ Supervisor ──▶ an actor per node ──▶ provider, in tasks of their own
//!                 watches ───▶      │   ▲
//!                 timer wheel ─────▶│   │ answers
//!                 prober ──────────▶│   │
//!                                   ▼   │
//!                     writers of statuses, Events, Node and Lease
//! ```
//!
//! Nothing is created before the pods of a node are known, and what runs already is adopted. A fleet that
//! ends, or loses a slot, leaves everything as it is: pods run on, nothing is deleted, no status is written.

mod backend;
pub(crate) mod common;
pub(crate) mod directory;
mod events;
mod host;
mod mailbox;
pub(crate) mod metrics;
mod probes;
mod read;
mod supervise;
#[cfg(test)]
pub(crate) mod tests;
mod watch;
pub(crate) mod wheel;

use crate::core::admit::Feature;
use crate::core::{node, pod};
use crate::ownership::{Ownership, Sharing};
use crate::pods::Writers;
use crate::provider::Provider;
use backend::FleetBackend;
use common::{Common, Parts};
use directory::Directory;
use evenkeel_api::names::vnode::FLEET_LABEL;
use evenkeel_kubelet_api::{Backend, Serve};
use evenkeel_probe::core::engine;
use evenkeel_probe::core::{Now, Policy};
use events::Events;
use host::FleetHost;
use kube::Client;
use metrics::Metrics;
use probes::Probes;
use prometheus_client::registry::Registry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use supervise::{Order, Supervisor};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wheel::Wheel;

/// How a fleet is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// How nodes are shared with other replicas. Alone.
    pub sharing: Sharing,
    /// Only pods with these labels are run; all without.
    pub selector: Option<String>,
    /// Deadline of a provider's call that is not a stream; a stop has its grace period besides. 2 min.
    pub call: Duration,
    /// Calls that create and start, at a time, over all nodes. 256.
    pub starts: usize,
    /// Calls that look and tell, likewise: after a restart there is one for each pod. 256.
    pub looks: usize,
    /// Writers of statuses. 32.
    pub writers: usize,
    /// What all pods share.
    pub pods: Arc<pod::Settings>,
    /// What all nodes share.
    pub nodes: node::Settings,
    /// How probes are made.
    pub probes: engine::Config,
    /// When pods that only the provider knows are looked for.
    pub strays: Strays,
    /// What the provider can do that virtual nodes as such cannot.
    pub features: Vec<Feature>,
    /// Who serves the kubelet's HTTP API of the nodes: `evenkeel_kubelet_api::kubelet::Kubelet` (feature
    /// `kubelet-server`), or another; they have none without.
    pub kubelet: Option<Arc<dyn Serve>>,
}

/// When pods that only the provider knows are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strays {
    /// After the node's pods are known. 10 s, and up to a half more.
    pub first: Duration,
    /// Between two looks that found none. 5 min, and up to a half more.
    pub every: Duration,
    /// Between the two sightings before one is deleted, at least. 30 s.
    pub apart: Duration,
}

impl Default for Strays {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(10),
            every: Duration::from_secs(300),
            apart: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// The usual ones. `name`: of the fleet, common to all of its replicas and to nobody else; `addresses`:
    /// by which its nodes are reached, the first being their `InternalIP`.
    pub fn new(name: &str, provider: &dyn Provider, addresses: Vec<IpAddr>) -> Self {
        let runtime = provider.runtime();
        Self {
            sharing: Sharing::Alone,
            selector: None,
            call: Duration::from_secs(120),
            starts: 256,
            looks: 256,
            writers: 32,
            pods: Arc::new(pod::Settings {
                runtime: runtime.name.clone(),
                host_addresses: addresses,
                back_off: Duration::from_secs(10),
                back_off_max: Duration::from_secs(300),
                reconcile: Duration::from_secs(10),
                conditions: Vec::new(),
                fail_refused: false,
            }),
            nodes: node::Settings {
                runtime: format!("{}://{}", runtime.name, runtime.version),
                labels: [(FLEET_LABEL.to_owned(), name.to_owned())].into(),
                ..node::Settings::default()
            },
            probes: engine::Config {
                policy: Policy {
                    compat: evenkeel_probe::core::Compat::Kubelet,
                    started: Now::default(),
                    change_status_on_restart: false,
                },
                concurrency: 1024,
                exec_concurrency: 256,
                source: None,
                seed: rand::random(),
            },
            strays: Strays::default(),
            features: Vec::new(),
            kubelet: None,
        }
    }
}

/// A running fleet. Cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    orders: mpsc::UnboundedSender<Order>,
    common: Arc<Common>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet")
            .field("served", &self.served())
            .finish_non_exhaustive()
    }
}

impl Fleet {
    /// Starts a fleet without nodes, until `shutdown`.
    pub fn start(
        client: Client,
        provider: Arc<dyn Provider>,
        options: Options,
        shutdown: CancellationToken,
    ) -> Self {
        let shutdown = shutdown.child_token();
        // What actors use ends after them.
        let (stop, disown) = (CancellationToken::new(), CancellationToken::new());
        let metrics = Metrics::default();
        let client = metrics.counting(&client);
        let directory = Arc::new(Directory::default());
        let host = Arc::new(FleetHost::default());
        provider.connect(host.clone());
        let events = Events::start(client.clone(), stop.clone());
        let probes = Probes::start(
            provider.clone(),
            directory.clone(),
            options.probes,
            events.clone(),
            stop.clone(),
        );
        let common = Arc::new(Common::new(Parts {
            writers: Writers::start(options.writers, metrics.clone(), stop.clone()),
            wheel: Wheel::start(stop.clone()),
            provider,
            client: client.clone(),
            metrics,
            directory,
            events,
            probes,
            options,
        }));
        host.begin(&common);
        let alone = matches!(common.options.sharing, Sharing::Alone);
        let came = Arc::new(Notify::new());
        let tasks = TaskTracker::new();
        tasks.spawn(watch::pods(common.clone(), came.clone(), alone, shutdown.clone()));
        tasks.spawn(watch::nodes(common.clone(), shutdown.clone()));
        let listeners = common.options.kubelet.clone().map(|kubelet| {
            let backend = Arc::new(FleetBackend {
                common: common.clone(),
            });
            kubelet.serve(backend, stop.clone())
        });
        let ownership = Ownership::start(common.options.sharing.clone(), client, disown.clone());
        let supervisor = Supervisor::new(common.clone(), ownership, came, listeners);
        let (orders, received) = mpsc::unbounded_channel();
        let (serving, shared) = (shutdown.clone(), common.clone());
        tasks.spawn(async move {
            supervisor.run(received, serving, disown).await;
            stop.cancel();
            shared.writers.stopped().await;
            shared.probes.stopped().await;
            shared.events.stopped().await;
        });
        tasks.close();
        Self {
            inner: Arc::new(Inner {
                orders,
                common,
                shutdown,
                tasks,
            }),
        }
    }

    /// From now on a node of this name is registered and served, by whichever replica owns it.
    pub fn add(&self, node: &str) {
        // After the shutdown nobody listens, and nothing is served.
        let _ = self.inner.orders.send(Order::Add(node.into()));
    }

    /// The node is served no more; its pods are left as they are. `delete`: its Node and Lease are deleted,
    /// too.
    pub fn remove(&self, node: &str, delete: bool) {
        let _ = self.inner.orders.send(Order::Remove(node.into(), delete));
    }

    /// How many nodes this replica serves.
    pub fn served(&self) -> usize {
        self.inner.common.directory.len()
    }

    /// Whether this replica serves a node. One that is added is served a little later, or by another replica.
    pub fn serves(&self, node: &str) -> bool {
        self.inner.common.directory.node(node).is_some()
    }

    /// Value of the label `type` of its nodes; empty: they have none.
    pub fn type_label(&self) -> &str {
        &self.inner.common.options.nodes.type_label
    }

    /// Whether of all nodes that this replica serves the pods are known and a first ping was answered, or
    /// failed. What a node says of itself then is for its conditions and the metrics: one that is ill is no
    /// fault of this process.
    pub fn is_settled(&self) -> bool {
        let nodes = self.inner.common.directory.nodes();
        nodes.iter().all(|node| node.is_listed() && node.is_heard())
    }

    /// What the kubelet's HTTP API asks, for who serves it in another way than [`Options::kubelet`].
    pub fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(FleetBackend {
            common: self.inner.common.clone(),
        })
    }

    /// Ends the fleet. Nodes and pods stay as they are.
    pub fn shutdown(&self) {
        self.inner.shutdown.cancel();
    }

    /// Waits until nothing is done any more, after the shutdown.
    pub async fn stopped(&self) {
        self.inner.tasks.wait().await;
    }

    /// Registers the metrics, the prober's among them.
    pub fn register(&self, registry: &mut Registry) {
        self.inner.common.metrics.register_in(registry);
        self.inner.common.probes.register(registry);
    }
}
