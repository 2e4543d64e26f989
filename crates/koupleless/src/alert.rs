//! Sends alerts to webhooks. Nobody waits for it: what cannot be sent in time is dropped, and said so in the
//! log.

use crate::core::alert::{Alert, Guard, Hook, Limits, Scene, Verdict};
use crate::core::heal;
use crate::heal::Observer;
use bytes::Bytes;
use evenkeel_net::log::causes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Alerts that wait for one receiver.
const WAITING: usize = 64;
/// For how long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How often one alert is tried, and the wait before the first repetition, doubled for each.
const ATTEMPTS: u32 = 3;
const AGAIN: Duration = Duration::from_secs(1);
/// Answers are read up to this size.
const ANSWER: usize = 4 * 1024;

/// How alerts are sent.
#[derive(Clone, Debug)]
pub struct Options {
    pub hooks: Vec<Hook>,
    /// How many alerts are sent at most.
    pub limits: Limits,
    /// Deadline of one attempt.
    pub timeout: Duration,
    /// Authorities that may vouch for receivers; `None`: those that the system trusts.
    pub roots: Option<RootCertStore>,
}

/// Why no alerts can be sent. Not worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum AlertsError {
    /// The system trusts nobody.
    #[error("alert hooks: no certificate authorities to trust; name a file with some in SSL_CERT_FILE")]
    Roots(#[source] io::Error),
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("cannot make a request")]
    Request(#[source] http::Error),
    #[error("no answer")]
    Exchange(#[source] hyper_util::client::legacy::Error),
    #[error("no answer in time")]
    Late,
    #[error("answered with HTTP status {0}")]
    Status(StatusCode),
    #[error("refused with error code {0}")]
    Refused(i64),
}

/// Where alerts go. Cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    shared: Arc<Shared>,
}

struct Shared {
    guard: Mutex<Guard>,
    start: Instant,
    receivers: Vec<(Hook, mpsc::Sender<Item>)>,
    sent: AtomicU64,
    dropped: AtomicU64,
}

struct Item {
    alert: Arc<Alert>,
    repeated: u64,
    more: u64,
}

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

impl Alerts {
    /// Sends until `stop`; what waits then is not sent any more. Without hooks alerts go to the log alone.
    pub fn start(options: Options, stop: &CancellationToken) -> Result<Self, AlertsError> {
        let client = client(options.roots)?;
        let mut workers = Vec::new();
        let mut receivers = Vec::new();
        for hook in options.hooks {
            let (queue, waiting) = mpsc::channel(WAITING);
            receivers.push((hook.clone(), queue));
            workers.push((hook, waiting));
        }
        let shared = Arc::new(Shared {
            guard: Mutex::new(Guard::new(options.limits)),
            start: Instant::now(),
            receivers,
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        // One worker for each receiver: one that hangs holds up nobody else's.
        for (hook, waiting) in workers {
            let worker = Worker {
                hook,
                client: client.clone(),
                timeout: options.timeout,
                shared: Arc::downgrade(&shared),
            };
            tokio::spawn(stop.clone().run_until_cancelled_owned(worker.run(waiting)));
        }
        Ok(Self { shared })
    }

    /// Sends an alert, unless it was sent lately or too many are. Never waits.
    pub fn raise(&self, alert: Alert) {
        let now = self.shared.start.elapsed();
        let verdict = {
            let mut guard = self.shared.guard.lock().unwrap_or_else(PoisonError::into_inner);
            guard.admit(now, &alert)
        };
        let Verdict::Send { repeated, more } = verdict else {
            tracing::debug!(scene = ?alert.scene, base = alert.base, ?verdict, "alert not sent");
            return;
        };
        let alert = Arc::new(alert);
        for (hook, queue) in &self.shared.receivers {
            let item = Item {
                alert: Arc::clone(&alert),
                repeated,
                more,
            };
            if queue.try_send(item).is_err() {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%hook, scene = ?alert.scene, base = alert.base, "too many alerts wait, one is dropped");
            }
        }
    }

    /// How many were sent, and how many could not be; each receiver counts by itself.
    pub fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.shared.sent), count(&self.shared.dropped))
    }
}

impl Observer for Alerts {
    fn notify(&self, node: &str, note: &heal::Note) {
        let scene = match note.scene {
            heal::Scene::Overload => Scene::Overload,
            heal::Scene::Begun => Scene::HealingBegun,
            heal::Scene::Ended => Scene::HealingEnded,
            heal::Scene::Held | heal::Scene::GaveUp => Scene::HealingHeld,
            heal::Scene::Drained | heal::Scene::Uninstalled | heal::Scene::Replacing => return,
        };
        self.raise(Alert {
            scene,
            base: node.to_owned(),
            module: None,
            message: note.message.clone(),
            at: Timestamp::now(),
        });
    }
}

struct Worker {
    hook: Hook,
    client: Http,
    timeout: Duration,
    /// The queue's other end lives there: the worker ends with it.
    shared: std::sync::Weak<Shared>,
}

impl Worker {
    async fn run(self, mut waiting: mpsc::Receiver<Item>) {
        while let Some(item) = waiting.recv().await {
            let sent = self.send(&item).await;
            if let Some(shared) = self.shared.upgrade() {
                let counter = if sent { &shared.sent } else { &shared.dropped };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn send(&self, item: &Item) -> bool {
        let body = item.alert.body(self.hook.shape(), item.repeated, item.more);
        let body = Bytes::from(body.to_string());
        let mut wait = AGAIN;
        for attempt in 1..=ATTEMPTS {
            let posted = tokio::time::timeout(self.timeout, self.post(body.clone())).await;
            let error = match posted.unwrap_or(Err(SendError::Late)) {
                Ok(()) => return true,
                Err(error) => error,
            };
            let is_last = attempt == ATTEMPTS || !error.may_pass();
            tracing::warn!(hook = %self.hook, scene = ?item.alert.scene, attempt, is_last, error = causes(&error), "alert not sent");
            if is_last {
                return false;
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        false
    }

    async fn post(&self, body: Bytes) -> Result<(), SendError> {
        let request = Request::post(self.hook.url())
            .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
            .header(
                header::USER_AGENT,
                concat!("evenkeel/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(body))
            .map_err(SendError::Request)?;
        let answer = self.client.request(request).await.map_err(SendError::Exchange)?;
        let status = answer.status();
        if !status.is_success() {
            return Err(SendError::Status(status));
        }
        // DingTalk answers 200 to what it refuses, and says so in the body. An answer of another kind is
        // fine.
        let Ok(body) = Limited::new(answer.into_body(), ANSWER).collect().await else {
            return Ok(());
        };
        let answer: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        match answer["errcode"].as_i64() {
            Some(code) if code != 0 => Err(SendError::Refused(code)),
            _ => Ok(()),
        }
    }
}

impl SendError {
    /// Whether another attempt may go better.
    fn may_pass(&self) -> bool {
        match self {
            Self::Request(_) | Self::Refused(_) => false,
            Self::Exchange(_) | Self::Late => true,
            Self::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

fn client(roots: Option<RootCertStore>) -> Result<Http, AlertsError> {
    evenkeel_net::init_crypto();
    let builder = ClientConfig::builder();
    let tls = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.with_native_roots().map_err(AlertsError::Roots)?,
    };
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    let client = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(connector);
    Ok(client)
}
