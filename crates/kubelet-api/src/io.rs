//! Streams between clients and containers.

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// Both directions of a connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// Streams of a command. A stream that the client does not request is `None`. Input ends with the reader's
/// end of file.
pub struct ExecIo {
    /// What the client types.
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Where output goes.
    pub stdout: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Where error output goes; with a terminal it is part of the output.
    pub stderr: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// With a terminal, its sizes as they change. Clients that send sizes send the first one at once.
    pub terminal: Option<mpsc::Receiver<TerminalSize>>,
}

impl std::fmt::Debug for ExecIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecIo")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .field("terminal", &self.terminal.is_some())
            .finish()
    }
}

/// Keeps the beginning of what a command writes, and takes and drops the rest, as container runtimes do.
#[derive(Clone, Debug)]
pub struct Kept {
    bytes: Arc<Mutex<Vec<u8>>>,
    bound: usize,
}

impl Kept {
    /// Nothing yet, and at most so many bytes.
    pub fn up_to(bound: usize) -> Self {
        Self {
            bytes: Arc::default(),
            bound,
        }
    }

    /// What was kept.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // What is written is complete before anything could panic.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut kept = self.lock();
        let room = self.bound.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Size of a terminal, as clients send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TerminalSize {
    /// Width in columns.
    pub width: u16,
    /// Height in rows.
    pub height: u16,
}

/// Which part of a container's output (`PodLogOptions`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether to wait for more output until the container ends.
    pub follow: bool,
    /// Whether each line begins with its time (RFC 3339 with nanoseconds).
    pub timestamps: bool,
    /// Number of lines from the end; without it all lines.
    pub tail: Option<u64>,
    /// Lines from this time on, itself included.
    pub since: Option<Timestamp>,
    /// Most bytes to return. The server enforces it, too.
    pub limit: Option<u64>,
    /// Which of the container's outputs.
    pub streams: Streams,
}

/// Which of a container's outputs (`PodLogOptions.stream`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// Both, and whatever a backend has that cannot tell them apart.
    #[default]
    All,
    /// Standard output alone; `tail` is not set then.
    Stdout,
    /// Standard error alone; `tail` is not set then.
    Stderr,
}

/// Output as it comes; ends when there is no more.
pub type LogStream = BoxStream<'static, std::io::Result<Bytes>>;
