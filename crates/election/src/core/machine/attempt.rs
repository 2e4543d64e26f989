//! One attempt to take or to renew the lock.

use super::term::{Lead, Round};
use super::{Action, Announcement, Machine, Now, Phase, REMEMBERED_WRITES, ReadResult, is_time_of};
use crate::core::config::JITTER_FACTOR;
use crate::core::record::{Observation, Record};
use crate::core::state::{FencingToken, Loss};
use jiff::Timestamp;
use std::time::Duration;

/// The longest time for which a deleted lock is left alone, also if its record was valid for longer: an
/// operator who deletes a lock with a duration of 68 years wants it to be taken.
const LONGEST_ABSENCE: Duration = Duration::from_secs(600);

/// So many writes may follow each other without an answer before the record is read. The first of them may be
/// the one in the lock, and in a lease of hundreds of retry periods it would be forgotten.
const BLIND_WRITES: usize = REMEMBERED_WRITES / 2;

impl Machine {
    pub(super) fn start_attempt(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.attempt = now.at;
        if self.client_go() && self.lead.is_some() {
            let round = self.round.get_or_insert(Round {
                deadline: now.at.saturating_add(self.config.renew_deadline),
                next: now.at,
            });
            round.next = next_tick(round.next, self.config.retry_period, now.at);
        }
        let in_term = self.has_term() && !self.writes_blindly() || self.client_go();
        if self.is_holder()
            && self.is_valid(now)
            && in_term
            && !self.config.coordinated
            && let Some(seen) = &self.seen
        {
            let version = seen.observation.version.clone();
            let record = self.renewed(now, &seen.observation.record);
            self.phase = Phase::Renewing { since: now.at };
            self.write(record, version, actions);
        } else {
            self.read(actions);
        }
    }

    pub(super) fn read(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Reading;
        self.request(Action::Get, actions);
    }

    pub(super) fn write(&mut self, record: Record, version: String, actions: &mut Vec<Action>) {
        self.remember(&record);
        self.request(Action::Update { record, version }, actions);
    }

    pub(super) fn request(&mut self, request: Action, actions: &mut Vec<Action>) {
        self.in_flight = true;
        actions.push(request);
    }

    pub(super) fn remember(&mut self, record: &Record) {
        self.written.extend(record.renew_time);
        if self.written.len() > REMEMBERED_WRITES {
            // The record in the lock must still be recognised as ours, however many renewals have failed
            // since.
            let stands = self
                .seen
                .as_ref()
                .and_then(|seen| seen.observation.record.renew_time);
            let stood = |time: &Timestamp| stands.is_some_and(|stands| is_time_of(*time, stands));
            let oldest = self.written.iter().position(|time| !stood(time));
            self.written.remove(oldest.unwrap_or(0));
        }
    }

    /// Whether many writes have failed since the one that was seen last, so that the record must be read.
    fn writes_blindly(&self) -> bool {
        let renewed = self
            .seen
            .as_ref()
            .and_then(|seen| seen.observation.record.renew_time);
        let is_seen = |time: &Timestamp| renewed.is_some_and(|renewed| is_time_of(*time, renewed));
        let later = self.written.iter().rev().position(is_seen);
        later.unwrap_or(self.written.len()) >= BLIND_WRITES
    }

    pub(super) fn on_read(&mut self, now: Now, result: ReadResult, actions: &mut Vec<Action>) {
        let observation = match result {
            ReadResult::Failed => return self.attempt_failed(now, actions),
            ReadResult::Missing => return self.on_missing(now, actions),
            ReadResult::Found(observation) => observation,
        };
        let got = observation.record.clone();
        let (uid, version) = (observation.uid.clone(), observation.version.clone());
        if self.is_duplicate(&observation) {
            self.observe(now, observation);
            return self.end_as_duplicate(now, actions);
        }
        self.observe(now, observation);
        let mine = self.is_mine(&got);
        if self.config.coordinated {
            return self.on_read_coordinated(now, &got, &uid, version, actions);
        }
        if self.has_term()
            && let Some(loss) = self.loss_by(&got, &uid)
        {
            self.lose(now, loss, actions);
            self.report(actions);
            if !matches!(self.phase, Phase::Reading) {
                return;
            }
        }
        if !mine && !got.holder.is_empty() && self.is_valid(now) && !self.sees_ended() {
            return self.attempt_failed(now, actions);
        }
        let record = if mine {
            if self.has_term() || self.client_go() {
                actions.push(Action::CountSlowPath);
            }
            self.renewed(now, &got)
        } else {
            self.fresh(now, got.transitions.saturating_add(1))
        };
        self.phase = Phase::Taking { since: now.at };
        self.write(record, version, actions);
    }

