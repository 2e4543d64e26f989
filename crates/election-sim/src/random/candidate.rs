//! One candidate of a world, with its processes and its link to the lock.

use super::clock::SimClock;
use crate::GateCheck;
use evenkeel_election::core::{Event, FencingToken, Machine, Observation, Record, Term};
use std::time::Duration;

/// A request on its way to the lock.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Get,
    Create(Record),
    Update { record: Record, version: String },
}

/// Something that reaches a process.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    /// The time of a wait has come. Only the last wait counts.
    Wake { wait: u64 },
    /// The answer to a request, if the process still waits for it.
    Answer { request: u64, event: Event },
    /// A change of the lock, maybe an old one.
    Change(Option<Observation>),
    /// The guarded work of this process has ended.
    Drained,
    /// An operator asks the candidate to stop.
    Cancel,
    /// An operator asks the candidate to hand over.
    StepDown,
}

/// The state of the link between a candidate and the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Link {
    #[default]
    Good,
    Slow,
    RepliesLost,
    BlackHole,
    Errors,
}

/// A candidate: the machine with what a process has around it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) identity: String,
    /// The number of the present process among those of this candidate.
    pub(super) life: u32,
    /// The last term that a process of this identity held, as noted in its term file.
    pub(super) held: Option<Term>,
    /// `None` while no process runs.
    pub(super) machine: Option<Machine>,
    pub(super) clock: SimClock,
    /// Until when the gate was last opened, on the candidate's boot clock.
    pub(super) gate: Option<Duration>,
    /// The request whose answer is waited for, and whether it reads.
    pub(super) request: Option<(u64, bool)>,
    /// The wait last asked for, and its number.
    pub(super) wait: Option<Duration>,
    pub(super) wait_number: u64,
    /// Whether the process is paused. What reaches it meanwhile goes into the backlog.
    pub(super) paused: bool,
    pub(super) backlog: Vec<Delivery>,
    pub(super) link: Link,
    /// The number of the last link fault, whose end repairs the link.
    pub(super) link_fault: u64,
    pub(super) deaf: bool,
}

impl Candidate {
    pub(super) fn new(clock: SimClock) -> Self {
        Self {
            identity: String::new(),
            life: 0,
            held: None,
            machine: None,
            clock,
            gate: None,
            request: None,
            wait: None,
            wait_number: 0,
            paused: false,
            backlog: Vec::new(),
            link: Link::Good,
            link_fault: 0,
            deaf: false,
        }
    }

    /// Ends the process, with everything that it waited for.
    pub(super) fn die(&mut self) {
        self.machine = None;
        self.gate = None;
        self.request = None;
        self.wait = None;
        self.paused = false;
        self.backlog.clear();
    }

    /// Whether a write would pass the gate now.
    pub(super) fn may_write(&self, now: Duration, gate_check: GateCheck) -> bool {
        self.gate
            .is_some_and(|until| gate_check == GateCheck::TaskOnly || self.clock.boot(now) < until)
    }

    pub(super) fn token(&self) -> Option<&FencingToken> {
        self.machine.as_ref().and_then(|machine| machine.state().token())
    }
}
