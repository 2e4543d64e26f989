//! A script is run. Dropping the future ends it wherever it is.

use super::commands;
use super::expand::{fields, text};
use super::parse::{LONGEST, Wrong, parse};
use super::streams::{Input, Output, Streams};
use super::syntax::{Command, How, Item, Joint, Pipeline, Redirect, Script, What};
use super::tty::Tty;
use crate::simulated::fs::{View, absolute};
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Deepest nesting of subshells and shells within shells.
const DEPTH: u32 = 12;
/// Deepest nesting of commands and texts over all of these shells: what fits the stack of a thread, 2 MiB.
const NESTED: u32 = 80;
/// Most that variables take together, in bytes.
const VARIABLES: usize = 1 << 20;
/// What a variable takes beside its name and its value.
const VARIABLE: usize = 64;
/// Most commands of pipelines that run at a time.
const STAGES: u32 = 128;
/// Characters of a script that are read in the time of one command.
const READ: usize = 256;

/// What the shell asks of the container around it.
pub trait World: Send + Sync {
    /// A signal for the main process.
    fn signal(&self, signal: i32);
    /// The main process' command line.
    fn main(&self) -> String;
}

/// What all commands of one session share.
pub struct Session {
    /// Files.
    pub view: View,
    /// The container.
    pub world: Arc<dyn World>,
    /// The terminal, where there is one.
    pub tty: Option<Arc<Tty>>,
    /// The shell's own process.
    pub process: u32,
    /// Commands that were run so far.
    pub steps: AtomicU64,
    /// Commands of pipelines that run now.
    pub stages: AtomicU32,
}

/// Commands of a pipeline, counted for as long as they run.
struct Stages<'a>(&'a AtomicU32, u32);

impl Drop for Stages<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Session {
    /// Lets others run now and then; who loops for long is slowed down, so that a hundred of them harm nobody.
    pub(super) async fn step(&self) {
        self.steps(1).await;
    }

    /// Likewise, for work that takes as long as so many commands.
    pub(super) async fn steps(&self, count: usize) {
        let count = count as u64;
        let before = self.steps.fetch_add(count, Ordering::Relaxed);
        let after = before.saturating_add(count);
        let pauses = (after / 100).saturating_sub(before.max(20_000) / 100);
        if pauses > 0 {
            tokio::time::sleep(Duration::from_millis(pauses)).await;
        } else if after / 16 > before / 16 {
            tokio::task::yield_now().await;
        }
    }

    /// A place for the commands of a pipeline.
    fn stages(&self, count: usize) -> Result<Stages<'_>, Flow> {
        let count = u32::try_from(count).unwrap_or(STAGES);
        let before = self.stages.fetch_add(count, Ordering::Relaxed);
        let stages = Stages(&self.stages, count);
        if before.saturating_add(count) > STAGES {
            return Err(Flow::Failed(format!(
                "can't fork: more than {STAGES} commands of pipelines at a time"
            )));
        }
        Ok(stages)
    }
}

/// What a shell remembers.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Values, and whether programs see them.
    variables: BTreeMap<String, (String, bool)>,
    bytes: usize,
    /// Where it is.
    pub directory: String,
    /// How the last command ended.
    pub status: i32,
    /// `$1` and so on.
    pub arguments: Vec<String>,
    /// How deep it is in other shells.
    depth: u32,
    /// How deep it is in commands and texts.
    nested: u32,
}

/// Why a script goes on elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// `exit`.
    Exit(i32),
    /// `break`, so many loops.
    Break(u32),
    /// `continue`, likewise.
    Continue(u32),
    /// Nobody reads any more.
    Closed,
    /// A command with more arguments than there may be.
    TooLong,
    /// The shell itself gives up.
    Failed(String),
}

impl Flow {
    /// How a shell that it reaches ends.
    pub fn code(&self) -> i32 {
        match self {
            Self::Exit(code) => code & 0xff,
            Self::Break(_) | Self::Continue(_) => 0,
            Self::Closed => 141,
            Self::TooLong => 126,
            Self::Failed(_) => 2,
        }
    }
}

impl From<std::io::Error> for Flow {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::Other => Self::Failed(format!("write error: {error}")),
            _ => Self::Closed,
        }
    }
}