    pub(super) fn on_missing(&mut self, now: Now, actions: &mut Vec<Action>) {
        // A leader under client-go's rules creates the lock again within its term, unless it is recovering.
        if !self.client_go() || self.lost.is_some() {
            let known = self.seen.take();
            if known.is_some() && !self.client_go() && !self.config.coordinated {
                // The last holder may not know yet that the lock is gone, and may have renewed it since we
                // last saw it. So the time counts from now.
                let ours = Duration::from_secs(self.config.wire_seconds().unsigned_abs().into());
                let theirs = known.as_ref().map(|seen| seen.observation.record.duration());
                let expiry = now
                    .at
                    .saturating_add(theirs.unwrap_or(ours).min(LONGEST_ABSENCE).max(ours));
                self.not_before = self.not_before.max(expiry);
            }
            if self.has_term() {
                self.lose(now, Loss::Deleted, actions);
            }
            if !matches!(self.phase, Phase::Reading) {
                return;
            }
            if known.is_some() && !self.client_go() {
                return self.attempt_failed(now, actions);
            }
        }
        if self.config.coordinated {
            return self.attempt_failed(now, actions);
        }
        self.phase = Phase::Taking { since: now.at };
        let record = self.fresh(now, 0);
        self.remember(&record);
        self.request(Action::Create(record), actions);
    }

    /// Handles a read in a coordinated election, in which only the coordinator creates the lock and changes
    /// its holder.
    pub(super) fn on_read_coordinated(
        &mut self,
        now: Now,
        got: &Record,
        uid: &str,
        version: String,
        actions: &mut Vec<Action>,
    ) {
        let mine = got.holder == self.config.identity;
        if !self.client_go()
            && self.has_term()
            && let Some(loss) = self.loss_by(got, uid)
        {
            self.lose(now, loss, actions);
            self.report(actions);
            if !matches!(self.phase, Phase::Reading) {
                return;
            }
        }
        let expired = self.expiry().is_some_and(|expiry| expiry < now.at);
        if expired || !mine {
            return self.attempt_failed(now, actions);
        }
        if !got.preferred_holder.is_empty() {
            if !self.client_go() && self.has_term() && self.ending.is_none() {
                return self.step_down(now, Loss::EndOfTerm(got.preferred_holder.clone()), actions);
            }
            return self.attempt_failed(now, actions);
        }
        let record = self.renewed(now, got);
        self.phase = Phase::Taking { since: now.at };
        self.write(record, version, actions);
    }

