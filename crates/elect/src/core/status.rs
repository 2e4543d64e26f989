//! How a command has ended, in terms that runner and keeper exchange.

use serde::{Deserialize, Serialize};

/// How the main process of a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// It exited with this code.
    Code(i32),
    /// The signal with this number ended it.
    Signal(i32),
    /// It was not started, because its deadline had already passed.
    NotStarted,
}

impl Status {
    /// The exit code that a shell would report: the process's own, or 128 plus the signal's number.
    pub(crate) fn exit_code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::NotStarted => 0,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(signal) => write!(f, "signal {signal}"),
                Err(_) => write!(f, "signal {signal}"),
            },
            Self::NotStarted => f.write_str("not started"),
        }
    }
}

/// A keeper's last report, sent when no process of its command is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// How the main process has ended.
    pub(crate) status: Status,
    /// Whether the keeper had sent it a signal to end it before.
    pub(crate) stopped: bool,
}
