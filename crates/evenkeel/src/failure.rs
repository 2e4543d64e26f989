//! How a command says that it failed: one line, and an exit code.

use std::{error::Error, io::Write as _, process::ExitCode};

/// Exit code of usage and configuration errors: nothing was started, the caller can mend it.
const USAGE: u8 = 2;
/// Exit code of everything that failed later.
const LATER: u8 = 1;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    line: String,
}

impl Failure {
    /// A failure with a cause, told as a chain.
    pub(crate) fn new(code: u8, error: &(dyn Error + 'static)) -> Self {
        Self {
            code,
            line: chain(error),
        }
    }

    /// Something that failed after the start.
    pub(crate) fn later(error: &(dyn Error + 'static)) -> Self {
        Self::new(LATER, error)
    }

    /// Something the caller can mend.
    pub(crate) fn usage(line: String) -> Self {
        Self {
            code: USAGE,
            line: one_line(&line),
        }
    }

    /// Prints the line to standard error and gives the code.
    pub(crate) fn report(self) -> ExitCode {
        // Nobody is left to hear that standard error is closed.
        let _ = writeln!(std::io::stderr(), "evenkeel: {}", self.line);
        ExitCode::from(self.code)
    }
}

/// The message of an error and of its sources, each once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    one_line(&line)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read\n{0}")]
    struct Outer(&'static str, #[source] std::io::Error);

    #[test]
    fn a_failure_is_one_line_that_names_every_cause_once() {
        let cause = std::io::Error::other("it is\tgone");
        assert_eq!(
            Failure::later(&Outer("FILE", cause)).line,
            "cannot read FILE: it is gone"
        );
        let cause = std::io::Error::other("FILE");
        assert_eq!(Failure::later(&Outer("FILE", cause)).line, "cannot read FILE");
    }
}
