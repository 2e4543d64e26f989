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

/// How many of its own writes a candidate remembers, to recognise them when their answer was lost. The one
/// that was seen last stays among them.
const REMEMBERED_WRITES: usize = 64;

/// The widest spread of candidates that wait for the same moment. It must be well below the 200 ms of a
/// hand-over.
const SPREAD: Duration = Duration::from_millis(100);

/// What a candidate is waiting for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// It waits for the time of the next attempt.
    Waiting { until: Duration },
    /// It waits for the end of the guarded work, and makes no attempts meanwhile.
    Draining,
    /// It waits for the answer to a read.
    Reading,
    /// It waits for the answer to a renewal, sent at `since` without reading the record first.
    Renewing { since: Duration },
    /// It waits for the answer to a write that followed a read, sent at `since`.
    Taking { since: Duration },
    /// It waits until `until` for the answer to the read before a release.
    ReleaseReading { until: Duration },
    /// It waits until `until` for the answer to the release.
    Releasing { until: Duration },
    /// It has ended.
    Stopped { reason: StopReason },
}

/// The last change of the record, and when it was seen on our clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    observation: Observation,
    at: Duration,
}

/// The holder of a record under our identity that we did not write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Predecessor {
    /// Its last `renewTime`. If this changes, the holder still runs.
    renewed: Option<Timestamp>,
    /// Whether one renewal was seen although it is proven to have ended. That renewal may have been under way
    /// when it ended. A second one shows that it still runs.
    excused: bool,
}

/// One candidate.
///
/// It follows the rules of client-go's `tools/leaderelection`, with these differences, which
/// [`Compat::ClientGo`] turns off:
/// * A leader's time counts from the *start* of its last successful request, and ends without a further
///   attempt.
/// * A leader that sees another holder, a released record or no lock at all stops leading at once.
/// * The lock is renewed until the guarded work has ended, and released then. If the work does not end within
///   the lease duration, the lock is not released and expires.
/// * Records are compared with their exact times, or by resourceVersion where these are whole seconds, not by
///   a text with times in whole seconds. A follower that sees a change waits until the record expires instead
///   of polling, and does not wait when the record was released.
/// * A record under our identity that we did not write is a predecessor's. It is left alone until it expires,
///   or until it is proven that the predecessor has ended ([`Event::Ended`]). If it is renewed, another
///   candidate runs under our identity, and this one ends.
/// * The Event `stopped leading` is recorded when leadership ends, before the lock is released, not after.
/// * A loss need not end the candidate ([`OnLoss`](super::OnLoss)).
///
/// Under both rules a candidate releases only a record of its own, and tries again after a conflict, as newer
/// versions of client-go do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    config: Config,
    phase: Phase,
    /// Leadership that is proven, so the gate is open.
    lead: Option<Lead>,
    /// A term whose leadership was lost and may be recovered.
    lost: Option<Lost>,
    /// Set while the guarded work ends, after which the term ends.
    ending: Option<Ending>,
    /// What follows the release that is under way.
    then: Option<Then>,
    /// No attempt is made before this time.
    not_before: Duration,
    /// Whether a request was sent and not answered yet.
    in_flight: bool,
    /// When the last successful write was sent, and for how long others leave the lock to us from then on:
    /// for the lease duration that is stored, at most for ours.
    held: Option<(Duration, Duration)>,
    /// Under `Compat::ClientGo`, the attempts that share one renew deadline.
    round: Option<Round>,
    seen: Option<Seen>,
    /// When the watch last delivered a change.
    watched: Option<Duration>,
    /// When the attempt under way, or else the last one, was started.
    attempt: Duration,
    /// The `renewTime` of each of our last writes, also of those that failed. A record under our identity
    /// with another time was written by somebody else.
    written: VecDeque<Timestamp>,
    /// The holder of a record under our identity that existed before we wrote anything.
    predecessor: Option<Predecessor>,
    /// A term of our identity whose holder is proven to have ended.
    ended: Option<Term>,
    /// Whether `became leader` was recorded as an Event, and `stopped leading` was not yet.
    announced: bool,
    /// The holder that was last reported.
    reported: Option<String>,
    published: State,
    /// The time of the last [`Action::Wait`].
    wake: Option<Duration>,
}

impl Machine {
    /// A follower that knows of no leader. Send it [`Event::Wake`] to start.
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
            held: None,
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

    /// The configuration that the machine was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The state that was published last.
    pub fn state(&self) -> &State {
        &self.published
    }

