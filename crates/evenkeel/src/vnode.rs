//! `evenkeel vnode`: virtual nodes by one of the providers that there are.

use evenkeel_api::names;
use evenkeel_election::unique_identity_of;
use evenkeel_koupleless::cli::KouplelessArgs;
use evenkeel_koupleless::process::{Process, ProcessError};
use evenkeel_vnode::cli::{self, Prepared, SIMULATED, ServeArgs, SimulatedArgs, VnodeError};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Bases that one process may have, for its limit of open files.
const BASES: usize = 1000;

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
    #[command(flatten)]
    koupleless: KouplelessArgs,
}

/// What runs the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ProviderArg {
    /// Nothing runs: pods start, log, serve, crash and end as their annotations say.
    Simulated,
    /// Koupleless bases are nodes, the modules in them are containers.
    Koupleless,
}

pub(crate) async fn run(args: VnodeArgs, shutdown: CancellationToken) -> Result<(), VnodeError> {
    match args.provider {
        ProviderArg::Simulated => {
            let prepared = cli::simulated(&args.simulated)?;
            cli::run(args.serve, SIMULATED, async |_| Ok(prepared), shutdown).await
        }
        ProviderArg::Koupleless => {
            let flags = args.koupleless;
            let identity = args.serve.identity.clone();
            let identity = identity.unwrap_or_else(|| unique_identity_of("koupleless"));
            let prepare = async |around: cli::Surroundings<'_>| {
                let namespace = names::NAMESPACE;
                let process = Process::prepare(&flags, around.access, &identity, namespace, around.stop)
                    .await
                    .map_err(refused)?;
                Ok(Prepared {
                    provider: Arc::new(process.provider()),
                    nodes: BASES,
                    change: Box::new(Process::change),
                    begin: Box::new(move |fleet| process.begin(fleet)),
                })
            };
            cli::run(args.serve, "koupleless", prepare, shutdown).await
        }
    }
}

fn refused(error: ProcessError) -> VnodeError {
    VnodeError::Config(evenkeel_net::log::causes(&error))
}
