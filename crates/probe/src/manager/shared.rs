//! The engine, and what belongs to it, behind one lock that is held for short.

use super::clock::Clock;
use super::subscribe::{Change, Hub, Subscription};
use crate::core::engine::{Config, Engine, Notice, Snapshot, Tally};
use crate::core::{Attempt, Event, Key, Now, Outcome, Pod, Reading, Settled};
use crate::events::{EventAbout, EventSink};
use crate::metrics::Lags;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Notices that a reader may be behind.
const NOTICES: usize = 4096;

/// Equal results in a row after which one more is not worth writing down, unless a threshold is higher: no
/// window is longer.
const CALM: u32 = 64;

/// Attempts that are taken from the engine at a time, so that the lock is not held for all of 10,000.
const BATCH: usize = 64;

/// What handles, driver and attempts share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The driver sleeps too long.
    pub(super) wake: Notify,
    /// There is something to be written down.
    pub(crate) changed: Notify,
    pub(crate) clock: Clock,
    pub(crate) shutdown: CancellationToken,
    /// The driver and the attempts.
    pub(crate) tasks: TaskTracker,
    /// Who writes the state down, after the others.
    pub(super) keeper: TaskTracker,
    notices: OnceLock<broadcast::Sender<Arc<Notice>>>,
    events: Arc<dyn EventSink>,
}

pub(super) struct State {
    pub(super) engine: Engine,
    pods: HashMap<Arc<str>, Arc<Pod>>,
    streaks: HashMap<Key, Streak>,
    hub: Hub,
    lags: Lags,
    in_flight: usize,
    /// Until when the driver sleeps; `None`: until it is woken.
    planned: Option<Duration>,
}

/// The results of a worker that were alike.
#[derive(Default)]
struct Streak {
    last: Option<Settled>,
    /// How many alike in a row.
    alike: u32,
}

/// A worker, copied for a scrape.
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) pod: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) tally: Tally,
    pub(crate) published: Option<Reading>,
    pub(crate) run: (Option<Reading>, u32),
}

/// All workers, copied for a scrape.
pub(crate) struct Sample {
    pub(crate) rows: Vec<Row>,
    pub(crate) lags: Lags,
    pub(crate) in_flight: usize,
    /// Workers that are due and have no place.
    pub(crate) waiting: usize,
}

/// How an attempt ended, for the engine.
pub(super) struct Ended {
    pub(super) ticket: u64,
    pub(super) outcome: Outcome,
    pub(super) starved: bool,
    pub(super) lag: Duration,
}

impl State {
    #[cfg(test)]
    pub(super) fn subscribers(&self) -> usize {
        self.hub.len()
    }

    fn settle(&mut self, ended: Ended, now: Now) {
        let Ended {
            ticket,
            outcome,
            starved,
            lag,
        } = ended;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.lags.observe(lag);
        self.engine.settle(ticket, outcome, starved, now);
    }

    /// Pods that are not `kept` are gone: subscribers need not hear any more about them.
    pub(super) fn forget(&mut self, kept: impl Fn(&str) -> bool) {
        self.pods.retain(|pod, _| kept(pod));
        self.hub.retain(|key| kept(&key.pod));
    }

    /// Events about the pod will name it.
    pub(super) fn meet(&mut self, pod: &Arc<Pod>) {
        self.pods.insert(pod.uid.clone(), pod.clone());
    }
}

impl Shared {
    pub(super) fn new(
        config: Config,
        restored: Snapshot,
        clock: Clock,
        events: Arc<dyn EventSink>,
        shutdown: CancellationToken,
    ) -> Self {
        let mut engine = Engine::new(config);
        engine.restore(restored);
        Self {
            state: Mutex::new(State {
                engine,
                pods: HashMap::new(),
                streaks: HashMap::new(),
                hub: Hub::default(),
                lags: Lags::default(),
                in_flight: 0,
                planned: None,
            }),
            wake: Notify::new(),
            changed: Notify::new(),
            clock,
            shutdown,
            tasks: TaskTracker::new(),
            keeper: TaskTracker::new(),
            notices: OnceLock::new(),
            events,
        }
    }

    /// A panic under the lock is a defect of the engine; to go on with what it left is better than to stop
    /// all probes.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the engine, tells what came of it, and has the driver look again if it would sleep
    /// too long.
    pub(super) fn act<T>(&self, what: impl FnOnce(&mut State, Now) -> T) -> T {
        let mut state = self.lock();
        let result = what(&mut state, self.clock.now());
        self.report(&mut state);
        self.rouse(&mut state);
        result
    }

    /// The next attempts to be made now; an attempt that has ended is settled first.
    pub(super) fn attempts(&self, ended: Option<Ended>) -> (Vec<Attempt>, Now) {
        let mut state = self.lock();
        let now = self.clock.now();
        if let Some(ended) = ended {
            state.settle(ended, now);
        }
        let mut attempts = Vec::new();
        while attempts.len() < BATCH
            && let Some(attempt) = state.engine.next_attempt(now)
        {
            attempts.push(attempt);
        }
        state.in_flight += attempts.len();
        self.report(&mut state);
        if attempts.is_empty() {
            self.rouse(&mut state);
        }
        (attempts, now)
    }

