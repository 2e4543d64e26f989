//! A connection that knows when it was last answered, and says so when it ends.

use super::dial::Target;
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A connection that ends after something was sent, and nothing was received for this long, was silent. The
/// time is below the time-outs of callers that cannot wait (an elector's are 1.5 s and more), and above the
/// round trip of a usable link.
pub(super) const SILENT: Duration = Duration::from_secs(1);

/// When something was last heard and said on the connection of a response, in whose extensions it is. On a
/// connection of HTTP/2 whose other side is there, something is received at least every 5 s and the time of a
/// round trip: the answer to a ping, if nothing else.
#[derive(Clone, Debug, Default)]
pub struct Activity(Arc<Mutex<Times>>);

#[derive(Debug, Default)]
struct Times {
    /// When the last byte came in.
    received: Option<Instant>,
    /// When the first byte since then went out.
    unanswered: Option<Instant>,
}

impl Activity {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is the first time.
    fn note_received(&self) -> bool {
        let mut times = self.times();
        times.unanswered = None;
        times.received.replace(Instant::now()).is_none()
    }

    fn note_sent(&self) {
        self.times().unanswered.get_or_insert_with(Instant::now);
    }

    /// Whether anything came in since then.
    pub fn received_since(&self, moment: Instant) -> bool {
        self.times().received.is_some_and(|received| received >= moment)
    }

    /// Whether something was sent [`SILENT`] ago or earlier and nothing was received since.
    fn is_silent(&self) -> bool {
        self.times()
            .unanswered
            .is_some_and(|since| since.elapsed() >= SILENT)
    }
}

/// A TCP connection to one address of the API server. The first byte received is the proof that the address
/// serves: that a connection opens is none, for a load balancer whose server is gone accepts it too.
#[derive(Debug)]
pub(super) struct Tracked {
    stream: TcpStream,
    activity: Activity,
    target: Target,
}

impl Tracked {
    pub(super) fn new(stream: TcpStream, target: Target) -> Self {
        Self {
            stream,
            activity: Activity::default(),
            target,
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if self.activity.is_silent() {
            self.target.failed("the connection was silent");
        }
    }
}

impl Connection for Tracked {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.activity.clone())
    }
}

impl AsyncRead for Tracked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before && self.activity.note_received() {
            self.target.answered();
        }
        polled
    }
}

impl AsyncWrite for Tracked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.activity.note_sent();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.activity.note_sent();
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
