//! What a candidate is, as others see it.

use jiff::Timestamp;
use std::fmt;
use std::time::Duration;

/// Proof of leadership that can be stamped on writes. Of one Lease object, a later leader's is greater.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    /// UID of the lock object.
    pub lease_uid: String,
    /// `leaseTransitions` when it was taken.
    pub transitions: i32,
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lease_uid, self.transitions)
    }
}

/// One term, as the lock has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// Its stamp.
    pub token: FencingToken,
    /// `acquireTime`; a term without one is not told from others.
    pub acquired: Option<Timestamp>,
}

/// What a candidate is at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Somebody else leads, or nobody known.
    Following {
        /// Holder of the lock, if there is one.
        leader: Option<String>,
    },
    /// This candidate leads: a new term.
    Leading {
        /// Stamp for writes.
        token: FencingToken,
        /// Up to when this is proven, on the clock of [`Now::at`](super::Now::at), as of the change to this state.
        /// Renewals move it on. `Duration::MAX` under [`Compat::ClientGo`](super::Compat::ClientGo).
        valid_until: Duration,
    },
    /// Leadership of this term cannot be proven any more; it may yet be recovered. Work stays, writes are refused.
    Lost {
        /// The token of the term.
        token: FencingToken,
        /// Why.
        loss: Loss,
    },
    /// The term goes on: nobody else held the lock in the meantime, so the token is the same.
    Recovered {
        /// Stamp for writes.
        token: FencingToken,
        /// As with [`State::Leading`].
        valid_until: Duration,
    },
    /// Ended; not running any more.
    Stopped {
        /// Why.
        reason: StopReason,
    },
}

impl State {
    /// The token, while this candidate leads.
    pub fn token(&self) -> Option<&FencingToken> {
        match self {
            Self::Leading { token, .. } | Self::Recovered { token, .. } => Some(token),
            Self::Following { .. } | Self::Lost { .. } | Self::Stopped { .. } => None,
        }
    }

    /// Whether this candidate leads.
    pub fn leads(&self) -> bool {
        self.token().is_some()
    }

    /// Whether both are the same but for how long they are proven.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leading { token: a, .. }, Self::Leading { token: b, .. })
            | (Self::Recovered { token: a, .. }, Self::Recovered { token: b, .. }) => a == b,
            _ => self == other,
        }
    }
}

/// Why leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// No renewal succeeded in time.
    Deadline,
    /// Another holder stands in the lock.
    OtherHolder(String),
    /// The record names no holder any more: somebody released it for us.
    Blanked,
    /// The lock object is gone, or is another one.
    Deleted,
    /// The record names us in another term than ours: it was given to us anew. What the last term began ends first.
    Reassigned,
    /// A coordinated election prefers somebody else.
    EndOfTerm(String),
    /// We were told to stop.
    Cancelled,
    /// Somebody else renews under our identity.
    DuplicateIdentity,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("no renewal succeeded within the renew deadline"),
            Self::OtherHolder(holder) => write!(f, "`{holder}` holds the lease"),
            Self::Blanked => f.write_str("the lease was released by somebody else"),
            Self::Deleted => f.write_str("the lease was deleted"),
            Self::Reassigned => {
                f.write_str("the lease names this candidate in another term than the one it is in")
            }
            Self::EndOfTerm(preferred) => write!(f, "the coordinated election prefers `{preferred}`"),
            Self::Cancelled => f.write_str("told to stop"),
            Self::DuplicateIdentity => f.write_str("another candidate runs under the same identity"),
        }
    }
}

/// Why a candidate has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It was told to.
    Cancelled {
        /// Whether the guarded work had ended within the lease duration. If not, the lock was left to expire.
        drained: bool,
    },
    /// Leadership was lost, and [`OnLoss`](super::OnLoss) says to end then.
    Lost(Loss),
    /// The recovery deadline passed.
    RecoveryDeadline,
    /// Another candidate runs under the same identity. Give each its own.
    DuplicateIdentity,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled { drained: true } => f.write_str("told to stop"),
            Self::Cancelled { drained: false } => {
                f.write_str("told to stop; the guarded work did not end in time, the lease is left to expire")
            }
            Self::Lost(loss) => write!(f, "leadership lost: {loss}"),
            Self::RecoveryDeadline => {
                f.write_str("leadership lost and not recovered by the recovery deadline")
            }
            Self::DuplicateIdentity => {
                f.write_str("another candidate runs under the same identity; give each its own")
            }
        }
    }
}
