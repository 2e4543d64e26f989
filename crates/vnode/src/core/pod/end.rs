//! Whether and how a pod ends.

use evenkeel_probe::core::Phase;
use std::time::Duration;

/// Whether and how the pod ends. Times are on the clock that does not jump.
#[derive(Debug)]
pub(super) enum End {
    /// Not, as far as anybody knows.
    Open,
    /// Its containers are being ended since then: it is deleted, or has a fate.
    Ending {
        since: Duration,
        fate: Option<Box<Fate>>,
    },
    /// It has ended, which is final; with what doomed it, if anything did.
    Over {
        since: Duration,
        phase: Phase,
        fate: Option<Box<Fate>>,
    },
    /// It was over before this process came, and is left alone.
    LeftAlone(Phase),
}

/// How a pod is going to end, whatever its containers do.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) phase: Phase,
    pub(super) reason: String,
    pub(super) message: String,
}

impl End {
    /// How the pod has ended.
    pub(super) fn over(&self) -> Option<Phase> {
        match self {
            Self::Open | Self::Ending { .. } => None,
            Self::Over { phase, .. } | Self::LeftAlone(phase) => Some(*phase),
        }
    }

    /// What dooms or doomed the pod.
    pub(super) fn fate(&self) -> Option<&Fate> {
        match self {
            Self::Ending { fate, .. } | Self::Over { fate, .. } => fate.as_deref(),
            Self::Open | Self::LeftAlone(_) => None,
        }
    }

    /// Since when containers are being ended.
    pub(super) fn since(&self) -> Option<Duration> {
        match self {
            Self::Ending { since, .. } | Self::Over { since, .. } => Some(*since),
            Self::Open | Self::LeftAlone(_) => None,
        }
    }

    /// The pod ends, unless it does already. Returns whether that is new.
    pub(super) fn begin(&mut self, now: Duration) -> bool {
        let open = matches!(self, Self::Open);
        if open {
            *self = Self::Ending {
                since: now,
                fate: None,
            };
        }
        open
    }

    /// A pod that is ending has this fate, unless it has another already.
    pub(super) fn doom(&mut self, new: Fate) {
        if let Self::Ending { fate, .. } = self {
            fate.get_or_insert_with(|| Box::new(new));
        }
    }

    /// Somebody else has ended the pod like this.
    pub(super) fn overrule(&mut self, new: Fate) {
        match self {
            Self::Ending { fate, .. } => *fate = Some(Box::new(new)),
            Self::Over { phase, fate, .. } => (*phase, *fate) = (new.phase, Some(Box::new(new))),
            Self::Open | Self::LeftAlone(_) => {}
        }
    }

    /// Nothing of a pod that is ending runs any more.
    pub(super) fn conclude(&mut self, phase: Phase) {
        if let Self::Ending { since, fate } = self {
            let (since, fate) = (*since, fate.take());
            *self = Self::Over { since, phase, fate };
        }
    }
}
