//! Evenkeel's command line: each sub-command is a thin face on a crate.

mod help;
mod pages;
mod program;
mod vnode;

use clap::{Parser, Subcommand, ValueEnum as _};
use evenkeel_elect::{ElectArgs, keeper::KeeperArgs};
use evenkeel_failover::status::{self, StatusArgs};
use evenkeel_install::command::{self as installing, InstallArgs, UninstallArgs, UpgradeArgs};
use evenkeel_install::doctor::{self, DoctorArgs};
use evenkeel_net::failure::Failure;
use evenkeel_net::log::LogArgs;
use evenkeel_probe::cli::{self as probe_cli, ProbeArgs};
use evenkeel_settings::Configured;
use program::Program;
use std::ffi::OsString;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps Kubernetes workloads running when nodes, links or controllers fail.
#[derive(Parser)]
#[command(name = "evenkeel", version, long_version = evenkeel_net::version!(), propagate_version = true)]
struct Cli<C: Subcommand> {
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: C,
}

/// Every command.
#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value per process, made once")]
enum Any {
    #[command(flatten)]
    Command(Command),
    /// Not for people: what `elect` puts between itself and its command
    #[command(hide = true)]
    ElectKeeper(KeeperArgs),
}

/// What people use, and so what completions and manual pages show.
#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Service(Service),
    // Without a line of its own, so that the help is that of its arguments.
    Elect(ElectArgs),
    // Without a line of its own, so that the help is that of its arguments.
    Probe(ProbeArgs),
    // Without a line of its own, so that the help is that of its arguments.
    Status(StatusArgs),
    #[command(flatten)]
    Installation(Installation),
    #[command(flatten)]
    Pages(pages::Pages),
}

/// What brings Evenkeel to a cluster and takes it away, and finds what is in its way.
#[derive(Subcommand)]
enum Installation {
    // Without a line of its own, so that the help is that of its arguments.
    Doctor(DoctorArgs),
    // Without a line of its own, so that the help is that of its arguments.
    Install(InstallArgs),
    // Without a line of its own, so that the help is that of its arguments.
    Upgrade(UpgradeArgs),
    // Without a line of its own, so that the help is that of its arguments.
    Uninstall(UninstallArgs),
}

/// What runs until it is told to stop.
#[derive(Subcommand)]
enum Service {
    /// Watch the neighbours of a node, and vote on who is dead
    Agent(evenkeel_agent::AgentArgs),
    /// Decide what becomes of nodes that went silent, and serve the admission webhook
    Controller(Configured<evenkeel_failover::ControllerArgs>),
    /// Stand in for the stock node lifecycle and taint eviction controllers
    NodeLifecycle(evenkeel_stock::NodeLifecycleArgs),
    // Without a line of its own, so that the help is that of its arguments.
    Vnode(Box<vnode::VnodeArgs>),
    /// Serve an embedded Kubernetes API, for tests
    Apiserver(evenkeel_apiserver::cli::ApiServerArgs),
    /// Run a zone of simulated nodes with real agents, and break it
    Lab(evenkeel_lab::LabArgs),
}

fn main() -> ExitCode {
    evenkeel_net::init_crypto();
    let program = Program::of(std::env::args_os().next().as_deref());
    let started = Failure::of_usage(program.parse(std::env::args_os())).and_then(run);
    started.unwrap_or_else(|failure| failure.report(program.name()))
}

fn run(cli: Cli<Any>) -> Result<ExitCode, Failure> {
    let command = match cli.command {
        Any::Command(command) => command,
        Any::ElectKeeper(args) => return keep(&cli.log, args),
    };
    match command {
        Command::Service(service) => serve(&cli.log, service),
        Command::Elect(args) => elect(&cli.log, args),
        Command::Probe(args) => probe(&cli.log, args),
        Command::Status(args) => show(&cli.log, args),
        Command::Installation(what) => install(&cli.log, what),
        Command::Pages(what) => make(what),
    }
}