impl State {
    /// A shell in a folder with an environment.
    pub fn new(directory: &str, environment: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut state = Self {
            directory: directory.to_owned(),
            ..Self::default()
        };
        for (name, value) in environment {
            // An environment was bounded by the API server: what is left out never fitted.
            let _ = state.set(&name, value).and_then(|()| state.export(&name));
        }
        state
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|(value, _)| value.as_str())
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: String) -> Result<(), Flow> {
        self.take(name, value.len())?;
        self.variables.entry(name.to_owned()).or_default().0 = value;
        Ok(())
    }

    /// Counts a variable with a value of so many bytes; an error if all would take too much.
    fn take(&mut self, name: &str, value: usize) -> Result<(), Flow> {
        let bytes = self.bytes - self.taken(name) + VARIABLE + name.len() + value;
        if bytes > VARIABLES {
            return Err(Flow::Failed("variables hold too much".to_owned()));
        }
        self.bytes = bytes;
        Ok(())
    }

    /// What a variable takes.
    fn taken(&self, name: &str) -> usize {
        self.get(name)
            .map_or(0, |value| VARIABLE + name.len() + value.len())
    }

    /// Programs see the variable from now on.
    pub fn export(&mut self, name: &str) -> Result<(), Flow> {
        self.take(name, self.get(name).map_or(0, str::len))?;
        self.variables.entry(name.to_owned()).or_default().1 = true;
        Ok(())
    }

    /// Forgets a variable.
    pub fn unset(&mut self, name: &str) {
        self.bytes -= self.taken(name);
        self.variables.remove(name);
    }

    /// What programs see.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        let seen = self.variables.iter().filter(|(_, (_, exported))| *exported);
        seen.map(|(name, (value, _))| (name.as_str(), value.as_str()))
    }

    /// A variable's value, special ones included.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        match name {
            "?" => Some(self.status.to_string()),
            "#" => Some(self.arguments.len().saturating_sub(1).to_string()),
            "@" | "*" => Some(self.arguments.get(1..).unwrap_or_default().join(" ")),
            "!" => Some(String::new()),
            name if name.starts_with(|char: char| char.is_ascii_digit()) => {
                self.arguments.get(name.parse::<usize>().ok()?).cloned()
            }
            name => self.get(name).map(str::to_owned),
        }
    }

    /// Goes into a command or a text; [`State::leave`] leaves it.
    pub(super) fn enter(&mut self) -> Result<(), Flow> {
        if self.nested >= NESTED {
            return Err(Flow::Failed(format!(
                "commands within commands, more than {NESTED} deep"
            )));
        }
        self.nested += 1;
        Ok(())
    }

    /// Leaves what was gone into.
    pub(super) fn leave(&mut self) {
        self.nested = self.nested.saturating_sub(1);
    }

    /// A shell within this one.
    pub(super) fn child(&self) -> Result<Self, Flow> {
        if self.depth >= DEPTH {
            return Err(Flow::Failed(format!(
                "shells within shells, more than {DEPTH} deep"
            )));
        }
        let mut child = self.clone();
        child.depth += 1;
        Ok(child)
    }
}

type Ran<'a> = BoxFuture<'a, Result<i32, Flow>>;

/// Runs a script.
pub fn script<'a>(
    session: &'a Session,
    state: &'a mut State,
    script: &'a Script,
    streams: &'a Streams,
) -> Ran<'a> {
    Box::pin(async move {
        // An empty line leaves the status of the command before it.
        state.enter()?;
        let mut ended = Ok(state.status);
        for item in &script.0 {
            ended = self::item(session, state, item, streams).await;
            if ended.is_err() {
                break;
            }
        }
        state.leave();
        ended
    })
}

async fn item(session: &Session, state: &mut State, item: &Item, streams: &Streams) -> Result<i32, Flow> {
    let mut status = pipeline(session, state, &item.first, streams).await?;
    for (joint, next) in &item.rest {
        if (*joint == Joint::And) == (status == 0) {
            status = pipeline(session, state, next, streams).await?;
        }
    }
    Ok(status)
}

