//! A command's streams over WebSocket: channels 0 to 4.

use super::super::Limits;
use super::super::channel::{Channels, Codec};
use super::Command;
use crate::{ExecIo, Fault};
use axum::extract::ws::WebSocket;
use futures::future::BoxFuture;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

pub(super) async fn serve<F>(
    socket: WebSocket,
    protocol: &'static str,
    limits: Limits,
    command: Command<F>,
    closing: CancellationToken,
) where
    F: FnOnce(ExecIo) -> BoxFuture<'static, Result<i32, Fault>> + Send + 'static,
{
    let mut channels = Channels::new(Codec::of(protocol), limits.idle);
    let options = &command.options;
    let stdin = options.stdin.then(|| channels.input(STDIN));
    let resize = options.tty.then(|| channels.input(RESIZE));
    let output = |channel| Box::new(channels.output(channel)) as Box<dyn AsyncWrite + Send + Unpin>;
    let io = ExecIo {
        stdin: stdin.map(|stdin| Box::new(stdin) as _),
        stdout: options.stdout.then(|| output(STDOUT)),
        stderr: options.stderr.then(|| output(STDERR)),
        terminal: None,
    };
    let first = match (options.stdout, options.stderr) {
        (true, _) => STDOUT,
        (_, true) => STDERR,
        _ => ERROR,
    };
    let mut first = channels.output(first);
    let mut error = channels.output(ERROR);
    let closer = channels.closer();
    let work = async move {
        // An empty message tells the client that the streams are there. Failures to write mean that it has
        // left, which ends all of this.
        let _ = first.write(&[]).await;
        drop(first);
        let status = command.run(io, resize, &closing).await.bytes(protocol);
        if !status.is_empty() {
            let _ = error.write_all(&status).await;
        }
        closer.close().await;
        std::future::pending::<()>().await;
    };
    // Whichever way the socket ends, the command ends with it.
    tokio::select! {
        () = channels.run(socket) => {}
        () = work => {}
    }
}
