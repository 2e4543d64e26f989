//! The shell around the engine: timers, attempts as tasks, subscribers, events, state on disk.

mod clock;
mod drive;
mod shared;
mod subscribe;

pub use clock::Clock;
pub(crate) use shared::{Row, Shared};
pub use subscribe::{Change, Subscription};

use crate::core::engine::{Config, Notice, Report, Snapshot};
use crate::core::{Kind, Pod, PodStatus, Reading};
use crate::events::{EventSink, NullSink};
use crate::handler::Prober;
use crate::metrics::ProbeMetrics;
use crate::state::StateFile;
use drive::Driver;
use prometheus_client::registry::Registry;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Probes pods. Cheap to clone; all calls return at once.
///
/// Who reacts to what is published takes a [`Manager::subscribe`]: a reader that is slow gets the latest
/// reading of each container when it comes round, and holds nobody up.
#[derive(Clone)]
pub struct Manager {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").finish_non_exhaustive()
    }
}

/// A manager that is not started yet.
pub struct Builder {
    config: Config,
    clock: Clock,
    restored: Snapshot,
    events: Arc<dyn EventSink>,
    state: Option<StateFile>,
}

impl Builder {
    /// State of a former prober.
    #[must_use]
    pub fn restored(mut self, snapshot: Snapshot) -> Self {
        self.restored = snapshot;
        self
    }

    /// Where events go; nowhere unless said.
    #[must_use]
    pub fn events(mut self, sink: Arc<dyn EventSink>) -> Self {
        self.events = sink;
        self
    }

    /// A file from which the state is read now, and into which it is written: [`Builder::restored`] and
    /// [`Builder::keep`] in one. Reads at once, blocking.
    #[must_use]
    pub fn state(self, file: StateFile) -> Self {
        let former = file.load();
        self.restored(former).keep(file)
    }

    /// A file into which the state is written: at most once per second when something has changed, and at the
    /// end.
    #[must_use]
    pub fn keep(mut self, file: StateFile) -> Self {
        self.state = Some(file);
        self
    }

    /// Another clock than the system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Starts probing in tasks of the current runtime, until `shutdown`. The start of the prober
    /// ([`Policy::started`](crate::core::Policy::started)) is now, whatever the configuration says.
    pub fn start(self, prober: impl Prober, shutdown: CancellationToken) -> Manager {
        let Self {
            mut config,
            clock,
            restored,
            events,
            state,
        } = self;
        config.policy.started = clock.now();
        let shared = Arc::new(Shared::new(config, restored, clock, events, shutdown));
        let driver = Arc::new(Driver::new(shared.clone(), prober));
        shared.tasks.spawn(driver.drive());
        shared.tasks.close();
        if let Some(file) = state {
            shared.keeper.spawn(file.keep(shared.clone()));
        }
        shared.keeper.close();
        Manager { shared }
    }
}

impl Manager {
    /// A manager to be started; without events and without a state file unless told.
    pub fn builder(config: Config) -> Builder {
        Builder {
            config,
            clock: Clock::system(),
            restored: Snapshot::default(),
            events: Arc::new(NullSink),
            state: None,
        }
    }

    /// Starts probing in tasks of the current runtime, until `shutdown`. See [`Manager::builder`] for events
    /// and a state file, and [`Builder::start`].
    pub fn start(
        config: Config,
        prober: impl Prober,
        restored: Snapshot,
        shutdown: CancellationToken,
    ) -> Self {
        Self::builder(config).restored(restored).start(prober, shutdown)
    }

    /// Waits until everything has ended after the shutdown: attempts are cancelled, the state is written.
    pub async fn stopped(&self) {
        self.shared.tasks.wait().await;
        self.shared.keeper.wait().await;
    }

    /// See [`Engine::add_pod`](crate::core::engine::Engine::add_pod).
    pub fn add_pod(&self, pod: Arc<Pod>) {
        self.shared.act(|state, now| {
            state.meet(&pod);
            state.engine.add_pod(pod, now);
        });
    }

    /// See [`Engine::update_pod`](crate::core::engine::Engine::update_pod).
    pub fn update_pod(&self, pod: Arc<Pod>) {
        self.shared.act(|state, now| {
            state.meet(&pod);
            state.engine.update_pod(pod, now);
        });
    }

    /// See [`Engine::update_status`](crate::core::engine::Engine::update_status).
    pub fn update_status(&self, pod: &str, status: PodStatus) -> Vec<Report> {
        self.shared
            .act(|state, now| state.engine.update_status(pod, status, now))
    }

    /// See [`Engine::stop_liveness_and_startup`](crate::core::engine::Engine::stop_liveness_and_startup).
    pub fn stop_liveness_and_startup(&self, pod: &str) {
        self.shared
            .act(|state, _| state.engine.stop_liveness_and_startup(pod));
    }

    /// See [`Engine::remove_pod`](crate::core::engine::Engine::remove_pod). What subscribers have not read
    /// about it yet is dropped.
    pub fn remove_pod(&self, pod: &str) {
        self.shared.act(|state, _| {
            state.engine.remove_pod(pod);
            state.forget(|known| known != pod);
        });
    }

    /// See [`Engine::retain_pods`](crate::core::engine::Engine::retain_pods). What subscribers have not read
    /// about the others yet is dropped.
    pub fn retain_pods(&self, desired: &HashSet<Arc<str>>) {
        self.shared.act(|state, _| {
            state.engine.retain_pods(desired);
            state.forget(|known| desired.contains(known));
        });
    }

    /// What is published about a container, by its ID.
    pub fn reading(&self, pod: &str, container: &str, kind: Kind, container_id: &str) -> Option<Reading> {
        self.shared
            .lock()
            .engine
            .reading(pod, container, kind, container_id)
    }

    /// State for the next prober.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.lock().engine.snapshot()
    }

    /// Changes of what is published, coalesced: for each worker the latest that the subscriber has not seen
    /// yet.
    pub fn subscribe(&self) -> Subscription {
        self.shared.subscribe()
    }

    /// All notices from now on, attempts included, for who wants to see everything. A reader that falls more
    /// than 4096 behind loses the oldest and is told how many. Ends with the manager's last task and handle.
    pub fn notices(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.shared.notices()
    }

    /// Registers the metrics, once per process; see [`ProbeMetrics`] for names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(ProbeMetrics::new(&self.shared)));
    }
}

#[cfg(test)]
pub(crate) mod tests;
