//! The embedded API server as a process.

use super::serve_orders;
use crate::{ApiServer, Options};
use evenkeel_net::pki::ServerNames;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// First word of its command line; the second is the kubeconfig's file.
pub const ROLE: &str = "play-server";

/// Serves until standard input ends; writes an administrator's kubeconfig into the file. Fails the benchmark
/// if it cannot.
pub fn play(kubeconfig: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let api = ApiServer::new(Options::default()).expect("an authority can be made");
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("loopback has ports");
    let url = format!("https://{}", listener.local_addr().expect("it is bound"));
    let text = api
        .kubeconfig(&url, "admin", &["system:masters"])
        .expect("a certificate can be made");
    std::fs::write(kubeconfig, text).expect("the file can be written");
    let shutdown = CancellationToken::new();
    let serving = async move { api.serve(listener, &ServerNames::default(), shutdown).await };
    runtime.spawn(serving);
    serve_orders("ready", |_| String::new());
}
