//! The keeper: the process between the runner and the command, started as the hidden sub-command
//! `elect-keeper`.
//!
//! Standard input is a socket: orders of the runner come in and reports go out, one JSON document per line.
//! The keeper starts a third process (`become_command`), which asks the kernel to be killed when the keeper
//! dies, and then becomes the command by `exec`.

use crate::core::command_deadline::{CommandDeadline, Event, SignalAction};
use crate::core::orders::{Order, Report, line};
use crate::core::status::{Ended, Status};
use crate::descendants::descendants;
use crate::program::ProgramError;
use crate::signals::{OF_KEEPER, Signals};
use evenkeel_election::clock::{Clock as _, SystemClock};
use evenkeel_net::duration;
use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `evenkeel elect-keeper`, which only the runner and the keeper start.
#[derive(Clone, Debug, clap::Args)]
pub struct KeeperArgs {
    /// Time between the end of the main process and KILL for what it left behind.
    #[arg(long, value_parser = duration::parse, default_value = "5s")]
    pub grace: Duration,
    /// Become the command, as a child of this process.
    #[arg(long, value_name = "PID")]
    pub child_of: Option<i32>,
    /// The command.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Why a keeper failed.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A system call failed, for example because standard input is no socket: `elect-keeper` is started by
    /// the runner, not by people.
    #[error("elect-keeper: cannot {what}")]
    System {
        /// The step that failed, such as "start a runtime".
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The runner sent something that is no order, so runner and keeper are of different versions.
    #[error("elect-keeper: the runner sent no order")]
    Order,
    /// The command is not found or is not executable.
    #[error(transparent)]
    Command(#[from] ProgramError),
}

impl KeeperError {
    /// The exit codes of a shell: 127 for a command that is not found, 126 for one that cannot be run; 1
    /// otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command(error) => error.exit_code(),
            Self::System { .. } | Self::Order => 1,
        }
    }
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> KeeperError {
    move |error| KeeperError::System {
        what,
        source: error.into(),
    }
}

/// Runs the keeper, or the process that becomes the command. Call it from the main thread and outside any
/// async runtime, because the kernel kills the command when the *thread* that started it ends. `arguments`
/// are this process's own up to and with `elect-keeper`; the second process is started with them.
pub fn run(args: KeeperArgs, arguments: &[OsString]) -> Result<ExitCode, KeeperError> {
    if let Some(parent) = args.child_of {
        return become_command(Pid::from_raw(parent), &args.command);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start a runtime"))?;
    runtime.block_on(keep(args, arguments))?;
    Ok(ExitCode::SUCCESS)
}

/// Has the kernel kill this process when its parent dies, then becomes the command. Returns only if that
/// failed.
fn become_command(parent: Pid, command: &[OsString]) -> Result<ExitCode, KeeperError> {
    set_pdeathsig(Signal::SIGKILL).map_err(system("tie the command to its keeper"))?;
    // If the parent died before the line above, that signal will never come.
    if getppid() != parent {
        return Ok(ExitCode::FAILURE);
    }
    let (name, arguments) = command.split_first().ok_or(KeeperError::Order)?;
    let error = Command::new(name).args(arguments).exec();
    Err(KeeperError::Command(ProgramError::new(name, error)))
}

async fn keep(args: KeeperArgs, arguments: &[OsString]) -> Result<(), KeeperError> {
    // Orphans of the command become children of this process, so that it finds all of them.
    set_child_subreaper(true).map_err(system("adopt orphans"))?;
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = StdStream::from(socket.map_err(system("use standard input"))?);
    socket
        .set_nonblocking(true)
        .map_err(system("use standard input"))?;
    let (read, write) = UnixStream::from_std(socket)
        .map_err(system("use standard input as a socket"))?
        .into_split();
    let mut control = Control {
        orders: Some(BufReader::new(read).lines()),
        reports: write,
    };
    let mut child = signal(SignalKind::child()).map_err(system("watch for signals"))?;
    let mut asked = Signals::watch(&OF_KEEPER).map_err(system("watch for signals"))?;

    let lease = match control.order().await? {
        Some(Order::Until(lease)) => lease,
        Some(_) => return Err(KeeperError::Order),
        None => return Ok(()),
    };
    let mut deadline = CommandDeadline::new(lease, args.grace);
    if SystemClock.boot() >= lease.terminate {
        let (status, stopped) = (Status::NotStarted, true);
        control.report(&Report::Ended(Ended { status, stopped })).await;
        return Ok(());
    }
    let main = match start(&args, arguments) {
        Ok(main) => main,
        Err(error) => {
            control.report(&Report::Failed(error.to_string())).await;
            return Ok(());
        }
    };
    control.report(&Report::Started(main.as_raw())).await;

    let mut none_left = false;
    while !none_left {
        // The deadline comes last: a keeper that was held up may find a renewal in the socket.
        let events = tokio::select! {
            biased;
            _ = child.recv() => {
                let (events, none) = reap(main);
                none_left = none;
                events
            }
            order = control.order() => vec![order?.map_or(Event::RunnerGone, Event::Order)],
            _ = asked.next() => vec![Event::Terminated],
            () = wake(&deadline) => vec![Event::Wake],
        };
        for event in events {
            if event == Event::RunnerGone {
                tracing::warn!("the runner is gone, stopping the command");
            }
            for action in deadline.step(SystemClock.boot(), event) {
                if event == Event::Wake {
                    tracing::warn!(?action, "the command's time is over");
                }
                send(action, main, deadline.main_lives());
            }
        }
    }
    control.report(&Report::Ended(deadline.ended())).await;
    Ok(())
}

/// Ends when the deadline wants to be woken.
async fn wake(deadline: &CommandDeadline) {
    match deadline.wake_at() {
        Some(at) => SystemClock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Starts the command in a process group of its own. Its standard input is empty, because the keeper's is the
/// socket.
fn start(args: &KeeperArgs, arguments: &[OsString]) -> io::Result<Pid> {
    let child = Command::new("/proc/self/exe")
        .arg0("evenkeel")
        .args(arguments)
        .arg("--child-of")
        .arg(getpid().to_string())
        .arg("--")
        .args(&args.command)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok(Pid::from_raw(child.id() as i32))
}

/// Reaps all children that have ended. Returns an event for each, and whether no child is left.
fn reap(main: Pid) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    loop {
        let (id, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(id, code)) => (id, Status::Code(code)),
            Ok(WaitStatus::Signaled(id, signal, _)) => (id, Status::Signal(signal as i32)),
            Ok(WaitStatus::StillAlive) => return (events, false),
            // `waitpid` was not asked to report stopped and continued processes.
            Ok(_) | Err(Errno::EINTR) => continue,
            // ECHILD: no children are left. `waitpid` has no other errors for these arguments.
            Err(_) => return (events, true),
        };
        events.push(if id == main {
            Event::MainEnded(status)
        } else {
            Event::OtherEnded
        });
    }
}

fn send(action: SignalAction, main: Pid, main_lives: bool) {
    match action {
        SignalAction::Main(signal) => log_failure(kill(main, number(signal))),
        SignalAction::All(signal) => {
            signal_all(main, main_lives, number(signal));
            // A stopped process handles no other signal until it is continued.
            signal_all(main, main_lives, Some(Signal::SIGCONT));
        }
        SignalAction::KillAll => signal_all(main, main_lives, Some(Signal::SIGKILL)),
    }
}

/// The signal with this number. For a number that no signal has, `None`: `kill` then sends nothing.
fn number(signal: i32) -> Option<Signal> {
    Signal::try_from(signal).ok()
}

/// Signals every process of the command: its process group with one call, and then each process that has left
/// the group. Once the main process has been reaped, another group may get the same number, so from then on
/// every process is signalled by its own ID.
fn signal_all(main: Pid, main_lives: bool, signal: Option<Signal>) {
    if main_lives {
        log_failure(killpg(main, signal));
    }
    for process in descendants(getpid()) {
        if !main_lives || process.group != main {
            log_failure(kill(process.id, signal));
        }
    }
}

fn log_failure(result: nix::Result<()>) {
    match result {
        // ESRCH: the process has ended in the meantime.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::error!(%error, "cannot signal a process of the command"),
    }
}

/// The socket to the runner.
struct Control {
    /// `None` once the runner's end has closed.
    orders: Option<Lines<BufReader<OwnedReadHalf>>>,
    reports: OwnedWriteHalf,
}

impl Control {
    /// The next order; `None` once when the runner is gone, and pending for ever after that. Cancel safe.
    async fn order(&mut self) -> Result<Option<Order>, KeeperError> {
        let Some(orders) = &mut self.orders else {
            return std::future::pending().await;
        };
        // An error of the connection has the same consequence as its end.
        if let Ok(Some(line)) = orders.next_line().await {
            let order = serde_json::from_str(&line).map_err(|_| KeeperError::Order)?;
            return Ok(Some(order));
        }
        self.orders = None;
        Ok(None)
    }

    async fn report(&mut self, report: &Report) {
        let sent = match line(report) {
            Ok(line) => self.reports.write_all(&line).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, ?report, "the runner is gone, the report is not delivered");
        }
    }
}
