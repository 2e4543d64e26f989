//! The start of a runner: arguments are checked, clients and listener are made, and the candidate starts.

use crate::args::ElectArgs;
use crate::core::runner::Runner;
use crate::error::ElectError;
use crate::keeper_handle::Launch;
use crate::process::Shell;
use crate::program;
use crate::serve::{View, router};
use crate::signals::{OF_RUNNER, Signals};
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Elector, HealthAdaptor, Metrics, unique_identity};
use evenkeel_net::admin::Admin;
use nix::sys::prctl::set_child_subreaper;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How late the election loop may be for `/healthz`, beyond the lease duration; as in the Kubernetes
/// components.
const TOLERANCE: Duration = Duration::from_secs(20);

/// Runs the command while leading; returns the exit code. Takes the process's signals. `keeper` is this
/// program's command line, without its name, up to and with `elect-keeper`.
pub async fn run(args: ElectArgs, keeper: Vec<OsString>) -> Result<u8, ElectError> {
    if let Some(name) = args.command.first() {
        program::check(name, std::env::var_os("PATH").as_deref())?;
    }
    let identity = args.identity.clone().unwrap_or_else(unique_identity);
    let config = args.config(&identity);
    config.validate().map_err(|source| ElectError::Config {
        flag: if identity.is_empty() {
            "--identity"
        } else {
            "--lease-duration, --renew-deadline, --retry-period"
        },
        source,
    })?;
    let access = args.client.access().await?;
    // A refused read is not repeated by the client, which may be told to wait for longer than a renewal has.
    let access = access.reading_once();
    // Two clients have two connections, so a renewal never queues behind an Event that is being recorded.
    let (client, events) = (access.client("elect")?, access.client("elect")?);
    let lock = LeaseLock::new(client, &args.lease.namespace, &args.lease.name)
        .map_err(|error| ElectError::Lease(error.to_string()))?
        .with_events(events);
    let listener = match args.listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let signals = Signals::watch(&OF_RUNNER).map_err(ElectError::System)?;
    // If a keeper is killed, the kernel makes this process the parent of what the keeper leaves behind.
    set_child_subreaper(true).map_err(|error| ElectError::System(error.into()))?;

    let admin = Admin::new("elect");
    let health = HealthAdaptor::new(TOLERANCE);
    let check = health.clone();
    admin.live(HealthAdaptor::NAME, move || {
        check.check().map_err(|error| error.to_string())
    });
    let metrics = admin.register(Metrics::register);
    let withdrawal = CancellationToken::new();
    let election = elector(lock, config)?
        .with_metrics(&metrics)
        .with_watchdog(&health)
        .run(withdrawal.clone());

    tracing::info!(lease = %args.lease, identity, "campaigning");

    let (view, seen) = watch::channel(View::default());
    if let Some(listener) = listener {
        let router = router(admin, seen, identity.clone());
        tokio::spawn(async move {
            let served = evenkeel_net::serve::serve_http(listener, router, CancellationToken::new());
            if let Err(error) = served.await {
                tracing::error!(%error, "--listen is not served any more");
            }
        });
    }
    let shell = Shell {
        core: Runner::new(args.on_lost, args.grace),
        launch: Launch {
            keeper,
            grace: args.grace,
            command: args.command,
        },
        lease: args.lease,
        identity,
        renewals: election.renewals(),
        election: Some(election),
        withdrawal,
        signals,
        view,
        command: None,
    };
    Ok(shell.run().await)
}

fn elector(lock: LeaseLock, config: Config) -> Result<Elector, ElectError> {
    Elector::new(lock, config).map_err(|source| ElectError::Config {
        flag: "--lease-duration, --renew-deadline, --retry-period",
        source,
    })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ElectError> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| ElectError::Listen { address, source })?;
    match listener.local_addr() {
        Ok(address) => tracing::info!(%address, "serving /leader, /healthz and /metrics"),
        Err(error) => tracing::warn!(%error, "cannot tell where --listen is served"),
    }
    Ok(listener)
}
