//! The state of a candidate as it is published, and why terms and candidates end.

use jiff::Timestamp;
use std::fmt;
use std::time::Duration;

/// Names a term of leadership, and can be stamped on writes. Among the tokens of one Lease object, that of a
/// later leader is greater.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    /// UID of the lock object.
    pub lease_uid: String,
    /// `leaseTransitions` of the lock when it was taken.
    pub transitions: i32,
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lease_uid, self.transitions)
    }
}

/// One term, as it is recorded in the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The fencing token of the term.
    pub token: FencingToken,
    /// `acquireTime` of the lock. Without one, the term cannot be distinguished from others.
    pub acquired: Option<Timestamp>,
}

/// The state of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Somebody else leads, or no leader is known.
    Following {
        /// The holder of the lock, if there is one.
        leader: Option<String>,
    },
    /// This candidate leads in a new term.
    Leading {
        /// The fencing token of the term.
        token: FencingToken,
        /// Until when leadership is proven, on the clock of [`Now::at`](super::Now::at), at the time of this
        /// change. Renewals extend it. `Duration::MAX` under [`Compat::ClientGo`](super::Compat::ClientGo).
        valid_until: Duration,
    },
    /// Leadership of this term cannot be proven any more, but may be recovered. Work may stay, writes are
    /// refused.
    Lost {
        /// The fencing token of the term.
        token: FencingToken,
        /// Why leadership was lost.
        loss: Loss,
    },
    /// The term goes on, because nobody else held the lock in the meantime. So the token is the same.
    Recovered {
        /// The fencing token of the term.
        token: FencingToken,
        /// Until when leadership is proven, as with [`State::Leading`].
        valid_until: Duration,
    },
    /// The candidate has ended.
    Stopped {
        /// Why it has ended.
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

    /// Whether both states differ at most in `valid_until`.
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
    /// No renewal succeeded within the renew deadline.
    Deadline,
    /// The lock names another holder.
    OtherHolder(String),
    /// The lock names no holder any more: somebody else released it.
    Blanked,
    /// The lock object was deleted, or was replaced by another one.
    Deleted,
    /// The lock names this candidate in another term than its own, so it was assigned again. The work of the
    /// old term ends before a new one begins.
    Reassigned,
    /// A coordinated election prefers another candidate.
    EndOfTerm(String),
    /// This candidate was told to stop or to hand over.
    Cancelled,
    /// Another process renews the lock under the same identity.
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
    /// It was told to stop.
    Cancelled {
        /// Whether the guarded work ended within the lease duration. If not, the lock was not released and
        /// expires.
        drained: bool,
    },
    /// Leadership was lost, and [`OnLoss`](super::OnLoss) says to end then.
    Lost(Loss),
    /// The recovery deadline passed.
    RecoveryDeadline,
    /// Another candidate runs under the same identity. Give each candidate its own.
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
