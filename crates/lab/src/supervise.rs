//! Child processes: agents, the controller and the stand-in for the stock controllers run as processes of the
//! same binary (agents of the small one, where it lies beside it), are restarted as a kubelet would, and
//! never outlive the lab.
//!
//! Each child's standard input is a pipe whose other end only the lab holds. However the lab ends, the kernel
//! closes that end, and [`stop_with_parent`] in the child stops it. So nothing is left, also after `kill -9`.
//! A process that is frozen at that moment cannot notice; the kernel ends it, because it hangs up stopped
//! process groups whose parent is gone.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    process::{Child, ChildStdin, Command},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

pub use evenkeel_net::shutdown::{PARENT_STDIN, stop_with_parent};

/// Names the binary that is started for children; without it, the running one.
pub const BINARY: &str = "EVENKEEL_BIN";

/// What children take over of this program's own variables: how they log.
const INHERITED: [&str; 2] = ["EVENKEEL_LOG", "EVENKEEL_LOG_FORMAT"];

/// One build makes both binaries within this time.
const ONE_BUILD: Duration = Duration::from_secs(3_600);

/// Pause before a crashed process is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// Time a process gets to stop by itself.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// Name for people and of the log file, as in `agent-shore-1`.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Begin of the name under which it stands for election. Each start adds a number of its own, since an
    /// elector waits longer for a predecessor whose name is its own.
    pub candidate: Option<String>,
    /// Standard output and error are appended here.
    pub log: PathBuf,
    /// Where it answers `/readyz`.
    pub admin: Option<SocketAddr>,
}

/// How a child is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildState {
    Running {
        pid: u32,
        /// How often it was started before.
        restarts: u32,
    },
    /// It ended and is started again soon.
    Crashed {
        /// As the kernel told it.
        how: String,
        /// Whether it ended with code 2: it will not run with this configuration.
        refused: bool,
    },
    /// Its node has no power.
    Off,
    /// It was told to stop and has ended.
    Stopped,
}

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {name} ({program}): {source}")]
pub struct StartError {
    name: String,
    program: String,
    source: io::Error,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Crash,
    PowerOff,
    PowerOn,
    Freeze,
    Thaw,
}

/// A supervised process. Dropping the last handle stops it at once.
#[derive(Clone)]
pub struct Supervised {
    spec: ChildSpec,
    orders: mpsc::UnboundedSender<Order>,
    state: watch::Receiver<ChildState>,
}

/// The binary that children run.
pub fn binary() -> io::Result<PathBuf> {
    std::env::var_os(BINARY).map_or_else(std::env::current_exe, |path| Ok(path.into()))
}

/// The binary of the agent alone, if it lies beside this one and was built with it: what builds `evenkeel`
/// alone leaves an older agent where it is.
pub fn agent_beside(binary: &Path) -> Option<PathBuf> {
    let agent = binary.with_file_name("evenkeel-agent");
    let built = |path: &Path| path.metadata().and_then(|data| data.modified());
    let is_older = match (built(binary), built(&agent)) {
        (Ok(own), Ok(agent)) => own.duration_since(agent).is_ok_and(|age| age > ONE_BUILD),
        _ => false,
    };
    (agent.is_file() && !is_older).then_some(agent)
}

impl Supervised {
    /// Starts the process and keeps it running until `shutdown`.
    pub fn start(spec: ChildSpec, shutdown: CancellationToken) -> Result<Self, StartError> {
        let started = spawn(&spec)?;
        let running = ChildState::Running {
            pid: started.child.id().unwrap_or_default(),
            restarts: 0,
        };
        let (publish, state) = watch::channel(running);
        let (orders, inbox) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            spec: spec.clone(),
            restarts: 0,
            frozen: false,
            publish,
            inbox,
            shutdown,
        };
        tokio::spawn(supervisor.run(started));
        Ok(Self { spec, orders, state })
    }

    pub fn spec(&self) -> &ChildSpec {
        &self.spec
    }

    pub fn state(&self) -> ChildState {
        self.state.borrow().clone()
    }

    /// Follows how it is.
    pub fn watch(&self) -> watch::Receiver<ChildState> {
        self.state.clone()
    }

    /// SIGKILL; it is started again after a second.
    pub fn crash(&self) {
        self.order(Order::Crash);
    }

    /// SIGKILL, and it stays down until [`Supervised::power_on`].
    pub fn power_off(&self) {
        self.order(Order::PowerOff);
    }

    /// Starts it again after a power-off.
    pub fn power_on(&self) {
        self.order(Order::PowerOn);
    }

    /// SIGSTOP: it stands still until [`Supervised::thaw`]. A process that is just being started again waits.
    pub fn freeze(&self) {
        self.order(Order::Freeze);
    }

    /// SIGCONT: it goes on where it was.
    pub fn thaw(&self) {
        self.order(Order::Thaw);
    }

    /// Waits until the process has ended, after the shutdown token was cancelled.
    pub async fn stopped(&self) {
        let mut state = self.state.clone();
        // An error means that the supervisor is gone, which takes the process along.
        let _ = state.wait_for(|state| *state == ChildState::Stopped).await;
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_err() {
            tracing::debug!(child = self.spec.name, "order after the end");
        }
    }
}

