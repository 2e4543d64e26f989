//! The loop: take in what the watches show, look at it, and have done what the planner asks for.

use super::Settings;
use super::cache::{Cache, LastSigns};
use super::clock::Clock;
use super::dispatch::Dispatch;
use super::execute::{ActionError, Executor, Gate, Outcome, depends_on, kind};
use super::metrics::Metrics;
use super::watch;
use crate::core::action::Action;
use crate::core::plan::Planner;
use crate::core::state::NodeState;
use evenkeel_api::names;
use evenkeel_election::{self as election, State};
use evenkeel_net::admin::Admin;
use evenkeel_zone::Millis;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Looks happen at least this often, because evidence ages without an event.
const TICK: Duration = Duration::from_secs(1);
/// Events are gathered for this long before a look, so that thousands of Leases cost a few looks a second.
const GATHER: Duration = Duration::from_millis(50);
/// A watch of Leases that is silent for this long is checked against a list.
const AUDIT_AFTER_MS: u64 = 5_000;
/// The loop is stuck if it did not turn for this long.
const STUCK_MS: u64 = 30_000;
/// What is under way at a stop may end within this time.
const DRAIN: Duration = Duration::from_secs(3);

/// What a finished task brings back.
enum Ended {
    Action(Box<Action>, Result<Outcome, ActionError>),
    Audit(Millis, Option<Vec<Lease>>),
}

/// What readiness and liveness look at.
#[derive(Default)]
struct Pulse {
    turned_at: AtomicU64,
    missing: Mutex<Vec<&'static str>>,
}

pub(super) struct Controller {
    client: Client,
    settings: Settings,
    clock: Clock,
    cache: Cache,
    planner: Option<Planner>,
    /// Our share in the present term.
    work: Option<election::Work>,
    dispatch: Dispatch,
    executor: Executor,
    metrics: Metrics,
    gate: Gate,
    tasks: JoinSet<Ended>,
    auditing: bool,
    audited_at: Millis,
    states: BTreeMap<String, NodeState>,
    refused: BTreeSet<String>,
    pulse: Arc<Pulse>,
}

impl Controller {
    pub(super) fn new(client: Client, settings: Settings, admin: &Admin) -> Self {
        let metrics = Metrics::register(admin);
        let gate = Gate::default();
        let clock = Clock::start();
        let pulse = Arc::new(Pulse {
            turned_at: AtomicU64::new(clock.now().0),
            ..Pulse::default()
        });
        *pulse.missing.lock().unwrap_or_else(PoisonError::into_inner) = watch::WATCHED.to_vec();
        let stuck = Arc::clone(&pulse);
        admin.live("controller-loop", move || {
            let idle = clock.now().since(Millis(stuck.turned_at.load(Ordering::Relaxed)));
            if idle < STUCK_MS {
                Ok(())
            } else {
                Err(format!("the loop has not turned for {idle} ms"))
            }
        });
        let synced = Arc::clone(&pulse);
        admin.ready("watches", move || {
            let missing = synced.missing.lock().unwrap_or_else(PoisonError::into_inner);
            if missing.is_empty() {
                return Ok(());
            }
            Err(format!(
                "not listed yet: {} (are the CRDs installed, and may we list them?)",
                missing.join(", ")
            ))
        });
        Self {
            executor: Executor::new(client.clone(), gate.clone(), metrics.clone()),
            client,
            settings,
            clock,
            cache: Cache::default(),
            planner: None,
            work: None,
            dispatch: Dispatch::default(),
            metrics,
            gate,
            tasks: JoinSet::new(),
            auditing: false,
            audited_at: Millis::default(),
            states: BTreeMap::new(),
            refused: BTreeSet::new(),
            pulse,
        }
    }

