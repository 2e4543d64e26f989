//! All workers of a prober: who is due, who may run, what is published, what is worth telling.
//!
//! The engine is driven by a shell: it is told of pods, statuses and outcomes, and asked for attempts. It
//! reads no clock.
//!
//! After each call the shell asks [`Engine::next_attempt`] until there is none, takes [`Engine::drain`], and
//! comes back at [`Engine::due`] or when something happens. All costs are logarithmic in the number of
//! workers.

mod pods;
mod queue;
mod reload;
mod run;
mod schedule;
mod slab;
mod snapshot;
mod status;
mod tally;
mod why;

pub use snapshot::{Kept, Snapshot};
pub use tally::{Ending, Histogram, History, Tally};

#[cfg(doc)]
use super::Now;
use super::{Compat, Container, Event, Handler, Key, Kind, Outcome};
use super::{Pod, PodStatus, Policy, Probe, Reading, Worker};
use queue::{Lines, Queue};
use schedule::Plan;
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Limits and rules of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rules, and the start of the prober.
    pub policy: Policy,
    /// Attempts at a time, all kinds; 0 counts as 1.
    pub concurrency: usize,
    /// Exec attempts at a time: each costs a process, or a call into the container runtime. 0 counts as 1.
    pub exec_concurrency: usize,
    /// Address to probe from.
    pub source: Option<IpAddr>,
    /// Seed of the phases over which probes are spread.
    pub seed: u64,
}

/// Something that happened, in the order in which it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// What is published about a container has changed.
    Published {
        /// The worker whose probe it is.
        key: Key,
        /// The container, by ID.
        container_id: Arc<str>,
        /// What is published now.
        reading: Reading,
        /// Why, in one line for people.
        why: String,
    },
    /// An attempt has ended.
    Ended {
        /// The worker that made the attempt.
        key: Key,
        /// What the attempt found.
        outcome: Outcome,
        /// How long it took, retries included.
        took: Duration,
        /// How late it had started.
        lag: Duration,
        /// Whether it counts for nothing because the prober was starved. Strict mode; a success counts even
        /// so.
        starved: bool,
    },
    /// An event to be recorded.
    Event {
        /// The worker whose probe is the reason.
        key: Key,
        /// The event as upstream records it.
        event: Event,
    },
    /// A worker has ended for good.
    Stopped {
        /// The worker that has ended.
        key: Key,
    },
}

/// What to report as a container's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the container.
    pub container: Arc<str>,
    /// `started`.
    pub started: bool,
    /// `ready`.
    pub ready: bool,
}

/// A worker as seen from outside.
#[derive(Clone, Debug)]
pub struct Inspection<'a> {
    /// The pod of the worker.
    pub pod: &'a Pod,
    /// The name of the worker.
    pub key: &'a Key,
    /// The state of the worker.
    pub worker: &'a Worker,
    /// What it has done so far.
    pub tally: &'a Tally,
    /// Whether an attempt is under way.
    pub running: bool,
    /// Whether it is due, and waits for a free place.
    pub waiting: bool,
}

/// The workers of all pods, and what they have in common. Pure.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    /// Pods by UID.
    index: HashMap<Arc<str>, u32>,
    pods: Slab<Entry>,
    workers: Slab<Slot>,
    /// When to ask which worker. At most one entry each: the one in [`State::Waiting`] or [`State::Asleep`].
    timers: BTreeSet<(Duration, u32)>,
    queue: Queue,
    /// Attempts under way, by ticket.
    flights: HashMap<u64, Flight>,
    /// How many of them are exec.
    execs: usize,
    next_ticket: u64,
    notices: Vec<Notice>,
    /// State of a former prober, by pod, until the pod is added.
    aside: HashMap<Arc<str>, Vec<Kept>>,
}

/// What the engine knows of a pod.
#[derive(Debug)]
struct Entry {
    pod: Arc<Pod>,
    /// As last told, with `started` and `ready` as computed.
    status: Option<PodStatus>,
    /// In the order in which they were started.
    workers: Vec<u32>,
    lines: Lines,
}

