//! The agent alone: what `evenkeel agent` runs, on one thread and without everything else that the one binary
//! holds. It is meant for nodes with little memory; docs/benchmarks.md says what it takes.

use clap::Parser;
use evenkeel_agent::AgentArgs;
use evenkeel_net::failure::Failure;
use evenkeel_net::log::LogArgs;
use evenkeel_net::shutdown;
use std::process::ExitCode;

/// Watch the neighbours of a node, and vote on who is dead
#[derive(Parser)]
#[command(
    name = "evenkeel-agent",
    version,
    long_version = evenkeel_net::version!(),
    propagate_version = true
)]
struct Cli {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

fn main() -> ExitCode {
    evenkeel_net::init_crypto();
    let ended = Failure::of_usage(Cli::try_parse()).and_then(run);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("evenkeel-agent"),
    }
}

/// One thread is enough: an agent waits nearly all of the time, and each further thread costs memory for its
/// stack and its share of the allocator.
#[tokio::main(flavor = "current_thread")]
async fn run(cli: Cli) -> Result<(), Failure> {
    let _traces = cli.log.init_traced("info", "evenkeel").map_err(Failure::usage)?;
    let stop = shutdown::on_signals().map_err(|error| Failure::later(&error))?;
    shutdown::stop_with_parent(&stop).map_err(|error| Failure::later(&error))?;
    let ran = Box::pin(evenkeel_agent::run(cli.agent, stop)).await;
    ran.map_err(|error| Failure::new(error.exit_code(), &error))
}
