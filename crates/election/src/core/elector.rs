//! The state machine of one candidate.
//!
//! Rules of client-go's `tools/leaderelection`, with these differences, each on the cautious side:
//! * a leader's time counts from the *start* of its last successful request, and is over without a further attempt;
//! * a leader that sees another holder, a released record or no Lease at all stops at once;
//! * after a loss the candidate goes on as a follower;
//! * release writes only over a record that is ours, and tries again after a conflict;
//! * a follower waits no longer than until the record that it sees expires.

use super::config::{Config, ConfigError, JITTER_FACTOR};
use super::record::{Observation, Record};
use super::{FencingToken, State};
use jiff::Timestamp;
use std::time::Duration;

/// A reading of the caller's clocks and of its random source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Time on a clock that only goes forward, also while the machine sleeps. Every rule uses this one.
    pub at: Duration,
    /// Wall clock, for the times that we write into records.
    pub wall: Timestamp,
    /// Uniform in `[0, 1)`.
    pub random: f64,
}

impl Now {
    /// `random`, whatever the caller passed.
    fn fraction(self) -> f64 {
        if (0.0..1.0).contains(&self.random) {
            self.random
        } else {
            0.0
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A wait is over, or the time of [`Elector::valid_until`] has come. Harmless at any other time.
    Wake,
    /// Answer to [`Action::Get`].
    Read(ReadResult),
    /// Answer to [`Action::Create`] or [`Action::Update`].
    Written(WriteResult),
    /// A change of the Lease seen without asking, such as on a watch; `None` when it was deleted.
    Seen(Option<Observation>),
    /// The candidate shall stop. A request under way is given up: its answer is not awaited.
    Cancel,
}

/// Answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The Lease.
    Found(Observation),
    /// There is none.
    Missing,
    /// No answer, or an error.
    Failed,
}

/// Answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The Lease as it is now.
    Done(Observation),
    /// Somebody else wrote first (409), also: exists already.
    Conflict,
    /// No answer, or an error. The write may have happened.
    Failed,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease and answer with [`Event::Read`].
    Get,
    /// Create the Lease and answer with [`Event::Written`].
    Create(Record),
    /// Replace the Lease's spec and answer with [`Event::Written`].
    Update {
        /// The new spec.
        record: Record,
        /// The resourceVersion that must still be current.
        version: String,
    },
    /// Send [`Event::Wake`] at this time. Replaces an earlier wait.
    Wait {
        /// On the clock of [`Now::at`].
        until: Duration,
    },
    /// Leadership is lost; [`Action::Publish`] follows unless the same step regains it.
    Lost(Loss),
    /// The state has changed.
    Publish(State),
}

/// Why leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No renewal succeeded in time.
    Deadline,
    /// Another holder stands in the Lease.
    OtherHolder(String),
    /// The record names no holder any more: somebody released it for us.
    Blanked,
    /// The Lease is gone, or is another object.
    Deleted,
    /// We were told to stop.
    Cancelled,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deadline => f.write_str("no renewal succeeded within the renew deadline"),
            Self::OtherHolder(holder) => write!(f, "`{holder}` holds the lease"),
            Self::Blanked => f.write_str("the lease was released by somebody else"),
            Self::Deleted => f.write_str("the lease was deleted"),
            Self::Cancelled => f.write_str("told to stop"),
        }
    }
}

/// What a candidate is waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The time of the next attempt.
    Waiting { until: Duration },
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
    Stopped,
}

/// Leadership as far as it is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lead {
    token: FencingToken,
    valid_until: Duration,
}

/// The last change of the record, on our clock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    observation: Observation,
    at: Duration,
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct Elector {
    config: Config,
    phase: Phase,
    lead: Option<Lead>,
    seen: Option<Seen>,
    /// Start of the attempt under way, or of the last one.
    attempt: Duration,
    published: State,
}

