//! What goes wrong and when, and what was asked.

use crate::core::Observation;
use crate::lock::LockError;
use std::fmt;
use std::time::Duration;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// [`Lock::get`](crate::lock::Lock::get)
    Get,
    /// [`Lock::create`](crate::lock::Lock::create)
    Create,
    /// [`Lock::update`](crate::lock::Lock::update)
    Update,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
        })
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An observation.
    Done,
    /// There is no object.
    Missing,
    /// [`LockError::Conflict`]
    Conflict,
    /// Another error.
    Failed,
}

/// A request that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Kind.
    pub op: Op,
    /// When it started.
    pub at: Duration,
    /// What came of it; `None` while there is no answer, for ever if the caller gave up.
    pub outcome: Option<Outcome>,
}

/// `update@4s`; `update(conflict)@4s`, `get(missing)@0s`, `get(failed)@2s` and `get(no answer)@6s` where it was not done.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Some(Outcome::Done) => "",
            Some(Outcome::Missing) => "(missing)",
            Some(Outcome::Conflict) => "(conflict)",
            Some(Outcome::Failed) => "(failed)",
            None => "(no answer)",
        };
        write!(f, "{}{outcome}@{:?}", self.op, self.at)
    }
}

/// Something announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// When.
    pub at: Duration,
    /// What.
    pub message: String,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives and is never answered.
    Hang,
    /// It is done, and never answered.
    HangAfterCommit,
    /// It is done, and fails with [`LockError::Unreachable`].
    LoseReply,
    /// It is done late, also if the caller has given up meanwhile, and answered later still. Needs a tokio runtime.
    Delay {
        /// From its start until it is done.
        before: Duration,
        /// From then until the answer.
        after: Duration,
    },
    /// It is not done: somebody else was faster, it says.
    Conflict,
    /// It is not done and fails with this.
    Answer(LockError),
}

/// When a fault happens: from the start, to every request, unless narrowed.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    from: Duration,
    until: Duration,
    op: Option<Op>,
    skip: u64,
    times: u64,
}

impl Rule {
    /// A fault of every request.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            from: Duration::ZERO,
            until: Duration::MAX,
            op: None,
            skip: 0,
            times: u64::MAX,
        }
    }

    /// Only of requests that start at this time or later.
    #[must_use]
    pub fn from(mut self, at: Duration) -> Self {
        self.from = at;
        self
    }

    /// Only of requests that start before this time.
    #[must_use]
    pub fn until(mut self, at: Duration) -> Self {
        self.until = at;
        self
    }

    /// Only of requests of this kind.
    #[must_use]
    pub fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Not of the first so many requests that it would be for.
    #[must_use]
    pub fn skip(mut self, requests: u64) -> Self {
        self.skip = requests;
        self
    }

    /// Of so many requests and no more.
    #[must_use]
    pub fn times(mut self, requests: u64) -> Self {
        self.times = requests;
        self
    }

    fn is_on(&self, now: Duration) -> bool {
        self.from <= now && now < self.until
    }

    /// The fault, if this request meets it; counts it.
    fn meet(&mut self, op: Op, now: Duration) -> Option<Fault> {
        if !self.is_on(now) || self.op.is_some_and(|only| only != op) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.times != u64::MAX {
            self.times = self.times.checked_sub(1)?;
        }
        Some(self.fault.clone())
    }

    /// Whether it is the API server that is away, not a request that fails: then a watch says nothing either.
    fn silences(&self) -> bool {
        let away = match self.fault {
            Fault::Hang | Fault::HangAfterCommit | Fault::LoseReply | Fault::Answer(_) => true,
            Fault::Delay { .. } | Fault::Conflict => false,
        };
        away && self.op.is_none() && self.skip == 0 && self.times == u64::MAX
    }
}

/// One handle's rules and log.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) rules: Vec<Rule>,
    pub(super) calls: Vec<Call>,
    pub(super) announcements: Vec<Announcement>,
}

impl Script {
    /// Logs a request; its place in the log and what happens to it.
    pub(super) fn start(&mut self, op: Op, now: Duration) -> (usize, Option<Fault>) {
        let outcome = None;
        self.calls.push(Call { op, at: now, outcome });
        let fault = self.rules.iter_mut().find_map(|rule| rule.meet(op, now));
        (self.calls.len() - 1, fault)
    }

    pub(super) fn end(&mut self, call: usize, answer: &Result<Option<Observation>, LockError>) {
        if let Some(call) = self.calls.get_mut(call) {
            call.outcome = Some(match answer {
                Ok(Some(_)) => Outcome::Done,
                Ok(None) => Outcome::Missing,
                Err(LockError::Conflict) => Outcome::Conflict,
                Err(_) => Outcome::Failed,
            });
        }
    }

    /// Until when a watch says nothing; `Duration::MAX` for ever, `None` if it speaks.
    pub(super) fn silent(&self, now: Duration) -> Option<Duration> {
        let mut silencing = self
            .rules
            .iter()
            .filter(|rule| rule.silences() && rule.is_on(now));
        silencing.next().map(|rule| rule.until)
    }
}
