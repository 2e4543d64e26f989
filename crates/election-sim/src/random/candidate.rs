//! One process of a world.

use super::clock::SimClock;
use crate::GateCheck;
use evenkeel_election::core::{Event, FencingToken, Machine, Observation, Record, Term};
use std::time::Duration;

/// A request on its way.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Get,
    Create(Record),
    Update { record: Record, version: String },
}

/// What has come to a process.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    /// The time of a wait; only the last one counts.
    Wake { wait: u64 },
    /// The answer to a request, if it is still waited for.
    Answer { request: u64, event: Event },
    /// The lock has changed, or had.
    Change(Option<Observation>),
    /// The guarded work of this life has ended.
    Drained,
    /// An operator's word.
    Cancel,
    /// An operator's word.
    StepDown,
}

/// How requests fare between a candidate and the lock.
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
    /// Which of the processes that ran here.
    pub(super) life: u32,
    /// The last term that a process of this identity held, as noted in its term file.
    pub(super) held: Option<Term>,
    /// None: no process runs.
    pub(super) machine: Option<Machine>,
    pub(super) clock: SimClock,
    /// Up to when, on its boot clock, the gate was last opened.
    pub(super) gate: Option<Duration>,
    /// The request whose answer is waited for, and whether it reads.
    pub(super) request: Option<(u64, bool)>,
    /// The wait last asked for, and its number.
    pub(super) wait: Option<Duration>,
    pub(super) wait_number: u64,
    /// Stands still; what comes meanwhile waits.
    pub(super) paused: bool,
    pub(super) backlog: Vec<Delivery>,
    pub(super) link: Link,
    /// The link fault that counts: the last one.
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

    /// The process is gone, with all that it waited for.
    pub(super) fn die(&mut self) {
        self.machine = None;
        self.gate = None;
        self.request = None;
        self.wait = None;
        self.paused = false;
        self.backlog.clear();
    }

    /// What a write would find out now.
    pub(super) fn may_write(&self, now: Duration, gate_check: GateCheck) -> bool {
        self.gate
            .is_some_and(|until| gate_check == GateCheck::TaskOnly || self.clock.boot(now) < until)
    }

    pub(super) fn token(&self) -> Option<&FencingToken> {
        self.machine.as_ref().and_then(|machine| machine.state().token())
    }
}