impl Elector {
    /// A follower that knows nobody. Send it [`Event::Wake`] to start.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            phase: Phase::Waiting {
                until: Duration::ZERO,
            },
            lead: None,
            seen: None,
            attempt: Duration::ZERO,
            published: State::Following { leader: None },
        })
    }

    /// The state that was last published.
    pub fn state(&self) -> &State {
        &self.published
    }

    /// Up to when leadership is proven, if it is: the caller must not act as leader from then on, whatever else
    /// happens, and sends [`Event::Wake`].
    pub fn valid_until(&self) -> Option<Duration> {
        self.lead.as_ref().map(|lead| lead.valid_until)
    }

    /// The one transition function.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.lead.as_ref().is_some_and(|lead| now.at >= lead.valid_until) {
            self.lose(Loss::Deadline, &mut actions);
        }
        match (self.phase.clone(), event) {
            (Phase::Waiting { until }, Event::Wake) => {
                if now.at >= until {
                    self.start_attempt(now, &mut actions);
                } else {
                    actions.push(Action::Wait { until });
                }
            }
            (Phase::Waiting { until }, Event::Seen(change)) if self.lead.is_none() => {
                self.on_change(now, change, until, &mut actions);
            }
            (Phase::Reading, Event::Read(result)) => self.on_read(now, result, &mut actions),
            (Phase::Renewing { since }, Event::Written(WriteResult::Done(observation))) => {
                self.on_written(now, since, observation, &mut actions);
            }
            // The fast path failed: what is there now, within the same attempt?
            (Phase::Renewing { .. }, Event::Written(_)) => self.read(&mut actions),
            (Phase::Taking { since }, Event::Written(WriteResult::Done(observation))) => {
                self.on_written(now, since, observation, &mut actions);
            }
            (Phase::Taking { .. }, Event::Written(_)) => self.attempt_failed(now, &mut actions),
            (Phase::ReleaseReading { until }, Event::Read(result)) => {
                self.on_read_for_release(now, until, result, &mut actions);
            }
            (Phase::Releasing { until }, Event::Written(WriteResult::Conflict)) if now.at < until => {
                self.phase = Phase::ReleaseReading { until };
                actions.push(Action::Get);
            }
            (Phase::Releasing { .. }, Event::Written(result)) => {
                if let WriteResult::Done(observation) = result {
                    self.observe(now, observation);
                }
                self.phase = Phase::Stopped;
            }
            (Phase::ReleaseReading { until } | Phase::Releasing { until }, Event::Wake)
                if now.at >= until =>
            {
                self.phase = Phase::Stopped;
            }
            (Phase::ReleaseReading { .. } | Phase::Releasing { .. } | Phase::Stopped, Event::Cancel) => {}
            (_, Event::Cancel) => self.cancel(now, &mut actions),
            // Late answers, early wakes, and changes that an answer under way will tell of.
            (_, Event::Wake | Event::Read(_) | Event::Written(_) | Event::Seen(_)) => {}
        }
        self.publish(&mut actions);
        actions
    }

    fn start_attempt(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.attempt = now.at;
        match (&self.lead, &self.seen) {
            (Some(_), Some(seen)) => {
                let record = self.renewed(now, &seen.observation.record);
                let version = seen.observation.version.clone();
                self.phase = Phase::Renewing { since: now.at };
                actions.push(Action::Update { record, version });
            }
            _ => self.read(actions),
        }
    }

    fn read(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Reading;
        actions.push(Action::Get);
    }

    fn on_read(&mut self, now: Now, result: ReadResult, actions: &mut Vec<Action>) {
        let observation = match result {
            ReadResult::Failed => return self.attempt_failed(now, actions),
            ReadResult::Missing => {
                self.lose(Loss::Deleted, actions);
                self.seen = None;
                self.phase = Phase::Taking { since: now.at };
                return actions.push(Action::Create(self.fresh(now, 0)));
            }
            ReadResult::Found(observation) => observation,
        };
        let got = observation.record.clone();
        let version = observation.version.clone();
        let mine = got.holder == self.config.identity;
        if let Some(lead) = &self.lead {
            if lead.token.lease_uid != observation.uid {
                self.lose(Loss::Deleted, actions);
            } else if got.holder.is_empty() {
                self.lose(Loss::Blanked, actions);
            } else if !mine {
                self.lose(Loss::OtherHolder(got.holder.clone()), actions);
            }
        }
        self.observe(now, observation);
        if !mine && !got.holder.is_empty() && self.is_valid(now) {
            return self.attempt_failed(now, actions);
        }
        let record = if mine {
            self.renewed(now, &got)
        } else {
            self.fresh(now, got.transitions.saturating_add(1))
        };
        self.phase = Phase::Taking { since: now.at };
        actions.push(Action::Update { record, version });
    }

    fn on_written(&mut self, now: Now, since: Duration, observation: Observation, actions: &mut Vec<Action>) {
        let valid_until = since.saturating_add(self.config.renew_deadline);
        let mine = observation.record.holder == self.config.identity;
        let token = FencingToken {
            lease_uid: observation.uid.clone(),
            transitions: observation.record.transitions,
        };
        self.observe(now, observation);
        if let Some(seen) = &self.seen
            && !mine
        {
            // Changed on its way in, as an admission webhook could.
            self.lose(Loss::OtherHolder(seen.observation.record.holder.clone()), actions);
        }
        if !mine || now.at >= valid_until {
            // So late, it proves nothing now.
            return self.attempt_failed(now, actions);
        }
        self.lead = Some(Lead { token, valid_until });
        self.wait(now.at.saturating_add(self.config.retry_period), actions);
    }

    /// A change that we did not ask for. It brings the next attempt forward, and may be older than what we know; so
    /// it never takes away leadership and is never written over.
    fn on_change(
        &mut self,
        now: Now,
        change: Option<Observation>,
        until: Duration,
        actions: &mut Vec<Action>,
    ) {
        let free = change
            .as_ref()
            .is_none_or(|observation| observation.record.holder.is_empty());
        if let Some(observation) = change {
            self.observe(now, observation);
        }
        let next = if free {
            // Free to take.
            until.min(self.spread(now, now.at))
        } else {
            until.max(self.expiry().unwrap_or(until)).min(self.jittered(now))
        };
        self.wait(next, actions);
    }

    fn attempt_failed(&mut self, now: Now, actions: &mut Vec<Action>) {
        let next = if self.lead.is_some() {
            // Not later than a period after the attempt began: a slow failure must not cost a second period.
            now.at.max(self.attempt.saturating_add(self.config.retry_period))
        } else {
            let jittered = self.jittered(now);
            match self.expiry() {
                Some(expiry) if expiry > now.at => jittered.min(self.spread(now, expiry)),
                _ => jittered,
            }
        };
        self.wait(next, actions);
    }

    fn wait(&mut self, until: Duration, actions: &mut Vec<Action>) {
        self.phase = Phase::Waiting { until };
        actions.push(Action::Wait { until });
    }

    fn cancel(&mut self, now: Now, actions: &mut Vec<Action>) {
        let is_holder = self
            .seen
            .as_ref()
            .is_some_and(|seen| seen.observation.record.holder == self.config.identity);
        // A write given up may have happened.
        let may_hold = is_holder || matches!(self.phase, Phase::Taking { .. } | Phase::Renewing { .. });
        self.lose(Loss::Cancelled, actions);
        if self.config.release_on_cancel && may_hold {
            let until = now.at.saturating_add(self.config.renew_deadline);
            self.phase = Phase::ReleaseReading { until };
            actions.extend([Action::Get, Action::Wait { until }]);
        } else {
            self.phase = Phase::Stopped;
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
            ReadResult::Found(found) if found.record.holder == self.config.identity && now.at < until => {
                found
            }
            // Gone, somebody else's, or out of reach: not ours to write.
            ReadResult::Found(_) | ReadResult::Missing | ReadResult::Failed => {
                self.phase = Phase::Stopped;
                return;
            }
        };
        let record = Record {
            holder: String::new(),
            // The API refuses 0; nobody waits for a record without holder anyway.
            lease_duration_seconds: 1,
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            transitions: found.record.transitions,
        };
        let version = found.version.clone();
        self.observe(now, found);
        self.phase = Phase::Releasing { until };
        actions.push(Action::Update { record, version });
    }

    /// Notes a record, and the time if it differs from the last one. Only ever by our own clock.
    fn observe(&mut self, now: Now, observation: Observation) {
        match &mut self.seen {
            Some(seen) if seen.observation.record == observation.record => seen.observation = observation,
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
        self.seen
            .as_ref()
            .map(|seen| seen.at.saturating_add(seen.observation.record.duration()))
    }

    fn is_valid(&self, now: Now) -> bool {
        self.expiry().is_some_and(|expiry| expiry > now.at)
    }

    /// When a follower asks again.
    fn jittered(&self, now: Now) -> Duration {
        now.at.saturating_add(
            self.config
                .retry_period
                .mul_f64(1.0 + JITTER_FACTOR * now.fraction()),
        )
    }

    /// A little after `at`: candidates that wait for the same moment spread over a tenth of the period.
    fn spread(&self, now: Now, at: Duration) -> Duration {
        at.saturating_add(self.config.retry_period.mul_f64(now.fraction() / 10.0))
    }

    /// A record of ours that takes the Lease.
    fn fresh(&self, now: Now, transitions: i32) -> Record {
        Record {
            holder: self.config.identity.clone(),
            lease_duration_seconds: self.config.wire_seconds(),
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            transitions,
        }
    }

    /// A record of ours that goes on with one of ours.
    fn renewed(&self, now: Now, old: &Record) -> Record {
        Record {
            acquire_time: old.acquire_time,
            ..self.fresh(now, old.transitions)
        }
    }

    fn lose(&mut self, loss: Loss, actions: &mut Vec<Action>) {
        if self.lead.take().is_some() {
            actions.push(Action::Lost(loss));
        }
    }

    fn publish(&mut self, actions: &mut Vec<Action>) {
        let holder = self
            .seen
            .as_ref()
            .map(|seen| seen.observation.record.holder.clone());
        let state = match (&self.phase, &self.lead) {
            (Phase::Stopped, _) => State::Stopped,
            (_, Some(lead)) => State::Leading {
                token: lead.token.clone(),
            },
            (_, None) => State::Following {
                leader: holder.filter(|holder| !holder.is_empty()),
            },
        };
        if state != self.published {
            self.published = state.clone();
            actions.push(Action::Publish(state));
        }
    }
}

#[cfg(test)]
mod tests;
