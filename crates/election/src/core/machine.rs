//! The state machine of one candidate.

#[cfg(feature = "model-check")]
mod abstraction;
mod attempt;
mod change;
mod event;
mod term;

#[cfg(feature = "model-check")]
pub use abstraction::Abstraction;
pub use event::{Action, Announcement, Event, Now, ReadResult, WriteResult};

use super::config::{Compat, Config, ConfigError, JITTER_FACTOR};
use super::record::{Observation, Record};
use super::state::{Loss, State, StopReason, Term};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;
use term::{Ending, Lead, Lost, Round, Then};

/// Renewals of ours whose fate we may still learn of. As long as a record of ours is valid each attempt makes another, so
/// this is for lease durations of that many retry periods; the usual ones have five to eight.
const REMEMBERED_WRITES: usize = 64;

/// How far candidates that wait for the same moment spread at most; a fraction of a hand-over's 200 ms.
const SPREAD: Duration = Duration::from_millis(100);

/// What a candidate is waiting for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The time of the next attempt.
    Waiting { until: Duration },
    /// The end of the guarded work, with no attempts meanwhile.
    Draining,
    /// The answer to a read.
    Reading,
    /// The answer to a renewal of the record as we know it, sent at `since` without reading first.
    Renewing { since: Duration },
    /// The answer to a write that followed a read, sent at `since`.
    Taking { since: Duration },
    /// The answer to the read before a release; given up at `until`.
    ReleaseReading { until: Duration },
    /// The answer to the release; given up at `until`.
    Releasing { until: Duration },
    /// Nothing any more.
    Stopped { reason: StopReason },
}

/// The last change of the record, on our clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    observation: Observation,
    at: Duration,
}

/// Who ran under our identity before us.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Predecessor {
    /// When it last renewed: if this moves on, it runs still.
    renewed: Option<Timestamp>,
}

/// One candidate.
///
/// Rules of client-go's `tools/leaderelection`, with these differences, which [`Compat::ClientGo`] turns off:
/// * a leader's time counts from the *start* of its last successful request, and is over without a further attempt;
/// * a leader that sees another holder, a released record or no lock at all stops at once;
/// * the lock is released once the guarded work has ended, and renewed until then; work that does not end within the
///   lease duration leaves the lock to expire;
/// * records are compared by resourceVersion, not by a text in whole seconds; a follower that sees a change waits for
///   the record's own expiry instead of polling on, and for nothing when the record is released;
/// * a record under our identity that we did not write is a predecessor's, left alone until it expires or until the
///   predecessor is proven to have ended ([`Event::Ended`]), and if it is renewed, another candidate's: this one ends;
/// * `stopped leading` is told when leadership ends, before the lock is given back, not after;
/// * a loss need not end the candidate ([`OnLoss`](super::OnLoss)).
///
/// Both release only over a record that is ours, and try again after a conflict: what newer client-go does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    config: Config,
    phase: Phase,
    /// Leadership as far as it is proven: the gate is open.
    lead: Option<Lead>,
    /// A term whose leadership may yet be recovered.
    lost: Option<Lost>,
    /// The term is to end once the guarded work has.
    ending: Option<Ending>,
    /// What follows the release under way.
    then: Option<Then>,
    /// No attempt is made before.
    not_before: Duration,
    /// A request was sent and not answered.
    in_flight: bool,
    /// Start of the last successful write.
    held_since: Option<Duration>,
    /// `Compat::ClientGo`: the attempts that share one renew deadline.
    round: Option<Round>,
    seen: Option<Seen>,
    /// When the watch last told something.
    watched: Option<Duration>,
    /// Start of the attempt under way, or of the last one.
    attempt: Duration,
    /// `renewTime` of our last writes, the lost ones included: what stands under our identity and is none of these
    /// was written by somebody else.
    written: VecDeque<Timestamp>,
    /// A record under our identity that was there before we wrote anything.
    predecessor: Option<Predecessor>,
    /// A term of our identity whose holder has ended.
    ended: Option<Term>,
    /// `became leader` was announced, `stopped leading` not yet.
    announced: bool,
    /// The holder last reported.
    reported: Option<String>,
    published: State,
    /// The wait last asked for.
    wake: Option<Duration>,
}

