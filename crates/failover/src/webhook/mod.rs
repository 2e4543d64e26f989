//! The webhook that keeps pods, nodes and endpoints right while a node is only cut off from the cloud.
//!
//! When a node's lease stops, stock Kubernetes marks its pods not ready, takes their endpoints out and puts a
//! NoExecute taint on the node. For a node that the judge protects that is wrong, and this webhook corrects
//! exactly those writes, at admission, so that no watcher ever sees them. It answers from the decisions of
//! this replica, and decides nothing itself.
//!
//! | module | what it holds |
//! |---|---|
//! | `server` | AdmissionReview over HTTP |
//! | `thread` | where it is served |
//! | `certificate`, `configuration` | what makes the API server find and trust the webhook |
//!
//! What becomes of a write is decided by [`evenkeel_failover_rules::admission`].

mod address;
mod certificate;
mod configuration;
mod metrics;
mod server;
mod thread;

pub use address::{AddressError, WebhookAddress};
pub use certificate::CertificateError;

use crate::clock::{self, Clock};
use arc_swap::ArcSwap;
use certificate::{Certificates, Serving};
use evenkeel_failover_rules::admission::View;
use evenkeel_net::admin::Admin;
use evenkeel_net::pki::PkiError;
use evenkeel_net::serve::{Acceptor, ServerTls};
use kube::Client;
use metrics::Metrics;
use server::Answering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thread::on_thread;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How often certificate and configuration are looked after.
const UPKEEP: Duration = Duration::from_secs(60);
/// Time between attempts while something is missing.
const RETRY: Duration = Duration::from_secs(2);

/// Connections at a time, and of one peer: each API server has a few, and all may come through one proxy.
const CONNECTIONS: usize = 256;
const OF_ONE: usize = 64;

/// How the webhook is set up.
#[derive(Debug)]
pub struct WebhookOptions {
    /// Where it listens.
    pub listener: TcpListener,
    /// How the API server reaches that listener.
    pub address: WebhookAddress,
}

/// Why the webhook ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The certificate that we made ourselves cannot be served with.
    #[error("cannot serve with the webhook's certificate")]
    Tls(#[source] PkiError),
    /// A certificate could not be made at all.
    #[error("cannot make the webhook's certificate")]
    Certificate(#[source] CertificateError),
    /// The listener failed.
    #[error("cannot serve the webhook")]
    Serve(#[source] std::io::Error),
}

/// What the webhook answers from: the view that the controller's loop of this process keeps up, and its
/// clock.
#[derive(Clone)]
pub struct Source {
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) clock: Clock,
}

/// Runs the webhook until `shutdown`: answers from `source`, keeps its certificate in Secret
/// `evenkeel-webhook` of `namespace`, and MutatingWebhookConfiguration `evenkeel` pointing here.
///
/// Any number of replicas may run; none leads. An API server that does not answer is waited for. Registers
/// the readiness check `webhook` and its metrics with `admin`.
pub async fn run(
    client: Client,
    namespace: &str,
    options: WebhookOptions,
    source: Source,
    admin: Admin,
    shutdown: CancellationToken,
) -> Result<(), WebhookError> {
    let answering = Answering {
        source,
        metrics: Metrics::register(&admin),
    };
    let registered = Arc::new(AtomicBool::new(false));
    {
        let (answering, registered) = (answering.clone(), Arc::clone(&registered));
        admin.ready("webhook", move || {
            if !registered.load(Ordering::Relaxed) {
                return Err("the webhook is not registered with the API server yet".to_owned());
            }
            answering.ready()
        });
    }
    // The part that ends first ends the others.
    let stop = shutdown.child_token();
    serve(client, namespace, options, answering, &registered, stop).await
}

async fn serve(
    client: Client,
    namespace: &str,
    options: WebhookOptions,
    answering: Answering,
    registered: &AtomicBool,
    stop: CancellationToken,
) -> Result<(), WebhookError> {
    let WebhookOptions { listener, address } = options;
    let certificates = Certificates::new(client.clone(), namespace, address.names());
    let Some(first) = first_certificate(&certificates, &stop).await? else {
        return Ok(());
    };
    let tls = ServerTls::new(&first.identity, None).map_err(WebhookError::Tls)?;
    let app = server::router(answering);
    let listener = listener.into_std().map_err(WebhookError::Serve)?;
    let (shown, ends) = (tls.clone(), stop.clone());
    let serving = || async move {
        // Belongs to the runtime in which this is called.
        let listener = TcpListener::from_std(listener)?;
        let acceptor = Acceptor::new(shown, app).at_most(CONNECTIONS, OF_ONE);
        acceptor.serve(listener, (), ends).await;
        Ok(())
    };
    let listening = async {
        let outcome = on_thread("webhook", serving).await;
        stop.cancel();
        outcome.map_err(WebhookError::Serve)
    };
    let upkeep = upkeep(&client, &address, &certificates, &tls, first, registered, &stop);
    let (listened, ()) = tokio::join!(listening, upkeep);
    listened
}

/// Waits for the API server; `None` if told to stop before.
async fn first_certificate(
    certificates: &Certificates,
    stop: &CancellationToken,
) -> Result<Option<Serving>, WebhookError> {
    loop {
        match certificates.ensure(clock::wall()).await {
            Ok(serving) => return Ok(Some(serving)),
            Err(error @ CertificateError::Pki(_)) => return Err(WebhookError::Certificate(error)),
            Err(error) => warn("no certificate for the webhook yet", &error),
        }
        if pause(RETRY, stop).await {
            return Ok(None);
        }
    }
}

/// Keeps configuration and certificate right. The API server must trust a new authority before anybody serves
/// with it, so the configuration comes first.
async fn upkeep(
    client: &Client,
    address: &WebhookAddress,
    certificates: &Certificates,
    tls: &ServerTls,
    first: Serving,
    registered: &AtomicBool,
    stop: &CancellationToken,
) {
    let mut served = first.clone();
    let mut current = first;
    loop {
        let wait = match configuration::ensure(client, address, &current.ca_bundle).await {
            Ok(()) => {
                registered.store(true, Ordering::Relaxed);
                if served != current {
                    match tls.replace(&current.identity) {
                        Ok(()) => served = current.clone(),
                        Err(error) => {
                            warn("the new certificate of the webhook cannot be served with", &error);
                        }
                    }
                }
                UPKEEP
            }
            Err(error) => {
                warn("the webhook is not registered", &error);
                RETRY
            }
        };
        if pause(wait, stop).await {
            return;
        }
        match certificates.ensure(clock::wall()).await {
            Ok(serving) => current = serving,
            Err(error) => warn("the certificate of the webhook could not be looked after", &error),
        }
    }
}

/// Waits; `true` if told to stop meanwhile.
async fn pause(time: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(time) => false,
    }
}

fn warn(what: &str, error: &dyn std::error::Error) {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%error, cause, "{what}");
}
