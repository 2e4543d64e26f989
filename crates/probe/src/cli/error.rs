//! How a command fails.

use evenkeel_kube_values::terminal::clean;
use std::fmt;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub struct CliError {
    code: u8,
    lines: Vec<String>,
}

impl CliError {
    /// Exit code: 2 for flags and manifests that the caller can mend, 1 for what went wrong later.
    pub fn exit_code(&self) -> u8 {
        self.code
    }

    /// What is wrong and what to do: one line for each thing, at least one.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Something that the caller can mend.
    pub(super) fn usage(line: impl Into<String>) -> Self {
        Self::all(vec![line.into()])
    }

    /// Several things that the caller can mend.
    pub(super) fn all(lines: Vec<String>) -> Self {
        Self::new(2, lines)
    }

    /// Something that went wrong later.
    pub(super) fn later(line: impl Into<String>) -> Self {
        Self::new(1, vec![line.into()])
    }

    /// Manifests and answers may hold anything; a terminal is to see none of it that it would obey.
    fn new(code: u8, lines: Vec<String>) -> Self {
        let lines = lines.iter().map(|line| clean(line)).collect();
        Self { code, lines }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for CliError {}
