//! Errors at the start of a runner.

use crate::program::ProgramError;
use evenkeel_election::ConfigError;
use evenkeel_net::client::ClientError;
use std::io;
use std::net::SocketAddr;

/// Why a runner cannot start. Only after [`ElectError::System`] can a retry help.
#[derive(Debug, thiserror::Error)]
pub enum ElectError {
    /// The command is not found or is not executable.
    #[error(transparent)]
    Command(#[from] ProgramError),
    /// No client for the API server could be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The timing or the identity is invalid.
    #[error("{flag}: {source}")]
    Config {
        /// The flags to look at.
        flag: &'static str,
        /// The rule that is broken, in client-go's words.
        #[source]
        source: ConfigError,
    },
    /// The namespace or the name of the lease is invalid.
    #[error("--lease: {0}")]
    Lease(String),
    /// The runner cannot listen on the address of `--listen`.
    #[error("--listen {address}: {source}")]
    Listen {
        /// The address of `--listen`.
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// The system refuses to deliver signals to this process or to make it the parent of orphans.
    #[error("cannot watch over signals and processes")]
    System(#[source] io::Error),
}

impl ElectError {
    /// The exit code of a process that ends with this error: 126 and 127 as a shell's, 2 for what the caller
    /// can correct, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command(error) => error.exit_code(),
            Self::Client(_) | Self::Config { .. } | Self::Lease(_) | Self::Listen { .. } => 2,
            Self::System(_) => 1,
        }
    }
}
