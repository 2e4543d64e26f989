//! The embedded API server as a process.

use super::child::serve_orders;
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_net::pki::ServerNames;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// First word of its command line.
pub(crate) const ROLE: &str = "play-server";

/// Serves until standard input ends; writes an administrator's kubeconfig into the file.
pub(crate) fn play(kubeconfig: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let api = ApiServer::new(Options::default()).unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let text = api.kubeconfig(&url, "admin", &["system:masters"]).unwrap();
    std::fs::write(kubeconfig, text).unwrap();
    let shutdown = CancellationToken::new();
    let serving = async move { api.serve(listener, &ServerNames::default(), shutdown).await };
    runtime.spawn(serving);
    serve_orders("ready", |_| String::new());
}
