//! A server's connection over a socket.

use super::frame::{Decoder, Frame};
use super::state::{Ended, Shared};
use super::stream::Offer;
use crate::Duplex;
use bytes::BytesMut;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// How much is read at a time.
const READ: usize = 64 * 1024;
/// How long to wait for the peer to close after us, so that what it has not read yet is not lost to a reset.
const LINGER: Duration = Duration::from_secs(5);
/// How often to see whether a peer is still there whose data nobody reads, and that is therefore not read
/// from.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Bounds of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Without a byte in any direction.
    pub idle: Duration,
    /// Streams at a time; further ones are refused.
    pub streams: usize,
    /// Received bytes of one stream that wait to be read.
    pub stream_buffer: usize,
    /// Received bytes of all streams. Over it, each stream still takes a piece of 16 KiB when it has none.
    pub buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(4 * 60 * 60),
            streams: 256,
            stream_buffer: 256 * 1024,
            buffer: 16 * 1024 * 1024,
        }
    }
}

/// The server's end of a connection. Dropping it closes the socket at once.
pub struct Connection {
    shared: Arc<Shared>,
    offers: mpsc::UnboundedReceiver<Offer>,
    driver: AbortOnDropHandle<Ended>,
    ended: Option<Ended>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Serves a socket.
    pub fn server(socket: impl Duplex, limits: Limits) -> Self {
        let shared = Shared::new(limits);
        // Not more than the streams that may be open.
        let (offer, offers) = mpsc::unbounded_channel();
        let driver = tokio::spawn(drive(socket, shared.clone(), offer));
        Self {
            shared,
            offers,
            driver: AbortOnDropHandle::new(driver),
            ended: None,
        }
    }

    /// The next stream that the client opens; `None` when the connection has ended.
    pub async fn offer(&mut self) -> Option<Offer> {
        self.offers.recv().await
    }

    /// Waits for the end; streams that are offered meanwhile are refused.
    pub async fn ended(&mut self) -> Ended {
        while self.offers.recv().await.is_some() {}
        if self.ended.is_none() {
            self.ended = Some((&mut self.driver).await.unwrap_or(Ended::Here));
        }
        self.ended.unwrap_or(Ended::Here)
    }

    /// Sends what the streams have written, says goodbye, and waits for the client to close, though not for
    /// long.
    pub async fn close(mut self) {
        self.shared.close(None);
        self.ended().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.end(Ended::Here);
    }
}

async fn drive(socket: impl Duplex, shared: Arc<Shared>, offers: mpsc::UnboundedSender<Offer>) -> Ended {
    let (source, mut sink) = tokio::io::split(socket);
    let ended = tokio::select! {
        ended = read(source, &shared, &offers) => ended,
        ended = write(&mut sink, &shared) => ended,
        () = idle(&shared) => Ended::Idle,
    };
    if let Ended::Protocol(error) = ended {
        shared.close(Some(error));
        // For those who look at the wire; who is not there to read it misses nothing.
        let _ = tokio::time::timeout(Duration::from_secs(1), flush(&mut sink, &shared)).await;
    }
    shared.end(ended);
    ended
}

async fn read(
    mut source: impl AsyncRead + Unpin,
    shared: &Arc<Shared>,
    offers: &mpsc::UnboundedSender<Offer>,
) -> Ended {
    let (mut decoder, mut bytes) = (Decoder::default(), BytesMut::new());
    loop {
        loop {
            let frame = match decoder.decode(&mut bytes) {
                Ok(None) => break,
                Ok(Some(frame)) => frame,
                Err(error) => return error.into(),
            };
            if let Frame::Data { stream, .. } = frame {
                wait_for_window(shared, stream).await;
            }
            match shared.take(frame) {
                // Nobody listens any more: dropping it refuses it.
                Ok(Some(offer)) => drop(offers.send(offer)),
                Ok(None) => {}
                Err(ended) => return ended,
            }
        }
        bytes.reserve(READ);
        match source.read_buf(&mut bytes).await {
            Ok(0) => return Ended::Closed,
            Ok(_) => shared.active(),
            Err(error) => return Ended::Socket(error.kind()),
        }
    }
}

/// Waits until a stream has room. A peer that is not read from cannot be seen to leave, but writing to it
/// fails then.
async fn wait_for_window(shared: &Shared, stream: u32) {
    let window = || poll_fn(|context| shared.poll_window(stream, context));
    while tokio::time::timeout(HEARTBEAT, window()).await.is_err() {
        shared.heartbeat();
    }
}

async fn write(mut sink: impl AsyncWrite + Unpin, shared: &Shared) -> Ended {
    if let Err(error) = flush(&mut sink, shared).await {
        return Ended::Socket(error.kind());
    }
    tokio::time::sleep(LINGER).await;
    Ended::Here
}

/// Writes what there is and will be until we close.
async fn flush(mut sink: impl AsyncWrite + Unpin, shared: &Shared) -> io::Result<()> {
    while let Some(mut output) = poll_fn(|context| shared.poll_output(context)).await {
        sink.write_all_buf(&mut output).await?;
        sink.flush().await?;
    }
    sink.shutdown().await
}

async fn idle(shared: &Shared) {
    loop {
        let at = shared.idle_at();
        tokio::time::sleep_until(at).await;
        if shared.idle_at() == at {
            return;
        }
    }
}
