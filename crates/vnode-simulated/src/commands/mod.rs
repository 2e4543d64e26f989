//! The programs of simulated containers: those that people type, and that `kubectl exec`, `cp`, `attach` and
//! `debug` need.
//!
//! A command is one program with its arguments. [`shell`] runs one such command a line, and no scripts:
//! whoever needs a real shell runs a real container. That keeps what a container can do bounded without
//! limits on loops, nesting and variables: a command takes time only to wait, or to copy what a reader takes.

mod archive;
mod files;
mod line;
mod shell;
pub(crate) mod streams;
mod system;
mod text;
mod tty;

#[cfg(test)]
mod tests;

pub(crate) use shell::is_shell;
pub(crate) use streams::{Input, Output, Streams};
pub(crate) use tty::Tty;

use crate::fs::{Trouble, View, absolute};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// All programs but the shell, for `which`.
const NAMES: [&str; 35] = [
    "[", "cat", "cd", "chmod", "cp", "date", "echo", "env", "exit", "false", "grep", "head", "hostname",
    "id", "kill", "ls", "mkdir", "mv", "printenv", "ps", "pwd", "rm", "rmdir", "sleep", "stty", "tail",
    "tar", "tee", "test", "touch", "true", "uname", "wc", "which", "whoami",
];

/// What a command asks of the container around it.
pub(crate) trait World: Send + Sync {
    /// Sends a signal to the main process.
    fn signal(&self, signal: i32);
    /// The main process' command line.
    fn main(&self) -> String;
}

/// What all commands of one session share.
pub(crate) struct Session {
    pub(crate) view: View,
    pub(crate) world: Arc<dyn World>,
    /// The terminal, where there is one.
    pub(crate) tty: Option<Arc<Tty>>,
    /// Number of the session's own process.
    pub(crate) process: u32,
    /// Commands and pieces of data so far.
    pub(crate) steps: AtomicU64,
}

impl Session {
    /// Lets others run now and then. Whoever goes on for long is slowed down, so that a hundred clients that
    /// copy without end harm nobody.
    async fn step(&self) {
        let before = self.steps.fetch_add(1, Ordering::Relaxed);
        if before >= 20_000 && before.is_multiple_of(100) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else if before.is_multiple_of(16) {
            tokio::task::yield_now().await;
        }
    }
}

/// What a command starts with, and what commands of one shell hand on.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    environment: BTreeMap<String, String>,
    directory: String,
    /// How the last command ended.
    status: i32,
}

impl State {
    /// A working directory and an environment, in which later values win.
    pub(crate) fn new(directory: &str, environment: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            environment: environment.into_iter().collect(),
            directory: directory.to_owned(),
            status: 0,
        }
    }
}

/// Why a command has no exit code of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stop {
    /// `exit`: the shell ends too.
    Exit(i32),
    /// Nobody reads the output any more.
    Closed,
    /// The program gives up, and says this.
    Failed(String),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::Other => Self::Failed(format!("write error: {error}")),
            _ => Self::Closed,
        }
    }
}

type Ended = Result<i32, Stop>;

/// Runs a command as a container runtime does, without a shell around it; returns its exit code.
pub(crate) async fn run(session: &Session, mut state: State, command: &[String], streams: Streams) -> i32 {
    let ended = match command.split_first() {
        Some((name, arguments)) if is_shell(name) => {
            shell::run(session, &mut state, arguments, &streams).await
        }
        Some(_) => program(session, &mut state, command, &streams).await,
        None => {
            streams.complain("no command").await;
            return 126;
        }
    };
    match ended {
        Ok(code) | Err(Stop::Exit(code)) => code & 0xff,
        // As a process that is ended by SIGPIPE.
        Err(Stop::Closed) => 141,
        Err(Stop::Failed(message)) => {
            streams.complain(&format!("sh: {message}")).await;
            2
        }
    }
}

/// Runs one program. Shells are none here: one that reads commands could else be asked to begin another with
/// each line.
async fn program(session: &Session, state: &mut State, command: &[String], streams: &Streams) -> Ended {
    let Some((name, arguments)) = command.split_first() else {
        return Ok(0);
    };
    if is_shell(name) {
        let message = format!("{name}: a shell within a shell is not simulated");
        streams.complain(&format!("sh: {message}")).await;
        return Ok(126);
    }
    let Some(base) = base(name) else {
        return no_program(session, state, name, streams).await;
    };
    let call = Call {
        session,
        state,
        name: base,
        arguments,
        streams,
    };
    match call.run().await {
        Some(Err(Stop::Failed(message))) => {
            streams.complain(&format!("{base}: {message}")).await;
            Ok(1)
        }
        Some(ended) => ended,
        None => {
            streams.complain(&format!("sh: {name}: not found")).await;
            Ok(127)
        }
    }
}

