//! Runs the machine on a real lock: makes its requests, keeps its timer, opens and closes the gate, and
//! publishes its state.

use crate::callbacks::Notice;
use crate::clock::Clock;
use crate::core::{
    Action, Announcement, Compat, Event, FencingToken, Loss, Machine, Now, ReadResult, State, Term,
    WriteResult,
};
use crate::election::Request;
use crate::failures::FailureLog;
use crate::gate::{Claim, Gate};
use crate::health::Health;
use crate::lock::{Lock, LockError};
use crate::metrics::ElectionMetrics;
use crate::terms::{TermFile, TermFileError};
use crate::work::Works;
use futures::future::{BoxFuture, Either, FutureExt as _, OptionFuture, select};
use futures::stream::{BoxStream, FuturesUnordered, StreamExt as _};
use std::error::Error as _;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// The channels on which changes of state are published.
pub(crate) struct Observers {
    pub(crate) states: mpsc::UnboundedSender<State>,
    pub(crate) latest: watch::Sender<State>,
    pub(crate) renewals: watch::Sender<()>,
    pub(crate) notices: Option<mpsc::UnboundedSender<Notice>>,
}

/// The result of a request on the lock.
struct Answer {
    verb: &'static str,
    event: Event,
    failure: Option<LockError>,
    took: Duration,
}

pub(crate) struct Shell {
    lock: Arc<dyn Lock>,
    name: String,
    identity: String,
    clock: Arc<dyn Clock>,
    health: Health,
    gate: Gate,
    /// Closes the gate when it is dropped, which happens also when the task panics.
    claim: Option<Claim>,
    works: Works,
    metrics: Option<ElectionMetrics>,
    timeout: Duration,
    observers: Observers,
    /// When the machine wants its next [`Event::Wake`].
    wake: Option<Duration>,
    /// The one request under way.
    request: Option<BoxFuture<'static, Answer>>,
    /// Resolves when the guarded work, which was told to end, has ended.
    draining: Option<BoxFuture<'static, ()>>,
    announcing: FuturesUnordered<BoxFuture<'static, ()>>,
    failures: FailureLog,
    terms: Option<Terms>,
}

/// The file in which terms of this identity are recorded, and what was done with it.
struct Terms {
    file: TermFile,
    /// Whether the machine need not hear of the predecessor's term (any more).
    reported: bool,
    /// The term that was recorded last.
    recorded: Option<FencingToken>,
}

impl Shell {
    #[expect(clippy::too_many_arguments, reason = "one caller, which has just made them")]
    pub(crate) fn new(
        lock: Arc<dyn Lock>,
        health: Health,
        gate: Gate,
        claim: Option<Claim>,
        works: Works,
        metrics: Option<ElectionMetrics>,
        timeout: Duration,
        terms: Option<TermFile>,
        observers: Observers,
    ) -> Self {
        let identity = machine(&health).config().identity.clone();
        Self {
            name: health.lock.to_string(),
            clock: Arc::clone(&health.clock),
            lock,
            identity,
            health,
            gate,
            claim,
            works,
            metrics,
            timeout,
            observers,
            wake: None,
            request: None,
            draining: None,
            announcing: FuturesUnordered::new(),
            failures: FailureLog::default(),
            terms: terms.map(|file| Terms {
                file,
                reported: false,
                recorded: None,
            }),
        }
    }

    pub(crate) async fn run(
        mut self,
        mut asked: mpsc::UnboundedReceiver<Request>,
        shutdown: CancellationToken,
    ) {
        let _guard = CloseOnDrop {
            gate: self.gate.clone(),
            works: self.works.clone(),
            metrics: self.metrics.clone(),
            latest: self.observers.latest.clone(),
        };
        let mut changes = self.changes().fuse();
        let mut cancelled = false;
        self.feed(Event::Wake);
        while !matches!(machine(&self.health).state(), State::Stopped { .. }) {
            let timer = OptionFuture::from(self.wake.map(|at| self.clock.sleep_until(at)));
            let event = tokio::select! {
                biased;
                () = shutdown.cancelled(), if !cancelled => {
                    cancelled = true;
                    Event::Cancel
                }
                Some(()) = timer => {
                    self.wake = None;
                    Event::Wake
                }
                Some(answer) = OptionFuture::from(self.request.as_mut()) => {
                    self.request = None;
                    self.answered(answer)
                }
                Some(()) = OptionFuture::from(self.draining.as_mut()) => {
                    self.draining = None;
                    Event::Drained
                }
                Some(change) = changes.next() => Event::Seen(change),
                Some(Request::StepDown) = asked.recv() => Event::StepDown,
                Some(()) = self.announcing.next() => continue,
            };
            self.feed(event);
        }
        self.gate.close();
        // The last Events are waited for, but no longer than one request may take.
        let recorded = async { while self.announcing.next().await.is_some() {} };
        let patience = self
            .clock
            .sleep_until(self.clock.boot().saturating_add(self.timeout));
        if let Either::Right(_) = select(pin!(recorded), patience).await {
            tracing::debug!(lease = self.name, "an Event was not recorded in time");
        }
        drop(self.claim.take());
    }