async fn pipeline(
    session: &Session,
    state: &mut State,
    pipeline: &Pipeline,
    streams: &Streams,
) -> Result<i32, Flow> {
    let status = match pipeline.commands.as_slice() {
        [command] => self::command(session, state, command, streams).await?,
        commands => {
            let _running = session.stages(commands.len())?;
            let mut stages = Vec::new();
            let mut input = streams.input.clone();
            for (index, command) in commands.iter().enumerate() {
                let mut streams = streams.clone();
                streams.input = std::mem::replace(&mut input, Input::Nothing);
                if index + 1 < commands.len() {
                    let (reader, writer) = tokio::io::duplex(64 << 10);
                    streams.output = Output::stream(writer, false);
                    input = Input::stream(reader);
                }
                let mut state = state.child()?;
                // Both ends of a pipe close when the command that holds them ends.
                stages.push(async move {
                    let ended = self::command(session, &mut state, command, &streams).await;
                    if let Err(Flow::Failed(message)) = &ended {
                        streams.complain(&format!("sh: {message}")).await;
                    }
                    ended.unwrap_or_else(|flow| flow.code())
                });
            }
            let ended = futures::future::join_all(stages).await;
            ended.last().copied().unwrap_or(0)
        }
    };
    state.status = if pipeline.negated {
        i32::from(status == 0)
    } else {
        status
    };
    Ok(state.status)
}

fn command<'a>(
    session: &'a Session,
    state: &'a mut State,
    command: &'a Command,
    streams: &'a Streams,
) -> Ran<'a> {
    Box::pin(async move {
        session.step().await;
        let streams = match redirected(session, state, &command.redirects, streams).await? {
            Ok(streams) => streams,
            Err(message) => {
                streams.complain(&format!("sh: {message}")).await;
                return Ok(1);
            }
        };
        match &command.what {
            What::Simple { assignments, words } => {
                let words = match fields(session, state, words, &streams).await {
                    Err(Flow::TooLong) => return Ok(too_long(&streams).await),
                    words => words?,
                };
                let mut values = Vec::new();
                for (name, word) in assignments {
                    values.push((name, text(session, state, word, &streams).await?));
                }
                if words.is_empty() {
                    let output = assignments
                        .iter()
                        .flat_map(|(_, word)| word)
                        .any(|part| matches!(part, super::syntax::Part::Output { .. }));
                    for (name, value) in values {
                        state.set(name, value)?;
                    }
                    return Ok(if output { state.status } else { 0 });
                }
                if values.is_empty() {
                    return program(session, state, &words, &streams).await;
                }
                let mut own = state.clone();
                for (name, value) in values {
                    own.set(name, value)?;
                    own.export(name)?;
                }
                program(session, &mut own, &words, &streams).await
            }
            What::Group(inner) => script(session, state, inner, &streams).await,
            What::Subshell(inner) => {
                let mut own = state.child()?;
                match script(session, &mut own, inner, &streams).await {
                    Ok(status) => Ok(status),
                    Err(flow @ (Flow::Closed | Flow::Failed(_))) => Err(flow),
                    Err(flow) => Ok(flow.code()),
                }
            }
            What::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if script(session, state, condition, &streams).await? == 0 {
                        return script(session, state, body, &streams).await;
                    }
                }
                match otherwise {
                    Some(body) => script(session, state, body, &streams).await,
                    None => Ok(0),
                }
            }
            What::Loop {
                until,
                condition,
                body,
            } => {
                let mut status = 0;
                while (script(session, state, condition, &streams).await? == 0) != *until {
                    match turn(script(session, state, body, &streams).await)? {
                        Turn::On(ended) => status = ended,
                        Turn::Over => break,
                    }
                }
                Ok(status)
            }
            What::For { name, words, body } => {
                let values = match words {
                    Some(words) => match fields(session, state, words, &streams).await {
                        Err(Flow::TooLong) => return Ok(too_long(&streams).await),
                        words => words?,
                    },
                    None => state.arguments.get(1..).unwrap_or_default().to_vec(),
                };
                let mut status = 0;
                for value in values {
                    state.set(name, value)?;
                    match turn(script(session, state, body, &streams).await)? {
                        Turn::On(ended) => status = ended,
                        Turn::Over => break,
                    }
                }
                Ok(status)
            }
        }
    })
}

