//! The controller: watches, the planner, and what carries its actions out; with the webhook in the same process.
//!
//! Every replica watches and serves the webhook; the leader alone plans and writes. A replica that takes over has
//! seen the Leases all along, and adopts states and timers from the NodeIncidents.

mod args;
mod cache;
mod clock;
mod dispatch;
mod execute;
mod lead;
mod metrics;
mod read;
mod watch;

pub use args::{ControllerArgs, ProfileArg};

use crate::core::plan::Config;
use evenkeel_admission::{WebhookError, WebhookOptions, webhook};
use evenkeel_api::names;
use evenkeel_election as election;
use evenkeel_net::admin::Admin;
use evenkeel_net::client::ClientError;
use kube::Client;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How a controller is set up.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What the planner is told.
    pub config: Config,
    /// Name of this replica in the election; `None`: it leads without one.
    pub identity: Option<String>,
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
        /// Flag.
        flag: &'static str,
        /// Address as given.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The election ended by itself.
    #[error("the election ended; start again")]
    Election,
    /// The admin endpoints failed.
    #[error("cannot serve the admin endpoints")]
    Admin(#[source] std::io::Error),
    /// The webhook failed.
    #[error("the webhook failed")]
    Webhook(#[source] WebhookError),
}

impl ControllerError {
    /// Whether flags or surroundings have to be changed (exit code 2), rather than that something failed later (1).
    pub fn is_config(&self) -> bool {
        match self {
            Self::Config(_) | Self::Listen { .. } => true,
            Self::Client(error) => !matches!(error, ClientError::Build(_)),
            Self::Election | Self::Admin(_) | Self::Webhook(_) => false,
        }
    }
}

/// The process `evenkeel controller`: controller, webhook and admin endpoints, until `shutdown`.
pub async fn run(args: ControllerArgs, shutdown: CancellationToken) -> Result<(), ControllerError> {
    let config = args.config().map_err(ControllerError::Config)?;
    let client = args.client.client("evenkeel-controller").await?;
    let admin = Admin::new("controller");
    let admin_listener = listen("--admin", args.admin).await?;
    let webhook_options = match (args.webhook_listen, args.webhook_address) {
        (Some(listen_on), Some(address)) => Some(WebhookOptions {
            listener: listen("--webhook-listen", listen_on).await?,
            address,
        }),
        _ => None,
    };
    let identity = args
        .leader_elect
        .then(|| args.identity.unwrap_or_else(election::unique_identity));
    let settings = Settings { config, identity };

    // Whatever ends first ends the rest.
    let stop = shutdown.child_token();
    let webhook = async {
        let outcome = if let Some(options) = webhook_options {
            webhook::run(client.clone(), options, admin.clone(), stop.clone()).await
        } else {
            stop.cancelled().await;
            Ok(())
        };
        stop.cancel();
        outcome.map_err(ControllerError::Webhook)
    };
    let controller = async {
        let outcome = control(client.clone(), settings, &admin, stop.clone()).await;
        stop.cancel();
        outcome
    };
    let endpoints = async {
        let outcome = admin.clone().serve(admin_listener, stop.clone()).await;
        stop.cancel();
        outcome.map_err(ControllerError::Admin)
    };
    let (controlled, webhooked, served) = tokio::join!(controller, webhook, endpoints);
    controlled.and(webhooked).and(served)
}

/// The controller alone, until `shutdown`; registers its checks and metrics with `admin`.
pub async fn control(
    client: Client,
    settings: Settings,
    admin: &Admin,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let identity = settings.identity.clone();
    let controller = lead::Controller::new(client.clone(), settings, admin);
    let Some(identity) = identity else {
        return controller
            .run(None, shutdown)
            .await
            .map_err(|lead::ElectionEnded| ControllerError::Election);
    };
    // The Lease is given back after the last write, not before.
    let resign = CancellationToken::new();
    // 5/3/1 s: a crashed leader is replaced within 6 s.
    let config = election::Config::new(names::NAMESPACE, names::CONTROLLER_LEASE, &identity);
    let candidate = election::run(client, config, resign.clone())
        .map_err(|error| ControllerError::Config(format!("--identity: {error}")))?;
    let outcome = controller.run(Some(&candidate), shutdown).await;
    resign.cancel();
    if let Err(error) = candidate.done.await {
        tracing::error!(%error, "the election's task died");
    }
    outcome.map_err(|lead::ElectionEnded| ControllerError::Election)
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ControllerError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ControllerError::Listen {
            flag,
            address,
            source,
        })
}
