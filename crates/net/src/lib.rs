//! Foundation of every process: API client, TLS, certificates, admin endpoints, logs, shutdown.

pub mod admin;
pub mod client;
pub mod duration;
pub mod failure;
pub mod file;
pub mod log;
pub mod pki;
pub mod serve;
pub mod shutdown;
pub mod tcp;
pub mod trace;
pub mod watch;

/// Installs the process-wide TLS provider; call first in every `main` and every test. Safe to call again.
pub fn init_crypto() {
    // An error means that a provider is installed already, which is what this function promises.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