    pub(super) fn on_written(
        &mut self,
        now: Now,
        since: Duration,
        observation: Observation,
        actions: &mut Vec<Action>,
    ) {
        let token = FencingToken {
            lease_uid: observation.uid.clone(),
            transitions: observation.record.transitions,
        };
        let holder = observation.record.holder.clone();
        // An admission webhook could have changed the record.
        let other = (holder != self.config.identity).then(|| Loss::OtherHolder(holder.clone()));
        let changed = self.loss_by(&observation.record, &observation.uid).or(other);
        let stored = observation.record.duration().min(self.asked());
        let proven_for = self.proven_for(stored);
        let before = self.seen.take();
        self.observe(now, observation);
        if self.client_go()
            && let Some(seen) = &mut self.seen
        {
            // client-go does not remember the text of what it wrote.
            seen.observation.raw = before.map(|seen| seen.observation.raw).unwrap_or_default();
        }
        if let Some(loss) = changed {
            self.wait(now.at);
            if self.has_term() {
                self.lose(now, loss, actions);
            }
            if matches!(self.phase, Phase::Waiting { .. }) {
                self.attempt_failed(now, actions);
            }
            return;
        }
        let valid_until = if self.client_go() {
            Duration::MAX
        } else {
            since.saturating_add(proven_for)
        };
        if now.at >= valid_until {
            // The answer came so late that it does not prove leadership any more.
            return self.attempt_failed(now, actions);
        }
        let recovered = match (&self.lead, &self.lost) {
            (Some(lead), _) => lead.recovered && lead.token == token,
            (None, Some(lost)) => lost.lead.token == token || self.client_go(),
            (None, None) => false,
        };
        self.lost = None;
        self.round = None;
        self.predecessor = None;
        self.held = Some((since, stored));
        actions.push(Action::OpenGate {
            token: token.clone(),
            valid_until,
        });
        let first = self.lead.is_none();
        self.lead = Some(Lead {
            token,
            since,
            valid_until,
            recovered,
        });
        if first {
            self.announced = true;
            actions.push(Action::Announce(Announcement::BecameLeader));
        }
        let period = self.config.retry_period;
        let next = if !self.client_go() {
            // The period counts from when the write was sent: if answers are slow, the next attempt is needed
            // sooner. It does not count from a read before the write, because a period of one second would
            // then end within the second of the record's time, and followers that compare whole seconds,
            // as client-go's do, would not notice the renewal.
            now.at.max(since.saturating_add(period))
        } else if first && !recovered {
            // client-go's renew loop begins with a renewal of what was only just acquired.
            now.at
        } else {
            now.at.saturating_add(period)
        };
        self.report(actions);
        self.wait(next);
    }

    /// The lease duration that is written.
    fn asked(&self) -> Duration {
        Duration::from_secs(self.config.wire_seconds().unsigned_abs().into())
    }

    /// For how long a write proves leadership: for the renew deadline. If the stored lease duration is
    /// shorter than the one that we wrote, the time is shorter in proportion, because others use the stored
    /// one.
    fn proven_for(&self, stored: Duration) -> Duration {
        let asked = self.asked();
        let deadline = self.config.renew_deadline;
        if stored < asked {
            deadline.mul_f64(stored.as_secs_f64() / asked.as_secs_f64())
        } else {
            deadline
        }
    }

    pub(super) fn attempt_failed(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.round.is_none() {
            self.report(actions);
        }
        let period = self.config.retry_period;
        let next = if let (true, Some(round)) = (self.client_go(), &self.round) {
            round.next.max(now.at)
        } else if self.client_go() && self.lost.is_some() {
            let jittered = period.mul_f64(1.0 + JITTER_FACTOR * now.fraction());
            self.attempt.saturating_add(jittered).max(now.at)
        } else if self.has_term() {
            // One period after the start of the attempt, so that a failure that took long does not add to it.
            now.at.max(self.attempt.saturating_add(period))
        } else if self.client_go() {
            self.jittered(now)
        } else {
            self.next_attempt(now)
        };
        self.wait(next);
    }

    /// The time of a follower's next attempt: when the record that it sees expires. Until then it relies on
    /// the watch if that has delivered a change within the last lease duration; otherwise it polls.
    pub(super) fn next_attempt(&self, now: Now) -> Duration {
        let patience = self.config.lease_duration;
        let works = |at: Duration| now.at <= at.saturating_add(patience);
        match self.expiry().filter(|expiry| *expiry > now.at) {
            Some(expiry) if self.watched.is_some_and(works) => {
                self.spread(now, expiry.min(now.at.saturating_add(patience)))
            }
            Some(expiry) => self.spread(now, expiry).min(self.jittered(now)),
            None => self.jittered(now),
        }
    }
}

/// The first tick after `now` of a ticker that ticked at `last`. A ticker of Go keeps one tick for which
/// nobody waited; the attempt that begins now consumes it, and later missed ticks are dropped.
fn next_tick(last: Duration, period: Duration, now: Duration) -> Duration {
    let passed = now.saturating_sub(last).as_nanos() / period.as_nanos().max(1);
    let ticks = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
    last.saturating_add(period.saturating_mul(ticks))
}
