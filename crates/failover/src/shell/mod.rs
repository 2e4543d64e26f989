//! The process: watches, the world over them, the planner where this replica leads, and what carries its
//! actions out; with the webhook beside it.
//!
//! Every replica watches, judges, and serves the webhook; the leader alone plans and writes. A replica that
//! takes over has seen the Leases all along, and adopts latches and timers from the NodeIncidents.

mod args;
mod execute;
mod lead;
mod metrics;
mod presence;
mod reads;
mod settle;
mod watch;

pub use args::ControllerArgs;

use crate::clock::Clock;
use crate::webhook::{self, Source, WebhookError, WebhookOptions};
use arc_swap::ArcSwap;
use evenkeel_election::flags::Candidacy;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{self as election, Elector, HealthAdaptor};
use evenkeel_failover_rules::admission::View;
use evenkeel_failover_rules::world::Config;
use evenkeel_net::admin::Admin;
use evenkeel_net::client::ClientError;
use evenkeel_net::log::causes;
use evenkeel_settings::{Changes, Configured};
use evenkeel_zone::keys::SigningKey;
use evenkeel_zone::roster::RosterKeys;
use kube::Client;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// For how long beyond the lease duration a stuck election is tolerated, as in the Kubernetes components.
const HEALTH_TOLERANCE: Duration = Duration::from_secs(20);

/// How a controller is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What every replica is told.
    pub config: Config,
    /// For which Lease this replica stands, and how; `None`: it leads without an election.
    pub candidacy: Option<Candidacy>,
    /// How rosters are signed.
    pub rosters: RosterSigning,
}

/// How rosters are signed, and whose rosters count.
#[derive(Clone, Debug, Default)]
pub struct RosterSigning {
    /// The controllers' key; `None`: they are not signed.
    pub key: Option<Arc<SigningKey>>,
    /// Keys whose signatures count; without any, all rosters do.
    pub trusted: RosterKeys,
}

/// Why the controller ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A flag does not make sense.
    #[error("{0}")]
    Config(String),
    /// There is no API server to be found.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An address cannot be listened on.
    #[error("{flag} {address}: cannot listen there")]
    Listen {
        flag: &'static str,
        /// Address as given.
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    /// The election ended by itself.
    #[error("the election ended: {0}; start again")]
    Election(String),
    /// The admin endpoints failed.
    #[error("cannot serve the admin endpoints")]
    Admin(#[source] std::io::Error),
    /// The webhook failed.
    #[error("the webhook failed")]
    Webhook(#[source] WebhookError),
}

impl ControllerError {
    /// Whether flags or surroundings have to be changed (exit code 2), rather than that something failed
    /// later (1).
    pub fn is_config(&self) -> bool {
        match self {
            Self::Config(_) | Self::Listen { .. } => true,
            Self::Client(error) => !matches!(error, ClientError::Build(_)),
            Self::Election(_) | Self::Admin(_) | Self::Webhook(_) => false,
        }
    }
}

/// The process `evenkeel controller`: controller, webhook and admin endpoints, until `shutdown`.
pub async fn run(
    configured: Configured<ControllerArgs>,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let read = configured.follow();
    let (args, changes) = read.map_err(|error| ControllerError::Config(causes(&error)))?;
    let identity = args.replica();
    let config = args.config(&identity).map_err(ControllerError::Config)?;
    let candidacy = args.candidacy(&identity).map_err(ControllerError::Config)?;
    let rosters = args.roster_signing().map_err(ControllerError::Config)?;
    if let Some(key) = &rosters.key {
        tracing::info!(
            public_key = key.public().to_base64(),
            "rosters are signed: give it to agents as --roster-public-key"
        );
    }
    let access = args.client.access().await?;
    let client = access.client("controller")?;
    // The Lease has connections of its own: renewals must not wait behind the work. A refused read is not
    // repeated by the client, which may be told to wait for longer than a renewal has.
    let lock_client = access.clone().reading_once().client("leader-election")?;
    let admin = Admin::new("controller");
    let admin_listener = listen("--admin", args.admin).await?;
    let webhook_options = match (args.webhook_listen, args.webhook_address) {
        (Some(listen_on), Some(address)) => Some(WebhookOptions {
            listener: listen("--webhook-listen", listen_on).await?,
            address,
        }),
        _ => None,
    };
    let settings = Settings {
        config,
        candidacy,
        rosters,
    };

    // Whatever ends first ends the rest.
    let stop = shutdown.child_token();
    // On the heap: whoever calls this need not hold all of it.
    let controller = Box::pin(async {
        let outcome = serve(
            client,
            lock_client,
            settings,
            webhook_options,
            &admin,
            stop.clone(),
        )
        .await;
        stop.cancel();
        outcome
    });
    let endpoints = async {
        let outcome = admin.clone().serve(admin_listener, stop.clone()).await;
        stop.cancel();
        outcome.map_err(ControllerError::Admin)
    };
    let following = warn_of_changes(changes, stop.clone());
    let (controlled, served, ()) = tokio::join!(controller, endpoints, following);
    controlled.and(served)
}

/// A controller takes over nothing from its file while it runs: each decision of an incident would be made by
/// other rules than the one before it. Another replica decides while this one starts again.
async fn warn_of_changes(mut changes: Changes<ControllerArgs>, stop: CancellationToken) {
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => change,
        };
        let differing = change.map_err(|error| causes(&error)).and_then(|change| {
            change.settings.check()?;
            Ok(change.since_start.join(", "))
        });
        match differing {
            Ok(fields) if fields.is_empty() => {
                tracing::info!("the configuration file says again what is in force");
            }
            Ok(fields) => tracing::warn!(
                fields,
                "the configuration file changed: start the controllers again for these fields, one after the other"
            ),
            Err(error) => tracing::error!(
                error,
                "the configuration file cannot be used: this controller goes on, and the next one would not start"
            ),
        }
    }
}

