//! One candidate of the model: its machine, its gate, and its requests.

use super::state::{NOW, Violation, floor};
use super::{Budget, Model, Mutation};
use crate::register::{Missing, Refused, Register};
use evenkeel_election::core::{
    Abstraction, Action, ConfigError, Event, FencingToken, Machine, Now, Observation, ReadResult, Record,
    WriteResult,
};
use jiff::Timestamp;
use std::time::Duration;

/// A request of a candidate to the register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Get,
    Create(Record),
    Update { record: Record, version: String },
}

/// The answer of the register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Read(Result<Observation, Missing>),
    Written(Result<Observation, Refused>),
}

/// A request for whose answer its sender waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub(super) request: Request,
    /// The reply, once the request has taken effect.
    pub(super) reply: Option<Reply>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) machine: Machine,
    /// Until when the gate is open, if the machine has not closed it.
    pub(super) gate: Option<Duration>,
    pub(super) flight: Option<Flight>,
    /// The last write that was given up before it took effect. It may still take effect.
    pub(super) late: Option<Request>,
    /// Whether the guarded work was told to end, and has not ended yet.
    pub(super) draining: bool,
}

impl Request {
    /// Whether it can still succeed, with the lock at `version`.
    pub(super) fn may_succeed(&self, version: Option<&str>, budget: Budget, anything: bool) -> bool {
        match self {
            Self::Get => true,
            Self::Create(_) => anything || version.is_none() || budget.deletions > 0,
            Self::Update { version: over, .. } => anything || version == Some(over.as_str()),
        }
    }

    /// Applies the request to the register.
    pub(super) fn commit(&self, register: &mut Register, model: &Model) -> Reply {
        match self {
            Self::Get => Reply::Read(register.get()),
            Self::Create(record) => Reply::Written(register.create(record.clone())),
            Self::Update { record, .. } if model.mutation == Mutation::NoVersionCheck => {
                Reply::Written(register.overwrite(record.clone()))
            }
            Self::Update { record, version } => Reply::Written(register.update(record.clone(), version)),
        }
    }
}

impl Reply {
    pub(super) fn event(self, model: &Model, identity: &str) -> Event {
        let altered = |mut observation: Observation| {
            if model.mutation == Mutation::Impatient && observation.record.holder != identity {
                observation.record.lease_duration_seconds = 1;
            }
            observation
        };
        match self {
            Self::Read(Ok(found)) => Event::Read(ReadResult::Found(altered(found))),
            Self::Read(Err(Missing)) => Event::Read(ReadResult::Missing),
            Self::Written(Ok(done)) => Event::Written(WriteResult::Done(altered(done))),
            Self::Written(Err(Refused)) => Event::Written(WriteResult::Conflict),
        }
    }
}

impl Node {
    pub(super) fn new(identity: &str, model: &Model) -> Result<Self, ConfigError> {
        Ok(Self {
            machine: Machine::new(model.grid.config(identity))?,
            gate: None,
            flight: None,
            late: None,
            draining: false,
        })
    }

    /// Starts the process again. Only writes that were already sent survive.
    pub(super) fn restart(&mut self, model: &Model) -> Result<(), ConfigError> {
        self.give_up();
        self.machine = Machine::new(self.machine.config().clone())?;
        self.gate = None;
        self.draining = false;
        self.pass(Duration::ZERO, model);
        Ok(())
    }

    /// Gives up the request under way. A write that has not taken effect yet may do so later.
    pub(super) fn give_up(&mut self) {
        if let Some(Flight { request, reply: None }) = self.flight.take()
            && request != Request::Get
        {
            self.late = Some(request);
        }
    }

    /// Lets time pass on this clock. The clock always shows [`NOW`]; all stored times are moved into the
    /// past.
    pub(super) fn pass(&mut self, by: Duration, model: &Model) {
        let mut shift = Shift { by, model };
        self.machine.abstract_with(&mut shift);
        if let Some(until) = &mut self.gate {
            shift.shift(until);
        }
    }

    pub(super) fn request_is_taken(&self) -> bool {
        self.flight.is_some()
    }

    /// Passes an event to the machine and carries out its actions. Returns the tokens with which the gate was
    /// opened.
    pub(super) fn step(
        &mut self,
        event: Event,
        wall: Timestamp,
        model: &Model,
    ) -> Result<Vec<FencingToken>, Violation> {
        let now = Now {
            at: NOW,
            wall,
            // The shortest waits: later wake-ups are among the interleavings.
            random: 0.0,
        };
        let mut opened = Vec::new();
        for action in self.machine.step(now, event) {
            match action {
                Action::Get => self.send(Request::Get)?,
                Action::Create(record) => self.send(Request::Create(record))?,
                Action::Update { record, version } => self.send(Request::Update { record, version })?,
                Action::Abort => self.give_up(),
                Action::OpenGate { token, valid_until } => {
                    opened.push(token);
                    self.gate = Some(match model.mutation {
                        Mutation::DeadlineFromAnswer => NOW + Duration::from_secs(model.grid.deadline),
                        _ => valid_until,
                    });
                }
                Action::CloseGate => self.gate = None,
                Action::Drain => self.draining = true,
                Action::Wait { .. }
                | Action::Lost(_)
                | Action::CountSlowPath
                | Action::Announce(_)
                | Action::NewLeader(_)
                | Action::Publish(_) => {}
            }
        }
        Ok(opened)
    }

    fn send(&mut self, request: Request) -> Result<(), Violation> {
        if self.request_is_taken() {
            return Err(Violation::TwoRequests);
        }
        self.flight = Some(Flight { request, reply: None });
        Ok(())
    }
}

/// Moves times into the past, as far as rules distinguish them.
struct Shift<'a> {
    by: Duration,
    model: &'a Model,
}

impl Shift<'_> {
    fn shift(&self, time: &mut Duration) {
        self.no_further_back(time, floor(self.model));
    }

    fn no_further_back(&self, time: &mut Duration, than: Duration) {
        if *time != Duration::MAX {
            *time = time.saturating_sub(self.by).max(than);
        }
    }
}

impl Abstraction for Shift<'_> {
    fn time(&mut self, time: &mut Duration) {
        self.shift(time);
    }
    fn until(&mut self, time: &mut Duration) {
        self.no_further_back(time, NOW);
    }
    fn seen(&mut self, at: &mut Duration, duration: Duration) {
        self.no_further_back(at, NOW.saturating_sub(duration));
    }
    fn observation(&mut self, _: &mut Observation) {}
    fn record(&mut self, _: &mut Record) {}
    fn stamp(&mut self, _: &mut Timestamp) {}
    fn written(&mut self, _: &mut std::collections::VecDeque<Timestamp>) {}
    fn token(&mut self, _: &mut FencingToken) {}
}
