//! The runner's hold on a command: the keeper process and the socket to it.

use super::descendants;
use super::orders::{Order, Report, line};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};

/// For how long an order may wait for room. There is room for hundreds, so a keeper that reads is never waited for.
const FULL: Duration = Duration::from_millis(100);

/// How long a process may take to die of KILL.
const DEATH: Duration = Duration::from_secs(5);

/// How a keeper is started.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// Arguments of the running program up to and with `elect-keeper`.
    pub(super) keeper: Vec<OsString>,
    /// For what a command leaves behind.
    pub(super) grace: Duration,
    /// The command.
    pub(super) command: Vec<OsString>,
}

/// A command under a keeper. Dropping it lets the keeper end the command.
pub(super) struct Kept {
    keeper: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

impl Kept {
    /// Starts a keeper. Its command starts with the first order.
    pub(super) fn start(launch: &Launch, environment: &[(&str, String)]) -> io::Result<Self> {
        let (ours, keepers) = UnixStream::pair()?;
        let keepers = keepers.into_std()?;
        // The keeper's end is a plain socket until its own runtime takes it.
        keepers.set_nonblocking(false)?;
        let keeper = Command::new("/proc/self/exe")
            .arg0("evenkeel")
            .args(&launch.keeper)
            .arg("--grace")
            .arg(format!("{}ms", launch.grace.as_millis()))
            .arg("--")
            .args(&launch.command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(keepers)))
            // A terminal's Ctrl-C is the runner's alone.
            .process_group(0)
            .spawn()?;
        let (read, write) = ours.into_split();
        Ok(Self {
            keeper,
            reports: BufReader::new(read).lines(),
            orders: write,
        })
    }

    /// Gives an order. `Err`: the keeper has not read its orders for minutes.
    pub(super) async fn order(&mut self, order: Order) -> io::Result<()> {
        let line = line(&order)?;
        match tokio::time::timeout(FULL, self.orders.write_all(&line)).await {
            Ok(Err(error)) if is_end(&error) => {
                // It has ended. What it reported last is still to be read.
                tracing::debug!(?order, "the keeper is not there any more");
                Ok(())
            }
            Ok(sent) => sent,
            Err(_) => Err(io::Error::other("the keeper does not read its orders")),
        }
    }

    /// The next report; `None` when the keeper is gone. Nothing is lost when the future is dropped.
    pub(super) async fn report(&mut self) -> Option<Report> {
        let read = self.reports.next_line().await;
        let report = match read {
            Ok(Some(line)) => serde_json::from_str(&line).map_err(io::Error::from),
            Ok(None) => return None,
            Err(error) => Err(error),
        };
        match report {
            Ok(report) => Some(report),
            Err(error) => {
                tracing::error!(%error, "cannot read what the keeper reports");
                None
            }
        }
    }

    /// Kills the keeper and everything that it kept, and waits until nothing of it is left.
    pub(super) async fn destroy(mut self) {
        // The kernel kills the command's main process with its keeper, and makes its orphans this process's.
        if let Err(error) = self.keeper.start_kill() {
            tracing::debug!(%error, "the keeper is gone");
        }
        self.reaped().await;
        match tokio::time::timeout(DEATH, descendants::end_all()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot tell whether the command has ended"),
            Err(_) => tracing::error!("processes of the command do not die; they hang in the kernel"),
        }
    }

    /// Waits for the end of the keeper, which has nothing to do any more.
    pub(super) async fn reaped(mut self) {
        if let Err(error) = self.keeper.wait().await {
            tracing::warn!(%error, "cannot tell how the keeper has ended");
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
