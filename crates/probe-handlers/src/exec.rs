//! Commands: exit code 0 is a success.

mod expand;
mod local;

pub use expand::{MOST_EXPANDED, TooLong, expand, expand_with};
pub use local::Local;

use crate::wording;
use crate::{Go, Outcome, Target, Verdict};
use futures::future::BoxFuture;
use std::time::Duration;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It ended by itself.
    Exited {
        /// Exit code; 128 and the number of the signal that ended it.
        code: i32,
        /// Standard output, then standard error, cut at [`Outcome::OUTPUT`].
        output: Vec<u8>,
    },
    /// It was killed, all of its group, because its time was over.
    TimedOut {
        /// The text of a kubelet: `command timed out: …`.
        message: String,
    },
    /// It did not run, or nobody knows how it ended.
    Failed {
        /// The reason, for people.
        error: String,
    },
}

/// Runs commands: on this machine, or in a container.
pub trait Execute: Send + Sync + 'static {
    /// Runs `command` for the container, for `timeout` at most. Dropping the future ends the command.
    fn execute<'a>(
        &'a self,
        target: &'a Target,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Ran>;
}

/// What a command's end means to a probe: exit code 0 is a success, another one and a timeout are failures,
/// and what did not run says nothing. Output that is not UTF-8 is made so, within [`Outcome::OUTPUT`].
pub fn outcome(ran: Ran) -> Outcome {
    match ran {
        Ran::Exited { code: 0, output } => Outcome::success(text(&output)),
        Ran::Exited { output, .. } => Outcome::failure(text(&output)),
        Ran::TimedOut { message } => Outcome::failure(text(message.as_bytes())),
        Ran::Failed { error } => Outcome::error(Verdict::Unknown, error),
    }
}

/// The kubelet's result for a command whose time was over.
pub fn timed_out(command: &[String], timeout: Duration) -> Ran {
    Ran::TimedOut {
        message: format!(
            "command timed out: {} timed out after {}",
            wording::quote(command.join(" ").as_bytes()),
            Go(timeout)
        ),
    }
}

/// At most [`Outcome::OUTPUT`] bytes of text. What is not UTF-8 is replaced by U+FFFD, except for a character
/// that the cap has cut: that is left out.
fn text(bytes: &[u8]) -> String {
    let cut = bytes.len() >= Outcome::OUTPUT;
    let bytes = &bytes[..bytes.len().min(Outcome::OUTPUT)];
    let mut text = String::with_capacity(bytes.len());
    let mut read = 0;
    for chunk in bytes.utf8_chunks() {
        read += chunk.valid().len() + chunk.invalid().len();
        text.push_str(chunk.valid());
        let is_cut = cut && read == bytes.len();
        if !chunk.invalid().is_empty() && !is_cut {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        if text.len() >= Outcome::OUTPUT {
            break;
        }
    }
    wording::cut(&mut text, Outcome::OUTPUT);
    text
}

#[cfg(test)]
mod tests;