/// As a kernel refuses what is too much for it.
async fn too_long(streams: &Streams) -> i32 {
    streams.complain("sh: Argument list too long").await;
    Flow::TooLong.code()
}

/// What a loop does next.
enum Turn {
    On(i32),
    Over,
}

fn turn(ended: Result<i32, Flow>) -> Result<Turn, Flow> {
    match ended {
        Ok(status) => Ok(Turn::On(status)),
        Err(Flow::Break(1)) => Ok(Turn::Over),
        Err(Flow::Break(more)) => Err(Flow::Break(more - 1)),
        Err(Flow::Continue(1)) => Ok(Turn::On(0)),
        Err(Flow::Continue(more)) => Err(Flow::Continue(more - 1)),
        Err(flow) => Err(flow),
    }
}

/// The streams of a command; or why there are none.
async fn redirected(
    session: &Session,
    state: &mut State,
    redirects: &[Redirect],
    streams: &Streams,
) -> Result<Result<Streams, String>, Flow> {
    let mut streams = streams.clone();
    for redirect in redirects {
        let target = text(session, state, &redirect.target, &streams).await?;
        let path = absolute(&state.directory, &target);
        let output = match redirect.how {
            How::Read => match session.view.read(&path).await {
                Ok(bytes) => {
                    streams.input = Input::stream(std::io::Cursor::new(bytes));
                    continue;
                }
                Err(trouble) => return Ok(Err(format!("can't open {target}: {trouble}"))),
            },
            How::Duplicate => match target.as_str() {
                "1" => streams.output.clone(),
                "2" => streams.errors.clone(),
                _ => return Ok(Err(format!("{target}: Bad file descriptor"))),
            },
            How::Write | How::Append => {
                let made = session.view.write(&path, b"", redirect.how == How::Append).await;
                if let Err(trouble) = made {
                    return Ok(Err(format!("can't create {target}: {trouble}")));
                }
                Output::File(Box::new(session.view.clone()), path)
            }
        };
        match redirect.stream {
            2 => streams.errors = output,
            1 => streams.output = output,
            _ => return Ok(Err(format!("{target}: Bad file descriptor"))),
        }
    }
    Ok(Ok(streams))
}

/// Runs a program, the shell itself among them.
pub fn program<'a>(
    session: &'a Session,
    state: &'a mut State,
    words: &'a [String],
    streams: &'a Streams,
) -> Ran<'a> {
    Box::pin(async move {
        let Some((name, arguments)) = words.split_first() else {
            return Ok(0);
        };
        let base = match name.rsplit_once('/') {
            Some(("/bin" | "/usr/bin" | "/sbin" | "/usr/sbin" | "/usr/local/bin", base)) => base,
            Some(_) => {
                return file(session, state, words, streams).await;
            }
            None => name,
        };
        if matches!(base, "sh" | "bash" | "ash" | "dash") {
            let mut own = state.child()?;
            return match shell(session, &mut own, base, arguments, streams).await {
                Err(Flow::Failed(message)) => {
                    streams.complain(&format!("{base}: {message}")).await;
                    Ok(2)
                }
                ended => Ok(ended.unwrap_or_else(|flow| flow.code())),
            };
        }
        match commands::run(session, state, base, arguments, streams).await {
            Some(Err(Flow::Failed(message))) => {
                streams.complain(&format!("{base}: {message}")).await;
                Ok(1)
            }
            Some(ended) => ended,
            None => {
                streams.complain(&format!("sh: {name}: not found")).await;
                Ok(127)
            }
        }
    })
}

/// A file that is named as a program: a script with its permission set, else nothing that can be run.
async fn file(
    session: &Session,
    state: &mut State,
    words: &[String],
    streams: &Streams,
) -> Result<i32, Flow> {
    let Some(name) = words.first() else {
        return Ok(0);
    };
    let path = absolute(&state.directory, name);
    let code = match session.view.stat(&path).await {
        Err(trouble) => {
            streams.complain(&format!("sh: {name}: {trouble}")).await;
            return Ok(127);
        }
        Ok(meta) if meta.folder || meta.mode & 0o111 == 0 => 126,
        Ok(_) => 0,
    };
    if code != 0 {
        streams.complain(&format!("sh: {name}: Permission denied")).await;
        return Ok(code);
    }
    let mut own = state.child()?;
    let ended = shell(session, &mut own, "sh", words, streams).await;
    Ok(ended.unwrap_or_else(|flow| flow.code()))
}