/// A program's name without its directory; `None` where the directory has no programs.
fn base(name: &str) -> Option<&str> {
    match name.rsplit_once('/') {
        Some(("/bin" | "/usr/bin" | "/sbin" | "/usr/sbin" | "/usr/local/bin", base)) => Some(base),
        Some(_) => None,
        None => Some(name),
    }
}

/// Says why a file that is named as a program cannot be run.
async fn no_program(session: &Session, state: &State, name: &str, streams: &Streams) -> Ended {
    let path = absolute(&state.directory, name);
    let (why, code) = match session.view.stat(&path).await {
        Err(trouble) => (trouble.to_string(), 127),
        Ok(meta) if meta.folder || meta.mode & 0o111 == 0 => ("Permission denied".to_owned(), 126),
        Ok(_) => ("programs in files are not simulated".to_owned(), 126),
    };
    streams.complain(&format!("sh: {name}: {why}")).await;
    Ok(code)
}

/// What a program has to do with.
struct Call<'a> {
    session: &'a Session,
    state: &'a mut State,
    name: &'a str,
    arguments: &'a [String],
    streams: &'a Streams,
}

impl Call<'_> {
    /// Runs the program; `None` if there is none of this name.
    async fn run(mut self) -> Option<Ended> {
        Some(match self.name {
            "true" => Ok(0),
            "false" => Ok(1),
            "exit" => match self.arguments.first().map(|code| code.parse::<i32>()) {
                None => Err(Stop::Exit(self.state.status)),
                Some(Ok(code)) => Err(Stop::Exit(code)),
                Some(Err(_)) => Err(Stop::Exit(2)),
            },
            "which" => self.which().await,
            "echo" => self.echo().await,
            "cat" => self.cat().await,
            "head" => self.head().await,
            "tail" => self.tail().await,
            "wc" => self.wc().await,
            "grep" => self.grep().await,
            "tee" => self.tee().await,
            "cd" => self.cd().await,
            "pwd" => self.line(&self.state.directory).await,
            "ls" => self.ls().await,
            "mkdir" => self.mkdir().await,
            "rm" | "rmdir" => self.rm().await,
            "touch" => self.touch().await,
            "cp" | "mv" => self.cp().await,
            "chmod" => self.chmod().await,
            "test" | "[" => self.test().await,
            "tar" => self.tar().await,
            "date" => self.date().await,
            "hostname" => self.line(&self.session.view.hostname).await,
            "whoami" => self.line("root").await,
            "id" => self.id().await,
            "uname" => self.uname().await,
            "ps" => self.ps().await,
            "kill" => self.kill().await,
            "sleep" => self.sleep().await,
            "stty" => self.stty().await,
            "env" | "printenv" => self.env().await,
            _ => return None,
        })
    }

    fn path(&self, path: &str) -> String {
        absolute(&self.state.directory, path)
    }

    async fn print(&self, text: &str) -> Result<(), Stop> {
        Ok(self.streams.output.write(text.as_bytes()).await?)
    }

    async fn line(&self, text: &str) -> Ended {
        self.print(&format!("{text}\n")).await.map(|()| 0)
    }

    /// Says what is wrong; the exit code of whoever goes on nevertheless.
    async fn complain(&self, message: &str) -> i32 {
        self.streams.complain(&format!("{}: {message}", self.name)).await;
        1
    }

    async fn trouble(&self, path: &str, trouble: &Trouble) -> i32 {
        self.complain(&format!("{path}: {trouble}")).await
    }

    /// Single letters before the first operand, and the operands.
    fn options(&self, known: &str) -> Result<(String, Vec<String>), Stop> {
        let mut letters = String::new();
        let mut rest = self.arguments;
        while let Some((option, after)) = rest
            .split_first()
            .filter(|(o, _)| o.len() > 1 && o.starts_with('-'))
        {
            rest = after;
            if option == "--" {
                break;
            }
            for letter in option.chars().skip(1) {
                if !known.contains(letter) {
                    return Err(Stop::Failed(format!("unrecognized option: {letter}")));
                }
                letters.push(letter);
            }
        }
        Ok((letters, rest.to_vec()))
    }

    async fn which(&self) -> Ended {
        let names = self.arguments.iter().filter(|name| !name.starts_with('-'));
        let mut code = 0;
        for name in names {
            if NAMES.contains(&name.as_str()) || is_shell(name) {
                self.print(&format!("/bin/{name}\n")).await?;
            } else {
                code = 1;
            }
        }
        Ok(code)
    }
}
