//! `evenkeel node-lifecycle`: the process.

use crate::NodeLifecycleArgs;
use crate::cache::Cache;
use crate::eviction_worker::Eviction;
use crate::lifecycle_worker::Lifecycle;
use crate::metrics::Metrics;
use crate::writes::Writes;
use evenkeel_net::admin::Admin;
use evenkeel_net::client::ClientError;
use evenkeel_stock_rules::lifecycle::NodeLifecycle;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether the watches are complete.
const SYNC_PERIOD: Duration = Duration::from_millis(50);

/// Why the process cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeLifecycleError {
    /// A flag cannot work. Not worth a retry.
    #[error("{0}")]
    Usage(String),
    /// There is no API server to talk to. Not worth a retry.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The admin address cannot be listened on.
    #[error("cannot listen on --admin {address}: {source}")]
    Listen {
        /// Address as given.
        address: SocketAddr,
        source: std::io::Error,
    },
    /// The admin endpoints failed.
    #[error("cannot serve the admin endpoints")]
    Admin(#[source] std::io::Error),
}

impl NodeLifecycleError {
    /// Whether flags or surroundings have to be changed (exit code 2), rather than that something failed
    /// later (1).
    pub fn is_config(&self) -> bool {
        match self {
            Self::Usage(_) | Self::Client(_) | Self::Listen { .. } => true,
            Self::Admin(_) => false,
        }
    }
}

/// Wall-clock time at the start, counted on by a monotonic clock: a step of the wall clock is no node's
/// silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteadyClock {
    wall: Timestamp,
    start: tokio::time::Instant,
}

impl SteadyClock {
    #[allow(clippy::disallowed_methods, reason = "the shell owns the clock")]
    fn start() -> Self {
        Self {
            wall: Timestamp::now(),
            start: tokio::time::Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        self.wall.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// Runs the stand-in until `shutdown`: both controllers, and the admin endpoints where asked for.
pub async fn run(args: NodeLifecycleArgs, shutdown: CancellationToken) -> Result<(), NodeLifecycleError> {
    args.validate().map_err(NodeLifecycleError::Usage)?;
    let client = args.client.client("node-lifecycle").await?;
    let admin = Admin::new("node-lifecycle");
    let listener = match args.admin {
        Some(address) => {
            let bound = TcpListener::bind(address).await;
            Some(bound.map_err(|source| NodeLifecycleError::Listen { address, source })?)
        }
        None => None,
    };
    let stop = shutdown.child_token();
    let serving = {
        let (admin, stop) = (admin.clone(), stop.clone());
        async move {
            let served = match listener {
                Some(listener) => admin.serve(listener, stop.clone()).await,
                None => Ok(()),
            };
            if served.is_err() {
                stop.cancel();
            }
            served.map_err(NodeLifecycleError::Admin)
        }
    };
    let (served, ()) = tokio::join!(serving, control(client, &args, &admin, stop.clone()));
    served
}

/// Both controllers with a client that is there already, until `shutdown`: what [`run`] does without its
/// flags for client and admin address, which are not looked at.
pub async fn control(client: Client, args: &NodeLifecycleArgs, admin: &Admin, shutdown: CancellationToken) {
    let cache = Cache::default();
    {
        let cache = cache.clone();
        admin.ready("watches", move || {
            if cache.is_complete() {
                return Ok(());
            }
            Err("not every watch (Nodes, Leases, Pods) has delivered a complete list yet".to_owned())
        });
    }
    let clock = SteadyClock::start();
    let writes = Writes::new(client.clone());
    let metrics = Arc::new(Metrics::register(admin));
    let lifecycle = Lifecycle {
        core: Arc::new(Mutex::new(NodeLifecycle::new(args.grace(), args.rates()))),
        cache: cache.clone(),
        writes: writes.clone(),
        clock,
        metrics: Arc::clone(&metrics),
    };
    let eviction = Eviction {
        cache: cache.clone(),
        writes,
        clock,
        metrics,
    };
    let (to_lifecycle, for_lifecycle) = mpsc::unbounded_channel();
    let (to_eviction, for_eviction) = mpsc::unbounded_channel();
    let watching = cache.watch(&client, vec![to_lifecycle, to_eviction], shutdown.clone());
    let working = async {
        if !complete(&cache, &shutdown).await {
            return;
        }
        tracing::info!("watches are complete, nodes are monitored");
        tokio::join!(
            lifecycle.monitor(args.node_monitor_period, shutdown.clone()),
            lifecycle.taint(shutdown.clone()),
            lifecycle.follow(for_lifecycle, shutdown.clone()),
            eviction.run(for_eviction, shutdown.clone()),
        );
    };
    tokio::join!(watching, working);
}

/// Waits for the watches; `false` if told to stop before.
async fn complete(cache: &Cache, shutdown: &CancellationToken) -> bool {
    while !cache.is_complete() {
        tokio::select! {
            () = shutdown.cancelled() => return false,
            () = tokio::time::sleep(SYNC_PERIOD) => {}
        }
    }
    true
}
