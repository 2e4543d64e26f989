//! Connections over WebSocket alone: two channels per port, data and errors.

use super::super::Limits;
use super::super::channel::{Channels, Codec};
use super::Target;
use crate::{Duplex, Fault};
use axum::extract::ws::WebSocket;
use futures::future::{BoxFuture, join_all};
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

pub(super) async fn serve<F>(
    socket: WebSocket,
    protocol: &'static str,
    ports: Vec<u16>,
    limits: Limits,
    target: Arc<Target<F>>,
    closing: CancellationToken,
) where
    F: Fn(u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> + Send + Sync + 'static,
{
    let mut channels = Channels::new(Codec::of(protocol), limits.idle);
    let mut connections = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        // There are at most 128 ports.
        let data = 2 * index as u8;
        let input = channels.input(data);
        let mut output = channels.output(data);
        let mut error = channels.output(data + 1);
        let target = target.clone();
        connections.push(async move {
            // Each channel begins with its port. Failures to write mean that the client has left, which ends
            // all.
            let port_bytes = port.to_le_bytes();
            let _ = output.write_all(&port_bytes).await;
            let _ = error.write_all(&port_bytes).await;
            if let Err(text) = target.forward(port, tokio::io::join(input, output)).await {
                let _ = error.write_all(text.as_bytes()).await;
            }
        });
    }
    let closer = channels.closer();
    let work = async move {
        tokio::select! {
            _ = join_all(connections) => {}
            () = closing.cancelled() => tracing::debug!("a port-forward ends with its node"),
        }
        closer.close().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = channels.run(socket) => {}
        () = work => {}
    }
}
