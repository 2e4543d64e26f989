//! `evenkeel lab`: its flags, and what each command does.

use crate::{
    console::Console,
    control::{self, ControlError, Fault},
    directory::{self, DirectoryError},
    join::{CleanError, JoinArgs, JoinError, Joinable},
    running::{CONTROL_PLANE, Lab, Presence, Settings, SetupError},
    scenario::{
        DEFAULT_NODES, MAX_NODES, ScenarioError, Span, StockTimers,
        crash::{MAX_CONTROLLERS, Replica},
        layout::Layout,
    },
    supervise,
    switch::links::Way,
};
use clap::{Args, Subcommand};
use control::status::Status;
use evenkeel_api::policy::Profile;
use evenkeel_net::output::{self, Format};
use scenario::run_scenario;
use std::{
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use welcome::welcome;

mod scenario;
mod welcome;

/// A zone of simulated nodes with real agents around an embedded API server, and faults on demand.
#[derive(Clone, Debug, Args)]
pub struct LabArgs {
    /// Without one a lab is started.
    #[command(subcommand)]
    pub command: Option<LabCommand>,
    /// Number of nodes [default: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_NODES)))]
    pub nodes: Option<u8>,
    /// Zones with their sizes, instead of --nodes: `north=3,south=5`. Nodes are called `north-1` and so on.
    #[arg(long, value_name = "ZONE=N,...", conflicts_with = "nodes", value_parser = Layout::parse_zones)]
    pub zones: Option<Layout>,
    /// Number of controllers, 1 to 3 [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_CONTROLLERS)))]
    pub controllers: Option<u8>,
    /// Defaults that the controllers run with [default: edge].
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<Profile>,
    /// Port of the API server on 127.0.0.1; 0 takes a free one.
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        global = true,
        conflicts_with = "join"
    )]
    pub port: u16,
    /// Directory of the lab: kubeconfig, logs, keys.
    #[arg(long, value_name = "DIR", default_value = directory::DEFAULT, global = true, env = "EVENKEEL_LAB_DIR")]
    pub dir: PathBuf,
    /// Leave out agents and controller: stock Kubernetes alone.
    #[arg(long, global = true)]
    pub without_agents: bool,
    /// Install Evenkeel as `evenkeel install` does: agents and controllers are pods with the rights of their
    /// accounts. The lab then has two machines of a control plane for the controllers. With --join these pods
    /// run agents and controllers on this machine, and it has to own the addresses of the pods: as root, `ip
    /// route add local 198.18.0.0/15 dev lo`.
    #[arg(long, global = true, conflicts_with_all = ["without_agents", "address"])]
    pub installed: bool,
    /// Have everything that --installed needs, and leave the installation to you: the lab says how.
    #[arg(long, conflicts_with_all = ["installed", "without_agents", "address"])]
    pub installable: bool,
    /// Third octet of the lab's addresses (127.77.N.x, 127.78.N.x), for several labs on one machine.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        global = true,
        env = "EVENKEEL_LAB_SUBNET"
    )]
    pub subnet: u8,
    /// Decides which datagrams are lost on lossy links.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, global = true)]
    pub seed: u64,
    /// A control plane to join.
    #[command(flatten)]
    pub join: JoinArgs,
}

impl LabArgs {
    /// How Evenkeel is to be there.
    fn presence(&self) -> Presence {
        match (self.without_agents, self.installed, self.installable) {
            (true, _, _) => Presence::Absent,
            (_, true, _) => Presence::Installed,
            (_, _, true) => Presence::Installable,
            (false, false, false) => Presence::Processes,
        }
    }

    /// The control plane that a new lab joins; see [`JoinArgs::cluster`].
    async fn cluster(&self, shutdown: &CancellationToken) -> Result<Option<Joinable>, JoinError> {
        self.join.cluster(self.presence().is_in_pods(), shutdown).await
    }
}

