//! How bases are found, and when they are held to be gone.
//!
//! ```text
//! heartbeats (HTTP) ─┐
//! hearts (MQTT) ─────┤                    ┌─▶ the fleet: nodes come and go
//! base pods ─────────┼─▶ Registry ──▶ Event┼─▶ subscribers: the provider evicts what is lost
//! Nodes ─────────────┤      ▲              └─▶ Nodes of bases that other replicas serve
//! health polls ──────┘      └ every second
//! ```
//!
//! All that is decided is decided by the [registry](crate::core::registry); here are the sources, and what
//! carries its events out. Of several replicas each receives the messages of some bases: it records them in
//! Nodes, and whoever serves a node reads them there.

pub mod heartbeat;
pub mod listener;
pub mod mqtt;
pub mod nodes;
pub mod pods;
mod register;
mod report;
pub mod token;

use crate::core::registry::{Change, Event, Life, Observation, Refused, Settings};
use crate::core::{Base, Endpoint, Identity, Profile, Registry};
use evenkeel_vnode::Fleet;
use kube::Client;
use register::Registrar;
use report::Refusals;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often the rules of time are applied.
const TICK: Duration = Duration::from_secs(1);

pub trait Nodes: Send + Sync + 'static {
    /// A node is wanted, here or at another replica.
    fn add(&self, node: &str);

    /// It is not wanted any more; `delete`: nor are its Node and Lease.
    fn remove(&self, node: &str, delete: bool);

    /// Whether it is served here.
    fn serves(&self, node: &str) -> bool;

    /// Value of the label `type` of the nodes that are served; empty: they have none.
    fn type_label(&self) -> &str;
}

impl Nodes for Fleet {
    fn add(&self, node: &str) {
        Self::add(self, node);
    }

    fn remove(&self, node: &str, delete: bool) {
        Self::remove(self, node, delete);
    }

    fn serves(&self, node: &str) -> bool {
        Self::serves(self, node)
    }

    fn type_label(&self) -> &str {
        Self::type_label(self)
    }
}

/// Sources of messages about bases.
#[derive(Default)]
pub struct Sources {
    pub heartbeats: Option<heartbeat::Listener>,
    pub hearts: Option<mqtt::MqttHeartbeats>,
    /// Clusters in which bases run as pods.
    pub pods: Vec<pods::Cluster>,
}

/// The bases that are known. Cheap to clone.
#[derive(Clone)]
pub struct Discovery {
    hub: Arc<Hub>,
}

pub(crate) struct Hub {
    pub(crate) profile: Arc<Profile>,
    pub(crate) env: Arc<str>,
    begun: Instant,
    tasks: TaskTracker,
    state: Mutex<State>,
}

struct State {
    registry: Registry,
    nodes: Option<Arc<dyn Nodes>>,
    subscribers: Vec<mpsc::UnboundedSender<Event>>,
    refusals: Refusals,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("env", &self.hub.env)
            .field("bases", &self.hub.lock().registry.len())
            .finish_non_exhaustive()
    }
}

/// How many bases are how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Heard of lately.
    pub alive: usize,
    /// Silent for too long.
    pub silent: usize,
    /// Gone, and their nodes not yet.
    pub lost: usize,
}

impl Discovery {
    /// Knows no bases, and listens nowhere yet. `env`: the environment that this process serves.
    pub fn new(settings: Settings, profile: Arc<Profile>, env: &str) -> Self {
        let registry = Registry::new(settings, profile.clone(), env);
        let state = State {
            registry,
            nodes: None,
            subscribers: Vec::new(),
            refusals: Refusals::default(),
        };
        Self {
            hub: Arc::new(Hub {
                profile,
                env: env.into(),
                begun: Instant::now(),
                tasks: TaskTracker::new(),
                state: Mutex::new(state),
            }),
        }
    }