    /// Settles an attempt. The driver starts what may run now.
    pub(super) fn settle(&self, ended: Ended) {
        self.act(|state, now| state.settle(ended, now));
    }

    /// Until when the driver may sleep.
    pub(super) fn plan(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.planned = state.engine.due();
        state.planned
    }

    /// Has the driver look again if it would sleep too long.
    fn rouse(&self, state: &mut State) {
        let due = state.engine.due();
        if due.is_some_and(|due| state.planned.is_none_or(|planned| due < planned)) {
            state.planned = due;
            self.wake.notify_one();
        }
    }

    /// Reports what has happened, in order: under the lock, for else a later reading could be overtaken by an
    /// earlier one. Nothing here waits for anybody.
    fn report(&self, state: &mut State) {
        let listened = self.notices.get().filter(|sender| sender.receiver_count() > 0);
        let mut dirty = false;
        for notice in state.engine.drain() {
            match &notice {
                Notice::Published {
                    key,
                    container_id,
                    reading,
                    why,
                } => {
                    dirty = true;
                    if !state.hub.is_empty() {
                        state.hub.publish(&Change {
                            key: key.clone(),
                            container_id: container_id.clone(),
                            reading: *reading,
                            why: why.clone(),
                        });
                    }
                }
                Notice::Ended {
                    key,
                    outcome,
                    starved,
                    ..
                } => dirty |= state.ended(key, outcome, *starved),
                Notice::Event { key, event } => {
                    if let Some(about) = state.about(key) {
                        self.record(about, event.clone());
                    }
                }
                Notice::Stopped { key } => {
                    dirty = true;
                    state.streaks.remove(key);
                }
            }
            if let Some(sender) = listened {
                // An error says that the last receiver has gone meanwhile.
                let _ = sender.send(Arc::new(notice));
            }
        }
        if dirty {
            self.changed.notify_one();
        }
    }

    /// A sink is somebody else's code: it must not take the prober with it.
    fn record(&self, about: EventAbout, event: Event) {
        let recorded = AssertUnwindSafe(|| self.events.record(about, event));
        if std::panic::catch_unwind(recorded).is_err() {
            tracing::error!("the receiver of a probe's events panicked: the event is lost");
        }
    }

    pub(super) fn subscribe(&self) -> Subscription {
        self.lock().hub.subscribe(self.shutdown.is_cancelled())
    }

    /// Subscribers are told that nothing more will come.
    pub(super) fn close(&self) {
        self.lock().hub.close();
    }

    pub(super) fn notices(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.notices
            .get_or_init(|| broadcast::channel(NOTICES).0)
            .subscribe()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.lock().engine.snapshot()
    }

    /// A copy of all that metrics show: whoever writes it out needs no lock.
    pub(crate) fn sample(&self) -> Sample {
        let state = self.lock();
        let waiting = state.engine.inspect().filter(|worker| worker.waiting);
        let waiting = waiting.count();
        let rows = state.engine.inspect().map(|worker| Row {
            key: worker.key.clone(),
            pod: worker.pod.name.clone(),
            namespace: worker.pod.namespace.clone(),
            tally: worker.tally.clone(),
            published: worker.worker.published(),
            run: worker.worker.run(),
        });
        Sample {
            rows: rows.collect(),
            lags: state.lags.clone(),
            in_flight: state.in_flight,
            waiting,
        }
    }
}

impl State {
    /// Whether the end of an attempt is worth writing down.
    fn ended(&mut self, key: &Key, outcome: &Outcome, starved: bool) -> bool {
        if starved {
            return false;
        }
        let settled = Settled::of(outcome);
        let probe = self
            .pods
            .get(&key.pod)
            .and_then(|pod| pod.container(&key.container)?.probe(key.kind));
        let calm = probe.map_or(CALM, |probe| {
            let errors = probe.extras.error_threshold.unwrap_or(0);
            let thresholds = [probe.success_threshold, probe.failure_threshold, errors];
            thresholds.into_iter().fold(CALM, u32::max)
        });
        let streak = match self.streaks.get_mut(key) {
            Some(streak) => streak,
            None => self.streaks.entry(key.clone()).or_default(),
        };
        if streak.last == Some(settled) {
            streak.alike = streak.alike.saturating_add(1);
        } else {
            (streak.last, streak.alike) = (Some(settled), 1);
        }
        streak.alike <= calm
    }

    fn about(&self, key: &Key) -> Option<EventAbout> {
        let pod = self.pods.get(&key.pod)?;
        Some(EventAbout {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            container: key.container.clone(),
            role: pod
                .container(&key.container)
                .map_or_else(Default::default, |container| container.role),
        })
    }
}
