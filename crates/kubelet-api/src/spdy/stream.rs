//! One stream of a connection.

use super::header::Headers;
use super::state::Shared;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that the peer wants to open. Dropping it refuses it.
#[derive(Debug)]
pub struct Offer {
    stream: Stream,
    headers: Headers,
}

impl Offer {
    pub(super) fn new(stream: Stream, headers: Headers) -> Self {
        Self { stream, headers }
    }

    /// What it is for.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Number of the stream.
    pub fn id(&self) -> u32 {
        self.stream.id
    }

    /// Takes the stream that is offered.
    pub fn accept(self) -> Stream {
        self.stream.shared.reply(self.stream.id);
        self.stream
    }
}

/// A stream: both directions, each of which ends on its own. Shutting it down ends ours; dropping it before
/// both have ended cancels it. A read fails if the peer cancels the stream or the connection is lost, so that
/// input that was cut off does not look complete.
pub struct Stream {
    shared: Arc<Shared>,
    id: u32,
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>, id: u32) -> Self {
        Self { shared, id }
    }

    /// Number of the stream.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Ends our direction: nothing more is written.
    pub fn finish(&mut self) {
        self.shared.finish(self.id);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stream").field(&self.id).finish()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.poll_read(self.id, context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.poll_write(self.id, context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection's writer needs no pushing.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.forget(self.id);
    }
}
