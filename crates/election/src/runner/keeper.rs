//! The keeper: the process between the runner and the command, started as the hidden sub-command `elect-keeper`.
//!
//! Standard input is a socket on which the runner's orders come and reports go back, a JSON document a line. The
//! keeper starts a third process, `become_command`, which ties its life to the keeper's and becomes the command.

use super::descendants::descendants;
use super::leash::{Deed, Event, Leash};
use super::orders::{Order, Report, line};
use super::program::ProgramError;
use super::status::{Ended, Status};
use crate::clock::{Clock as _, SystemClock};
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

/// Arguments of `evenkeel elect-keeper`; nobody but the runner and the keeper gives them.
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

/// What a keeper could not do.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Standard input is no socket, or another system call failed. `elect-keeper` is not for people.
    #[error("elect-keeper: cannot {what}")]
    System {
        /// Which step.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The runner sends what is no order: runner and keeper are of different versions.
    #[error("elect-keeper: the runner sent no order")]
    Order,
    /// The command cannot be run.
    #[error(transparent)]
    Command(#[from] ProgramError),
}

impl KeeperError {
    /// As a shell's: 127 for a command that is not found, 126 for one that cannot be run.
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

/// Runs one of the two stages. Call it from the main thread, outside any async runtime: the command's life is tied
/// to the thread that starts it. `arguments` are this process's own up to `elect-keeper`, for the second stage.
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

/// Ties this process's life to its parent's, then becomes the command. Returns only if it could not.
fn become_command(parent: Pid, command: &[OsString]) -> Result<ExitCode, KeeperError> {
    set_pdeathsig(Signal::SIGKILL).map_err(system("tie the command to its keeper"))?;
    // The parent may have died before the line above: then nobody will send that signal.
    if getppid() != parent {
        return Ok(ExitCode::FAILURE);
    }
    let (name, arguments) = command.split_first().ok_or(KeeperError::Order)?;
    let error = Command::new(name).args(arguments).exec();
    Err(KeeperError::Command(ProgramError::new(name, error)))
}

async fn keep(args: KeeperArgs, arguments: &[OsString]) -> Result<(), KeeperError> {
    // Whatever the command forks and forgets becomes a child of this process, so that nothing gets away.
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
    let watch = |kind| signal(kind).map_err(system("watch for signals"));
    let mut child = watch(SignalKind::child())?;
    let mut asked = [
        watch(SignalKind::terminate())?,
        watch(SignalKind::interrupt())?,
        watch(SignalKind::hangup())?,
    ];

    let lease = match control.order().await? {
        Some(Order::Until(lease)) => lease,
        Some(_) => return Err(KeeperError::Order),
        None => return Ok(()),
    };
    let mut leash = Leash::new(lease, args.grace);
    if SystemClock.boot() >= lease.term_at {
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
        let [terminate, interrupt, hangup] = &mut asked;
        // What has happened goes before what time demands: a keeper that was held up may find its news in the socket.
        let events = tokio::select! {
            biased;
            _ = child.recv() => {
                let (events, none) = reap(main);
                none_left = none;
                events
            }
            order = control.order() => vec![order?.map_or(Event::RunnerGone, Event::Order)],
            _ = terminate.recv() => vec![Event::Asked],
            _ = interrupt.recv() => vec![Event::Asked],
            _ = hangup.recv() => vec![Event::Asked],
            () = wake(&leash) => vec![Event::Wake],
        };
        for event in events {
            if event == Event::RunnerGone {
                tracing::warn!("the runner is gone, stopping the command");
            }
            for deed in leash.step(SystemClock.boot(), event) {
                if event == Event::Wake {
                    tracing::warn!(?deed, "the command's time is over");
                }
                perform(deed, main, leash.main_lives());
            }
        }
    }
    control.report(&Report::Ended(leash.ended())).await;
    Ok(())
}

/// Until the leash wants to be woken.
async fn wake(leash: &Leash) {
    match leash.wake_at() {
        Some(at) => SystemClock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The command in a process group of its own, without standard input: that is the keeper's.
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

/// Children that have ended, and whether none is left.
fn reap(main: Pid) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    loop {
        let (id, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(id, code)) => (id, Status::Code(code)),
            Ok(WaitStatus::Signaled(id, signal, _)) => (id, Status::Signal(signal as i32)),
            Ok(WaitStatus::StillAlive) => return (events, false),
            // Stops and continuations are not asked for.
            Ok(_) | Err(Errno::EINTR) => continue,
            // ECHILD; there is no other.
            Err(_) => return (events, true),
        };
        events.push(if id == main {
            Event::MainEnded(status)
        } else {
            Event::OtherEnded
        });
    }
}

fn perform(deed: Deed, main: Pid, main_lives: bool) {
    match deed {
        Deed::Main(signal) => told(kill(main, number(signal))),
        Deed::All(signal) => {
            tell_all(main, main_lives, number(signal));
            // A stopped process receives nothing else until it goes on.
            tell_all(main, main_lives, Some(Signal::SIGCONT));
        }
        Deed::KillAll => tell_all(main, main_lives, Some(Signal::SIGKILL)),
    }
}

/// Zero, which signals nobody, stands for a number that no signal has.
fn number(signal: i32) -> Option<Signal> {
    Signal::try_from(signal).ok()
}

/// Signals every process of the command: its group in one go, and whoever has left that. The group's number stays
/// taken only while the main process has not been reaped, so later each process is found by itself.
fn tell_all(main: Pid, main_lives: bool, signal: Option<Signal>) {
    if main_lives {
        told(killpg(main, signal));
    }
    for process in descendants(getpid()) {
        if !main_lives || process.group != main {
            told(kill(process.id, signal));
        }
    }
}

fn told(result: nix::Result<()>) {
    match result {
        // It has ended in the meantime.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::error!(%error, "cannot signal a process of the command"),
    }
}

/// The runner's end of standard input.
struct Control {
    /// `None` once the runner is gone.
    orders: Option<Lines<BufReader<OwnedReadHalf>>>,
    reports: OwnedWriteHalf,
}

impl Control {
    /// The next order; `None` when the runner is gone, and never again after that. Nothing is lost when it is dropped.
    async fn order(&mut self) -> Result<Option<Order>, KeeperError> {
        let Some(orders) = &mut self.orders else {
            return std::future::pending().await;
        };
        // A connection that broke is as good as one that ended.
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
            tracing::debug!(%error, ?report, "nobody is left to hear the report");
        }
    }
}