impl Machine {
    /// A follower that knows nobody. Send it [`Event::Wake`] to start.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            phase: Phase::Waiting {
                until: Duration::ZERO,
            },
            lead: None,
            lost: None,
            ending: None,
            then: None,
            not_before: Duration::ZERO,
            in_flight: false,
            held_since: None,
            round: None,
            seen: None,
            watched: None,
            attempt: Duration::ZERO,
            written: VecDeque::new(),
            predecessor: None,
            ended: None,
            announced: false,
            reported: None,
            published: State::Following { leader: None },
            wake: None,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The state that was last published.
    pub fn state(&self) -> &State {
        &self.published
    }

    /// Up to when leadership is proven, if it is: nobody may act as leader from then on, whatever else happens.
    pub fn valid_until(&self) -> Option<Duration> {
        self.lead.as_ref().map(|lead| lead.valid_until)
    }

    /// When others may take the lock from us at the earliest, if they keep to the rules: counted from the start of the
    /// last successful write. `None` when there is no term, and no work of one.
    pub fn expires_at(&self) -> Option<Duration> {
        let duration = Duration::from_secs(self.config.wire_seconds().unsigned_abs().into());
        self.held_since
            .filter(|_| self.has_term() || self.ending.is_some())
            .map(|since| since.saturating_add(duration))
    }

    /// The record last observed, and when it last changed.
    pub fn observed(&self) -> Option<(&Record, Duration)> {
        self.seen.as_ref().map(|seen| (&seen.observation.record, seen.at))
    }

    /// client-go's `Check`: whether the loop keeps up. `tolerance` is added to the lease duration.
    ///
    /// # Errors
    /// The text for a health endpoint. A candidate that neither leads nor recovers is healthy.
    pub fn check(&self, now: Duration, tolerance: Duration, lock: &str) -> Result<(), String> {
        let limit = self.config.lease_duration.saturating_add(tolerance);
        if self.lost.is_some() {
            // Unable to renew, and saying so, is no defect of this process; not even trying is.
            return if now > self.attempt.saturating_add(limit) {
                Err(format!(
                    "election loop for lease {lock} stopped attempting to renew leadership"
                ))
            } else {
                Ok(())
            };
        }
        let late = |at: Duration| now > at.saturating_add(limit);
        if self.ending.is_some() && self.held_since.is_some_and(late) {
            return Err(format!(
                "the work guarded by lease {lock} has not ended with its term"
            ));
        }
        if self.is_holder() && self.has_term() && self.seen.as_ref().is_some_and(|seen| late(seen.at)) {
            return Err(format!("failed election to renew leadership on lease {lock}"));
        }
        Ok(())
    }

    /// The one transition function.
    ///
    /// An answer is taken for the answer to the last request: drop what an [`Action::Abort`] or a newer request
    /// made obsolete.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if event == Event::Wake {
            // Whoever woke us has forgotten the wait, also where he was early.
            self.wake = None;
        }
        // Whatever happened: if a deadline has passed, it happened too late.
        self.on_time(now, &mut actions);
        // An answer to what was given up just now is not one to what was asked since.
        let answer = matches!(event, Event::Read(_) | Event::Written(_));
        if !(answer && actions.contains(&Action::Abort)) {
            self.on_event(now, event, &mut actions);
        }
        self.settle(now, &mut actions);
        actions
    }

    fn on_time(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.lose_at().is_some_and(|at| now.at >= at) {
            self.lose(now, Loss::Deadline, actions);
        }
        if let Some(ending) = &self.ending
            && now.at >= ending.until
        {
            self.end(now, false, actions);
        }
        let given_up = |lost: &Lost| lost.give_up.is_some_and(|at| now.at >= at);
        if self.ending.is_none() && self.lost.as_ref().is_some_and(given_up) {
            self.abort(now, actions);
            self.end_term(now, StopReason::RecoveryDeadline, actions);
        }
        if self.attempt_ends().is_some_and(|at| now.at >= at) {
            self.abort(now, actions);
            self.attempt_failed(now, actions);
        }
        if let Phase::ReleaseReading { until } | Phase::Releasing { until } = self.phase
            && now.at >= until
        {
            self.abort(now, actions);
            self.released(now, actions);
        }
    }

    fn on_event(&mut self, now: Now, event: Event, actions: &mut Vec<Action>) {
        if matches!(event, Event::Read(_) | Event::Written(_)) {
            self.in_flight = false;
        }
        match (self.phase.clone(), event) {
            (Phase::Stopped { .. }, _) => {}
            (Phase::Waiting { until }, Event::Wake) if now.at >= until => self.start_attempt(now, actions),
            (Phase::ReleaseReading { .. } | Phase::Releasing { .. }, Event::Cancel) => {
                self.stop_after_release();
            }
            (Phase::ReleaseReading { .. } | Phase::Releasing { .. }, Event::Seen(_)) => {}
            (_, Event::Cancel) => self.cancel(now, actions),
            (_, Event::StepDown) => self.step_down(now, Loss::Cancelled, actions),
            (phase, Event::Ended(term)) => {
                self.ended = Some(term);
                if let Phase::Waiting { until } = phase
                    && self.sees_ended()
                {
                    self.wait(until.min(self.spread(now, now.at)));
                }
            }
            (_, Event::Drained) if self.ending.is_some() => self.end(now, true, actions),
            (_, Event::Seen(change)) if !self.client_go() => self.on_change(now, change, actions),
            (Phase::Reading, Event::Read(result)) => self.on_read(now, result, actions),
            (Phase::Renewing { since }, Event::Written(WriteResult::Done(observation))) => {
                self.on_written(now, since, observation, actions);
            }
            // The fast path failed: what is there now, within the same attempt?
            (Phase::Renewing { .. }, Event::Written(_)) => self.read(actions),
            (Phase::Taking { since }, Event::Written(WriteResult::Done(observation))) => {
                self.on_written(now, since, observation, actions);
            }
            (Phase::Taking { .. }, Event::Written(_)) => self.attempt_failed(now, actions),
            (Phase::ReleaseReading { until }, Event::Read(result)) => {
                self.on_read_for_release(now, until, result, actions);
            }
            (Phase::Releasing { until }, Event::Written(WriteResult::Conflict)) => {
                self.phase = Phase::ReleaseReading { until };
                self.request(Action::Get, actions);
            }
            (Phase::Releasing { .. }, Event::Written(result)) => {
                if let WriteResult::Done(observation) = result {
                    self.observe(now, observation);
                }
                self.released(now, actions);
            }
            // Late answers, early wakes.
            (_, Event::Wake | Event::Read(_) | Event::Written(_) | Event::Drained | Event::Seen(_)) => {}
        }
    }

    /// Reports, publishes, and asks for the next wake-up.
    fn settle(&mut self, now: Now, actions: &mut Vec<Action>) {
        let state = self.current();
        if !state.same_as(&self.published) {
            self.published = state.clone();
            actions.push(Action::Publish(state));
        }
        let wait = match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::ReleaseReading { until } | Phase::Releasing { until } => Some(until),
            _ => None,
        };
        // Work that ends already is waited for, whatever becomes of the recovery.
        let recovering = self.lost.as_ref().filter(|_| self.ending.is_none());
        let give_up = recovering.and_then(|lost| lost.give_up);
        let ending = self.ending.as_ref().map(|ending| ending.until);
        let wake = [wait, self.lose_at(), self.attempt_ends(), give_up, ending]
            .into_iter()
            .flatten()
            .min()
            .filter(|at| *at < Duration::MAX && !matches!(self.phase, Phase::Stopped { .. }));
        // A wait that is over is asked for again.
        if wake != self.wake || wake.is_some_and(|at| at <= now.at) {
            self.wake = wake;
            actions.extend(wake.map(|until| Action::Wait { until }));
        }
    }

    fn on_read_for_release(
        &mut self,
        now: Now,
        until: Duration,
        result: ReadResult,
        actions: &mut Vec<Action>,
    ) {
        let found = match result {
            ReadResult::Found(found) if self.may_release(&found.record) => found,
            // Gone, somebody else's, or out of reach: not ours to write.
            ReadResult::Found(found) => {
                self.observe(now, found);
                return self.released(now, actions);
            }
            ReadResult::Missing | ReadResult::Failed => return self.released(now, actions),
        };
        let record = Record {
            holder: String::new(),
            // The API refuses 0; nobody waits for a record without holder anyway.
            lease_duration_seconds: 1,
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            strategy: found.record.strategy.clone(),
            // The API refuses a preference where nobody holds.
            preferred_holder: String::new(),
            transitions: found.record.transitions,
        };
        let version = found.version.clone();
        self.observe(now, found);
        self.phase = Phase::Releasing { until };
        self.write(record, version, actions);
    }

    /// Gives up the attempt under way.
    fn abort(&mut self, now: Now, actions: &mut Vec<Action>) {
        if std::mem::take(&mut self.in_flight) {
            actions.push(Action::Abort);
            self.wait(now.at);
        }
    }

    fn wait(&mut self, until: Duration) {
        self.phase = Phase::Waiting {
            until: until.max(self.not_before),
        };
    }

    /// Tells of a holder that was not told of yet.
    fn report(&mut self, actions: &mut Vec<Action>) {
        let holder = self.seen.as_ref().map(|seen| &seen.observation.record.holder);
        if let Some(holder) = holder
            && self.reported.as_ref() != Some(holder)
            && !(self.reported.is_none() && holder.is_empty())
        {
            self.reported = Some(holder.clone());
            actions.push(Action::NewLeader(holder.clone()));
        }
    }

    /// Notes a record, and the time if it differs from the last one. Only ever by our own clock.
    fn observe(&mut self, now: Now, observation: Observation) {
        let client_go = self.client_go();
        if !client_go && self.written.is_empty() {
            let stands = observation.record.holder == self.config.identity && !self.config.coordinated;
            let renewed = observation.record.renew_time;
            let before = self.predecessor.take().unwrap_or(Predecessor { renewed });
            self.predecessor = stands.then_some(before);
        }
        match &mut self.seen {
            Some(seen) if seen.same(&observation, client_go) => seen.observation = observation,
            seen => {
                *seen = Some(Seen {
                    observation,
                    at: now.at,
                });
            }
        }
    }

    /// When the record that we see ceases to be valid: by its own duration, from when we saw it change.
    fn expiry(&self) -> Option<Duration> {
        let seen = self.seen.as_ref()?;
        let told = seen.observation.record.duration();
        let duration = if told.is_zero() && !self.client_go() {
            // No holder means that. The API refuses it in a Lease, but an annotation can say anything.
            Duration::from_secs(self.config.wire_seconds().unsigned_abs().into())
        } else {
            told
        };
        Some(seen.at.saturating_add(duration))
    }

    fn is_valid(&self, now: Now) -> bool {
        self.expiry().is_some_and(|expiry| expiry > now.at)
    }

    /// Whether the record last seen names us.
    fn is_holder(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| seen.observation.record.holder == self.config.identity)
    }

    /// Whether a record is ours to go on with: it names us, and not a predecessor of our name.
    fn is_mine(&self, record: &Record) -> bool {
        record.holder == self.config.identity && (self.predecessor.is_none() || self.is_own_write(record))
    }

    /// Whether a record is ours to give back. Our name is not enough: another candidate under it may lead by now.
    fn may_release(&self, record: &Record) -> bool {
        if self.client_go() || self.config.coordinated {
            return self.is_mine(record);
        }
        record.holder == self.config.identity && self.is_own_write(record)
    }

    /// Whether a record is one of our last writes.
    fn is_own_write(&self, record: &Record) -> bool {
        let is_of = |renewed| self.written.iter().any(|time| is_time_of(*time, renewed));
        record.renew_time.is_some_and(is_of)
    }

    /// Whether a record under our identity was written by somebody who runs now. One that is older than what we know
    /// was not: the store was set back.
    fn is_duplicate(&self, found: &Observation) -> bool {
        let record = &found.record;
        if self.client_go() || self.config.coordinated || record.holder != self.config.identity {
            return false;
        }
        // A last renewal may still have been under way when its sender ended.
        if self.is_own_write(record) || self.is_ended(found) {
            return false;
        }
        let older = |seen: &Seen| {
            seen.observation.uid == found.uid && newer(&seen.observation.version, &found.version)
        };
        if self.seen.as_ref().is_some_and(older) {
            return false;
        }
        match &self.predecessor {
            Some(before) => before.renewed != record.renew_time,
            None => !self.written.is_empty(),
        }
    }

    /// Whether a record is of the term whose holder has ended. The time when it was taken tells it from a term that
    /// somebody else of our name began over the same record.
    fn is_ended(&self, found: &Observation) -> bool {
        let of = |term: &Term| {
            term.token.lease_uid == found.uid
                && term.token.transitions == found.record.transitions
                && term.acquired.is_some()
                && term.acquired == found.record.acquire_time
        };
        let ours = !self.client_go() && !self.config.coordinated && self.predecessor.is_some();
        ours && found.record.holder == self.config.identity && self.ended.as_ref().is_some_and(of)
    }

    /// Whether what we see is a predecessor's that has ended.
    fn sees_ended(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| self.is_ended(&seen.observation))
    }

    fn client_go(&self) -> bool {
        self.config.compat == Compat::ClientGo
    }

    /// When a follower asks again.
    fn jittered(&self, now: Now) -> Duration {
        let period = self.config.retry_period;
        now.at
            .saturating_add(period.mul_f64(1.0 + JITTER_FACTOR * now.fraction()))
    }

    /// A little after `at`: candidates that wait for the same moment spread over a tenth of the period, or over
    /// [`SPREAD`] if that is less. The order is settled by resourceVersion; this only spares the API server the rush.
    fn spread(&self, now: Now, at: Duration) -> Duration {
        let width = (self.config.retry_period / 10).min(SPREAD);
        at.saturating_add(width.mul_f64(now.fraction()))
    }

    /// A record of ours that takes the lock.
    fn fresh(&self, now: Now, transitions: i32) -> Record {
        Record {
            holder: self.config.identity.clone(),
            lease_duration_seconds: self.config.wire_seconds(),
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            // The API refuses less, and a fencing token has no sign.
            transitions: transitions.max(0),
            ..Record::default()
        }
    }

    /// A record of ours that goes on with one of ours.
    fn renewed(&self, now: Now, old: &Record) -> Record {
        let strategy = if self.config.coordinated {
            old.strategy.clone()
        } else {
            String::new()
        };
        Record {
            acquire_time: old.acquire_time.or(Some(now.wall)),
            strategy,
            ..self.fresh(now, old.transitions)
        }
    }
}

impl Seen {
    fn same(&self, other: &Observation, by_text: bool) -> bool {
        if by_text {
            self.observation.raw == other.raw
        } else {
            self.observation.version == other.version && self.observation.uid == other.uid
        }
    }
}

/// Whether a time found in a lock is one that we wrote.
fn is_time_of(written: Timestamp, found: Timestamp) -> bool {
    // A lock of whole seconds cuts our times.
    let cut = found.subsec_nanosecond() == 0;
    written == found || (cut && written.as_second() == found.as_second())
}

/// Whether one resourceVersion is known to be later than another (comparable as numbers since Kubernetes 1.35, and
/// in practice before).
fn newer(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one > other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
