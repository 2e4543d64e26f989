//! The runner's side of a keeper: the child process and the socket on which orders go out and reports come
//! back.

use crate::core::orders::{Order, Report, line};
use crate::descendants;
use nix::unistd::getpid;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};

/// For how long an order may wait while the socket's buffer is full. The buffer holds hundreds of orders, so
/// this only happens when the keeper has stopped reading.
const ORDER_TIMEOUT: Duration = Duration::from_millis(100);

/// For how long the runner waits for processes to end after KILL. A process that hangs in the kernel does not
/// end, nor one of a user whom this process may not signal.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How a keeper is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Arguments of the running program up to and with `elect-keeper`.
    pub(crate) keeper: Vec<OsString>,
    /// Time between TERM and KILL for processes that the command leaves behind.
    pub(crate) grace: Duration,
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
}

/// A keeper process with its command. When it is dropped, the socket closes, and the keeper ends the command.
pub(crate) struct KeeperHandle {
    keeper: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

impl KeeperHandle {
    /// Starts a keeper. Its command starts with the first order.
    pub(crate) fn start(launch: &Launch, environment: &[(&str, String)]) -> io::Result<Self> {
        let (ours, keepers) = UnixStream::pair()?;
        let keepers = keepers.into_std()?;
        // The keeper's own runtime makes its end non-blocking again.
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
            // Ctrl-C in a terminal signals the whole foreground group, and must reach the runner alone.
            .process_group(0)
            .spawn()?;
        let (read, write) = ours.into_split();
        Ok(Self {
            keeper,
            reports: BufReader::new(read).lines(),
            orders: write,
        })
    }

    /// Sends an order. An error means that the keeper has not read its orders for minutes.
    pub(crate) async fn order(&mut self, order: Order) -> io::Result<()> {
        let line = line(&order)?;
        match tokio::time::timeout(ORDER_TIMEOUT, self.orders.write_all(&line)).await {
            Ok(Err(error)) if is_end(&error) => {
                // The keeper has ended. Its last report is still in the socket and is read next.
                tracing::debug!(?order, "the keeper is not there any more");
                Ok(())
            }
            Ok(sent) => sent,
            Err(_) => Err(io::Error::other("the keeper does not read its orders")),
        }
    }

    /// The next report; `None` when the keeper is gone. Cancel safe: no report is lost when the future is
    /// dropped.
    pub(crate) async fn report(&mut self) -> Option<Report> {
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

    /// Kills the keeper and everything that it kept, and waits until nothing of it is left. Returns whether
    /// that is so.
    pub(crate) async fn destroy(mut self) -> bool {
        // When the keeper dies, the kernel kills the command's main process and makes this process the parent
        // of the others.
        if let Err(error) = self.keeper.start_kill() {
            tracing::debug!(%error, "the keeper is gone");
        }
        self.reap().await;
        match tokio::time::timeout(KILL_TIMEOUT, descendants::end_all()).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => tracing::error!(%error, "cannot tell whether the command has ended"),
            Err(_) => {
                let left = descendants::descendants(getpid());
                let ids: Vec<i32> = left.iter().map(|process| process.id.as_raw()).collect();
                tracing::error!(?ids, "processes of the command do not die");
            }
        }
        false
    }

    /// Waits until the keeper has ended. Call it after its last report.
    pub(crate) async fn reap(mut self) {
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
