//! Why a command of this crate failed, and with which exit code.

use evenkeel_net::client::ClientError;
use std::fmt;
use std::io;

/// Why a command of this crate failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no API server to be found.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It cannot be done here. Nothing was changed.
    #[error("{0}; nothing was changed")]
    Refused(String),
    /// Something cannot be read. Nothing was changed.
    #[error("cannot read {what}: {why}")]
    Read {
        /// What it is.
        what: String,
        /// What the server said.
        why: String,
        /// Whoever asked may not read it.
        is_forbidden: bool,
    },
    /// The API server did not take a write. What was made before was removed, or stays, as the command says.
    #[error("cannot {what}: {why}")]
    Write {
        /// What was to be done.
        what: String,
        /// What the server said.
        why: String,
    },
    /// It failed after something had been changed. Repeating the command goes on.
    #[error("{0}; repeat `{1}`")]
    Midway(Box<InstallError>, &'static str),
    /// No key could be made.
    #[error("cannot make the key that signs rosters: {0}")]
    Key(String),
    /// The workloads do not run.
    #[error("{0}")]
    NotRunning(String),
    /// The command was told to stop.
    #[error("stopped: {0}")]
    Stopped(String),
    /// What was made could not be removed again after a failure.
    #[error("{failure}; and what was made before could not be removed ({left}): run `evenkeel uninstall`")]
    HalfInstalled {
        /// Why the command failed.
        failure: Box<InstallError>,
        /// What could not be removed.
        left: String,
    },
    /// After a failure everything that had been made was removed. Then what of an earlier command stays.
    #[error("{0}; what this command had made was removed again{1}")]
    Undone(Box<InstallError>, String),
    /// After a failure nothing was removed, because it is no longer this command's.
    #[error("{0}; another command has gone on with this installation meanwhile, so nothing was removed")]
    Overtaken(Box<InstallError>),
    /// Something is left on the cluster.
    #[error("{0}")]
    Left(String),
    /// Nobody reads the output.
    #[error("cannot print")]
    Output(#[source] io::Error),
}

impl InstallError {
    /// 2: nothing was changed, and the caller can mend it. 1: it failed later.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Client(_) | Self::Refused(_) | Self::Read { .. } => 2,
            _ => 1,
        }
    }

    pub(crate) fn reading(what: impl fmt::Display) -> impl Fn(kube::Error) -> Self {
        move |error| Self::Read {
            what: what.to_string(),
            why: said(&error),
            is_forbidden: is_forbidden(&error),
        }
    }

    pub(crate) fn writing(what: impl fmt::Display) -> impl Fn(kube::Error) -> Self {
        move |error| Self::Write {
            what: format!("write {what}"),
            why: said(&error),
        }
    }
}

/// What the server said, without the words around it.
pub(crate) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.split_whitespace().collect::<Vec<_>>().join(" "),
        other => evenkeel_net::log::causes(other),
    }
}

/// Whether the server refused for want of rights.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
