//! Connections to ports of a pod.

mod spdy;
mod websocket;

use super::Limits;
use super::handshake::{self, Spdy, Wanted};
use super::options;
use super::tunnel::Tunnel;
use super::until::Task;
use crate::{Duplex, Fault, PodId};
use axum::extract::Request;
use axum::response::Response;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// The protocol over SPDY.
const SPDY: [&str; 1] = ["portforward.k8s.io"];
/// SPDY with that protocol in a WebSocket.
const TUNNEL: [&str; 1] = ["SPDY/3.1+portforward.k8s.io"];
/// Protocols over WebSocket alone.
const WEBSOCKET: [&str; 3] = ["", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"];

/// Opens connections to ports of one pod.
struct Target<F> {
    pod: Option<PodId>,
    connect: F,
}

pub(super) fn serve<F>(mut request: Request, limits: Limits, connect: F) -> Response
where
    F: Fn(u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> + Send + Sync + 'static,
{
    let target = Arc::new(Target {
        pod: request.extensions_mut().remove(),
        connect,
    });
    upgrade(request, limits, target).unwrap_or_else(|refusal| refusal)
}

fn upgrade<F>(request: Request, limits: Limits, target: Arc<Target<F>>) -> Result<Response, Response>
where
    F: Fn(u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> + Send + Sync + 'static,
{
    let task = Task::of(&request);
    let closing = task.closing.clone();
    match handshake::wanted(&request)? {
        Wanted::WebSocket(theirs) if theirs.iter().any(|protocol| tunnels(protocol)) => {
            let upgrade = handshake::websocket(request, &theirs, &TUNNEL)?.0;
            Ok(upgrade.on_upgrade(move |socket| {
                task.run(spdy::serve(Tunnel::new(socket), limits, target, closing))
            }))
        }
        Wanted::WebSocket(theirs) => {
            let ports = options::ports(request.uri())?;
            let (upgrade, protocol) = handshake::websocket(request, &theirs, &WEBSOCKET)?;
            Ok(upgrade.on_upgrade(move |socket| {
                task.run(websocket::serve(socket, protocol, ports, limits, target, closing))
            }))
        }
        Wanted::Spdy => {
            let spdy = Spdy::negotiate(request, &SPDY)?;
            Ok(spdy.serve(task, move |socket| spdy::serve(socket, limits, target, closing)))
        }
    }
}

fn tunnels(protocol: &str) -> bool {
    protocol.starts_with("SPDY/3.1+") && protocol.ends_with(".k8s.io")
}

impl<F> Target<F>
where
    F: Fn(u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> + Send + Sync + 'static,
{
    /// Connects a client with a port until one of them has had enough. An error, in the kubelet's words,
    /// means that there was no connection: one that breaks later is told to the client by breaking its own.
    async fn forward(&self, port: u16, client: impl Duplex) -> Result<(), String> {
        let connect = AssertUnwindSafe(async { (self.connect)(port).await }).catch_unwind();
        let why = match connect.await {
            Ok(Ok(server)) => {
                if let Err(error) = carry(client, server).await {
                    tracing::debug!(port, %error, "a forwarded connection broke");
                }
                return Ok(());
            }
            Ok(Err(fault)) => fault.message,
            Err(_) => {
                tracing::error!(call = "port-forward", port, "the provider has panicked");
                "the provider panicked".to_owned()
            }
        };
        Err(match &self.pod {
            Some(pod) => format!(
                "error forwarding port {port} to pod {}, uid {}: {why}",
                pod.name, pod.uid
            ),
            None => format!("error forwarding port {port} to pod: {why}"),
        })
    }
}
/// For how long a client may go on once the pod has ended the connection. Clients before Kubernetes 1.30 end
/// theirs only when they are told that all is over.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Carries bytes both ways until both sides have ended, or the pod has and the client says nothing more.
async fn carry(client: impl Duplex, server: impl Duplex) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let outwards = async {
        tokio::io::copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    let inwards = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    tokio::pin!(outwards, inwards);
    tokio::select! {
        ended = &mut outwards => {
            ended?;
            // That it goes on saying nothing is no failure.
            tokio::time::timeout(LAST_WORDS, inwards).await.unwrap_or(Ok(()))
        }
        ended = &mut inwards => {
            ended?;
            outwards.await
        }
    }
}
