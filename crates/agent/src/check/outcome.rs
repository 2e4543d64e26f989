//! What a check found out.

use std::io;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something answered at the address.
    Alive {
        /// Whether it proved to be the node that was meant. Without that, the answer is no vote for anything.
        identity: bool,
    },
    /// No usable answer.
    Failed(Failure),
    /// Another machine answers at this address: it has a certificate, but not the pinned one. No vote, but
    /// worth telling: the address was reused, or the kubelet has a new certificate that is not published yet.
    WrongIdentity {
        /// The pin, SHA-256 in hex.
        expected: String,
        /// SHA-256 of the certificate shown, in hex.
        presented: String,
    },
}

impl Outcome {
    /// Whether the node itself was heard: it has proved its identity, even if its HTTP server then kept
    /// silent.
    pub fn proves_life(&self) -> bool {
        matches!(
            self,
            Self::Alive { identity: true } | Self::Failed(Failure::NoStatus(_))
        )
    }

    /// Whether somebody is there: something accepted, refused, hung up, spoke nonsense or showed another
    /// certificate.
    pub fn answers(&self) -> bool {
        !matches!(
            self,
            Self::Failed(
                Failure::Timeout | Failure::Unreachable(_) | Failure::Command(_) | Failure::Local(_)
            )
        )
    }

    /// Whether it is a failure of ours, which says nothing of the suspect.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Failed(Failure::Local(_)))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Alive { identity: true } => f.write_str("alive"),
            Self::Alive { identity: false } => f.write_str("something answers, identity unknown"),
            Self::Failed(failure) => failure.fmt(f),
            Self::WrongIdentity { expected, presented } => {
                write!(f, "certificate {presented} instead of the pinned {expected}")
            }
        }
    }
}

/// Why a check has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing within the time that the caller gave, before any identity was proved.
    #[error("no answer in time")]
    Timeout,
    /// The machine is up as far as its network stack goes, but nothing listens.
    #[error("connection refused")]
    Refused,
    /// The node's own command says that the machine is not there.
    #[error("the command ended with exit code {0}")]
    Command(i32),
    /// The network says that it cannot get there.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The connection broke, or the peer speaks no TLS that we understand.
    #[error("{0}")]
    Broken(String),
    /// The pinned kubelet completed its handshake, which proves that the node lives, but then gave no HTTP
    /// status.
    #[error("handshake as the pinned kubelet, then no HTTP status: {0}")]
    NoStatus(String),
    /// Nothing about the peer: the check could not be made here (no socket, no such source address).
    #[error("cannot probe from here: {0}")]
    Local(String),
}

impl Failure {
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::ConnectionRefused => Self::Refused,
            Kind::TimedOut => Self::Timeout,
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => {
                Self::Unreachable(error.to_string())
            }
            Kind::AddrNotAvailable | Kind::AddrInUse | Kind::PermissionDenied | Kind::InvalidInput => {
                Self::Local(error.to_string())
            }
            _ => Self::Broken(error.to_string()),
        }
    }
}
