//! `sh`: one command a line, typed or piped, or one command after `-c`.

use super::line::words;
use super::streams::{Input, Streams};
use super::{Ended, Session, State, base, program};
use std::sync::Arc;

/// Whether a program is a shell.
pub(crate) fn is_shell(name: &str) -> bool {
    base(name).is_some_and(|base| matches!(base, "sh" | "bash" | "ash" | "dash"))
}

/// With `-c` runs one command, else those that are read.
pub(super) async fn run(
    session: &Session,
    state: &mut State,
    arguments: &[String],
    streams: &Streams,
) -> Ended {
    let mut rest = arguments;
    while let Some((option, after)) = rest
        .split_first()
        .filter(|(option, _)| option.starts_with(['-', '+']))
    {
        rest = after;
        if option == "--" || option == "-" {
            break;
        }
        if option.contains('c') {
            let Some(command) = rest.first() else {
                return refuse(streams, "-c requires an argument").await;
            };
            return match words(command) {
                Ok(words) => program(session, state, &words, streams).await,
                Err(refused) => refuse(streams, &refused.to_string()).await,
            };
        }
    }
    match rest.first() {
        Some(file) => refuse(streams, &format!("{file}: scripts in files are not simulated")).await,
        None => read_and_run(session, state, streams).await,
    }
}

async fn refuse(streams: &Streams, message: &str) -> Ended {
    streams.complain(&format!("sh: {message}")).await;
    // The exit code of shells for what they cannot parse.
    Ok(2)
}

/// Reads commands and runs them; with a terminal it asks for them, and goes on after those that it refuses.
async fn read_and_run(session: &Session, state: &mut State, streams: &Streams) -> Ended {
    let tty = match (&streams.input, &session.tty) {
        (Input::Typed(input), Some(tty)) if Arc::ptr_eq(input, tty) => Some(tty.clone()),
        _ => None,
    };
    let interrupted = async || match &tty {
        Some(tty) => tty.interrupted().await,
        None => std::future::pending().await,
    };
    loop {
        if tty.is_some() {
            let prompt = format!("{} # ", state.directory);
            streams.errors.write(prompt.as_bytes()).await?;
        }
        let line = tokio::select! {
            line = streams.input.read_line() => line?,
            () = interrupted() => {
                state.status = 130;
                continue;
            }
        };
        if line.is_empty() {
            if tty.is_some() {
                streams.errors.write(b"\n").await?;
            }
            return Ok(state.status);
        }
        session.step().await;
        state.status = match words(&String::from_utf8_lossy(&line)) {
            // An empty line leaves the status of the command before it.
            Ok(words) if words.is_empty() => continue,
            Ok(words) => tokio::select! {
                ended = program(session, state, &words, streams) => ended?,
                () = interrupted() => 130,
            },
            Err(refused) => {
                let code = refuse(streams, &refused.to_string()).await?;
                if tty.is_none() {
                    return Ok(code);
                }
                code
            }
        };
    }
}
