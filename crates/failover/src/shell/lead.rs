//! The controller's loop: it takes in what the watches deliver, decides, and starts what the planner asks
//! for.

use super::Settings;
use super::execute::{ActionError, Executor, Gate, Issuer, Outcome, counts_as, depends_on, kind};
use super::metrics::Metrics;
use super::presence::Present;
use super::reads::{services, versions};
use super::watch::{self, Restarts};
use crate::clock::instant;
use crate::webhook::Source;
use evenkeel_api::names;
use evenkeel_election::{self as election, State};
use evenkeel_failover_rules::admission::View;
use evenkeel_failover_rules::dispatch::Dispatch;
use evenkeel_failover_rules::planner::Planner;
use evenkeel_failover_rules::planner::action::{About, Action, Notice};
use evenkeel_failover_rules::world::facts::PodRef;
use evenkeel_failover_rules::world::services::Services;
use evenkeel_failover_rules::world::{self, Kind, LastSigns, Seen, World};
use evenkeel_judge::{NodeState, View as SightView};
use evenkeel_net::admin::Admin;
use evenkeel_net::watch::Key;
use evenkeel_zone::Millis;
use futures::StreamExt as _;
use futures::stream::{BoxStream, ReadyChunks, SelectAll};
use kube::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Looks happen at least this often, because evidence ages without an event: a quarter of the time for which
/// the webhook acts upon a view.
const TICK: Duration = Duration::from_millis(500);
/// Events are gathered for this long before a look, so that thousands of Leases cost a few looks a second.
pub(super) const GATHER: Duration = Duration::from_millis(50);
/// And for so many times what the last look took, so that looks at large clusters leave most of a core to
/// others.
const GATHER_LOOKS: u32 = 4;
/// An audit that takes longer proves nothing in time.
const AUDIT_WITHIN: Duration = Duration::from_secs(3);
/// Endpoints that take longer to read are asked for again.
const SERVICES_WITHIN: Duration = Duration::from_secs(5);
/// The loop is stuck if it did not turn for this long.
const STUCK_MS: u64 = 30_000;
/// What is under way at a stop may end within this time.
const DRAIN: Duration = Duration::from_secs(3);
/// A leader that sees nothing hands over once in this time.
const GIVES_WAY_MS: u64 = 600_000;

/// What a finished task brings back.
pub(super) enum Ended {
    Action(Box<Action>, Result<Outcome, ActionError>),
    Audit(Kind, Option<BTreeMap<Key, String>>),
    Services(Result<Services, String>),
}

/// What readiness and liveness look at.
#[derive(Default)]
struct Pulse {
    turned_at: AtomicU64,
    missing: Mutex<Vec<&'static str>>,
}

/// What the watches deliver, gathered.
pub(super) type Changes = ReadyChunks<SelectAll<BoxStream<'static, Seen>>>;

pub(super) struct Controller {
    client: Client,
    pub(super) source: Source,
    pub(super) world: World,
    restarts: Restarts,
    planner: Option<Planner>,
    /// Our share in the present term.
    work: Option<election::Work>,
    dispatch: Dispatch,
    executor: Executor,
    metrics: Metrics,
    gate: Gate,
    pub(super) tasks: JoinSet<Ended>,
    states: BTreeMap<String, NodeState>,
    complaints: BTreeSet<String>,
    services_failed: bool,
    /// When this replica last handed over because it saw nothing.
    gave_way: Option<Millis>,
    pulse: Arc<Pulse>,
}