/// A worker and what drives it.
#[derive(Debug)]
struct Slot {
    key: Key,
    /// Index of its pod.
    pod: u32,
    container: Arc<Container>,
    probe: Arc<Probe>,
    worker: Worker,
    tally: Tally,
    plan: Plan,
    state: State,
    /// Its state is a former prober's, and has not been used yet.
    restored: bool,
    /// What a former prober published has not been told by this one: whoever acts on it may not have been
    /// there to hear.
    untold: bool,
    /// The container that was running when the probe was added: a startup probe comes too late for it.
    too_late: Option<Arc<str>>,
    /// The container whose first probe had been made when the initial delay was changed, and its probe
    /// without delay.
    undelayed: Option<Box<(Arc<str>, Probe)>>,
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before its first tick, spread over the period because the prober has just started. Kubelet mode.
    Asleep(Duration),
    /// For the time of its next tick; `None`: for something to happen.
    Waiting(Option<Duration>),
    /// For its turn to make an attempt.
    Ready {
        /// When it became due.
        due: Duration,
        /// Whether in the line for exec probes.
        exec: bool,
    },
    /// For the end of the attempt with this ticket.
    Running(u64),
}

/// An attempt under way.
#[derive(Debug)]
struct Flight {
    /// `None`: ended meanwhile.
    worker: Option<u32>,
    exec: bool,
    started: Duration,
    lag: Duration,
}

impl Slot {
    fn is_exec(&self) -> bool {
        matches!(self.probe.handler, Handler::Exec { .. })
    }
}

impl Engine {
    /// An engine without pods.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            index: HashMap::new(),
            pods: Slab::new(),
            workers: Slab::new(),
            timers: BTreeSet::new(),
            queue: Queue::default(),
            flights: HashMap::new(),
            execs: 0,
            next_ticket: 1,
            notices: Vec::new(),
            aside: HashMap::new(),
        }
    }

    /// When to ask [`Engine::next_attempt`] again, on [`Now::mono`]; zero for at once. `None`: not before
    /// something else happens. After [`Engine::next_attempt`] has answered `None` it is later than the time
    /// asked with.
    pub fn due(&self) -> Option<Duration> {
        if self.turn().is_some() {
            return Some(Duration::ZERO);
        }
        self.timers.first().map(|(at, _)| *at)
    }

    /// What has happened since the last call.
    pub fn drain(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// What is published about a container, by its ID.
    pub fn reading(&self, pod: &str, container: &str, kind: Kind, container_id: &str) -> Option<Reading> {
        let entry = self.pods.get(*self.index.get(pod)?)?;
        self.published(entry, container, kind, container_id)
    }

    /// Every worker as it is now.
    pub fn inspect(&self) -> impl Iterator<Item = Inspection<'_>> {
        self.workers.iter().filter_map(|slot| {
            Some(Inspection {
                pod: &self.pods.get(slot.pod)?.pod,
                key: &slot.key,
                worker: &slot.worker,
                tally: &slot.tally,
                running: matches!(slot.state, State::Running(_)),
                waiting: matches!(slot.state, State::Ready { .. }),
            })
        })
    }

    fn is_strict(&self) -> bool {
        self.config.policy.compat == Compat::Strict
    }

    /// The worker of this name, if there is one.
    fn find(&self, entry: &Entry, container: &str, kind: Kind) -> Option<u32> {
        entry.workers.iter().copied().find(|id| {
            let key = self.workers.get(*id).map(|slot| &slot.key);
            key.is_some_and(|key| key.kind == kind && &*key.container == container)
        })
    }

    fn published(&self, entry: &Entry, container: &str, kind: Kind, id: &str) -> Option<Reading> {
        let worker = &self.workers.get(self.find(entry, container, kind)?)?.worker;
        let known = worker.container_id().is_some_and(|known| **known == *id);
        worker.published().filter(|_| known)
    }
}

#[cfg(test)]
mod tests;
