//! Events that the machine takes, and actions that it asks for.

use crate::core::record::{Observation, Record};
use crate::core::state::{FencingToken, Loss, State, Term};
use jiff::Timestamp;
use std::time::Duration;

/// A reading of the caller's clocks and of its random source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Time on a clock that never goes back and that runs while the machine sleeps. All rules use this clock.
    pub at: Duration,
    /// The wall clock, for the times that are written into records.
    pub wall: Timestamp,
    /// A random number, uniform in `[0, 1)`.
    pub random: f64,
}

impl Now {
    /// [`Self::random`], or 0 if it is out of range.
    pub(super) fn fraction(self) -> f64 {
        if (0.0..1.0).contains(&self.random) {
            self.random
        } else {
            0.0
        }
    }
}

/// An input of [`Machine::step`](super::Machine::step).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time of [`Action::Wait`] has come. Harmless at any other time.
    Wake,
    /// The answer to [`Action::Get`].
    Read(ReadResult),
    /// The answer to [`Action::Create`] or [`Action::Update`].
    Written(WriteResult),
    /// A change of the lock object, which a watch delivered, maybe late; `None` when it was deleted.
    Seen(Option<Observation>),
    /// The answer to [`Action::Drain`]: the guarded work has ended.
    Drained,
    /// It is proven that the process which held this term under our identity has ended, so its record need
    /// not expire.
    Ended(Term),
    /// The candidate is told to hand over, and to go on as a follower.
    StepDown,
    /// The candidate is told to stop.
    Cancel,
}

/// The answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The lock object exists.
    Found(Observation),
    /// There is no lock object.
    Missing,
    /// There was no answer, or an error.
    Failed,
}

/// The answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The write was made; this is the lock object after it.
    Done(Observation),
    /// Somebody else wrote or created the object first (409).
    Conflict,
    /// There was no answer, or an error. The write may have been made.
    Failed,
}

/// An output of [`Machine::step`](super::Machine::step), to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the lock and answer with [`Event::Read`].
    Get,
    /// Create the lock and answer with [`Event::Written`].
    Create(Record),
    /// Replace the record and answer with [`Event::Written`].
    Update {
        /// The record to write.
        record: Record,
        /// The resourceVersion on which the write is conditional.
        version: String,
    },
    /// Give up the request under way. Its answer must not be passed to the machine.
    Abort,
    /// Send [`Event::Wake`] at this time. Replaces an earlier wait.
    Wait {
        /// The time on the clock of [`Now::at`].
        until: Duration,
    },
    /// Let writes pass until a time. This is repeated at each renewal.
    OpenGate {
        /// The fencing token of the term.
        token: FencingToken,
        /// The time on the clock of [`Now::at`].
        valid_until: Duration,
    },
    /// Let no write pass, and cut those in flight.
    CloseGate,
    /// Tell the guarded work to end, and answer with [`Event::Drained`] when it has ended; at once if there
    /// is none.
    Drain,
    /// Log that leadership was lost. Users learn of it by [`Action::Publish`].
    Lost(Loss),
    /// Count a renewal that needed a read (client-go's slow path).
    CountSlowPath,
    /// Record a Kubernetes Event.
    Announce(Announcement),
    /// Report a new holder (client-go's `OnNewLeader`); empty if nobody holds the lock.
    NewLeader(String),
    /// Publish the new state.
    Publish(State),
}

/// The content of a Kubernetes Event about leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// This candidate has become leader.
    BecameLeader,
    /// This candidate does not lead any more.
    StoppedLeading,
}

impl Announcement {
    /// The text of the Event, as client-go writes it.
    pub fn message(self, identity: &str) -> String {
        match self {
            Self::BecameLeader => format!("{identity} became leader"),
            Self::StoppedLeading => format!("{identity} stopped leading"),
        }
    }
}
