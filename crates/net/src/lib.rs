//! Foundation of every process: API client, TLS, certificates, admin endpoints, logs, shutdown.
//!
//! Each part is a feature, so that a library gets what it asks for. Without any there are durations, files
//! that hold secrets, errors in words, and the macros [`metrics!`] and [`version!`].
//!
//! | feature | module | what it adds |
//! |---|---|---|
//! | `tls` | `init_crypto`, `verify` | the process-wide TLS provider; verifiers of certificates |
//! | `client` | `client` | the API client that survives a silent server |
//! | `watch` | `watch` | watches that go on for ever |
//! | `kinds` | `kinds` | nothing to call: the code of the Kubernetes types, compiled once |
//! | `pki` | `pki` | certificates |
//! | `serve` | `serve`, `tcp` | HTTP and HTTPS listeners |
//! | `admin` | `admin` | health endpoints and metrics |
//! | `process` | `client::ClientArgs`, `failure`, `log::LogArgs`, `output`, `shutdown`, `trace` | what a command needs: flags, log output, signals, exit codes |
//! | `otel` | `trace` | spans to an OpenTelemetry collector |

#[cfg(feature = "admin")]
pub mod admin;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "process")]
pub mod failure;
pub mod file;
#[cfg(feature = "kinds")]
#[doc(hidden)]
pub mod kinds;
pub mod log;
mod metrics;
#[cfg(feature = "process")]
pub mod output;
#[cfg(feature = "pki")]
pub mod pki;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "process")]
pub mod shutdown;
#[cfg(feature = "serve")]
pub mod tcp;
#[cfg(feature = "process")]
pub mod trace;
#[cfg(feature = "tls")]
pub mod verify;
pub mod version;
#[cfg(feature = "watch")]
pub mod watch;

pub use evenkeel_kube_values::duration;

/// Installs the process-wide TLS provider; call first in every `main` and every test. Safe to call again.
#[cfg(feature = "tls")]
pub fn init_crypto() {
    // An error means that a provider is installed already, which is what this function promises.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