struct Supervisor {
    spec: ChildSpec,
    restarts: u32,
    frozen: bool,
    publish: watch::Sender<ChildState>,
    inbox: mpsc::UnboundedReceiver<Order>,
    shutdown: CancellationToken,
}

/// Why a process is no longer there.
enum Ended {
    Crashed(String, bool),
    Off,
    Shutdown,
}

impl Supervisor {
    async fn run(mut self, first: Started) {
        let mut started = first;
        loop {
            let ended = self.attend(&mut started.child).await;
            let proceed = match ended {
                Ended::Shutdown => false,
                Ended::Off => self.wait_for_power().await,
                Ended::Crashed(how, refused) => {
                    self.publish.send_replace(ChildState::Crashed { how, refused });
                    self.pause().await
                }
            };
            let next = if proceed { self.restart().await } else { None };
            match next {
                Some(next) => started = next,
                None => break,
            }
        }
        self.publish.send_replace(ChildState::Stopped);
    }

    /// Watches a running process until it is gone.
    async fn attend(&mut self, child: &mut Child) -> Ended {
        let mut ordered = false;
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => {
                    stop(child, &self.spec.name).await;
                    return Ended::Shutdown;
                }
                order = self.inbox.recv() => match order {
                    Some(Order::Crash) => {
                        ordered = true;
                        if let Err(error) = child.start_kill() {
                            tracing::debug!(child = self.spec.name, %error, "already gone");
                        }
                    }
                    Some(Order::PowerOff) => {
                        // Already gone is as good as killed.
                        let _ = child.kill().await;
                        return Ended::Off;
                    }
                    Some(Order::PowerOn) => {}
                    Some(Order::Freeze) => {
                        self.frozen = true;
                        signal(child, Signal::SIGSTOP, &self.spec.name);
                    }
                    Some(Order::Thaw) => {
                        self.frozen = false;
                        signal(child, Signal::SIGCONT, &self.spec.name);
                    }
                    None => {
                        let _ = child.kill().await;
                        return Ended::Shutdown;
                    }
                },
                status = child.wait() => {
                    let (how, refused) = match status {
                        Ok(status) => (ending(status), status.code() == Some(2)),
                        Err(error) => (error.to_string(), false),
                    };
                    let (child, log) = (&self.spec.name, self.spec.log.display());
                    if ordered {
                        tracing::debug!(child, how, "child killed as ordered");
                    } else {
                        tracing::warn!(child, how, %log, "child ended by itself, starting it again");
                    }
                    return Ended::Crashed(how, refused);
                }
            }
        }
    }

    /// `false`: the lab ends first.
    async fn wait_for_power(&mut self) -> bool {
        self.publish.send_replace(ChildState::Off);
        self.frozen = false;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return false,
                order = self.inbox.recv() => match order {
                    Some(Order::PowerOn) => return true,
                    Some(Order::Crash | Order::PowerOff | Order::Freeze | Order::Thaw) => {}
                    None => return false,
                },
            }
        }
    }

    /// The pause before a restart, or a power-off that comes in between.
    async fn pause(&mut self) -> bool {
        let due = tokio::time::Instant::now() + RESTART_AFTER;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return false,
                // Nothing is started on a machine that stands still.
                () = tokio::time::sleep_until(due), if !self.frozen => return true,
                order = self.inbox.recv() => match order {
                    Some(Order::PowerOff) => return self.wait_for_power().await,
                    Some(Order::Freeze) => self.frozen = true,
                    Some(Order::Thaw) => self.frozen = false,
                    Some(Order::PowerOn | Order::Crash) => {}
                    None => return false,
                },
            }
        }
    }

    async fn restart(&mut self) -> Option<Started> {
        loop {
            match spawn(&self.spec) {
                Ok(started) => {
                    self.restarts += 1;
                    let pid = started.child.id().unwrap_or_default();
                    self.publish.send_replace(ChildState::Running {
                        pid,
                        restarts: self.restarts,
                    });
                    return Some(started);
                }
                Err(error) => {
                    tracing::error!(child = self.spec.name, %error, "restart failed");
                    self.publish.send_replace(ChildState::Crashed {
                        how: error.to_string(),
                        refused: false,
                    });
                    if !self.pause().await {
                        return None;
                    }
                }
            }
        }
    }
}

