//! Commands as processes of this machine.

use super::expand;
use super::{Execute, Ran, timed_out};
use crate::{Outcome, Target};
use futures::future::BoxFuture;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{sleep, timeout};

/// For how long output is waited for after the command itself has ended: descendants may hold its pipes.
const LINGER: Duration = Duration::from_millis(100);
/// For how long the end of a killed command is waited for.
const REAP: Duration = Duration::from_secs(1);

/// Runs commands on this machine, for whatever has no container of its own.
///
/// * The command gets a process group of its own. When it has ended, when its time is over, or when nobody
///   waits for it any more, the whole group is killed: a probe leaves nothing behind but what has left its
///   group by itself.
/// * Its environment is the container's literal one (a value may refer to earlier ones by `$(NAME)`), and of
///   the prober's own `PATH` and `HOME` alone, unless the container has its own: what else a prober has in
///   its environment is not meant for containers.
/// * Standard input is empty; the working directory is the prober's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local;

impl Execute for Local {
    fn execute<'a>(
        &'a self,
        target: &'a Target,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Ran> {
        Box::pin(async move {
            match run(&target.container.env, command, timeout).await {
                Ok(ran) => ran,
                Err(error) => Ran::Failed { error },
            }
        })
    }
}

async fn run(env: &[(String, String)], command: &[String], limit: Duration) -> Result<Ran, String> {
    let Some((program, arguments)) = command.split_first() else {
        return Err("cannot run a command without a program: name one".to_owned());
    };
    let lost = |error: io::Error| format!("cannot tell how {program:?} ended: {error}");
    let environment = environment(env)
        .map_err(|error| format!("cannot start {program:?}: the container's environment: {error}"))?;
    // Before the command starts, so that its end cannot be missed.
    let mut ends = signal(SignalKind::child()).map_err(lost)?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| cannot_start(program, &error))?;
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    let pipes = (child.stdout.take(), child.stderr.take());
    let mut group = Group::new(child).ok_or_else(|| lost(io::Error::other("it has no process ID")))?;
    let read = async {
        futures::join!(stdout.read(pipes.0), stderr.read(pipes.1));
    };
    let ended = {
        tokio::pin!(read);
        let whole = async {
            let mut drained = false;
            loop {
                tokio::select! {
                    ended = group.ended(&mut ends) => break ended.map(|()| drained),
                    () = &mut read, if !drained => drained = true,
                }
            }
        };
        let ended = timeout(limit, whole).await;
        if let Ok(Ok(false)) = ended {
            // What the command itself has written is in the pipe by now; only descendants can write more.
            let _ = timeout(LINGER, &mut read).await;
        }
        ended
    };
    group.kill();
    match ended {
        Err(_) => {
            // A process that waits for a file server that is gone, or that is traced, outlives even this
            // signal.
            if let Ok(reaped) = timeout(REAP, group.reap()).await {
                reaped.map_err(lost)?;
            } else {
                tracing::warn!(group = %group.id, "the command of a probe was killed and does not end");
            }
            Ok(timed_out(command, limit))
        }
        Ok(ended) => {
            ended.map_err(lost)?;
            let status = group.reap().await.map_err(lost)?;
            let code = code(status).ok_or_else(|| lost(io::Error::other(status.to_string())))?;
            let mut output = stdout.0;
            output.extend(stderr.0);
            output.truncate(Outcome::OUTPUT);
            Ok(Ran::Exited { code, output })
        }
    }
}

/// As a shell says it.
fn code(status: ExitStatus) -> Option<i32> {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
}

fn cannot_start(program: &str, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => "; is it on this machine, and its interpreter?",
        io::ErrorKind::NotFound => "; install it, or give its path: it is not in PATH",
        io::ErrorKind::PermissionDenied => "; it must be a file that this user may execute",
        _ => "",
    };
    format!("cannot start {program:?}: {error}{hint}")
}

/// The environment of a command, in its order.
fn environment(env: &[(String, String)]) -> Result<Vec<(String, String)>, expand::TooLong> {
    let mut known: Vec<(String, String)> = ["PATH", "HOME"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    known.extend(expand::environment(env)?);
    Ok(known)
}

/// The first bytes of an output. The rest is read and forgotten, so that the command never waits for its
/// reader.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Kept {
    /// Until its end, or until it breaks, which is no end of the command.
    async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; 8 << 10];
        loop {
            match pipe.read(&mut chunk).await {
                Ok(0) => return,
                Ok(count) => {
                    let room = Outcome::OUTPUT.saturating_sub(self.0.len());
                    self.0.extend_from_slice(&chunk[..count.min(room)]);
                }
                Err(error) => {
                    tracing::debug!(%error, "the output of a command cannot be read to its end");
                    return;
                }
            }
        }
    }
}

/// A command and its descendants. Dropped, all are killed and the command is reaped.
struct Group {
    child: Option<Child>,
    /// The command's process ID and the group's. Ours as long as the command is not reaped: until then the
    /// kernel gives neither to anybody else.
    id: Pid,
}

impl Group {
    fn new(child: Child) -> Option<Self> {
        let id = Pid::from_raw(i32::try_from(child.id()?).ok()?);
        Some(Self {
            child: Some(child),
            id,
        })
    }

    /// Waits for the end of the command, without reaping it.
    async fn ended(&self, ends: &mut Signals) -> io::Result<()> {
        // Signals that come together may be one, and be for others; a look now and then costs nothing.
        const LOOK: Duration = Duration::from_secs(1);
        loop {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            match waitid(Id::Pid(self.id), flags) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            tokio::select! {
                _ = ends.recv() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Kills all that are left.
    fn kill(&self) {
        match killpg(self.id, Signal::SIGKILL) {
            // A command that has ended is a member still, but one that needs no killing.
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => {}
            Err(error) => tracing::warn!(group = %self.id, %error, "cannot kill the command of a probe"),
        }
    }

    /// Waits for the command, which has ended or was killed.
    async fn reap(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = self.child.as_mut() else {
            return Err(io::Error::other("it was reaped before"));
        };
        let status = child.wait().await?;
        self.child = None;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        self.kill();
        // Without a runtime nobody is left to wait; at the end of the process its children find another
        // parent.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let id = self.id;
            runtime.spawn(async move {
                if let Err(error) = child.wait().await {
                    tracing::warn!(command = %id, %error, "cannot wait for the command of a probe");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