    /// Until when leadership is proven; `None` while it is not. From that time on this candidate must not act
    /// as leader, whatever else happens.
    pub fn valid_until(&self) -> Option<Duration> {
        self.lead.as_ref().map(|lead| lead.valid_until)
    }

    /// The earliest time at which others may take the lock from this candidate, if they keep to the rules. It
    /// counts from the start of the last successful write. `None` when there is no term, and no work of a
    /// former one.
    pub fn expires_at(&self) -> Option<Duration> {
        self.held
            .filter(|_| self.has_term() || self.ending.is_some())
            .map(|(since, stored)| since.saturating_add(stored))
    }

    /// The record that was observed last, and when it last changed.
    pub fn observed(&self) -> Option<(&Record, Duration)> {
        self.seen.as_ref().map(|seen| (&seen.observation.record, seen.at))
    }

    /// Whether the election loop works, as client-go's `Check` decides it. `tolerance` is added to the lease
    /// duration.
    ///
    /// # Errors
    /// A text for a health endpoint. A candidate that neither leads nor recovers is healthy.
    pub fn check(&self, now: Duration, tolerance: Duration, lock: &str) -> Result<(), String> {
        let limit = self.config.lease_duration.saturating_add(tolerance);
        if self.lost.is_some() {
            // That renewals fail is no defect of this process, and it is published. That it does not try any
            // more is one.
            return if now > self.attempt.saturating_add(limit) {
                Err(format!(
                    "election loop for lease {lock} stopped attempting to renew leadership"
                ))
            } else {
                Ok(())
            };
        }
        let late = |at: Duration| now > at.saturating_add(limit);
        if self.ending.is_some() && self.held.is_some_and(|(since, _)| late(since)) {
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
    /// An answer is taken for the answer to the last request. Drop answers to requests that an
    /// [`Action::Abort`] or a newer request made obsolete.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if event == Event::Wake {
            // The caller's timer is used up, also if it fired too early.
            self.wake = None;
        }
        // Deadlines come first: if one has passed, the event came too late.
        self.on_time(now, &mut actions);
        // If the request was given up just now, this is not the answer to the request that replaced it.
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
            // The fast path failed, so the same attempt goes on with a read.
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
            // Answers that come late and wake-ups that come early are ignored.
            (_, Event::Wake | Event::Read(_) | Event::Written(_) | Event::Drained | Event::Seen(_)) => {}
        }
    }

    /// Publishes the state if it has changed, and asks for the next wake-up.
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
        // While the guarded work ends, the recovery deadline does not count.
        let recovering = self.lost.as_ref().filter(|_| self.ending.is_none());
        let give_up = recovering.and_then(|lost| lost.give_up);
        let ending = self.ending.as_ref().map(|ending| ending.until);
        let wake = [wait, self.lose_at(), self.attempt_ends(), give_up, ending]
            .into_iter()
            .flatten()
            .min()
            .filter(|at| *at < Duration::MAX && !matches!(self.phase, Phase::Stopped { .. }));
        // A wait is requested again if its time has already come.
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
            // The record is somebody else's, or cannot be read: it must not be written.
            ReadResult::Found(found) => {
                self.observe(now, found);
                return self.released(now, actions);
            }
            ReadResult::Missing | ReadResult::Failed => return self.released(now, actions),
        };
        let record = Record {
            holder: String::new(),
            // The API refuses 0. The value has no effect, because nobody waits for a record without a holder.
            lease_duration_seconds: 1,
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            strategy: found.record.strategy.clone(),
            // The API refuses a preferred holder without a holder.
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

    /// Reports a holder that was not reported yet.
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

    /// Remembers a record, and on our own clock the time at which it was first seen.
    fn observe(&mut self, now: Now, observation: Observation) {
        let client_go = self.client_go();
        if !client_go && self.written.is_empty() {
            let stands = observation.record.holder == self.config.identity && !self.config.coordinated;
            let renewed = observation.record.renew_time;
            let excused = self.is_ended(&observation);
            let mut next = self.predecessor.take().unwrap_or(Predecessor {
                renewed,
                excused: false,
            });
            if excused && !next.excused && next.renewed != renewed {
                next = Predecessor { renewed, excused };
            }
            self.predecessor = stands.then_some(next);
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

    /// When the record that was seen last expires: its own duration after its change was seen.
    fn expiry(&self) -> Option<Duration> {
        let seen = self.seen.as_ref()?;
        let told = seen.observation.record.duration();
        let duration = if told.is_zero() && !self.client_go() {
            // No holder means zero. The API refuses it in a Lease, but an annotation can contain anything.
            Duration::from_secs(self.config.wire_seconds().unsigned_abs().into())
        } else {
            told
        };
        Some(seen.at.saturating_add(duration))
    }

    fn is_valid(&self, now: Now) -> bool {
        self.expiry().is_some_and(|expiry| expiry > now.at)
    }

    /// Whether the record that was seen last names us.
    fn is_holder(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| seen.observation.record.holder == self.config.identity)
    }

    /// Whether a record is our own: it names us, and it is not that of a predecessor with our identity.
    fn is_mine(&self, record: &Record) -> bool {
        record.holder == self.config.identity && (self.predecessor.is_none() || self.is_own_write(record))
    }

    /// Whether we may release a record. That it names us is not enough, because another candidate with our
    /// identity may lead by now.
    fn may_release(&self, record: &Record) -> bool {
        if self.client_go() || self.config.coordinated {
            return self.is_mine(record);
        }
        record.holder == self.config.identity && self.is_own_write(record)
    }

    /// Whether a record is one that we wrote lately.
    fn is_own_write(&self, record: &Record) -> bool {
        let is_of = |renewed| self.written.iter().any(|time| is_time_of(*time, renewed));
        record.renew_time.is_some_and(is_of)
    }

    /// Whether a record under our identity was written by another process that runs now. A record that is
    /// older than one we know was not: then the store of the API server was restored from a backup.
    fn is_duplicate(&self, found: &Observation) -> bool {
        let record = &found.record;
        if self.client_go() || self.config.coordinated || record.holder != self.config.identity {
            return false;
        }
        if self.is_own_write(record) {
            return false;
        }
        let older = |seen: &Seen| {
            seen.observation.uid == found.uid && newer(&seen.observation.version, &found.version)
        };
        if self.seen.as_ref().is_some_and(older) {
            return false;
        }
        match &self.predecessor {
            // A last renewal may still have been under way when its sender ended.
            Some(before) => before.renewed != record.renew_time && (before.excused || !self.is_ended(found)),
            None => !self.written.is_empty(),
        }
    }

    /// Whether a record is of the term whose holder has ended. The acquire time distinguishes it from a later
    /// term that another process with our identity began.
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

    /// Whether the record that was seen last is that of a predecessor which has ended.
    fn sees_ended(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| self.is_ended(&seen.observation))
    }

    fn client_go(&self) -> bool {
        self.config.compat == Compat::ClientGo
    }

    /// The time of a follower's next attempt when it polls.
    fn jittered(&self, now: Now) -> Duration {
        let period = self.config.retry_period;
        now.at
            .saturating_add(period.mul_f64(1.0 + JITTER_FACTOR * now.fraction()))
    }

    /// A random time shortly after `at`: candidates that wait for the same moment spread over a tenth of the
    /// retry period, or over [`SPREAD`] if that is less. Only one of them can win in any case; the spread
    /// avoids requests of all at once.
    fn spread(&self, now: Now, at: Duration) -> Duration {
        let width = (self.config.retry_period / 10).min(SPREAD);
        at.saturating_add(width.mul_f64(now.fraction()))
    }

    /// The record with which we take the lock.
    fn fresh(&self, now: Now, transitions: i32) -> Record {
        Record {
            holder: self.config.identity.clone(),
            lease_duration_seconds: self.config.wire_seconds(),
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            // The API refuses negative numbers, and a fencing token has none.
            transitions: transitions.max(0),
            ..Record::default()
        }
    }

    /// The record with which we renew one of our own.
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
    /// Whether the holder has written nothing since. Others write metadata of the same object, which is no
    /// sign of it: a dead leader whose Lease is labelled now and then must expire, too. Times in whole
    /// seconds do not tell two renewals of one second apart, so there each version counts as a renewal.
    fn same(&self, other: &Observation, by_text: bool) -> bool {
        let mine = &self.observation;
        if by_text {
            return mine.raw == other.raw;
        }
        let is_exact = |time: Timestamp| time.subsec_nanosecond() != 0;
        let unchanged = mine.record == other.record && other.record.renew_time.is_some_and(is_exact);
        mine.uid == other.uid && (mine.version == other.version || unchanged)
    }
}

/// Whether a time that was found in a lock is this one, which we wrote.
fn is_time_of(written: Timestamp, found: Timestamp) -> bool {
    // Annotation locks store whole seconds.
    let cut = found.subsec_nanosecond() == 0;
    written == found || (cut && written.as_second() == found.as_second())
}

/// Whether one resourceVersion is later than another. They can be compared as numbers since Kubernetes 1.35,
/// and in practice before; where they cannot, this is `false`.
fn newer(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one > other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