    /// Runs until `shutdown`. Leads when the candidate does; without one, always. `Err` when the election ended by
    /// itself.
    pub(super) async fn run(
        mut self,
        election: Option<&election::Election>,
        shutdown: CancellationToken,
    ) -> Result<(), ElectionEnded> {
        let mut role = election.map(election::Election::watch);
        if let Some(election) = election {
            // Every write of the planner goes through the gate; reads, and the watches, do not need it.
            let writer = election.gate().client(&self.client);
            self.gate.proof = Some(election.gate().clone());
            self.executor = Executor::new(writer, self.gate.clone(), self.metrics.clone());
        }
        let mut seen = watch::all(&self.client).ready_chunks(256);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look_at = None;
        let outcome = loop {
            if let Err(ended) = self.follow(role.as_mut(), election) {
                break Err(ended);
            }
            let gathered = async {
                match look_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let look = tokio::select! {
                () = shutdown.cancelled() => break Ok(()),
                changed = role_changed(role.as_mut()) => {
                    if changed.is_err() {
                        break Err(ElectionEnded("its task died".to_owned()));
                    }
                    true
                }
                Some(changes) = seen.next() => {
                    let now = self.clock.now();
                    let mut urgent = false;
                    for change in changes {
                        urgent |= self.cache.take(now, change);
                    }
                    look_at.get_or_insert_with(soon);
                    urgent
                }
                Some(ended) = self.tasks.join_next() => {
                    self.ended(ended);
                    look_at.get_or_insert_with(soon);
                    false
                }
                () = gathered => true,
                _ = tick.tick() => true,
            };
            if look {
                look_at = None;
                self.look();
            }
        };
        self.gate.leading.store(false, Ordering::Release);
        let drained =
            tokio::time::timeout(DRAIN, async { while self.tasks.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!(
                under_way = self.dispatch.under_way(),
                "stopped with writes under way"
            );
        }
        self.work = None;
        outcome
    }

    /// Takes over, pauses, or lets go, as the election says.
    fn follow(
        &mut self,
        role: Option<&mut channel::Receiver<election::State>>,
        election: Option<&election::Election>,
    ) -> Result<(), ElectionEnded> {
        let role = match role.map(|role| role.borrow_and_update().clone()) {
            None | Some(State::Leading { .. } | State::Recovered { .. }) => Role::Leads,
            Some(State::Lost { .. }) => Role::Waits,
            Some(State::Following { .. }) => Role::Follows,
            Some(State::Stopped { reason }) => return Err(ElectionEnded(reason.to_string())),
        };
        let leads = role == Role::Leads;
        if leads != self.gate.leading.swap(leads, Ordering::AcqRel) {
            tracing::info!(leads, "leadership changed");
            self.metrics.leading.set(i64::from(leads));
        }
        let work = election.and_then(election::Election::work);
        let new_term = match (&work, &self.work) {
            (Some(work), Some(ours)) => work.token() != ours.token(),
            _ => false,
        };
        // A term that is lost and may be recovered keeps its planner: nobody else has acted meanwhile.
        let over = role == Role::Follows || new_term;
        if over && self.planner.is_some() {
            // What the last term had under way is refused before its next write; this one remembers nothing of it.
            self.dispatch.reset();
            self.planner = None;
            self.work = None;
            self.states.clear();
            self.metrics.states(STATES.iter().map(|state| (state, &0)));
        }
        if leads && self.planner.is_none() {
            self.dispatch.reset();
            self.planner = Some(Planner::new(self.settings.config.clone()));
            self.work = work;
        }
        Ok(())
    }

    /// One look at the world.
    fn look(&mut self) {
        let now = self.clock.now();
        self.pulse.turned_at.store(now.0, Ordering::Relaxed);
        let missing = self.cache.missing();
        let complete = missing.is_empty();
        *self.pulse.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
        if !complete {
            return;
        }
        self.cache.refresh(now);
        self.audit(now);
        let live = self.cache.world.watch.live_since(now).is_some();
        self.metrics.watch_live.set(i64::from(live));
        let Some(planner) = self
            .planner
            .as_mut()
            .filter(|_| self.gate.leading.load(Ordering::Acquire))
        else {
            return;
        };
        let cache = &self.cache;
        let plan = planner.tick(&cache.world, &|uid| cache.verdict(uid, now), now);
        for measure in &plan.measures {
            self.metrics.measured(*measure);
        }
        for why in plan.refused.iter().filter(|why| !self.refused.contains(*why)) {
            tracing::warn!(why, "agent kept out of its zone's roster");
        }
        self.refused = plan.refused.into_iter().collect();
        self.tell_states();
        self.dispatch.prune(now);
        for action in plan.actions {
            if self.dispatch.admit(&action, now) {
                self.start(action);
            }
        }
    }

    #[allow(clippy::disallowed_methods, reason = "the shell starts tasks")]
    fn start(&mut self, action: Action) {
        let signs = match depends_on(&action) {
            Some(node) => self.cache.last_signs(&node.name),
            None => LastSigns::default(),
        };
        let executor = self.executor.clone();
        // The Lease is not given back before this has ended.
        let work = self.work.clone();
        self.tasks.spawn(async move {
            let outcome = executor.perform(&action, &signs).await;
            drop(work);
            Ended::Action(Box::new(action), outcome)
        });
    }

    fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let now = self.clock.now();
        match ended {
            Ok(Ended::Action(action, outcome)) => {
                let what = kind(&action);
                let key = action.key();
                match &outcome {
                    Ok(Outcome::Done) => {
                        tracing::debug!(action = what, key, "done");
                        if let Action::Evict {
                            pod,
                            node,
                            dead_since,
                            ..
                        } = &*action
                        {
                            self.metrics.evicted(now.since(*dead_since));
                            tracing::info!(%pod, node = node.name, "pod evicted");
                            self.tell_eviction(&action);
                        }
                    }
                    Ok(Outcome::Stale) => tracing::debug!(action = what, key, "the object changed meanwhile"),
                    Ok(Outcome::Refused(why)) => tracing::warn!(action = what, key, why, "not done"),
                    Err(error) => {
                        let cause = std::error::Error::source(error)
                            .map(ToString::to_string)
                            .unwrap_or_default();
                        tracing::warn!(action = what, key, %error, cause, "not done, trying again");
                    }
                }
                self.dispatch.ended(*action, outcome.ok().as_ref(), now);
            }
            Ok(Ended::Audit(sent, leases)) => {
                self.auditing = false;
                if let Some(leases) = leases {
                    self.cache.audited(sent, now, leases);
                }
            }
            Err(error) => {
                tracing::error!(%error, "a task of the controller died");
                // Nobody knows which; everything that is still wanted may be tried again.
                self.dispatch.reset();
                self.auditing = false;
            }
        }
    }

    fn tell_eviction(&mut self, evicted: &Action) {
        use crate::core::action::{About, Notice};
        let Action::Evict { pod, message, .. } = evicted else {
            return;
        };
        self.start(Action::Event(Notice {
            about: About::Pod(pod.clone()),
            warning: false,
            reason: names::events::EVICTED.to_owned(),
            message: message.clone(),
            incident: String::new(),
        }));
    }

    /// A watch of Leases that shows nothing proves nothing: in a zone that is cut off as a whole it is right to be
    /// silent. A consistent list tells the two apart.
    #[allow(clippy::disallowed_methods, reason = "the shell starts tasks")]
    fn audit(&mut self, now: Millis) {
        let recent = self
            .cache
            .world
            .watch
            .last_progress()
            .is_some_and(|at| now.since(at) < AUDIT_AFTER_MS);
        if recent || self.auditing || now.since(self.audited_at) < AUDIT_AFTER_MS {
            return;
        }
        self.auditing = true;
        self.audited_at = now;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NODE_LEASE_NAMESPACE);
        self.tasks.spawn(async move {
            match leases.list(&ListParams::default()).await {
                Ok(list) => Ended::Audit(now, Some(list.items)),
                Err(error) => {
                    tracing::warn!(%error, "cannot list node Leases to check their watch");
                    Ended::Audit(now, None)
                }
            }
        });
    }

