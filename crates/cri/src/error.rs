//! What can go wrong with a container runtime.

use evenkeel_net::log::causes;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::{Code, Status};

/// Why a runtime gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of a variant says what its fields are")]
pub enum Error {
    /// No such file. Not worth a retry, unless the runtime is being started.
    #[error(
        "{} does not exist: start the container runtime, or name its socket (containerd's is \
         /run/containerd/containerd.sock)", .socket.display()
    )]
    NoSocket { socket: PathBuf },
    /// The file is there, but nobody listens. Worth a retry when the runtime has been restarted.
    #[error("nobody listens on {}: is the container runtime running, and is this its socket?", .socket.display())]
    Refused { socket: PathBuf },
    /// Not allowed to connect. Not worth a retry.
    #[error("no permission to connect to {}: run as root, or as a member of the socket's group", .socket.display())]
    Denied { socket: PathBuf },
    /// The other side does not serve this interface. Not worth a retry.
    #[error(
        "{} does not serve {method} of CRI v1: name the socket of a container runtime; containerd must have its \
         plugin \"cri\" enabled", .socket.display()
    )]
    Unimplemented {
        socket: PathBuf,
        /// What was called.
        method: &'static str,
    },
    /// No answer in time. Worth a retry.
    #[error("no answer to {method} from {} within {:?}: is the container runtime overloaded?", .socket.display(), *.after)]
    Silent {
        socket: PathBuf,
        /// What was called.
        method: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke, or what came back is no answer. Worth a retry if it worked before.
    #[error("{method} by way of {} failed: {why}; is this the socket of a container runtime?", .socket.display())]
    Broken {
        socket: PathBuf,
        /// What was called.
        method: &'static str,
        why: String,
    },
    /// The runtime's own answer is an error.
    #[error("the container runtime at {} failed {method} ({code:?}): {message}", .socket.display())]
    Runtime {
        socket: PathBuf,
        /// What was called.
        method: &'static str,
        code: Code,
        /// The runtime's message.
        message: String,
    },
    /// The answer cannot be true. Not worth a retry.
    #[error("the container runtime at {} gave an answer to {method} that cannot be true: {why}", .socket.display())]
    Malformed {
        socket: PathBuf,
        /// What was called.
        method: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A command for a container without an ID: it has not been created yet.
    #[error("the container has no ID yet: it must be created before a command can run in it")]
    NoId,
}

impl Error {
    /// Whether time was over, by our clock or by the runtime's: for `ExecSync` the end of a command that took
    /// too long.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::Silent { .. }
                | Self::Runtime {
                    code: Code::DeadlineExceeded,
                    ..
                }
        )
    }

    /// Whether the runtime does not know the object that it was asked about.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::Runtime {
                code: Code::NotFound,
                ..
            }
        )
    }

    pub(super) fn of_call(socket: &Path, method: &'static str, status: Status) -> Self {
        let socket = socket.to_path_buf();
        let Some(source) = std::error::Error::source(&status) else {
            return match status.code() {
                Code::Unimplemented => Self::Unimplemented { socket, method },
                code => Self::Runtime {
                    socket,
                    method,
                    code,
                    message: status.message().to_owned(),
                },
            };
        };
        let mut cause = Some(source);
        while let Some(error) = cause {
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::NotFound) => return Self::NoSocket { socket },
                Some(io::ErrorKind::ConnectionRefused) => return Self::Refused { socket },
                Some(io::ErrorKind::PermissionDenied) => return Self::Denied { socket },
                _ => cause = error.source(),
            }
        }
        Self::Broken {
            socket,
            method,
            why: causes(source),
        }
    }
}
