//! How a command has ended.

use serde::{Deserialize, Serialize};

/// How the main process of a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It was not started: its time was over.
    NotStarted,
}

impl Status {
    /// As a shell puts it: the code, or 128 + the signal's number.
    pub fn exit_code(self) -> u8 {
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

/// What a keeper says of its command when none of its processes is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub status: Status,
    /// Whether it had been told to end before it did.
    pub stopped: bool,
}