/// What to do with a lab.
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// Play a scenario in a lab of its own; the exit code says whether every assertion held.
    Run {
        /// Scenario file, or a built-in one: `tour`, `crash`, `stall`, `isolated`, `split`, `dark`,
        /// `three-zones`, `api-restart`, `power-off`, `power-off-builtin`.
        scenario: String,
        /// Play it so often, each time in a new lab, and print the distribution of what was measured.
        #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
        repeat: u32,
        /// Write what was measured as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
    },
    /// Cut a link of a node in the running lab.
    Cut {
        /// The node.
        node: String,
        /// The other end: `cloud`, `peers` or a node.
        #[arg(long, value_name = "END", default_value = "cloud")]
        link: String,
        /// Only what comes from the node is lost.
        #[arg(long, conflicts_with = "to")]
        from: bool,
        /// Only what goes to the node is lost.
        #[arg(long)]
        to: bool,
        /// Delay by so many milliseconds instead of cutting.
        #[arg(long, value_name = "MS")]
        delay: Option<u64>,
        /// Lose so many percent of datagrams instead of cutting.
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
        drop: Option<u8>,
    },
    /// Switch a node off in the running lab.
    Kill {
        /// The node.
        node: String,
    },
    /// Freeze a whole machine in the running lab for a time: nothing answers, nothing is lost.
    Stall {
        /// The node.
        node: String,
        /// How long, such as 3s.
        #[arg(long, value_name = "DURATION")]
        r#for: Span,
    },
    /// Stop a kubelet in the running lab for a time; containers and agent go on.
    RestartKubelet {
        /// The node.
        node: String,
        /// How long, such as 20s.
        #[arg(long, value_name = "DURATION")]
        r#for: Span,
    },
    /// Stop an agent in the running lab for a time; kubelet and containers go on.
    RestartAgent {
        /// The node.
        node: String,
        /// How long, such as 20s.
        #[arg(long, value_name = "DURATION")]
        r#for: Span,
    },
    /// Kill a process in the running lab; it is started again.
    Crash {
        /// Which.
        #[command(subcommand)]
        what: CrashTarget,
    },
    /// Repair links and switch nodes on.
    Heal {
        /// The node; without it everything.
        node: Option<String>,
    },
    /// Remove what a lab left on the control plane that it joined (--join), after a `kill -9`.
    Clean,
    /// Show the running lab, live.
    Watch,
    /// Show the running lab, once.
    Status {
        /// How to print: a table, a table with the full keys of taints, or everything for programs.
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Format,
    },
}

/// What can be crashed.
#[derive(Clone, Debug, Subcommand)]
pub enum CrashTarget {
    /// The agent of a node.
    Agent {
        /// The node.
        node: String,
    },
    /// The controller; where there are several, all of them unless one is named.
    Controller {
        /// `leader`, `all`, or a number from 1.
        #[arg(default_value = "all")]
        which: Replica,
    },
    /// The API server, which comes back after a time with its objects and without the history of watches.
    Apiserver {
        /// How long, such as 6s.
        #[arg(long, value_name = "DURATION")]
        r#for: Span,
        /// The stand-in for the stock controllers dies with it, and is started again after it.
        #[arg(long)]
        stock: bool,
    },
}

/// How a command ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// An assertion failed.
    Failed,
    /// The user ended it before it was over.
    Interrupted,
}

impl Outcome {
    /// Exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Interrupted => 130,
        }
    }
}

