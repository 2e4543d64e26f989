//! `evenkeel vnode`: virtual nodes by one of the providers that there are.

use evenkeel_vnode::cli::{self, SIMULATED, ServeArgs, SimulatedArgs, VnodeError};
use tokio_util::sync::CancellationToken;

/// Virtual nodes, many in one process.
///
/// Registers nodes and runs the pods that are bound to them by way of a provider. Ended by a signal it leaves nodes and
/// pods as they are: the next process takes them over.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VnodeArgs {
    /// What runs the pods.
    #[arg(long, value_name = "NAME")]
    provider: ProviderArg,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    simulated: SimulatedArgs,
}

/// What runs the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ProviderArg {
    /// Nothing runs: pods start, log, serve, crash and end as their annotations say.
    Simulated,
}

pub(crate) async fn run(args: VnodeArgs, shutdown: CancellationToken) -> Result<(), VnodeError> {
    match args.provider {
        ProviderArg::Simulated => {
            let prepared = cli::simulated(&args.simulated)?;
            cli::run(args.serve, SIMULATED, async |_| Ok(prepared), shutdown).await
        }
    }
}
