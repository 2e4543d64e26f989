//! The provider as a process, as `evenkeel vnode --provider koupleless` sets it up.

use clap::Parser;
use evenkeel_api::names;
use evenkeel_koupleless::cli::KouplelessArgs;
use evenkeel_koupleless::process::settings::Settings;
use evenkeel_koupleless::process::{self, Process};
use evenkeel_settings::layers::Origins;
use evenkeel_testkit::bench::serve_metrics;
use evenkeel_vnode::Fleet;
use evenkeel_vnode::cli::{self, Prepared, ServeArgs};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// First word of its command line; then follow the kubeconfig's file, and where it listens for heartbeats.
pub(crate) const ROLE: &str = "play-provider";

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    koupleless: KouplelessArgs,
}

/// Serves until standard input ends; each order is answered with all metrics.
pub(crate) fn play(kubeconfig: &str, heartbeat: &str) {
    let flags = Flags::parse_from([
        ROLE,
        "--kubeconfig",
        kubeconfig,
        "--heartbeat",
        heartbeat,
        "--admin",
        "127.0.0.1:0",
    ]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shutdown = CancellationToken::new();
    let (begun, fleet) = oneshot::channel();
    let serving = runtime.spawn(serve(flags, begun, shutdown.clone()));
    let Ok(fleet) = runtime.block_on(fleet) else {
        panic!("it has not begun: {:?}", runtime.block_on(serving));
    };
    let mut registry = Registry::default();
    fleet.register(&mut registry);
    serve_metrics("ready", &registry);
    shutdown.cancel();
    runtime.block_on(serving).unwrap().unwrap();
}

async fn serve(
    flags: Flags,
    begun: oneshot::Sender<Fleet>,
    shutdown: CancellationToken,
) -> Result<(), cli::VnodeError> {
    let prepare = async |around: cli::Surroundings<'_>| {
        let settings = Settings::new(&flags.koupleless, None, &Origins::default()).unwrap();
        let process = Process::prepare(settings, around.access, "bench", names::NAMESPACE, around.stop);
        let process = process.await.unwrap();
        Ok(Prepared {
            provider: Arc::new(process.provider()),
            nodes: 0,
            files: process::FILES,
            change: Box::new(process.change()),
            metrics: Box::new(process.metrics()),
            begin: Box::new(move |fleet| {
                process.begin(fleet);
                begun.send(fleet.clone()).unwrap();
            }),
        })
    };
    cli::run(flags.serve, "koupleless", prepare, shutdown).await
}
