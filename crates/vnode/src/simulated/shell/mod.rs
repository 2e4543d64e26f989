//! A tiny shell for containers that have none: enough of a POSIX shell, and of the programs that people type, to show what
//! `kubectl exec`, `cp`, `attach` and `debug` do.
//!
//! | module | what it holds |
//! |---|---|
//! | [`syntax`], [`parse`] | text becomes a script; pure |
//! | [`expand`] | words become arguments |
//! | [`eval`] | a script is run |
//! | [`commands`] | the programs |
//! | [`streams`], [`tty`] | where input comes from and output goes; a terminal's line discipline |
//!
//! Everything is bounded: scripts by length and depth, loops by yielding (dropping the future ends them), output by who
//! reads it, files by the pod's quota.

pub mod commands;
pub mod eval;
pub mod expand;
pub mod parse;
pub mod streams;
pub mod syntax;
pub mod tty;

pub use eval::{Session, State, World};
pub use streams::{Input, Output, Streams};
pub use tty::Tty;

/// Runs a command as a container runtime does, without a shell around it; returns its exit code.
pub async fn run(session: &Session, mut state: State, command: &[String], streams: Streams) -> i32 {
    if command.is_empty() {
        streams.complain("no command").await;
        return 126;
    }
    let ended = eval::program(session, &mut state, command, &streams).await;
    match ended {
        Ok(code) => code & 0xff,
        Err(flow) => flow.code(),
    }
}

#[cfg(test)]
mod tests;