/// `sh`: with `-c` a script, else a file, else what is read.
async fn shell(
    session: &Session,
    state: &mut State,
    name: &str,
    arguments: &[String],
    streams: &Streams,
) -> Result<i32, Flow> {
    state.status = 0;
    let mut rest = arguments;
    let mut given = None;
    while let Some((option, after)) = rest
        .split_first()
        .filter(|(option, _)| option.starts_with(['-', '+']))
    {
        rest = after;
        if option == "--" || option == "-" {
            break;
        }
        if option.contains('c') {
            let Some((text, after)) = rest.split_first() else {
                return Err(Flow::Failed("-c requires an argument".to_owned()));
            };
            given = Some(text.clone());
            rest = after;
            break;
        }
    }
    state.arguments = if rest.is_empty() {
        vec![name.to_owned()]
    } else {
        rest.to_vec()
    };
    let given = match (given, rest.first()) {
        (Some(text), _) => text,
        (None, Some(path)) => {
            let bytes = session.view.read(&absolute(&state.directory, path)).await;
            let bytes = bytes.map_err(|trouble| Flow::Failed(format!("can't open '{path}': {trouble}")))?;
            if bytes.len() > LONGEST {
                return Err(Flow::Failed(format!(
                    "{path}: the script has {} bytes, at most {LONGEST} are read",
                    bytes.len()
                )));
            }
            String::from_utf8_lossy(&bytes).into_owned()
        }
        (None, None) => return read_and_run(session, state, streams).await,
    };
    session.steps(given.len() / READ).await;
    let parsed = parse(&given).map_err(|wrong| Flow::Failed(wrong.to_string()))?;
    script(session, state, &parsed, streams).await
}

/// Reads commands and runs them; with a terminal it asks for them.
async fn read_and_run(session: &Session, state: &mut State, streams: &Streams) -> Result<i32, Flow> {
    let tty = match (&streams.input, &session.tty) {
        (Input::Typed(input), Some(tty)) if Arc::ptr_eq(input, tty) => Some(tty.clone()),
        _ => None,
    };
    let mut read = String::new();
    loop {
        if tty.is_some() {
            let prompt = if read.is_empty() {
                format!("{} # ", state.directory)
            } else {
                "> ".to_owned()
            };
            streams.errors.write(prompt.as_bytes()).await?;
        }
        let line = match &tty {
            None => streams.input.read_line().await?,
            Some(tty) => tokio::select! {
                line = streams.input.read_line() => line?,
                () = tty.interrupted() => {
                    read.clear();
                    state.status = 130;
                    continue;
                }
            },
        };
        let over = line.is_empty();
        read.push_str(&String::from_utf8_lossy(&line));
        // What is unfinished is read again with each line.
        session.steps(1 + read.len() / READ).await;
        let parsed = match parse(&read) {
            Err(Wrong::Unfinished(_)) if !over => continue,
            parsed => parsed,
        };
        read.clear();
        let nested = state.nested;
        let ended = match parsed {
            Err(wrong) => Err(Flow::Failed(wrong.to_string())),
            Ok(parsed) => match &tty {
                None => script(session, state, &parsed, streams).await,
                Some(tty) => tokio::select! {
                    ended = script(session, state, &parsed, streams) => ended,
                    () = tty.interrupted() => Ok(130),
                },
            },
        };
        // What was interrupted did not leave where it was.
        state.nested = nested;
        match ended {
            Ok(status) => state.status = status,
            Err(Flow::Failed(message)) => {
                streams.complain(&format!("sh: {message}")).await;
                state.status = 2;
                if tty.is_none() {
                    return Ok(2);
                }
            }
            Err(Flow::Break(_) | Flow::Continue(_)) => state.status = 0,
            Err(flow) => return Err(flow),
        }
        if over {
            if tty.is_some() {
                streams.errors.write(b"\n").await?;
            }
            return Ok(state.status);
        }
    }
}
