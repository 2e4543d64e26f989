//! The processes of a machine that stand for containers. They outlive its kubelet, which may be restarted,
//! and go with the machine's power.
//!
//! Each is attended by a task of the lab, which alone signals it: so no signal reaches a process that took
//! over the number of one that has ended.

use super::{line::Line, output};
use evenkeel_vnode::provider::{ContainerId, Doing, Exit, Host, Observed, PodId, Report};
use jiff::Timestamp;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    net::IpAddr,
    os::unix::{fs::OpenOptionsExt as _, process::ExitStatusExt as _},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::{mpsc, watch},
};

/// Begin of the IDs of containers that are processes. No boot of a simulated machine is called so.
const ID: &str = "simulated://process/";
/// Time for what a process printed last, once it has ended.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Time that processes get when the lab stops.
const GRACE: Duration = Duration::from_secs(5);

/// The processes of one machine.
pub struct Processes {
    /// Of the lab: tasks of the machine's own end with its kubelet.
    runtime: Handle,
    table: Mutex<Table>,
    /// Whether containers of the agent may run.
    agents: watch::Sender<bool>,
}

#[derive(Default)]
struct Table {
    /// By UID.
    pods: BTreeMap<Arc<str>, Entry>,
    /// Who is told of ends.
    host: Option<Arc<dyn Host>>,
    /// Nothing starts any more, or until the machine is switched on.
    dark: bool,
}

struct Entry {
    id: PodId,
    folder: PathBuf,
    address: IpAddr,
    /// All runs of all containers, oldest first.
    runs: Vec<Run>,
}

/// A container that runs or has run.
#[derive(Clone)]
pub struct Run {
    pub id: ContainerId,
    pub container: Arc<str>,
    /// Whether it is an agent of Evenkeel.
    pub is_agent: bool,
    pub started: Timestamp,
    pub log: PathBuf,
    pub pid: u32,
    /// How it ended, once it has.
    pub ended: watch::Receiver<Option<Exit>>,
    orders: mpsc::UnboundedSender<Signal>,
}

/// A process to be started.
pub struct Start {
    pub pod: PodId,
    /// Directory of the pod, which is removed with it.
    pub folder: PathBuf,
    /// The address at which its ports are in truth.
    pub address: IpAddr,
    pub container: Arc<str>,
    pub is_agent: bool,
    pub line: Line,
    pub log: PathBuf,
    /// Whether the end of the log is the message of a container that failed.
    pub last_words: bool,
}

impl Run {
    fn observed(&self) -> Observed {
        let doing = match &*self.ended.borrow() {
            Some(exit) => Doing::Ended(exit.clone()),
            None => Doing::Running { since: self.started },
        };
        Observed {
            id: self.id.clone(),
            doing,
        }
    }

    fn order(&self, signal: Signal) {
        if self.orders.send(signal).is_err() {
            tracing::debug!(container = %self.id, ?signal, "a process that has ended was to be signalled");
        }
    }

