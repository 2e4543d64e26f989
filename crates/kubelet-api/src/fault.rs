//! What failed, and what to make of it.

/// Why a provider did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What to make of it.
    pub kind: FaultKind,
    /// `ErrImagePull`, `RunContainerError` or the provider's own, in CamelCase: `waiting.reason`.
    pub reason: String,
    /// For people: what failed, where, what to do.
    pub message: String,
}

/// What to make of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It may work later: tried again with back-off.
    Later,
    /// It never will as it is: the container has failed; a pod that cannot be created waits, and is tried
    /// again every few seconds.
    Never,
    /// Likewise, and where the fleet's settings say that a pod that cannot run is to be Failed, it is,
    /// whatever its restart policy. Else it is as [`Later`](Self::Later).
    Fatal,
    /// There is no such pod or container.
    NotFound,
    /// The request itself is wrong (a bad command, a closed port).
    Invalid,
    /// The provider has no such ability.
    Unsupported,
}

impl Fault {
    /// A fault of a kind.
    pub fn new(kind: FaultKind, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}
