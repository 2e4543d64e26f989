//! `evenkeel probe`: probes once, or by a manifest, and finds what will bite.
//!
//! The binary parses [`ProbeArgs`] and calls [`run`]; everything else is private.

mod args;
mod endpoint;
mod error;
mod kubelet;
mod lint;
mod once;
mod out;
mod program;
mod record;
mod run;
mod screen;
mod table;
mod text;
mod workload;

pub use args::ProbeArgs;
pub use error::CliError;

use crate::handler::Handlers;
use crate::handler::exec::Local;
use args::Command;
use serde_json::Value;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Checks a pod as an API server would, and gives all that is wrong with it, in Kubernetes' own words:
/// `spec.containers[0].livenessProbe: Required value: must specify a handler type`. Nothing for a valid pod.
pub type Validate<'a> = &'a dyn Fn(&Value) -> Vec<String>;

/// Runs a command until its end or `shutdown`, and gives its exit code. Writes to standard output; reads
/// standard input for `-f -`.
pub async fn run(
    args: ProbeArgs,
    validate: Validate<'_>,
    shutdown: CancellationToken,
) -> Result<u8, CliError> {
    let (request, once) = match args.command {
        Command::Run(args) => return run::run(args, validate, shutdown).await,
        Command::Lint(args) => return lint::run(&args, validate, &shutdown).await,
        Command::Http(args) => (once::http(&args), args.once),
        Command::Tcp(args) => (once::tcp(&args), args.once),
        Command::Grpc(args) => (once::grpc(&args).await?, args.once),
        Command::Exec(args) => (once::exec(&args)?, args.once),
    };
    once::run(&request, &Handlers::new(Arc::new(Local)), &once, &shutdown).await
}

/// The page's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/probe.md")]
struct Page;
