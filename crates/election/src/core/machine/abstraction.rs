//! What a model check needs to see of a machine: two states are the same for it if they differ only in values
//! on which no later step depends.

use super::{Lead, Lost, Machine, Phase, Predecessor, Round, Seen};
use crate::core::record::{Observation, Record};
use crate::core::state::{FencingToken, Loss, State, StopReason};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Maps the values in a machine's state, such as times onto times relative to now, or versions onto their
/// rank.
///
/// A model check uses this to count states once that lead to the same behaviour. Behaviour must not depend on
/// what an implementation changes: values that are only compared with each other must keep their order.
pub trait Abstraction {
    /// A time from which a rule counts, on the candidate's clock.
    fn time(&mut self, time: &mut Duration);
    /// A time for which a rule waits. Once it has passed, it does not matter for how long.
    fn until(&mut self, time: &mut Duration);
    /// The time at which something was seen that is valid for `duration` from then on.
    fn seen(&mut self, at: &mut Duration, duration: Duration);
    /// A record that was observed, with its place.
    fn observation(&mut self, observation: &mut Observation);
    /// A record that is to be written.
    fn record(&mut self, record: &mut Record);
    /// The `renewTime` of a record.
    fn stamp(&mut self, stamp: &mut Timestamp);
    /// The `renewTime`s of this candidate's own writes. They matter as long as a record with one of them may
    /// turn up.
    fn written(&mut self, written: &mut VecDeque<Timestamp>);
    /// The fencing token of a term.
    fn token(&mut self, token: &mut FencingToken);
}

impl Machine {
    /// Maps every value on which a rule depends, and clears the values that are only reported.
    pub fn abstract_with(&mut self, abstraction: &mut impl Abstraction) {
        let Self {
            config: _,
            phase,
            lead,
            lost,
            ending,
            then: _,
            not_before,
            in_flight: _,
            held,
            round,
            seen,
            watched,
            attempt,
            written,
            predecessor,
            ended: _,
            announced,
            reported,
            published,
            wake,
        } = self;
        match phase {
            Phase::Waiting { until } | Phase::ReleaseReading { until } | Phase::Releasing { until } => {
                abstraction.until(until);
            }
            Phase::Renewing { since } | Phase::Taking { since } => abstraction.time(since),
            Phase::Draining | Phase::Reading => {}
            Phase::Stopped { reason } => *reason = StopReason::DuplicateIdentity,
        }
        if let Some(lead) = lead {
            lead.abstract_with(abstraction);
        }
        if let Some(Lost { lead, loss, give_up }) = lost {
            lead.abstract_with(abstraction);
            *loss = Loss::Deadline;
            if let Some(at) = give_up {
                abstraction.until(at);
            }
        }
        if let Some(ending) = ending {
            abstraction.until(&mut ending.until);
            ending.loss = Loss::Deadline;
            if let super::term::Then::Campaign { not_before } = &mut ending.then {
                abstraction.until(not_before);
            }
        }
        if let Some(super::term::Then::Campaign { not_before }) = &mut self.then {
            abstraction.until(not_before);
        }
        if let Some(Round { deadline, next }) = round {
            abstraction.until(deadline);
            abstraction.time(next);
        }
        if let Some(Seen { observation, at }) = seen {
            abstraction.observation(observation);
            abstraction.seen(at, observation.record.duration());
        }
        if let Some(Predecessor {
            renewed: Some(stamp), ..
        }) = predecessor
        {
            abstraction.stamp(stamp);
        }
        abstraction.until(not_before);
        match phase {
            Phase::Reading | Phase::Renewing { .. } | Phase::Taking { .. } => abstraction.time(attempt),
            // The next attempt sets it again.
            _ => *attempt = Duration::ZERO,
        }
        abstraction.written(written);
        // These are read by health checks, reported to users, or requested again when they are missing.
        *held = None;
        *announced = false;
        *reported = None;
        *published = State::Following { leader: None };
        *wake = None;
        // A working watch makes waits longer and has no other effect. A model check lets every wait last for
        // any longer time, so it misses nothing without this.
        *watched = None;
    }
}

impl Lead {
    fn abstract_with(&mut self, abstraction: &mut impl Abstraction) {
        let Self {
            token,
            since,
            valid_until,
            recovered: _,
        } = self;
        abstraction.token(token);
        *since = Duration::ZERO;
        abstraction.until(valid_until);
    }
}