    /// Whether it has not ended.
    pub fn runs(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// How it ended; waits until it has.
    async fn exit(&mut self) -> Option<Exit> {
        let exit = self.ended.wait_for(Option::is_some).await;
        exit.ok().and_then(|exit| exit.clone())
    }

    /// TERM, and KILL once `grace` is over. `None`: whoever attended it is gone, and the process with it.
    pub async fn stop(mut self, grace: Duration) -> Option<Exit> {
        if self.runs() && !grace.is_zero() {
            self.order(Signal::SIGTERM);
            // One that stands still hears of it only once it goes on.
            self.order(Signal::SIGCONT);
            if let Ok(exit) = tokio::time::timeout(grace, self.exit()).await {
                return exit;
            }
        }
        self.order(Signal::SIGKILL);
        self.exit().await
    }
}

impl Processes {
    /// None yet. They are attended in `runtime`, which is the lab's.
    pub fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            table: Mutex::default(),
            agents: watch::Sender::new(true),
        }
    }

    /// From now on this kubelet is told of processes that end.
    pub fn connect(&self, host: Arc<dyn Host>) {
        self.table().host = Some(host);
    }

    /// Starts a process, unless the container has one that runs.
    pub fn start(self: &Arc<Self>, start: Start) -> io::Result<Run> {
        let mut table = self.table();
        if table.dark {
            return Err(io::Error::other("the machine has no power"));
        }
        let entry = table
            .pods
            .entry(Arc::clone(&start.pod.uid))
            .or_insert_with(|| Entry {
                id: start.pod.clone(),
                folder: start.folder.clone(),
                address: start.address,
                runs: Vec::new(),
            });
        let newest = entry.runs.iter().rfind(|run| run.container == start.container);
        if let Some(run) = newest.filter(|run| run.runs()) {
            // An answer that got lost: there is no second one beside it.
            return Ok(run.clone());
        }
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&start.log)?;
        let _runtime = self.runtime.enter();
        let child = spawn(&start.line)?;
        let (orders, inbox) = mpsc::unbounded_channel();
        let (publish, ended) = watch::channel(None);
        let run = Run {
            id: ContainerId(format!("{ID}{:016x}", rand::random::<u64>()).into()),
            container: Arc::clone(&start.container),
            is_agent: start.is_agent,
            started: Timestamp::now(),
            log: start.log.clone(),
            pid: child.id().unwrap_or_default(),
            ended,
            orders,
        };
        entry.runs.push(run.clone());
        drop(table);
        // Nothing here keeps the run itself: once nobody else does, the process ends.
        let (processes, id, started) = (Arc::downgrade(self), run.id.clone(), run.started);
        self.runtime.spawn(async move {
            let status = attend(child, inbox, Arc::new(log)).await;
            let exit = exit(status, &start, started);
            publish.send_replace(Some(exit.clone()));
            let Some(processes) = processes.upgrade() else {
                return;
            };
            let host = processes.table().host.clone();
            if let Some(host) = host {
                host.report(Report::Container {
                    pod: start.pod,
                    name: start.container,
                    observed: Observed {
                        id,
                        doing: Doing::Ended(exit),
                    },
                });
            }
        });
        Ok(run)
    }

    /// What became of a container.
    pub fn run(&self, pod: &PodId, id: &ContainerId) -> Option<Run> {
        let table = self.table();
        let entry = table.pods.get(&pod.uid)?;
        entry.runs.iter().find(|run| run.id == *id).cloned()
    }

    /// Whether a container is, or was, a process.
    pub fn owns(id: &ContainerId) -> bool {
        id.0.starts_with(ID)
    }

    /// The containers of a pod, of each the newest run.
    pub fn observed(&self, pod: &PodId) -> BTreeMap<String, Observed> {
        let table = self.table();
        let runs = table.pods.get(&pod.uid).into_iter().flat_map(|entry| &entry.runs);
        runs.map(|run| (run.container.to_string(), run.observed()))
            .collect()
    }

    /// Where the ports of a pod with processes are.
    pub fn address(&self, pod: &PodId) -> Option<IpAddr> {
        self.table().pods.get(&pod.uid).map(|entry| entry.address)
    }

    /// Pods that have or had a process, with their directories.
    pub fn pods(&self) -> Vec<(PodId, PathBuf)> {
        let table = self.table();
        let entries = table.pods.values();
        entries
            .map(|entry| (entry.id.clone(), entry.folder.clone()))
            .collect()
    }

    /// Ends what is left of a pod, and removes its directory.
    pub async fn delete(&self, pod: &PodId) -> io::Result<()> {
        let Some(entry) = self.table().pods.remove(&pod.uid) else {
            return Ok(());
        };
        for run in entry.runs {
            // What matters is that it has ended.
            let _ = run.stop(Duration::ZERO).await;
        }
        match fs::remove_dir_all(&entry.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Processes that run, with the names of their pods.
    pub fn running(&self) -> Vec<(String, Run)> {
        let table = self.table();
        let of = |entry: &Entry| {
            let runs = entry.runs.iter().filter(|run| run.runs());
            let name = entry.id.name.to_string();
            runs.map(|run| (name.clone(), run.clone())).collect::<Vec<_>>()
        };
        table.pods.values().flat_map(of).collect()
    }

    /// How often the agent was started in its present pod; `None` where there is none.
    pub fn agent(&self) -> Option<(bool, usize)> {
        let table = self.table();
        let agents = |entry: &Entry| {
            entry
                .runs
                .iter()
                .filter(|run| run.is_agent)
                .cloned()
                .collect::<Vec<_>>()
        };
        let of_pods = table.pods.values().map(agents).filter(|runs| !runs.is_empty());
        let newest = of_pods.max_by_key(|runs| runs.last().map(|run| run.started))?;
        Some((newest.last().is_some_and(Run::runs), newest.len()))
    }

    /// SIGKILL to those that `wanted` names, as a crash; whether there were any.
    pub fn crash(&self, wanted: impl Fn(&str, &Run) -> bool) -> bool {
        let running = self.running();
        let hit = running.iter().filter(|(pod, run)| wanted(pod, run));
        hit.map(|(_, run)| run.order(Signal::SIGKILL)).count() > 0
    }

    /// Ends the agent, and keeps it from starting until [`Processes::release_agent`].
    pub fn hold_agent(&self) {
        self.agents.send_replace(false);
        self.crash(|_, run| run.is_agent);
    }

    /// Lets the agent start again.
    pub fn release_agent(&self) {
        self.agents.send_replace(true);
    }

    /// Waits until the agent may start.
    pub async fn agent_may_start(&self) {
        // The sender is ours.
        let _ = self.agents.subscribe().wait_for(|may| *may).await;
    }

    /// All stand still.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// All go on.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// All end at once, nobody is told, and none starts until [`Processes::power_on`].
    pub async fn power_off(&self) {
        self.end(Duration::ZERO).await;
    }

    /// Processes may start: of those before nothing is known any more.
    pub fn power_on(&self) {
        self.agents.send_replace(true);
        self.table().dark = false;
    }

    /// All are told to end, and are made to.
    pub async fn stop(&self) {
        self.end(GRACE).await;
    }

    async fn end(&self, grace: Duration) {
        let entries = {
            let mut table = self.table();
            table.dark = true;
            table.host = None;
            std::mem::take(&mut table.pods)
        };
        let runs = entries.into_values().flat_map(|entry| entry.runs);
        futures::future::join_all(runs.filter(Run::runs).map(|run| run.stop(grace))).await;
    }

    fn signal(&self, signal: Signal) {
        for (_, run) in self.running() {
            run.order(signal);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every operation leaves the table whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn(line: &Line) -> io::Result<Child> {
    Command::new(&line.program)
        .args(&line.args)
        .env_clear()
        .envs(line.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C reaches the lab alone, which then stops its processes in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Passes signals on until the process has ended, and all that it printed is kept.
async fn attend(
    mut child: Child,
    mut inbox: mpsc::UnboundedReceiver<Signal>,
    log: Arc<File>,
) -> io::Result<ExitStatus> {
    // Its end is the end of the lab for the process. (`Child::wait` would close what it owns.)
    let _lifeline = child.stdin.take();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let printed = {
        let log = Arc::clone(&log);
        async move {
            let out = async {
                if let Some(out) = out {
                    output::keep(out, "stdout", Arc::clone(&log)).await;
                }
            };
            let err = async {
                if let Some(err) = err {
                    output::keep(err, "stderr", Arc::clone(&log)).await;
                }
            };
            tokio::join!(out, err);
        }
    };
    let mut printed = std::pin::pin!(printed);
    let mut all = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            () = &mut printed, if !all => all = true,
            order = inbox.recv() => {
                let Some(signal) = order else {
                    // Nobody is left who could ask for anything.
                    child.start_kill()?;
                    break child.wait().await;
                };
                send(&child, signal);
            }
        }
    };
    if !all {
        // A child of its own may keep the pipe open.
        let _ = tokio::time::timeout(LAST_LINES, printed).await;
    }
    status
}

fn send(child: &Child, signal: Signal) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else {
        return;
    };
    if let Err(error) = kill(Pid::from_raw(pid), signal) {
        tracing::debug!(pid, ?signal, %error, "a process could not be signalled");
    }
}

fn exit(status: io::Result<ExitStatus>, start: &Start, started: Timestamp) -> Exit {
    let code = match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => code,
            (None, signal) => 128 + signal.unwrap_or_default(),
        },
        Err(error) => {
            tracing::warn!(pod = %start.pod, %error, "nobody knows how a process ended");
            255
        }
    };
    let message = if code != 0 && start.last_words {
        output::last_words(&start.log)
    } else {
        String::new()
    };
    Exit {
        code,
        reason: String::new(),
        message,
        started_at: Some(started),
        at: Timestamp::now(),
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;
