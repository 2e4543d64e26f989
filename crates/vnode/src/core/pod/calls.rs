//! What is requested about a pod as a whole: one thing at a time.

use std::time::Duration;

/// A request about the pod as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Adopt,
    Create,
    Update,
    Delete,
    Remove,
}

/// The request that is under way, or the pause before the next one. `tries` counts failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// None is under way; none is made before `due`, on the clock that does not jump.
    Idle { tries: u8, due: Duration },
    /// An answer is outstanding.
    UnderWay { call: Call, tries: u8 },
}

impl Default for Calls {
    fn default() -> Self {
        Self::Idle {
            tries: 0,
            due: Duration::ZERO,
        }
    }
}

impl Calls {
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Idle { .. })
    }

    pub(super) fn is_under_way(self, wanted: Call) -> bool {
        matches!(self, Self::UnderWay { call, .. } if call == wanted)
    }

    /// When the next request may be made; `None` while one is under way.
    pub(super) fn due(self) -> Option<Duration> {
        match self {
            Self::Idle { due, .. } => Some(due),
            Self::UnderWay { .. } => None,
        }
    }

    /// Whether a request may be made.
    pub(super) fn is_ready(self, now: Duration) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    pub(super) fn tries(self) -> u8 {
        match self {
            Self::Idle { tries, .. } | Self::UnderWay { tries, .. } => tries,
        }
    }

    pub(super) fn begin(&mut self, call: Call) {
        let tries = self.tries();
        *self = Self::UnderWay { call, tries };
    }

    /// An answer came. Returns whether this request was under way; it is not any more.
    pub(super) fn answer(&mut self, call: Call) -> bool {
        let awaited = self.is_under_way(call);
        if awaited {
            *self = Self::Idle {
                tries: self.tries(),
                due: Duration::ZERO,
            };
        }
        awaited
    }

    /// The last request has succeeded.
    pub(super) fn succeed(&mut self) {
        match self {
            Self::Idle { tries, .. } | Self::UnderWay { tries, .. } => *tries = 0,
        }
    }

    /// The last request has failed; the next one is made at `due`.
    pub(super) fn fail(&mut self, due: Duration) {
        *self = Self::Idle {
            tries: self.tries().saturating_add(1),
            due,
        };
    }

    /// What was put off for one request is not put off for others. One that is under way stays so.
    pub(super) fn begin_anew(&mut self) {
        match self {
            Self::Idle { .. } => *self = Self::default(),
            Self::UnderWay { tries, .. } => *tries = 0,
        }
    }
}
