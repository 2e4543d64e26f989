//! How a command says that it failed: one line, and an exit code. A manifest has a line for each thing to
//! mend.

use crate::log::causes;
use clap::error::ErrorKind;
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of usage and configuration errors: nothing was started, the caller can mend it.
const USAGE: u8 = 2;
/// Exit code of everything that failed later.
const LATER: u8 = 1;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    lines: Vec<String>,
}

impl Failure {
    /// A failure with a cause, told as a chain.
    pub fn new(code: u8, error: &(dyn Error + 'static)) -> Self {
        Self {
            code,
            lines: vec![one_line(&causes(error))],
        }
    }

    /// Something that failed after the start.
    pub fn later(error: &(dyn Error + 'static)) -> Self {
        Self::new(LATER, error)
    }

    /// Something the caller can mend.
    pub fn usage(line: String) -> Self {
        Self {
            code: USAGE,
            lines: vec![one_line(&line)],
        }
    }

    /// Several things that the caller can mend, or one.
    pub fn of_lines(code: u8, lines: &[String]) -> Self {
        Self {
            code,
            lines: lines.iter().map(|line| one_line(line)).collect(),
        }
    }

    /// What clap says, in one line; help and versions are printed as clap does, and end the process.
    pub fn of_usage<T>(parsed: Result<T, clap::Error>) -> Result<T, Self> {
        parsed.map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayVersion => error.exit(),
            _ => Self::usage(without_usage(&error.to_string())),
        })
    }

    /// Prints the lines to standard error, each after the name of the program, and returns the exit code.
    pub fn report(self, program: &str) -> ExitCode {
        for line in &self.lines {
            // Nobody is left to hear that standard error is closed.
            let _ = writeln!(std::io::stderr(), "{program}: {line}");
        }
        ExitCode::from(self.code)
    }
}

/// clap's message and its tips, without the usage.
fn without_usage(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let parts = text.split("\n\n").map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.starts_with("Usage: ")).collect();
    parts.join("; ")
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
            Failure::later(&Outer("FILE", cause)).lines,
            ["cannot read FILE: it is gone"]
        );
        let cause = std::io::Error::other("FILE");
        assert_eq!(Failure::later(&Outer("FILE", cause)).lines, ["cannot read FILE"]);
    }

    #[test]
    fn what_clap_says_becomes_one_line() {
        let text = "error: unexpected argument '--leese' found\n\n  tip: a similar argument exists: '--lease'\n\n\
                    Usage: evenkeel elect\n\nFor more information, try '--help'.\n";
        assert_eq!(
            Failure::usage(without_usage(text)).lines,
            [
                "unexpected argument '--leese' found; tip: a similar argument exists: '--lease'; \
             For more information, try '--help'."
            ]
        );
    }
}
