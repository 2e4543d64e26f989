//! Evenkeel's command line: each sub-command is a thin face on a crate.

mod failure;

use clap::{Parser, Subcommand};
use evenkeel_net::log::LogArgs;
use failure::Failure;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps Kubernetes workloads running when nodes, links or controllers fail.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch the neighbours of a node, and vote on who is dead
    Agent(evenkeel_agent::AgentArgs),
    /// Decide what becomes of nodes that went silent, and serve the admission webhook
    Controller(evenkeel_failover::ControllerArgs),
    /// Stand in for the stock node lifecycle and taint eviction controllers
    NodeLifecycle(evenkeel_failover::stock::NodeLifecycleArgs),
    /// Serve an embedded Kubernetes API, for tests
    Apiserver(evenkeel_apiserver::cli::ApiServerArgs),
    /// Run a zone of simulated nodes with real agents, and break it
    Lab(evenkeel_lab::LabArgs),
}

fn main() -> ExitCode {
    evenkeel_net::init_crypto();
    let cli = Cli::parse();
    match start(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

#[tokio::main]
async fn start(cli: Cli) -> Result<ExitCode, Failure> {
    // The lab tells its story on standard output; its children log to files of their own.
    let level = if matches!(cli.command, Command::Lab(_)) {
        "warn"
    } else {
        "info"
    };
    cli.log.init(level).map_err(Failure::usage)?;
    let shutdown = evenkeel_net::shutdown::on_signals().map_err(|error| Failure::later(&error))?;
    evenkeel_lab::stop_with_parent(&shutdown).map_err(|error| Failure::later(&error))?;
    run(cli.command, shutdown).await
}

async fn run(command: Command, shutdown: CancellationToken) -> Result<ExitCode, Failure> {
    match command {
        Command::Agent(args) => {
            let ran = evenkeel_agent::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(error.exit_code(), &error))?;
        }
        Command::Controller(args) => {
            let ran = evenkeel_failover::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(if error.is_config() { 2 } else { 1 }, &error))?;
        }
        Command::NodeLifecycle(args) => {
            let ran = evenkeel_failover::stock::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(if error.is_config() { 2 } else { 1 }, &error))?;
        }
        Command::Apiserver(args) => {
            let ran = evenkeel_apiserver::cli::run(args, shutdown).await;
            ran.map_err(|error| Failure::new(error.exit_code(), &error))?;
        }
        Command::Lab(args) => {
            let ran = evenkeel_lab::run(args, shutdown).await;
            let outcome = ran.map_err(|error| Failure::new(error.code(), &error))?;
            return Ok(ExitCode::from(outcome.code()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
