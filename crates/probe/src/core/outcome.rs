//! What one attempt found, and what is published after thresholds.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What is published about a container, once thresholds are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading {
    /// As it should be.
    Success,
    /// Not as it should be.
    Failure,
    /// Nobody knows: no result yet (startup), or only errors (strict mode).
    Unknown,
}

impl Reading {
    /// As a metric: 0, 1 and -1 (upstream's `ToPrometheusType`).
    pub fn gauge(self) -> i64 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Unknown => -1,
        }
    }
}

/// As upstream writes it: `Success`, `Failure`, `UNKNOWN`.
impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "Success",
            Self::Failure => "Failure",
            Self::Unknown => "UNKNOWN",
        })
    }
}

/// What a handler says of one attempt. Upstream's four results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It works.
    Success,
    /// It works, but somebody should look at it. Counts as a success.
    Warning,
    /// It does not work.
    Failure,
    /// The attempt says nothing.
    Unknown,
}

/// One attempt's end: upstream's triple of result, output and error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was found.
    pub verdict: Verdict,
    /// What the other side said, or why it failed; at most [`Outcome::OUTPUT`] bytes.
    pub output: String,
    /// Why there is no result that could count. Repeated at once, then discarded, whatever the verdict.
    pub error: Option<String>,
}

impl Outcome {
    /// Most that is kept of an answer, in bytes (upstream's `maxRespBodyLength` and `maxReadLength`).
    pub const OUTPUT: usize = 10 << 10;

    /// It works.
    pub fn success(output: impl Into<String>) -> Self {
        Self::plain(Verdict::Success, output)
    }

    /// It works, but.
    pub fn warning(output: impl Into<String>) -> Self {
        Self::plain(Verdict::Warning, output)
    }

    /// It does not work.
    pub fn failure(output: impl Into<String>) -> Self {
        Self::plain(Verdict::Failure, output)
    }

    /// The attempt itself went wrong.
    pub fn error(verdict: Verdict, error: impl Into<String>) -> Self {
        Self {
            verdict,
            output: String::new(),
            error: Some(error.into()),
        }
    }

    fn plain(verdict: Verdict, output: impl Into<String>) -> Self {
        Self {
            verdict,
            output: output.into(),
            error: None,
        }
    }
}

#[cfg(test)]
mod tests;