    /// Begins to listen, until `shutdown`; then nothing is deleted. `client`: of the cluster with the virtual
    /// nodes. To be called once.
    pub fn start(
        &self,
        client: &Client,
        nodes: Arc<dyn Nodes>,
        sources: Sources,
        shutdown: &CancellationToken,
    ) {
        let hub = &self.hub;
        {
            let mut state = hub.lock();
            for (node, _) in state.registry.nodes() {
                nodes.add(node);
            }
            state.nodes = Some(nodes.clone());
        }
        let spawn = |task: futures::future::BoxFuture<'static, ()>| {
            let stop = shutdown.clone();
            hub.tasks
                .spawn(async move { stop.run_until_cancelled(task).await });
        };
        let by_mqtt = sources.hearts.is_some();
        let watch = nodes::watch(hub.clone(), client.clone(), by_mqtt);
        spawn(Box::pin(watch));
        if let Some(hearts) = sources.hearts {
            spawn(Box::pin(mqtt::watch_link(hub.clone(), hearts.connected.clone())));
            spawn(Box::pin(mqtt::listen(hub.clone(), hearts)));
        }
        for cluster in sources.pods {
            spawn(Box::pin(pods::watch(hub.clone(), cluster, shutdown.clone())));
        }
        if let Some(listener) = sources.heartbeats {
            // It drains its connections itself.
            hub.tasks
                .spawn(heartbeat::serve(hub.clone(), listener, shutdown.clone()));
        }
        let registrar = Registrar::new(hub.clone(), client.clone());
        spawn(Box::pin(beat(hub.clone(), nodes, registrar)));
        hub.tasks.close();
    }

    /// Waits until nothing is done any more, after the shutdown.
    pub async fn stopped(&self) {
        self.hub.tasks.wait().await;
    }

    /// The base of a node.
    pub fn base(&self, node: &str) -> Option<Arc<Base>> {
        self.hub.lock().registry.base(node).cloned()
    }

    /// Whether the base of a node lives.
    pub fn life(&self, node: &str) -> Option<Life> {
        self.hub.lock().registry.life(node).cloned()
    }

    /// For how long nothing was heard of the base of a node.
    pub fn silence(&self, node: &str) -> Option<Duration> {
        self.hub.lock().registry.silence(node, self.hub.now())
    }

    /// Whether this replica judges the life of a node's base: it serves the node, and has noticed.
    pub fn judges(&self, node: &str) -> bool {
        self.hub.lock().registry.is_ours(node)
    }

    /// The node of a base.
    pub fn node_of(&self, identity: &Identity) -> Option<Arc<str>> {
        self.hub.lock().registry.node_of(identity).cloned()
    }

    /// All nodes with their bases.
    pub fn bases(&self) -> BTreeMap<Arc<str>, Arc<Base>> {
        let state = self.hub.lock();
        let nodes = state.registry.nodes();
        nodes.map(|(node, base)| (node.clone(), base.clone())).collect()
    }

    /// How the bases are whose nodes this replica serves.
    pub fn census(&self) -> Census {
        let state = self.hub.lock();
        let registry = &state.registry;
        let mut census = Census::default();
        for (node, _) in registry.nodes().filter(|(node, _)| registry.is_ours(node)) {
            match registry.life(node) {
                Some(Life::Silent) => census.silent += 1,
                Some(Life::Lost(_)) => census.lost += 1,
                Some(Life::Alive) | None => census.alive += 1,
            }
        }
        census
    }

    /// All changes from now on, none left out; first of all, as changes, what is known already. To be
    /// received without delay: they wait in memory.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.hub.lock();
        for (node, base) in state.registry.nodes() {
            let event = |change| Event {
                node: node.clone(),
                base: base.clone(),
                change,
            };
            let life = match state.registry.life(node) {
                Some(Life::Silent) => Some(Change::Silent),
                Some(Life::Lost(evidence)) => Some(Change::Lost(evidence.clone())),
                Some(Life::Alive) | None => None,
            };
            for change in [Some(Change::Online), life].into_iter().flatten() {
                // The receiver is just below.
                let _ = sender.send(event(change));
            }
        }
        state.subscribers.push(sender);
        receiver
    }

    /// The base of a node has answered at `endpoint`, and called itself `says`.
    pub fn answered(&self, node: &str, endpoint: &Endpoint, says: Option<&str>) {
        if let Some(base) = self.base(node) {
            let says = match says.map(Identity::new) {
                // A name that no base can have is at least another's.
                Some(Err(_)) => return,
                Some(Ok(says)) => Some(says),
                None => None,
            };
            self.hub.report(Observation::Answered {
                identity: base.identity.clone(),
                endpoint: endpoint.clone(),
                says,
            });
        }
    }

    /// The port of a node's base refused a connection.
    pub fn refused(&self, node: &str, socket: SocketAddr) {
        if let Some(base) = self.base(node) {
            self.hub.report(Observation::PortRefused {
                identity: base.identity.clone(),
                socket,
            });
        }
    }

    /// How many pods are on a node.
    pub fn pods(&self, node: &str, count: usize) {
        self.hub.report(Observation::Pods {
            node: node.into(),
            count,
        });
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The registry checks its own order at each step; a panic in one of them is no reason to forget all
        // bases.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes note of a sighting, and carries out what follows.
    pub(crate) fn observe(&self, observation: Observation) -> Result<(), Refused> {
        let mut state = self.lock();
        let seen = state.registry.observe(observation, self.now());
        match seen {
            Ok(events) => {
                state.carry_out(events);
                Ok(())
            }
            Err(refused) => {
                state.refusals.add(&refused, self.now());
                Err(refused)
            }
        }
    }

    /// The same where nobody waits for an answer.
    pub(crate) fn report(&self, observation: Observation) {
        // It has been logged.
        let _ = self.observe(observation);
    }

    /// What came from `peer` is no heartbeat.
    pub(crate) fn cannot_read(&self, peer: IpAddr, why: &str) {
        let now = self.now();
        self.lock().refusals.unreadable(peer, why, now);
    }

    fn tick(&self) {
        let now = self.now();
        let mut state = self.lock();
        let (events, refused) = state.registry.tick(now);
        state.carry_out(events);
        for refused in refused {
            state.refusals.add(&refused, now);
        }
    }

    /// Learns anew which nodes are served here.
    fn resync(&self, nodes: &dyn Nodes) {
        let known: Vec<(Arc<str>, bool)> = {
            let state = self.lock();
            let registry = &state.registry;
            let ours = |(node, _): (&Arc<str>, _)| (node.clone(), registry.is_ours(node));
            registry.nodes().map(ours).collect()
        };
        for (node, ours) in known {
            let here = nodes.serves(&node);
            if here != ours {
                self.report(Observation::Served { node, here });
            }
        }
    }
}

impl State {
    fn carry_out(&mut self, events: Vec<Event>) {
        for event in events {
            report::log(&event);
            if let Some(nodes) = &self.nodes {
                match event.change {
                    Change::Online => nodes.add(&event.node),
                    Change::Gone(_) => nodes.remove(&event.node, true),
                    Change::Left => nodes.remove(&event.node, false),
                    Change::Changed { .. } | Change::Silent | Change::Lost(_) | Change::Back => {}
                }
            }
            self.subscribers
                .retain(|subscriber| subscriber.send(event.clone()).is_ok());
        }
    }
}

/// Applies the rules of time every second, for ever.
async fn beat(hub: Arc<Hub>, nodes: Arc<dyn Nodes>, mut registrar: Registrar) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        hub.resync(&*nodes);
        hub.tick();
        registrar.reconcile();
    }
}