/// A process and the end of its standard input that only we hold. (`Child::wait` would close what it owns.)
struct Started {
    child: Child,
    _lifeline: Option<ChildStdin>,
}

/// Whether a variable of the user's is a setting, which is meant for another cluster than the lab's.
fn is_for_another_cluster(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"EVENKEEL_") && !INHERITED.iter().any(|kept| name == *kept)
}

fn spawn(spec: &ChildSpec) -> Result<Started, StartError> {
    let failed = |source| StartError {
        name: spec.name.clone(),
        program: spec.program.display().to_string(),
        source,
    };
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&spec.log)
        .map_err(failed)?;
    let copy = log.try_clone().map_err(failed)?;
    let identity = spec.candidate.iter().flat_map(|name| {
        [
            "--identity".to_owned(),
            format!("{name}_{:016x}", rand::random::<u64>()),
        ]
    });
    let mut child = Command::new(&spec.program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_for_another_cluster(name)) {
        child.env_remove(name);
    }
    let mut child = child
        .args(&spec.args)
        .args(identity)
        .env(PARENT_STDIN, "1")
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(copy)
        // Its own process group: Ctrl-C reaches the lab alone, which then stops its children in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let lifeline = child.stdin.take();
    Ok(Started {
        child,
        _lifeline: lifeline,
    })
}

/// SIGTERM, and SIGKILL after the grace period.
async fn stop(child: &mut Child, name: &str) {
    signal(child, Signal::SIGTERM, name);
    // A frozen process hears of it only once it goes on.
    signal(child, Signal::SIGCONT, name);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        tracing::warn!(child = name, "did not stop within {} s, killed", GRACE.as_secs());
        // Already gone is as good as killed.
        let _ = child.kill().await;
    }
}

fn signal(child: &Child, signal: Signal, name: &str) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok())
        && let Err(error) = kill(Pid::from_raw(pid), signal)
    {
        tracing::debug!(child = name, %error, "already gone");
    }
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(signal) => signal.as_str().to_owned(),
            Err(_) => format!("signal {signal}"),
        },
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_own_binary_is_used_where_it_lies_beside_the_other() {
        let place = tempfile::tempdir().unwrap();
        let binary = place.path().join("evenkeel");
        assert_eq!(agent_beside(&binary), None);
        let agent = place.path().join("evenkeel-agent");
        std::fs::create_dir(&agent).unwrap();
        assert_eq!(agent_beside(&binary), None, "a folder is no binary");
        std::fs::remove_dir(&agent).unwrap();
        std::fs::write(&agent, "").unwrap();
        let built = |path: &Path, second: u64| {
            let file = std::fs::File::options()
                .append(true)
                .create(true)
                .open(path)
                .unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(second))
                .unwrap();
        };
        for (own, agents, is_used) in [
            (5_000, 5_000, true),
            (5_000, 1_400, true),
            (5_001, 1_400, false),
            (0, 9_000, true),
        ] {
            built(&binary, own);
            built(&agent, agents);
            assert_eq!(agent_beside(&binary).is_some(), is_used, "{own} {agents}");
        }
    }
    #[test]
    fn settings_for_other_clusters_do_not_reach_children() {
        for (name, kept) in [
            ("EVENKEEL_NAMESPACE", false),
            ("EVENKEEL_LOG_FORMAT", true),
            ("EVENKEEL_LOG", true),
            ("KUBECONFIG", true),
            ("MY_EVENKEEL_MODE", true),
        ] {
            assert_eq!(!is_for_another_cluster(OsStr::new(name)), kept, "{name}");
        }
    }
}
