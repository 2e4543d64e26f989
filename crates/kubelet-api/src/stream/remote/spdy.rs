//! A command's streams over SPDY: each names its type when it is opened.

use super::super::Limits;
use super::Command;
use crate::spdy::{Connection, Stream};
use crate::{Duplex, ExecIo, Fault};
use futures::future::BoxFuture;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// The streams of a command.
#[derive(Default)]
struct Streams {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

/// Which streams are to come.
#[derive(Clone, Copy)]
struct Expected {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    resize: bool,
}

impl Streams {
    /// Takes a stream, or ends it again if it is not expected.
    async fn take(&mut self, expected: Expected, kind: &str, mut stream: Stream) {
        let (place, expected) = match kind {
            "error" => (&mut self.error, true),
            "stdin" => (&mut self.stdin, expected.stdin),
            "stdout" => (&mut self.stdout, expected.stdout),
            "stderr" => (&mut self.stderr, expected.stderr),
            "resize" => (&mut self.resize, expected.resize),
            _ => (&mut None, false),
        };
        if expected && place.is_none() {
            *place = Some(stream);
        } else {
            tracing::debug!(kind, "a client opened a stream that is not expected");
            // Some clients open an error output beside a terminal, and wait for its end.
            let _ = stream.shutdown().await;
        }
    }

    fn complete(&self, expected: Expected) -> bool {
        self.error.is_some()
            && self.stdin.is_some() == expected.stdin
            && self.stdout.is_some() == expected.stdout
            && self.stderr.is_some() == expected.stderr
            && self.resize.is_some() == expected.resize
    }

    /// Waits for the streams; `false` if the client leaves.
    async fn collect(&mut self, expected: Expected, connection: &mut Connection) -> bool {
        while !self.complete(expected) {
            let Some(offer) = connection.offer().await else {
                return false;
            };
            let kind = offer.headers().get("streamType").unwrap_or_default().to_owned();
            self.take(expected, &kind, offer.accept()).await;
        }
        true
    }
}

/// An output that ends when nobody writes any more: not every provider shuts down what it has written to.
struct Output(Stream);

impl AsyncWrite for Output {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.0.finish();
    }
}

pub(super) async fn serve<F>(
    socket: impl Duplex,
    protocol: &'static str,
    limits: Limits,
    command: Command<F>,
    closing: CancellationToken,
) where
    F: FnOnce(ExecIo) -> BoxFuture<'static, Result<i32, Fault>> + Send + 'static,
{
    let mut connection = Connection::server(socket, limits.spdy());
    let options = &command.options;
    let expected = Expected {
        stdin: options.stdin,
        stdout: options.stdout,
        stderr: options.stderr,
        resize: options.tty && matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io"),
    };
    let mut streams = Streams::default();
    let collected = streams.collect(expected, &mut connection);
    let collected = tokio::time::timeout(limits.creation, collected);
    let collected = tokio::select! {
        collected = collected => Some(collected),
        () = closing.cancelled() => None,
    };
    match collected {
        Some(Ok(true)) => {}
        Some(Ok(false)) => return,
        None => {
            drop(streams);
            return connection.close().await;
        }
        Some(Err(_)) => {
            tracing::warn!("timed out waiting for client to create streams");
            drop(streams);
            return connection.close().await;
        }
    }
    let Streams {
        error,
        stdin,
        stdout,
        stderr,
        resize,
    } = streams;
    let output = |stream| Box::new(Output(stream)) as Box<dyn AsyncWrite + Send + Unpin>;
    let io = ExecIo {
        stdin: stdin.map(|stdin| Box::new(stdin) as _),
        stdout: stdout.map(output),
        stderr: stderr.map(output),
        terminal: None,
    };
    let work = async move {
        let status = command.run(io, resize, &closing).await.bytes(protocol);
        if let Some(mut error) = error {
            // Failures to write mean that the client has left, which ends all of this.
            let _ = error.write_all(&status).await;
            let _ = error.shutdown().await;
        }
    };
    let left = tokio::select! {
        () = work => None,
        ended = connection.ended() => Some(ended),
    };
    match left {
        None => connection.close().await,
        Some(ended) => tracing::debug!(%ended, "a client left before its command ended"),
    }
}
