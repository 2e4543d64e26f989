//! What all actors of a fleet share.

use super::Options;
use super::directory::Directory;
use super::events::Events;
use super::metrics::Metrics;
use super::probes::Probes;
use super::wheel::Wheel;
use crate::core::Now;
use crate::node::NodeWriter;
use crate::objects::Objects;
use crate::pods::{Limit, Writers};
use crate::provider::Provider;
use evenkeel_probe::manager::Clock;
use jiff::Timestamp;
use kube::Client;
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Pods that are kept unpacked at a time: 10 KiB each.
const AT_HAND: usize = 2048;
/// Values that are kept once, before those that nobody uses any more are let go.
const ALIKE: usize = 1024;

/// What all actors of a fleet share.
pub(crate) struct Common {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) options: Options,
    /// For reads, Events and tokens. Statuses are written by way of a slot's gate.
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
    pub(crate) directory: Arc<Directory>,
    pub(crate) clock: Clock,
    pub(crate) wheel: Wheel,
    pub(crate) writers: Writers,
    pub(crate) events: Events,
    pub(crate) probes: Probes,
    pub(crate) objects: Objects,
    /// On calls that create and start.
    pub(crate) limit: Limit,
    /// On calls that look and tell.
    pub(crate) looks: Limit,
    /// Writes Nodes and Leases; for a slot with the slot's client.
    pub(crate) node_writer: NodeWriter,
    /// Room for pods that are kept unpacked.
    pub(crate) at_hand: Arc<Semaphore>,
    pub(crate) watch: Watching,
    namespaces: Alike<str>,
    resources: Alike<Resources>,
}

/// Amounts by resource.
pub(crate) type Resources = BTreeMap<String, String>;

/// Values of which nodes and pods have few different ones, each kept once.
#[derive(Debug)]
struct Alike<T: ?Sized>(Mutex<HashSet<Arc<T>>>);

impl<T: ?Sized + Eq + Hash> Alike<T> {
    fn new() -> Self {
        Self(Mutex::new(HashSet::new()))
    }

    /// The one that is kept, which is made if there is none like it.
    fn share(&self, value: &T, make: impl FnOnce(&T) -> Arc<T>) -> Arc<T> {
        // Insertions and removals are complete before anything could panic.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(value) {
            return known.clone();
        }
        if known.len() >= ALIKE {
            known.retain(|known| Arc::strong_count(known) > 1);
        }
        let value = make(value);
        known.insert(value.clone());
        value
    }
}

/// The state of the pods' watch.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// It has listed everything and not failed since.
    live: AtomicBool,
    /// The latest resourceVersion that it has shown.
    version: AtomicU64,
}

impl Watching {
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    pub(crate) fn set_live(&self, live: bool) {
        self.live.store(live, Ordering::Release);
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn shown(&self, version: u64) {
        self.version.fetch_max(version, Ordering::AcqRel);
    }
}

/// Parts that are made before the rest.
pub(crate) struct Parts {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) options: Options,
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
    pub(crate) directory: Arc<Directory>,
    pub(crate) wheel: Wheel,
    pub(crate) writers: Writers,
    pub(crate) events: Events,
    pub(crate) probes: Probes,
}

impl Common {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            objects: Objects::new(parts.client.clone()),
            limit: Limit::new(parts.options.starts),
            looks: Limit::new(parts.options.looks),
            node_writer: NodeWriter::new(parts.client.clone(), parts.provider.clone()),
            provider: parts.provider,
            options: parts.options,
            client: parts.client,
            metrics: parts.metrics,
            directory: parts.directory,
            clock: Clock::system(),
            wheel: parts.wheel,
            writers: parts.writers,
            events: parts.events,
            probes: parts.probes,
            at_hand: Arc::new(Semaphore::new(AT_HAND)),
            watch: Watching::default(),
            namespaces: Alike::new(),
            resources: Alike::new(),
        }
    }

    /// A namespace's name, shared by all of its pods.
    pub(crate) fn namespace(&self, name: &str) -> Arc<str> {
        self.namespaces.share(name, |name| name.into())
    }

    /// What a node has, shared by all nodes that have the same.
    pub(crate) fn resources(&self, resources: &Resources) -> Arc<Resources> {
        self.resources
            .share(resources, |resources| Arc::new(resources.clone()))
    }
}

/// The wall clock's time.
pub(crate) fn timestamp(now: Now) -> Timestamp {
    let nanoseconds = i128::try_from(now.wall.as_nanos()).unwrap_or(i128::MAX);
    Timestamp::from_nanosecond(nanoseconds).unwrap_or(Timestamp::MAX)
}
