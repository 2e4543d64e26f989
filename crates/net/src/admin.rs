//! Liveness, readiness and metrics of a long-running process.

use crate::serve::Acceptor;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

mod process;

/// A connection costs some 20 kB. Probes and scrapers need one each.
const CONNECTIONS: usize = 128;
const OF_ONE: usize = 16;

/// Answer of one check: `Err` carries one line for people.
pub type CheckResult = Result<(), String>;

/// What the admin endpoints show. Cheap to clone.
#[derive(Clone, Default)]
pub struct Admin {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    live: Vec<Check>,
    ready: Vec<Check>,
    metrics: Registry,
}

#[derive(Clone)]
struct Check {
    name: String,
    run: Arc<dyn Fn() -> CheckResult + Send + Sync>,
}

impl Check {
    fn new(name: &str, run: impl Fn() -> CheckResult + Send + Sync + 'static) -> Self {
        Self {
            name: name.to_owned(),
            run: Arc::new(run),
        }
    }
}

/// Which endpoint was asked.
#[derive(Clone, Copy)]
enum Endpoint {
    Healthz,
    Livez,
    Readyz,
}

impl Endpoint {
    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

impl Admin {
    /// No checks but `ping`; a metrics registry with `evenkeel_build_info` and the process's own metrics.
    pub fn new(component: &str) -> Self {
        let admin = Self::default();
        admin.register(|registry| {
            let labels = Vec::from([
                ("component", component.to_owned()),
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ]);
            registry.register(
                "evenkeel_build",
                "Always 1; the labels say what runs here",
                Info::new(labels),
            );
            registry.register_collector(Box::new(process::ProcessMetrics));
        });
        admin
    }

    /// Adds a check of `/healthz` and `/livez`. It must answer at once: no I/O.
    pub fn live(&self, name: &str, check: impl Fn() -> CheckResult + Send + Sync + 'static) {
        self.lock().live.push(Check::new(name, check));
    }

    /// Adds a check of `/readyz`. It must answer at once: no I/O.
    pub fn ready(&self, name: &str, check: impl Fn() -> CheckResult + Send + Sync + 'static) {
        self.lock().ready.push(Check::new(name, check));
    }

    /// Gives access to the registry, to register metrics in it.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.lock().metrics)
    }

    /// Serves `/healthz`, `/livez`, `/readyz` (each with `?verbose` and `?exclude=NAME`) and `/metrics` over
    /// plain HTTP until `shutdown`. Of the connections to it each peer has a share, so that nobody keeps the
    /// probes of the kubelet out.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> std::io::Result<()> {
        let acceptor = Acceptor::plain(self.router()).at_most(CONNECTIONS, OF_ONE);
        acceptor.serve(listener, (), shutdown).await;
        Ok(())
    }

    /// The endpoints as a router, for a process that serves them beside others.
    pub fn router(self) -> Router {
        let checks = |endpoint| {
            get(
                move |State(admin): State<Admin>, RawQuery(query): RawQuery| async move {
                    admin.health(endpoint, query.as_deref().unwrap_or_default())
                },
            )
        };
        Router::new()
            .route("/healthz", checks(Endpoint::Healthz))
            .route("/livez", checks(Endpoint::Livez))
            .route("/readyz", checks(Endpoint::Readyz))
            .route(
                "/metrics",
                get(|State(admin): State<Admin>| async move { admin.metrics() }),
            )
            .with_state(self)
    }

    /// A check that panicked held no lock, and the lists are only ever appended to: what is there is whole.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self, endpoint: Endpoint, query: &str) -> Response {
        let checks = match endpoint {
            Endpoint::Healthz | Endpoint::Livez => self.lock().live.clone(),
            Endpoint::Readyz => self.lock().ready.clone(),
        };
        let (status, body) = health(endpoint.name(), &checks, query);
        let headers = [
            (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (status, headers, body).into_response()
    }

    /// The metrics page, for a process that serves it beside something else.
    pub fn metrics(&self) -> Response {
        let mut text = String::new();
        let encoded = prometheus_client::encoding::text::encode(&mut text, &self.lock().metrics);
        match encoded {
            Ok(()) => {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                ([(header::CONTENT_TYPE, kind)], text).into_response()
            }
            Err(error) => {
                tracing::error!(%error, "cannot encode the metrics");
                (StatusCode::INTERNAL_SERVER_ERROR, "cannot encode the metrics\n").into_response()
            }
        }
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// Status and text in the form of the API server's own health endpoints: `ok` alone, or with `verbose` or a
/// failure one line per check. Unlike there, the reason of a failure is shown, not withheld.
fn health(endpoint: &str, checks: &[Check], query: &str) -> (StatusCode, String) {
    let parameters: Vec<(&str, &str)> = query
        .split('&')
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .collect();
    let verbose = parameters.iter().any(|(key, _)| *key == "verbose");
    let excluded = |name: &str| {
        parameters
            .iter()
            .any(|(key, value)| *key == "exclude" && *value == name)
    };
    let mut lines = String::from("[+]ping ok\n");
    let mut failed = Vec::new();
    for check in checks {
        let name = &check.name;
        // Writing to a String cannot fail.
        let _ = if excluded(name) {
            writeln!(lines, "[+]{name} excluded: ok")
        } else {
            match (check.run)() {
                Ok(()) => writeln!(lines, "[+]{name} ok"),
                Err(reason) => {
                    failed.push(name.as_str());
                    writeln!(lines, "[-]{name} failed: {reason}")
                }
            }
        };
    }
    if !failed.is_empty() {
        tracing::debug!(endpoint, ?failed, "health check failed");
        return (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{lines}{endpoint} check failed\n"),
        );
    }
    let text = if verbose {
        format!("{lines}{endpoint} check passed\n")
    } else {
        "ok".to_owned()
    };
    (StatusCode::OK, text)
}

#[cfg(test)]
mod tests;