    fn changes(&self) -> BoxStream<'static, Option<crate::core::Observation>> {
        match machine(&self.health).config().compat {
            Compat::Evenkeel => self.lock.changes(),
            Compat::ClientGo => futures::stream::pending().boxed(),
        }
    }

    /// Reports to the machine which term a predecessor on this host held, once that process has ended.
    fn report_predecessor(&mut self) {
        let Some(terms) = self.terms.as_mut().filter(|terms| !terms.reported) else {
            return;
        };
        match terms.file.ended(&self.name) {
            Ok(None) => {}
            Ok(Some(term)) => {
                terms.reported = true;
                tracing::info!(
                    lease = self.name,
                    term = %term.token,
                    "the former process of this identity has ended: if the lease still is of its term, it need not expire"
                );
                self.step(Event::Ended(term));
            }
            Err(error) => {
                // Reported once: a file that could not be read now is not read again.
                terms.reported = true;
                self.warn_without_terms(&error);
            }
        }
    }

    /// Records the term that has begun, for the next process of this identity.
    fn record_term(&mut self, token: &FencingToken) {
        let Some(terms) = self
            .terms
            .as_mut()
            .filter(|terms| terms.recorded.as_ref() != Some(token))
        else {
            return;
        };
        // A new term, whoever holds it, ends that of the predecessor.
        terms.reported = true;
        terms.recorded = Some(token.clone());
        let acquired = machine(&self.health)
            .observed()
            .and_then(|(record, _)| record.acquire_time);
        let term = Term {
            token: token.clone(),
            acquired,
        };
        if let Err(error) = terms.file.hold(&self.name, &term) {
            self.warn_without_terms(&error);
        }
    }

    fn warn_without_terms(&self, error: &TermFileError) {
        let why = error.source().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(
            lease = self.name,
            %error,
            why,
            "after a restart the lease has to expire before it is taken again"
        );
    }

    fn feed(&mut self, event: Event) {
        self.report_predecessor();
        self.step(event);
    }

    fn step(&mut self, event: Event) {
        let now = Now {
            at: self.clock.boot(),
            wall: self.clock.wall(),
            random: self.clock.random(),
        };
        let actions = machine(&self.health).step(now, event);
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Get => self.request = Some(self.get()),
            Action::Create(record) => {
                let request = self.lock.create(record);
                self.request = Some(self.write("create", request));
            }
            Action::Update { record, version } => {
                let request = self.lock.update(record, version);
                self.request = Some(self.write("update", request));
            }
            Action::Abort => self.request = None,
            Action::Wait { until } => self.wake = Some(until),
            Action::OpenGate { token, valid_until } => {
                // A renewal while the work ends must not begin work anew: a share taken now would not be
                // waited for.
                if self.draining.is_none() {
                    self.works.begin(&token);
                }
                self.gate.open(token.clone(), valid_until);
                self.observers.renewals.send_replace(());
                self.record_term(&token);
                self.measure(|metrics| metrics.leading(true));
            }
            Action::CloseGate => {
                self.gate.close();
                self.measure(|metrics| metrics.leading(false));
            }
            Action::Drain => self.draining = Some(self.works.end()),
            Action::Lost(loss) => {
                let lease = &self.name;
                match &loss {
                    Loss::Cancelled | Loss::EndOfTerm(_) => {
                        tracing::info!(lease, reason = %loss, "stopped leading");
                    }
                    _ => {
                        tracing::warn!(lease, reason = %loss, "stopped leading");
                        self.measure(ElectionMetrics::lost);
                    }
                }
            }
            Action::CountSlowPath => self.measure(ElectionMetrics::slow_path),
            Action::Announce(what) => self.announce(what),
            Action::NewLeader(leader) => {
                tracing::info!(lease = self.name, leader, "new leader");
                self.notice(Notice::NewLeader(leader));
            }
            Action::Publish(state) => self.publish(state),
        }
    }

    fn publish(&mut self, state: State) {
        let lease = &self.name;
        match &state {
            State::Leading { token, .. } => {
                tracing::info!(lease, transitions = token.transitions, "became leader");
                self.measure(ElectionMetrics::term_begun);
                if token.transitions == i32::MAX {
                    tracing::warn!(
                        lease,
                        %token,
                        "the lock cannot count its terms any further, so that later fencing tokens are not greater; \
                         delete it while no candidate runs: then it is made anew"
                    );
                }
            }
            State::Recovered { token, .. } => {
                tracing::info!(lease, transitions = token.transitions, "leadership recovered");
            }
            State::Lost { .. } => {
                tracing::warn!(
                    lease,
                    "leadership cannot be proven; writes are refused until it can"
                );
            }
            State::Following { leader } => {
                tracing::debug!(lease, leader = leader.as_deref().unwrap_or("(none)"), "following");
            }
            State::Stopped { reason } => tracing::info!(lease, %reason, "candidate stopped"),
        }
        if matches!(state, State::Following { .. } | State::Stopped { .. }) && self.draining.is_none() {
            // Nobody waits for the work of this term, but it is still signalled to end.
            drop(self.works.end());
        }
        self.observers.latest.send_replace(state.clone());
        // The receiver may have been dropped: reading the states is optional.
        let _ = self.observers.states.send(state.clone());
        self.notice(Notice::State(state));
    }

    fn notice(&self, notice: Notice) {
        if let Some(notices) = &self.observers.notices
            && notices.send(notice).is_err()
        {
            tracing::error!(
                lease = self.name,
                "the callbacks have ended, a change is not delivered"
            );
        }
    }

    fn announce(&mut self, what: Announcement) {
        let message = what.message(&self.identity);
        self.announcing.push(self.lock.announce(message));
    }

    fn measure(&self, measure: impl FnOnce(&ElectionMetrics)) {
        if let Some(metrics) = &self.metrics {
            measure(metrics);
        }
    }

    fn answered(&mut self, answer: Answer) -> Event {
        let result = match &answer.failure {
            None => "ok",
            Some(LockError::Conflict) => "conflict",
            Some(_) => "failed",
        };
        self.measure(|metrics| metrics.request(answer.verb, result, answer.took));
        let (lease, verb) = (&self.name, answer.verb);
        match answer.failure {
            None => {
                let ended = match &answer.event {
                    Event::Written(_) => self.failures.wrote(),
                    _ => self.failures.read(verb),
                };
                if ended {
                    tracing::info!(lease, "the lock can be reached again");
                }
            }
            Some(LockError::Conflict) => {}
            Some(failure) if self.failures.is_new(verb, &failure) => {
                tracing::warn!(lease, %failure, "cannot {verb} the lock; trying again every retry period");
            }
            Some(failure) => tracing::debug!(lease, %failure, "cannot {verb} the lock"),
        }
        answer.event
    }

    fn get(&self) -> BoxFuture<'static, Answer> {
        let request = self.bounded(self.lock.get());
        async move {
            let (result, took) = request.await;
            let (event, failure) = match result {
                Ok(Some(observation)) => (ReadResult::Found(observation), None),
                Ok(None) => (ReadResult::Missing, None),
                Err(failure) => (ReadResult::Failed, Some(failure)),
            };
            Answer {
                verb: "get",
                event: Event::Read(event),
                failure,
                took,
            }
        }
        .boxed()
    }

    fn write(
        &self,
        verb: &'static str,
        request: BoxFuture<'static, Result<crate::core::Observation, LockError>>,
    ) -> BoxFuture<'static, Answer> {
        let request = self.bounded(request);
        async move {
            let (result, took) = request.await;
            let (event, failure) = match result {
                Ok(observation) => (WriteResult::Done(observation), None),
                Err(LockError::Conflict) => (WriteResult::Conflict, Some(LockError::Conflict)),
                Err(failure) => (WriteResult::Failed, Some(failure)),
            };
            Answer {
                verb,
                event: Event::Written(event),
                failure,
                took,
            }
        }
        .boxed()
    }

    /// Limits the time of a request, and measures it.
    fn bounded<T: Send + 'static>(
        &self,
        request: BoxFuture<'static, Result<T, LockError>>,
    ) -> impl Future<Output = (Result<T, LockError>, Duration)> + Send + 'static {
        let clock = Arc::clone(&self.clock);
        let (timeout, begun) = (self.timeout, self.clock.boot());
        async move {
            let expiry = clock.sleep_until(begun.saturating_add(timeout));
            let result = match select(request, expiry).await {
                Either::Left((result, _)) => result,
                Either::Right(_) => Err(LockError::Unreachable(format!(
                    "no answer within {timeout:?}; check that the API server runs and can be reached from here"
                ))),
            };
            (result, clock.boot().saturating_sub(begun))
        }
    }
}

/// Ends leadership when the task ends in any way, also by a panic or an abort.
struct CloseOnDrop {
    gate: Gate,
    works: Works,
    metrics: Option<ElectionMetrics>,
    latest: watch::Sender<State>,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.gate.close();
        // The work is told to end, and not waited for.
        drop(self.works.end());
        if let Some(metrics) = &self.metrics {
            metrics.leading(false);
        }
        self.latest.send_if_modified(|state| {
            let leads = state.leads();
            if leads {
                *state = State::Following { leader: None };
            }
            leads
        });
    }
}

fn machine(health: &Health) -> MutexGuard<'_, Machine> {
    health.machine.lock().unwrap_or_else(PoisonError::into_inner)
}