/// Pages describe the program under its own name, however it was called.
fn make(what: pages::Pages) -> Result<ExitCode, Failure> {
    let line = Program::Evenkeel.command::<Cli<Command>>();
    pages::run(what, line).map_err(|error| Failure::later(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Signals are the command's, too: the runner takes them itself.
#[tokio::main]
async fn elect(log: &LogArgs, args: ElectArgs) -> Result<ExitCode, Failure> {
    let _lines = log.init_unhindered("info").map_err(Failure::usage)?;
    let ran = evenkeel_elect::run(args, keeper_line(log)).await;
    let code = ran.map_err(|error| Failure::new(error.exit_code(), &error))?;
    Ok(ExitCode::from(code))
}

/// The keeper is on its own: the kernel ties the command's life to its main thread. It must end the command
/// in time, whether or not anybody reads what it says.
fn keep(log: &LogArgs, args: KeeperArgs) -> Result<ExitCode, Failure> {
    let _lines = log.init_unhindered("info").map_err(Failure::usage)?;
    let kept = evenkeel_elect::keeper::run(args, &keeper_line(log));
    kept.map_err(|error| Failure::new(error.exit_code(), &error))
}

/// This program's arguments for a keeper that logs as we do.
fn keeper_line(log: &LogArgs) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["elect-keeper".into()];
    if let Some(filter) = &log.log {
        line.extend(["--log".into(), filter.into()]);
    }
    if let Some(format) = log.log_format.to_possible_value() {
        line.extend(["--log-format".into(), format.get_name().into()]);
    }
    line
}

/// Manifests are checked by the rules that the embedded API server applies.
#[tokio::main]
async fn probe(log: &LogArgs, args: ProbeArgs) -> Result<ExitCode, Failure> {
    log.init("warn").map_err(Failure::usage)?;
    let shutdown = evenkeel_net::shutdown::on_signals().map_err(|error| Failure::later(&error))?;
    let ran = probe_cli::run(
        args,
        &|pod| {
            evenkeel_kube_rules::dry_run::pod(pod.clone())
                .err()
                .unwrap_or_default()
        },
        shutdown,
    )
    .await;
    let code = ran.map_err(|error| Failure::of_lines(error.exit_code(), error.lines()))?;
    Ok(ExitCode::from(code))
}

/// It reads and ends: an interrupt may end it at any moment.
#[tokio::main]
async fn show(log: &LogArgs, args: StatusArgs) -> Result<ExitCode, Failure> {
    log.init("warn").map_err(Failure::usage)?;
    let shown = status::run(args).await;
    // Whatever kept it from reading is for the caller to mend.
    let code = shown.map_err(|error| Failure::new(2, &error))?;
    Ok(ExitCode::from(code))
}

/// An interrupted installation takes back what it has made.
#[tokio::main]
async fn install(log: &LogArgs, what: Installation) -> Result<ExitCode, Failure> {
    log.init("warn").map_err(Failure::usage)?;
    let shutdown = evenkeel_net::shutdown::on_signals().map_err(|error| Failure::later(&error))?;
    let done = match what {
        Installation::Doctor(args) => {
            let code = Box::pin(doctor::run(args)).await;
            let code = code.map_err(|error| Failure::new(2, &error))?;
            return Ok(ExitCode::from(code));
        }
        Installation::Install(args) => Box::pin(installing::install(args, shutdown)).await,
        Installation::Upgrade(args) => Box::pin(installing::upgrade(args, shutdown)).await,
        Installation::Uninstall(args) => Box::pin(installing::uninstall(args, shutdown)).await,
    };
    done.map_err(|error| Failure::new(error.exit_code(), &error))?;
    Ok(ExitCode::SUCCESS)
}

#[tokio::main]
async fn serve(log: &LogArgs, service: Service) -> Result<ExitCode, Failure> {
    // The lab tells its story on standard output; its children log to files of their own.
    let level = if matches!(service, Service::Lab(_)) {
        "warn"
    } else {
        "info"
    };
    let _traces = log.init_traced(level, "evenkeel").map_err(Failure::usage)?;
    let shutdown = evenkeel_net::shutdown::on_signals().map_err(|error| Failure::later(&error))?;
    evenkeel_net::shutdown::stop_with_parent(&shutdown).map_err(|error| Failure::later(&error))?;
    Box::pin(until(service, shutdown)).await
}

async fn until(service: Service, shutdown: CancellationToken) -> Result<ExitCode, Failure> {
    match service {
        Service::Agent(args) => {
            let ran = evenkeel_agent::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(error.exit_code(), &error))?;
        }
        Service::Controller(args) => {
            let ran = evenkeel_failover::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(if error.is_config() { 2 } else { 1 }, &error))?;
        }
        Service::NodeLifecycle(args) => {
            let ran = evenkeel_stock::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(if error.is_config() { 2 } else { 1 }, &error))?;
        }
        Service::Vnode(args) => {
            let ran = vnode::run(*args, shutdown).await;
            ran.map_err(|error| Failure::new(error.exit_code(), &error))?;
        }
        Service::Apiserver(args) => {
            let ran = evenkeel_apiserver::cli::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(error.exit_code(), &error))?;
        }
        Service::Lab(args) => {
            let ran = evenkeel_lab::run(args, shutdown).await;
            let outcome = ran.map_err(|error| Failure::new(error.code(), &error))?;
            return Ok(ExitCode::from(outcome.code()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
