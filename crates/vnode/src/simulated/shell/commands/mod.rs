//! The programs.

mod archive;
mod files;
mod system;
mod text;

use super::eval::{Flow, Session, State};
use super::streams::Streams;
use crate::simulated::fs::{Trouble, absolute};

/// All names, for those who ask.
const NAMES: [&str; 48] = [
    ":", "[", "break", "cat", "cd", "chmod", "command", "continue", "cp", "date", "echo", "env", "exec",
    "exit", "export", "false", "grep", "head", "hostname", "id", "kill", "ls", "mkdir", "mv", "printenv",
    "printf", "ps", "pwd", "read", "rm", "rmdir", "seq", "set", "shift", "sleep", "stty", "tail", "tar",
    "tee", "test", "touch", "true", "uname", "unset", "wc", "which", "whoami", "yes",
];

/// What a program has to do with.
pub(super) struct Call<'a> {
    session: &'a Session,
    state: &'a mut State,
    name: &'a str,
    arguments: &'a [String],
    streams: &'a Streams,
}

type Ended = Result<i32, Flow>;

impl Call<'_> {
    fn path(&self, path: &str) -> String {
        absolute(&self.state.directory, path)
    }

    async fn print(&self, text: &str) -> Result<(), Flow> {
        Ok(self.streams.output.write(text.as_bytes()).await?)
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
    fn options(&self, known: &str) -> Result<(String, Vec<String>), Flow> {
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
                    return Err(Flow::Failed(format!("unrecognized option: {letter}")));
                }
                letters.push(letter);
            }
        }
        Ok((letters, rest.to_vec()))
    }
}

/// Runs a program by name; `None` if there is none.
pub(super) async fn run(
    session: &Session,
    state: &mut State,
    name: &str,
    arguments: &[String],
    streams: &Streams,
) -> Option<Ended> {
    if !NAMES.contains(&name) {
        return None;
    }
    let mut call = Call {
        session,
        state,
        name,
        arguments,
        streams,
    };
    Some(match name {
        "true" | ":" | "set" => Ok(0),
        "false" => Ok(1),
        "exit" => match arguments.first().map(|code| code.parse::<i32>()) {
            None => Err(Flow::Exit(call.state.status)),
            Some(Ok(code)) => Err(Flow::Exit(code & 0xff)),
            Some(Err(_)) => Err(Flow::Exit(2)),
        },
        "break" => Err(Flow::Break(call.count())),
        "continue" => Err(Flow::Continue(call.count())),
        "export" => call.export(),
        "unset" => {
            for name in arguments {
                call.state.unset(name);
            }
            Ok(0)
        }
        "shift" => {
            if call.state.arguments.len() > 1 {
                call.state.arguments.remove(1);
                Ok(0)
            } else {
                Ok(1)
            }
        }
        "read" => call.read().await,
        "command" | "which" => call.which().await,
        "exec" => call.exec().await,
        "echo" => call.echo().await,
        "printf" => call.printf().await,
        "cat" => call.cat().await,
        "head" => call.head().await,
        "tail" => call.tail().await,
        "wc" => call.wc().await,
        "grep" => call.grep().await,
        "seq" => call.seq().await,
        "yes" => call.yes().await,
        "tee" => call.tee().await,
        "cd" => call.cd().await,
        "pwd" => call
            .print(&format!("{}\n", call.state.directory))
            .await
            .map(|()| 0),
        "ls" => call.ls().await,
        "mkdir" => call.mkdir().await,
        "rm" | "rmdir" => call.rm().await,
        "touch" => call.touch().await,
        "cp" | "mv" => call.cp().await,
        "chmod" => call.chmod().await,
        "test" | "[" => call.test().await,
        "tar" => call.tar().await,
        "date" => call.date().await,
        "hostname" => call
            .print(&format!("{}\n", session.view.hostname))
            .await
            .map(|()| 0),
        "id" => call.id().await,
        "whoami" => call.print("root\n").await.map(|()| 0),
        "uname" => call.uname().await,
        "ps" => call.ps().await,
        "kill" => call.kill().await,
        "sleep" => call.sleep().await,
        "stty" => call.stty().await,
        "env" | "printenv" => call.env().await,
        _ => return None,
    })
}

impl Call<'_> {
    fn count(&self) -> u32 {
        let count = self.arguments.first().and_then(|count| count.parse().ok());
        count.unwrap_or(1).max(1)
    }

    fn export(&mut self) -> Ended {
        for argument in self.arguments {
            let (name, value) = argument
                .split_once('=')
                .map_or((argument.as_str(), None), |(a, b)| (a, Some(b)));
            if let Some(value) = value {
                self.state.set(name, value.to_owned())?;
            }
            self.state.export(name)?;
        }
        Ok(0)
    }

    async fn read(&mut self) -> Ended {
        let (_, mut names) = self.options("r")?;
        if names.is_empty() {
            names.push("REPLY".to_owned());
        }
        let line = self.streams.input.read_line().await?;
        let over = line.is_empty();
        let line = String::from_utf8_lossy(&line);
        let mut rest = line.trim_end_matches('\n').trim();
        for (index, name) in names.iter().enumerate() {
            let (word, after) = if index + 1 == names.len() {
                (rest, "")
            } else {
                rest.split_once(char::is_whitespace).unwrap_or((rest, ""))
            };
            self.state.set(name, word.to_owned())?;
            rest = after.trim_start();
        }
        Ok(i32::from(over))
    }

    async fn which(&mut self) -> Ended {
        let names = self.arguments.iter().filter(|name| !name.starts_with('-'));
        let mut code = 0;
        for name in names {
            if NAMES.contains(&name.as_str()) || matches!(name.as_str(), "sh" | "bash") {
                self.print(&format!("/bin/{name}\n")).await?;
            } else {
                code = 1;
            }
        }
        Ok(code)
    }

    async fn exec(&mut self) -> Ended {
        if self.arguments.is_empty() {
            return Ok(0);
        }
        // A program within this one as far as the stack is concerned: `exec exec …` has an end like `env env …`.
        let mut own = self.state.child()?;
        let ended = super::eval::program(self.session, &mut own, self.arguments, self.streams).await?;
        Err(Flow::Exit(ended))
    }
}