/// The controller, with the webhook where `webhook` says how to serve it, until `shutdown`; registers its
/// checks and metrics with `admin`. `lock_client` keeps the Leases.
pub async fn serve(
    client: Client,
    lock_client: Client,
    settings: Settings,
    webhook: Option<WebhookOptions>,
    admin: &Admin,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let source = Source {
        view: Arc::new(ArcSwap::from_pointee(View::default())),
        clock: Clock::start(),
    };
    // A webhook that fails ends the controller. The webhook itself answers until the controller has ended, so
    // that what is settled at a stop is settled in one piece.
    let stop = shutdown.child_token();
    let controlled = CancellationToken::new();
    let namespace = settings.config.namespace.clone();
    let answering = async {
        let outcome = if let Some(options) = webhook {
            webhook::run(
                client.clone(),
                &namespace,
                options,
                source.clone(),
                admin.clone(),
                controlled.clone(),
            )
            .await
        } else {
            controlled.cancelled().await;
            Ok(())
        };
        stop.cancel();
        outcome.map_err(ControllerError::Webhook)
    };
    let controlling = async {
        let outcome = control(
            client.clone(),
            lock_client,
            settings,
            source.clone(),
            admin,
            stop.clone(),
        )
        .await;
        controlled.cancel();
        outcome
    };
    let (controlled, answered) = tokio::join!(controlling, answering);
    controlled.and(answered)
}

async fn control(
    client: Client,
    lock_client: Client,
    settings: Settings,
    source: Source,
    admin: &Admin,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let candidacy = settings.candidacy.clone();
    let present = presence::announce(
        lock_client.clone(),
        &settings.config.namespace,
        &settings.config.identity,
        settings.config.mode,
    );
    let mut controller = lead::Controller::new(client, settings, source, admin);
    let mut seen = controller.changes();
    let Some(candidacy) = candidacy else {
        let outcome = Box::pin(controller.run(None, (seen, present), shutdown)).await;
        return outcome.map_err(ended);
    };
    if !controller.list(&mut seen, &shutdown).await {
        present.leave().await;
        return Ok(());
    }
    // The Lease is given back after the last write, not before.
    let resign = CancellationToken::new();
    let lock = LeaseLock::new(lock_client.clone(), &candidacy.namespace, &candidacy.name)
        .map_err(|error| ControllerError::Config(error.to_string()))?
        .with_events(lock_client);
    let election = Elector::new(lock, candidacy.config)
        .map_err(|error| ControllerError::Config(format!("--identity: {error}")))?
        .with_metrics(&admin.register(election::Metrics::register))
        .run(resign.clone());
    let health = election.health();
    admin.live(HealthAdaptor::NAME, move || {
        health.check(HEALTH_TOLERANCE).map_err(|error| error.to_string())
    });
    let outcome = Box::pin(controller.run(Some(&election), (seen, present), shutdown)).await;
    resign.cancel();
    election.stopped().await;
    outcome.map_err(ended)
}

fn ended(lead::ElectionEnded(why): lead::ElectionEnded) -> ControllerError {
    ControllerError::Election(why)
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ControllerError> {
    // `[::]` is every address of the machine, and some machines have no IPv6 at all.
    let bound = match TcpListener::bind(address).await {
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.map_err(|source| ControllerError::Listen {
        flag,
        address,
        source,
    })
}