    /// Logs changes of state, and counts nodes by state.
    fn tell_states(&mut self) {
        let Some(planner) = &self.planner else {
            return;
        };
        let mut counts: BTreeMap<&'static str, i64> = STATES.into_iter().map(|state| (state, 0)).collect();
        let mut states = BTreeMap::new();
        for node in self.cache.world.nodes.values() {
            let Some(shown) = planner.state(&node.uid) else {
                continue;
            };
            *counts.entry(shown.state.name()).or_default() += 1;
            let before = self.states.remove(&node.name);
            if before != Some(shown.state) && !(before.is_none() && shown.state == NodeState::Healthy) {
                let (state, reason) = (shown.state, shown.reason);
                tracing::info!(node = node.name, ?state, %reason, held = shown.held, "node state");
            }
            states.insert(node.name.clone(), shown.state);
        }
        self.states = states;
        self.metrics.states(counts.iter());
    }
}

/// When what is being gathered is looked at.
#[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + GATHER
}

/// Names of all states, so that a gauge that falls to 0 is still shown.
const STATES: [&str; 7] = [
    "Healthy",
    "KubeletDown",
    "Disconnected",
    "Dead",
    "Isolated",
    "Unknown",
    "Dark",
];

/// The election ended although nobody asked for it; why.
#[derive(Debug)]
pub(super) struct ElectionEnded(pub(super) String);

/// What the election lets this replica do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Plan and write.
    Leads,
    /// Keep what it knows: leadership may be recovered.
    Waits,
    /// Watch.
    Follows,
}

async fn role_changed(
    role: Option<&mut channel::Receiver<election::State>>,
) -> Result<(), channel::error::RecvError> {
    match role {
        Some(role) => role.changed().await,
        None => std::future::pending().await,
    }
}
