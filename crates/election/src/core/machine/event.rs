//! What goes into the machine, and what comes out.

use crate::core::record::{Observation, Record};
use crate::core::state::{FencingToken, Loss, State, Term};
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
    pub(super) fn fraction(self) -> f64 {
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
    /// The time of [`Action::Wait`] has come. Harmless at any other time.
    Wake,
    /// Answer to [`Action::Get`].
    Read(ReadResult),
    /// Answer to [`Action::Create`] or [`Action::Update`].
    Written(WriteResult),
    /// A change of the lock object seen without asking, such as on a watch, maybe late; `None` when it was deleted.
    Seen(Option<Observation>),
    /// Answer to [`Action::Drain`]: the guarded work has ended.
    Drained,
    /// Whoever held this term under our identity has ended, by proof: its record need not expire.
    Ended(Term),
    /// The candidate shall hand over, and go on as a follower.
    StepDown,
    /// The candidate shall stop.
    Cancel,
}

/// Answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The lock object.
    Found(Observation),
    /// There is none.
    Missing,
    /// No answer, or an error.
    Failed,
}

/// Answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The lock object as it is now.
    Done(Observation),
    /// Somebody else wrote first (409), also: exists already.
    Conflict,
    /// No answer, or an error. The write may have happened.
    Failed,
}

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the lock and answer with [`Event::Read`].
    Get,
    /// Create the lock and answer with [`Event::Written`].
    Create(Record),
    /// Replace the record and answer with [`Event::Written`].
    Update {
        /// The new record.
        record: Record,
        /// The resourceVersion that must still be current.
        version: String,
    },
    /// Give up the request under way; its answer must not come.
    Abort,
    /// Send [`Event::Wake`] at this time. Replaces an earlier wait.
    Wait {
        /// On the clock of [`Now::at`].
        until: Duration,
    },
    /// Let writes pass, until this time. Sent again with each renewal.
    OpenGate {
        /// Stamp for writes.
        token: FencingToken,
        /// On the clock of [`Now::at`].
        valid_until: Duration,
    },
    /// Let no write pass, and end those under way.
    CloseGate,
    /// Tell the guarded work to end, and answer with [`Event::Drained`] when it has; at once if there is none.
    Drain,
    /// Leadership was lost. For the log: [`Action::Publish`] tells users.
    Lost(Loss),
    /// A renewal needed a read (client-go's slow path).
    CountSlowPath,
    /// Record a Kubernetes Event.
    Announce(Announcement),
    /// Another holder than before was seen; empty: nobody (client-go's `OnNewLeader`).
    NewLeader(String),
    /// The state has changed.
    Publish(State),
}

/// What is told to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// This candidate leads.
    BecameLeader,
    /// It does not any more.
    StoppedLeading,
}

impl Announcement {
    /// client-go's text.
    pub fn message(self, identity: &str) -> String {
        match self {
            Self::BecameLeader => format!("{identity} became leader"),
            Self::StoppedLeading => format!("{identity} stopped leading"),
        }
    }
}
