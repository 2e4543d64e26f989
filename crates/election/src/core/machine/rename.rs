//! A machine but for what its behaviour does not depend on, so that a model check can tell two states apart only where
//! they differ in what may follow.

use super::{Lead, Lost, Machine, Phase, Predecessor, Round, Seen};
use crate::core::record::{Observation, Record};
use crate::core::state::{FencingToken, Loss, State, StopReason};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Gives names to values that are only compared with each other.
pub(crate) trait Rename {
    /// A time that rules count from, on the candidate's clock.
    fn time(&mut self, time: &mut Duration);
    /// A time that rules wait for: once it has passed, it does not matter when.
    fn until(&mut self, time: &mut Duration);
    /// When something was seen that is valid for `duration` from then on.
    fn seen(&mut self, at: &mut Duration, duration: Duration);
    /// Something observed.
    fn observation(&mut self, observation: &mut Observation);
    /// A record about to be written over a version.
    fn record(&mut self, record: &mut Record);
    /// A `renewTime`.
    fn stamp(&mut self, stamp: &mut Timestamp);
    /// `renewTime`s of own writes: of interest while a record with one of them may turn up.
    fn written(&mut self, written: &mut VecDeque<Timestamp>);
    /// A fencing token.
    fn token(&mut self, token: &mut FencingToken);
}

impl Machine {
    /// Passes every value through `names`, and forgets what only reports are made of.
    pub(crate) fn rename(&mut self, names: &mut impl Rename) {
        let Self {
            config: _,
            phase,
            lead,
            lost,
            ending,
            then: _,
            not_before,
            in_flight: _,
            held_since,
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
                names.until(until);
            }
            Phase::Renewing { since } | Phase::Taking { since } => names.time(since),
            Phase::Draining | Phase::Reading => {}
            Phase::Stopped { reason } => *reason = StopReason::DuplicateIdentity,
        }
        if let Some(lead) = lead {
            lead.rename(names);
        }
        if let Some(Lost { lead, loss, give_up }) = lost {
            lead.rename(names);
            *loss = Loss::Deadline;
            if let Some(at) = give_up {
                names.until(at);
            }
        }
        if let Some(ending) = ending {
            names.until(&mut ending.until);
            ending.loss = Loss::Deadline;
            if let super::term::Then::Campaign { not_before } = &mut ending.then {
                names.until(not_before);
            }
        }
        if let Some(super::term::Then::Campaign { not_before }) = &mut self.then {
            names.until(not_before);
        }
        if let Some(Round { deadline, next }) = round {
            names.until(deadline);
            names.time(next);
        }
        if let Some(Seen { observation, at }) = seen {
            names.observation(observation);
            names.seen(at, observation.record.duration());
        }
        if let Some(Predecessor {
            renewed: Some(stamp), ..
        }) = predecessor
        {
            names.stamp(stamp);
        }
        names.until(not_before);
        match phase {
            Phase::Reading | Phase::Renewing { .. } | Phase::Taking { .. } => names.time(attempt),
            // The next one sets it anew.
            _ => *attempt = Duration::ZERO,
        }
        names.written(written);
        // These are asked for by health checks, told to users, or asked for again when forgotten.
        *held_since = None;
        *announced = false;
        *reported = None;
        *published = State::Following { leader: None };
        *wake = None;
        // Trust in a watch makes waits longer, and nothing else: whoever lets each wait last for any longer time, as a
        // model check does, loses nothing without.
        *watched = None;
    }
}

impl Lead {
    fn rename(&mut self, names: &mut impl Rename) {
        let Self {
            token,
            since,
            valid_until,
            recovered: _,
        } = self;
        names.token(token);
        *since = Duration::ZERO;
        names.until(valid_until);
    }
}
