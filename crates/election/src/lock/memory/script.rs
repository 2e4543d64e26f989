//! Which faults happen when, and a log of the requests.

use crate::core::Observation;
use crate::lock::LockError;
use std::fmt;
use std::time::Duration;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A call of [`Lock::get`](crate::lock::Lock::get).
    Get,
    /// A call of [`Lock::create`](crate::lock::Lock::create).
    Create,
    /// A call of [`Lock::update`](crate::lock::Lock::update).
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

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It returned an observation.
    Done,
    /// It found no object.
    Missing,
    /// It failed with [`LockError::Conflict`].
    Conflict,
    /// It failed with another error.
    Failed,
}

/// A request that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The kind of request.
    pub op: Op,
    /// The time at which it started.
    pub at: Duration,
    /// Its outcome; `None` while there is no answer, and for ever if the caller gave up.
    pub outcome: Option<Outcome>,
}

/// Prints `update@4s` for a request that was done; otherwise `update(conflict)@4s`, `get(missing)@0s`,
/// `get(failed)@2s` or `get(no answer)@6s`.
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

/// A call of [`Lock::announce`](crate::lock::Lock::announce).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The time of the call.
    pub at: Duration,
    /// The text of the Event.
    pub message: String,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never reaches the register and is never answered.
    Hang,
    /// It is done, and never answered.
    HangAfterCommit,
    /// It is done, and fails with [`LockError::Unreachable`].
    LoseReply,
    /// It is done late, also if the caller has given up meanwhile, and answered even later. Needs a tokio
    /// runtime.
    Delay {
        /// Time from its start until it is done.
        before: Duration,
        /// Time from then until the answer.
        after: Duration,
    },
    /// It is not done, and fails with [`LockError::Conflict`].
    Conflict,
    /// It is not done, and fails with this error.
    Answer(LockError),
}

/// A fault, and the requests that it affects: all of them, unless the rule is restricted.
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
    /// A fault that affects every request.
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

    /// Restricts the rule to requests that start at this time or later.
    #[must_use]
    pub fn from(mut self, at: Duration) -> Self {
        self.from = at;
        self
    }

    /// Restricts the rule to requests that start before this time.
    #[must_use]
    pub fn until(mut self, at: Duration) -> Self {
        self.until = at;
        self
    }

    /// Restricts the rule to requests of this kind.
    #[must_use]
    pub fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Leaves out this number of requests that the rule would affect.
    #[must_use]
    pub fn skip(mut self, requests: u64) -> Self {
        self.skip = requests;
        self
    }

    /// Restricts the rule to this number of requests.
    #[must_use]
    pub fn times(mut self, requests: u64) -> Self {
        self.times = requests;
        self
    }

    fn is_on(&self, now: Duration) -> bool {
        self.from <= now && now < self.until
    }

    /// The fault if the rule applies to this request, which is counted.
    fn apply(&mut self, op: Op, now: Duration) -> Option<Fault> {
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

    /// Whether the rule stands for an API server that cannot be reached, so that watches are silent as well.
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
    /// Logs a request. Returns its index in the log, and the fault that it meets.
    pub(super) fn start(&mut self, op: Op, now: Duration) -> (usize, Option<Fault>) {
        let outcome = None;
        self.calls.push(Call { op, at: now, outcome });
        let fault = self.rules.iter_mut().find_map(|rule| rule.apply(op, now));
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

    /// Until when watches are silent: `Duration::MAX` for ever, `None` if they work.
    pub(super) fn silent_until(&self, now: Duration) -> Option<Duration> {
        let mut silencing = self
            .rules
            .iter()
            .filter(|rule| rule.silences() && rule.is_on(now));
        silencing.next().map(|rule| rule.until)
    }
}