impl Controller {
    pub(super) fn new(client: Client, settings: Settings, source: Source, admin: &Admin) -> Self {
        let Settings { config, rosters, .. } = settings;
        let metrics = Metrics::register(admin);
        let gate = Gate::default();
        let clock = source.clock;
        let pulse = Arc::new(Pulse {
            turned_at: AtomicU64::new(clock.now().0),
            ..Pulse::default()
        });
        let issuer = Issuer {
            clock,
            life: config.life.clone(),
            rosters: rosters.clone(),
        };
        let world = World::new(config, clock.now()).trusting(rosters.trusted);
        *pulse.missing.lock().unwrap_or_else(PoisonError::into_inner) = world.missing();
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
            executor: Executor::new(client.clone(), gate.clone(), metrics.clone(), issuer),
            client,
            source,
            world,
            restarts: Restarts::default(),
            planner: None,
            work: None,
            dispatch: Dispatch::default(),
            metrics,
            gate,
            tasks: JoinSet::new(),
            states: BTreeMap::new(),
            complaints: BTreeSet::new(),
            services_failed: false,
            gave_way: None,
            pulse,
        }
    }

    /// What the watches deliver.
    pub(super) fn changes(&self) -> Changes {
        watch::all(&self.client, &self.world.config().namespace, &self.restarts).ready_chunks(256)
    }

    /// Takes in what the watches deliver until each has delivered a complete list. `false` at a shutdown.
    /// Whoever leads before that keeps the Lease from replicas that see the cluster.
    pub(super) async fn list(&mut self, seen: &mut Changes, shutdown: &CancellationToken) -> bool {
        let mut tick = tokio::time::interval(TICK);
        while !self.world.missing().is_empty() {
            tokio::select! {
                () = shutdown.cancelled() => return false,
                Some(changes) = seen.next() => self.take(changes),
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                _ = tick.tick() => {
                    self.look();
                }
            }
        }
        true
    }

    /// A leader that has not seen enough for a minute can do nothing for or against a node, and another
    /// replica may see more: it hands over, also where it hears of no other one, because that comes by the
    /// same watches. Where the others are no better off, the lead must not go round.
    fn give_way(&mut self, election: &election::Election) {
        let now = self.source.clock.now();
        let lately = self.gave_way.is_some_and(|at| now.since(at) < GIVES_WAY_MS);
        let is_blind = self.world.sight().at(now) == SightView::Lost;
        if self.leads() && is_blind && !lately && self.world.knows_other_replicas(now) {
            tracing::warn!("this replica leads and its watches do not deliver: it hands over to another one");
            self.gave_way = Some(now);
            election.step_down();
        }
    }

    /// Runs until `shutdown`. Leads when the candidate does; without one, always. `Err` when the election
    /// ended by itself.
    pub(super) async fn run(
        mut self,
        election: Option<&election::Election>,
        (mut seen, present): (Changes, Present),
        shutdown: CancellationToken,
    ) -> Result<(), ElectionEnded> {
        let mut role = election.map(election::Election::watch);
        if let Some(election) = election {
            // Every write of the planner goes through the gate; reads, and the watches, do not need it.
            let writer = election.gate().client(&self.client);
            self.gate.proof = Some(election.gate().clone());
            self.executor = self.executor.through(writer, self.gate.clone());
        }
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look_at = None;
        let mut looked = Duration::ZERO;
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
                    let now = self.source.clock.now();
                    let mut urgent = false;
                    for change in changes {
                        urgent |= self.world.take(now, change);
                    }
                    look_at.get_or_insert_with(|| soon(looked));
                    urgent
                }
                Some(ended) = self.tasks.join_next() => {
                    self.ended(ended);
                    look_at.get_or_insert_with(|| soon(looked));
                    false
                }
                () = gathered => true,
                _ = tick.tick() => true,
            };
            if look {
                look_at = None;
                let began = instant();
                self.look();
                looked = began.elapsed();
                if let Some(election) = election {
                    self.give_way(election);
                }
            }
        };
        // This comes first, so that other replicas that stop as well know who is left.
        present.leave().await;
        if outcome.is_ok() {
            self.settle(&mut seen, role.as_mut(), election).await;
        }
        self.gate.leading.store(false, Ordering::Release);
        let drained =
            tokio::time::timeout(DRAIN, async { while self.tasks.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!(
                under_way = self.dispatch.under_way(),
                "stopped with writes under way"
            );
            // They may arrive yet: nobody is to lead before the Lease runs out, as after a crash.
            if let Some(election) = election {
                election.abort();
            }
        }
        self.work = None;
        outcome
    }

    pub(super) fn leads(&self) -> bool {
        self.planner.is_some() && self.gate.leading.load(Ordering::Acquire)
    }

    pub(super) fn take(&mut self, changes: Vec<Seen>) {
        let now = self.source.clock.now();
        for change in changes {
            self.world.take(now, change);
        }
    }

    /// Takes over, pauses, or lets go, as the election says.
    pub(super) fn follow(
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
        let work = election.and_then(election::Election::work);
        // Without work the term is about to end: this replica hands over.
        let leads = role == Role::Leads && (election.is_none() || work.is_some());
        if leads != self.gate.leading.swap(leads, Ordering::AcqRel) {
            tracing::info!(leads, "leadership changed");
            self.metrics.leading.set(i64::from(leads));
        }
        let new_term = match (&work, &self.work) {
            (Some(work), Some(ours)) => work.token() != ours.token(),
            _ => false,
        };
        // A term that is lost and may be recovered keeps its planner: nobody else has acted meanwhile.
        let over = role == Role::Follows || role == Role::Leads && !leads || new_term;
        if over && self.planner.is_some() {
            // Actions of the last term that are still under way are refused before their next write. The new
            // term begins without a record of them.
            self.dispatch.reset();
            self.planner = None;
            self.work = None;
        }
        if leads && self.planner.is_none() {
            self.dispatch.reset();
            self.planner = Some(Planner::new(self.world.config().clone()));
            self.work = work;
        }
        Ok(())
    }

    /// One look at the world. Returns how many writes for or against nodes and pods are wanted or under way.
    pub(super) fn look(&mut self) -> usize {
        let now = self.source.clock.now();
        self.pulse.turned_at.store(now.0, Ordering::Relaxed);
        let missing = self.world.missing();
        let complete = missing.is_empty();
        *self.pulse.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
        let leads = self.leads();
        let role = if leads {
            world::Role::Leads
        } else {
            world::Role::Follows
        };
        let wants = self.world.look(now, role);
        for kind in wants.restart {
            tracing::warn!(
                watch = kind.name(),
                "the watch does not deliver, beginning it anew"
            );
            self.restarts.begin_anew(kind);
        }
        for kind in wants.audits {
            self.audit(kind);
        }
        if !complete {
            return 0;
        }
        if !wants.services.is_empty() {
            self.read_services(wants.services);
        }
        let view = View::of(self.world.decisions(), self.world.cluster(), now);
        self.source.view.store(Arc::new(view));
        self.metrics
            .watch_live
            .set(i64::from(self.world.sight().at(now) == SightView::Full));
        self.tell_states();
        let Some(planner) = self.planner.as_mut().filter(|_| leads) else {
            return 0;
        };
        self.executor.take_allowed(self.world.decisions());
        let plan = planner.tick(self.world.cluster(), self.world.decisions(), now);
        for measure in &plan.measures {
            self.metrics.measured(*measure);
        }
        for why in plan
            .complaints
            .iter()
            .filter(|why| !self.complaints.contains(*why))
        {
            tracing::warn!("{why}");
        }
        self.complaints = plan.complaints.into_iter().collect();
        self.metrics
            .without_cell
            .set(i64::try_from(plan.without_cell).unwrap_or(i64::MAX));
        self.metrics
            .unchecked
            .set(i64::try_from(plan.unchecked).unwrap_or(i64::MAX));
        self.metrics
            .unable_to_check
            .set(i64::try_from(plan.unable_to_check).unwrap_or(i64::MAX));
        self.dispatch.prune(now);
        let mut wanted = 0;
        let notices = self.dispatch.notices(now);
        for action in plan.actions.into_iter().chain(notices) {
            wanted += usize::from(action.rank() <= 3);
            if self.dispatch.admit(&action, now) {
                self.start(action);
            }
        }
        wanted
    }

    #[allow(clippy::disallowed_methods, reason = "the shell starts tasks")]
    fn start(&mut self, action: Action) {
        let signs = match depends_on(&action) {
            Some(node) => self.world.last_signs(&node.name),
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

    pub(super) fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let now = self.source.clock.now();
        match ended {
            Ok(Ended::Action(action, outcome)) => {
                let what = kind(&action);
                let key = action.key();
                match &outcome {
                    Ok(Outcome::Done) => {
                        tracing::debug!(action = what, key, "done");
                        if let Action::Evict { dead_since, .. } = &*action {
                            self.metrics.evicted(now.since(*dead_since));
                        }
                        if let Action::Evict {
                            pod, node, message, ..
                        }
                        | Action::EvictFromKept {
                            pod, node, message, ..
                        } = &*action
                        {
                            tracing::info!(%pod, node = node.name, "pod evicted");
                            self.tell_eviction(pod, message);
                        }
                    }
                    Ok(Outcome::Stale) => tracing::debug!(action = what, key, "the object changed meanwhile"),
                    Err(ActionError::Refused(why)) => tracing::warn!(action = what, key, why, "not done"),
                    Err(error) => {
                        let cause = std::error::Error::source(error)
                            .map(ToString::to_string)
                            .unwrap_or_default();
                        tracing::warn!(action = what, key, %error, cause, "not done, trying again");
                    }
                }
                self.dispatch.ended(*action, counts_as(&outcome), now);
            }
            Ok(Ended::Services(read)) => {
                self.services_read(read, now);
            }
            Ok(Ended::Audit(kind, found)) => self.world.audited(now, kind, found.as_ref()),
            Err(error) => {
                tracing::error!(%error, "a task of the controller died");
                // Nobody knows which; everything that is still wanted may be tried again.
                self.dispatch.reset();
                self.world.audits_lost(now);
            }
        }
    }

    fn tell_eviction(&mut self, pod: &PodRef, message: &str) {
        self.start(Action::Event(Notice {
            about: About::Pod(pod.clone()),
            at: self.source.clock.now(),
            warning: false,
            reason: names::events::EVICTED.to_owned(),
            message: message.to_owned(),
            incident: String::new(),
        }));
    }

    /// Reads names and versions of a collection consistently. A quiet watch may be broken, or rightly quiet
    /// because every node is cut off; the read tells which.
    #[allow(clippy::disallowed_methods, reason = "the shell starts tasks")]
    fn audit(&mut self, kind: Kind) {
        let client = self.client.clone();
        self.tasks.spawn(async move {
            let found = match tokio::time::timeout(AUDIT_WITHIN, versions(client, kind)).await {
                Ok(Ok(found)) => Some(found),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot read {} to check their watch", kind.name());
                    None
                }
                Err(_) => None,
            };
            Ended::Audit(kind, found)
        });
    }

    /// Reads the endpoints of all Services of some namespaces.
    #[allow(clippy::disallowed_methods, reason = "the shell starts tasks")]
    fn read_services(&mut self, namespaces: BTreeSet<String>) {
        let client = self.client.clone();
        self.tasks.spawn(async move {
            let read = tokio::time::timeout(SERVICES_WITHIN, services(client, namespaces)).await;
            Ended::Services(match read {
                Ok(Ok(read)) => Ok(read),
                Ok(Err(error)) => Err(error.to_string()),
                Err(late) => Err(late.to_string()),
            })
        });
    }

    /// Takes what was read. A failure is told once, until a read succeeds.
    fn services_read(&mut self, read: Result<Services, String>, now: Millis) {
        let failed = read.is_err();
        match read {
            Ok(services) => self.world.take_services(services, now),
            Err(error) if !self.services_failed => tracing::warn!(
                error,
                "cannot read EndpointSlices to find the last endpoints of Services; what was read before stands, and \
                 where nothing was read, endpoints go as on stock Kubernetes"
            ),
            Err(_) => {}
        }
        self.services_failed = failed;
    }

    /// Logs changes of state, and counts nodes by state.
    fn tell_states(&mut self) {
        let mut counts: BTreeMap<&'static str, i64> = NodeState::ALL
            .into_iter()
            .map(|state| (state.name(), 0))
            .collect();
        let mut states = BTreeMap::new();
        for (name, judged) in &self.world.decisions().nodes {
            let state = judged.decision.state();
            *counts.entry(state.name()).or_default() += 1;
            let before = self.states.remove(name);
            if before != Some(state) && !(before.is_none() && state == NodeState::Healthy) {
                let reason = judged.decision.reason;
                tracing::info!(node = name, %state, %reason, held = judged.decision.held, "node state");
            }
            states.insert(name.clone(), state);
        }
        self.states = states;
        self.metrics.states(counts.iter());
    }
}

/// When what is being gathered is looked at, if the last look took so long.
fn soon(looked: Duration) -> tokio::time::Instant {
    instant() + GATHER.max(looked * GATHER_LOOKS)
}

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
    Follows,
}

pub(super) async fn role_changed(
    role: Option<&mut channel::Receiver<election::State>>,
) -> Result<(), channel::error::RecvError> {
    match role {
        Some(role) => role.changed().await,
        None => std::future::pending().await,
    }
}
