//! Why a runner cannot start.

use super::program::ProgramError;
use crate::core::ConfigError;
use evenkeel_net::client::ClientError;
use std::io;
use std::net::SocketAddr;

/// Why a runner cannot start. None is worth a retry, but [`ElectError::System`].
#[derive(Debug, thiserror::Error)]
pub enum ElectError {
    /// The command is not there, or cannot be run.
    #[error(transparent)]
    Command(#[from] ProgramError),
    /// There is no way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Timing or identity cannot work.
    #[error("{flag}: {source}")]
    Config {
        /// The flags to look at.
        flag: &'static str,
        /// In client-go's words.
        #[source]
        source: ConfigError,
    },
    /// The lease cannot be named so.
    #[error("--lease: {0}")]
    Lease(String),
    /// The address cannot be listened on.
    #[error("--listen {address}: {source}")]
    Listen {
        /// As it was given.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system gives us no signals, or no orphans.
    #[error("cannot watch over signals and processes")]
    System(#[source] io::Error),
}

impl ElectError {
    /// 126 and 127 as a shell's, 2 for what the caller can mend, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command(error) => error.exit_code(),
            Self::Client(_) | Self::Config { .. } | Self::Lease(_) | Self::Listen { .. } => 2,
            Self::System(_) => 1,
        }
    }
}