/// Why a command did not do what it should; one line.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Flags that do not go together.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The control plane that was to be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Clean(#[from] CleanError),
    /// The lab did not start.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The running lab.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A file of the lab.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The control socket.
    #[error("cannot listen on {path}: {source}; choose a shorter or another directory with --dir")]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write the report {path}: {source}; choose another file with --report")]
    Report {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The own binary, which children run.
    #[error("cannot find the own program: {0}; name it with EVENKEEL_BIN")]
    Program(#[source] io::Error),
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
}

impl LabError {
    /// Exit code of the process: 2 for what another command line would mend, 1 for the rest.
    pub fn code(&self) -> u8 {
        let usage = match self {
            Self::Usage(_)
            | Self::Scenario(_)
            | Self::Directory(_)
            | Self::Join(_)
            | Self::Socket { .. }
            | Self::Report { .. } => true,
            Self::Setup(error) => error.is_usage(),
            Self::Control(error) => error.is_usage(),
            Self::Output(_) | Self::Program(_) | Self::Clean(_) => false,
        };
        if usage { 2 } else { 1 }
    }
}

/// Does what the command line says, until it is done or `shutdown`. Call [`evenkeel_net::init_crypto`]
/// before.
pub async fn run(args: LabArgs, shutdown: CancellationToken) -> Result<Outcome, LabError> {
    check_flags(&args)?;
    let dir = args.dir.clone();
    match args.command.clone() {
        None => stay(&args, shutdown).await,
        Some(LabCommand::Run {
            scenario,
            repeat,
            report,
        }) => {
            Box::pin(run_scenario(
                &args,
                &scenario,
                repeat,
                report.as_deref(),
                shutdown,
            ))
            .await
        }
        Some(LabCommand::Cut {
            node,
            link,
            from,
            to,
            delay,
            drop,
        }) => {
            let way = match (from, to) {
                (true, _) => Way::From,
                (_, true) => Way::To,
                (false, false) => Way::Both,
            };
            order(
                &dir,
                Fault::Cut {
                    node,
                    link,
                    way,
                    delay_ms: delay,
                    drop_percent: drop,
                },
            )
            .await
        }
        Some(LabCommand::Kill { node }) => order(&dir, Fault::Kill { node }).await,
        Some(LabCommand::Crash {
            what: CrashTarget::Agent { node },
        }) => order(&dir, Fault::CrashAgent { node }).await,
        Some(LabCommand::Crash {
            what: CrashTarget::Controller { which },
        }) => order(&dir, Fault::CrashController { which }).await,
        Some(LabCommand::Crash {
            what: CrashTarget::Apiserver { r#for, stock },
        }) => {
            let for_ms = r#for.millis();
            order(&dir, Fault::CrashApiServer { for_ms, stock }).await
        }
        Some(LabCommand::Stall { node, r#for }) => {
            let for_ms = r#for.millis();
            order(&dir, Fault::Stall { node, for_ms }).await
        }
        Some(LabCommand::RestartAgent { node, r#for }) => {
            let for_ms = r#for.millis();
            order(&dir, Fault::RestartAgent { node, for_ms }).await
        }
        Some(LabCommand::RestartKubelet { node, r#for }) => {
            let for_ms = r#for.millis();
            order(&dir, Fault::RestartKubelet { node, for_ms }).await
        }
        Some(LabCommand::Heal { node }) => order(&dir, Fault::Heal { node }).await,
        Some(LabCommand::Clean) => clean(&args, &shutdown).await,
        Some(LabCommand::Status { output }) => {
            let status = control::status(&dir).await?;
            let text = output.of(&status, Status::table).map_err(LabError::Output)?;
            output::print(&text).map_err(LabError::Output)?;
            Ok(Outcome::Success)
        }
        Some(LabCommand::Watch) => {
            let terminal = io::stdout().is_terminal();
            let watching = control::watch(&dir, |status| {
                let (clear, end) = if terminal {
                    ("\x1b[H\x1b[2J", "")
                } else {
                    ("", "\n")
                };
                print(&format!("{clear}{status}{end}"))
            });
            tokio::select! {
                () = shutdown.cancelled() => {}
                watched = watching => watched?,
            }
            Ok(Outcome::Success)
        }
    }
}

/// Flags that do not go with the command.
fn check_flags(args: &LabArgs) -> Result<(), LabError> {
    let of_a_new_lab = [
        ("--nodes", args.nodes.is_some()),
        ("--zones", args.zones.is_some()),
        ("--controllers", args.controllers.is_some()),
        ("--profile", args.profile.is_some()),
    ];
    if let (Some((flag, _)), Some(_)) = (of_a_new_lab.iter().find(|(_, given)| *given), &args.command) {
        let field = flag.trim_start_matches('-');
        return Err(LabError::Usage(format!(
            "{flag} goes with plain `evenkeel lab`; a scenario says it by itself (`{field}: …`), and a running lab stays as it is"
        )));
    }
    for (flag, given) in [
        ("--installed", args.installed),
        ("--installable", args.installable),
    ] {
        if given && args.controllers.is_some() {
            return Err(LabError::Usage(format!(
                "--controllers does not go with {flag}, where as many run as the Deployment says: two"
            )));
        }
    }
    if args.installable && args.profile.is_some() {
        let why = "--profile does not go with --installable: `evenkeel install` is told the profile";
        return Err(LabError::Usage(why.to_owned()));
    }
    let starts = matches!(args.command, None | Some(LabCommand::Run { .. }));
    if args.installable && args.command.is_some() {
        let why = "--installable goes with plain `evenkeel lab`";
        return Err(LabError::Usage(why.to_owned()));
    }
    if args.installed && !starts {
        let why = "--installed goes with plain `evenkeel lab` and `run`; a running lab stays as it is";
        return Err(LabError::Usage(why.to_owned()));
    }
    let joins = matches!(
        args.command,
        None | Some(LabCommand::Run { .. } | LabCommand::Clean)
    );
    if args.join.join.is_some() && !joins {
        let why = "--join goes with plain `evenkeel lab`, `run` and `clean`; other commands find the running lab by --dir";
        return Err(LabError::Usage(why.to_owned()));
    }
    Ok(())
}

async fn clean(args: &LabArgs, shutdown: &CancellationToken) -> Result<Outcome, LabError> {
    let Some(cluster) = args.join.cluster_to_clean(shutdown).await? else {
        return Err(LabError::Usage("clean needs --join KUBECONFIG".to_owned()));
    };
    let removed = Box::pin(cluster.clean()).await?;
    let said = match removed.join("\n") {
        none if none.is_empty() => "nothing of a lab is there\n".to_owned(),
        removed => format!("removed:\n{removed}\n"),
    };
    print(&said).map_err(LabError::Output)?;
    Ok(Outcome::Success)
}

async fn order(dir: &Path, fault: Fault) -> Result<Outcome, LabError> {
    let said = control::inflict(dir, fault).await?;
    print(&format!("{said}\n")).map_err(LabError::Output)?;
    Ok(Outcome::Success)
}

/// What a new lab is made of, beside the flags that hold for every lab.
struct Shape {
    layout: Layout,
    controllers: u8,
    profile: Profile,
    stock: StockTimers,
}

fn settings(args: &LabArgs, shape: Shape, join: Option<Joinable>) -> Result<Settings, LabError> {
    let is_taken = |name: &str| name.starts_with(CONTROL_PLANE);
    let presence = args.presence();
    if presence.is_in_pods() && shape.layout.places().iter().any(|place| is_taken(&place.name)) {
        return Err(LabError::Usage(format!(
            "with --installed and --installable the machines of the control plane are called {CONTROL_PLANE}-1 and {CONTROL_PLANE}-2: give nodes and \
             zones other names"
        )));
    }
    let program = supervise::binary().map_err(LabError::Program)?;
    Ok(Settings {
        layout: shape.layout,
        controllers: shape.controllers,
        profile: shape.profile,
        port: args.port,
        dir: args.dir.clone(),
        agent: supervise::agent_beside(&program),
        program,
        subnet: args.subnet,
        evenkeel: presence,
        stock: shape.stock,
        seed: args.seed,
        join,
    })
}

/// A lab that stays until it is told to end.
async fn stay(args: &LabArgs, shutdown: CancellationToken) -> Result<Outcome, LabError> {
    let console = Console::new();
    let nodes = args.nodes.unwrap_or(DEFAULT_NODES);
    let shape = Shape {
        layout: args.zones.clone().unwrap_or_else(|| Layout::one("shore", nodes)),
        controllers: args.controllers.unwrap_or(1),
        profile: args.profile.unwrap_or(Profile::Edge),
        // What is tried in the lab has the tolerations that Kubernetes gives, whatever the lab's own timers.
        stock: StockTimers {
            unreachable_toleration_seconds: StockTimers::KUBERNETES.unreachable_toleration_seconds,
            ..StockTimers::default()
        },
    };
    let settings = settings(args, shape, args.cluster(&shutdown).await?)?;
    let Some(lab) = start(settings, &console, &shutdown).await? else {
        return Ok(Outcome::Success);
    };
    let lab = Arc::new(lab);
    let serving = take_orders(&lab).await?;
    let applied = lab.apply(crate::SAMPLE, "the sample workload").await;
    if applied.is_ok() {
        let nodes = lab.node_names().len();
        tokio::select! {
            () = shutdown.cancelled() => {}
            // Shown as it is if it takes longer: the table tells.
            _ = lab.observer().wait_for(Duration::from_secs(15), |now| now.unready(nodes).is_empty()) => {}
        }
        console.text(&welcome(&lab, args));
        shutdown.cancelled().await;
        console.line("stopping");
    }
    stop(&lab, serving).await?;
    applied?;
    Ok(Outcome::Success)
}

/// `None`: told to end before it was up.
async fn start(
    settings: Settings,
    console: &Console,
    shutdown: &CancellationToken,
) -> Result<Option<Lab>, LabError> {
    match Lab::start(settings, &|text| console.line(text), shutdown).await {
        Ok(lab) => {
            console.line(&format!("the lab is up: {}", lab.url()));
            Ok(Some(lab))
        }
        Err(SetupError::Stopped) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn take_orders(lab: &Arc<Lab>) -> Result<tokio::task::JoinHandle<()>, LabError> {
    let path = lab.directory().control_socket();
    match control::bind(&path) {
        Ok(listener) => {
            let served = control::serve(listener, Arc::clone(lab), lab.shutdown_token());
            Ok(tokio::spawn(served))
        }
        Err(source) => {
            lab.stop().await?;
            Err(LabError::Socket { path, source })
        }
    }
}

async fn stop(lab: &Lab, serving: tokio::task::JoinHandle<()>) -> Result<(), LabError> {
    let stopped = lab.stop().await;
    if let Err(error) = serving.await {
        tracing::error!(%error, "the control socket failed");
    }
    Ok(stopped?)
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests;
