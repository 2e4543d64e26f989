//! Where input comes from and output goes.

use super::tty::Tty;
use crate::simulated::fs::View;
use std::io;
use std::sync::{Arc, Mutex as Lock, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// A reader that several commands share, one after the other.
type Shared = Arc<Mutex<BufReader<Box<dyn AsyncRead + Send + Unpin>>>>;

/// Whatever takes output.
type Taker = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Longest line that is read at once.
const LINE: u64 = 64 << 10;
/// Most that `$(…)` keeps.
const CAPTURE: usize = 1 << 20;

/// Where input comes from.
#[derive(Clone)]
pub enum Input {
    /// Nowhere: it ends at once.
    Nothing,
    /// A stream.
    Stream(Shared),
    /// Somebody types it.
    Typed(Arc<Tty>),
}

impl Input {
    /// From a stream.
    pub fn stream(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::Stream(Arc::new(Mutex::new(BufReader::new(Box::new(reader)))))
    }

    /// Some bytes; none at the end.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Nothing => Ok(0),
            Self::Stream(reader) => reader.lock().await.read(buffer).await,
            Self::Typed(tty) => Ok(tty.read(buffer).await),
        }
    }

    /// So many bytes, or fewer at the end.
    pub async fn read_full(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest).await? {
                0 => break,
                more => filled += more,
            }
        }
        Ok(filled)
    }

    /// A line with its end; without at the end of input, and nothing there.
    pub async fn read_line(&self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        match self {
            Self::Nothing => {}
            Self::Stream(reader) => {
                let mut reader = reader.lock().await;
                (&mut *reader).take(LINE).read_until(b'\n', &mut line).await?;
            }
            Self::Typed(tty) => {
                let mut byte = [0];
                while (line.len() as u64) < LINE && tty.read(&mut byte).await == 1 {
                    line.extend_from_slice(&byte);
                    if byte == *b"\n" {
                        break;
                    }
                }
            }
        }
        Ok(line)
    }
}

/// Where output goes.
#[derive(Clone)]
pub enum Output {
    /// Nowhere.
    Nothing,
    /// A stream; with a terminal each end of line becomes CR LF.
    Stream {
        /// It.
        writer: Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>,
        /// Whether it is a terminal.
        terminal: bool,
    },
    /// A file.
    File(Box<View>, String),
    /// `$(…)`.
    Kept(Arc<Lock<Vec<u8>>>),
    /// Whatever is to be done with it.
    Given(Taker),
}

impl Output {
    /// To a stream.
    pub fn stream(writer: impl AsyncWrite + Send + Unpin + 'static, terminal: bool) -> Self {
        Self::Stream {
            writer: Arc::new(Mutex::new(Box::new(writer))),
            terminal,
        }
    }

    /// Writes all of it; waits for the reader.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Stream { writer, terminal } => {
                let mut writer = writer.lock().await;
                if *terminal {
                    writer.write_all(&with_returns(bytes)).await?;
                } else {
                    writer.write_all(bytes).await?;
                }
                writer.flush().await
            }
            Self::File(view, path) => view.write(path, bytes, true).await.map_err(io::Error::other),
            Self::Kept(kept) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() + bytes.len() > CAPTURE {
                    return Err(io::Error::other("Output is too long to be kept"));
                }
                kept.extend_from_slice(bytes);
                Ok(())
            }
            Self::Given(give) => {
                give(bytes);
                // Nobody slows it down, so that it must not keep the others from their turn.
                tokio::task::yield_now().await;
                Ok(())
            }
        }
    }
}

/// Each end of line as a terminal wants it.
pub fn with_returns(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 8);
    let mut before = 0;
    for byte in bytes {
        if *byte == b'\n' && before != b'\r' {
            out.push(b'\r');
        }
        out.push(*byte);
        before = *byte;
    }
    out
}

/// The three streams of a command.
#[derive(Clone)]
pub struct Streams {
    /// What it reads.
    pub input: Input,
    /// Where it writes.
    pub output: Output,
    /// Where it complains.
    pub errors: Output,
}

impl Streams {
    /// Writes a complaint; if nobody hears it, nothing can be done.
    pub async fn complain(&self, message: &str) {
        let _ = self.errors.write(format!("{message}\n").as_bytes()).await;
    }
}
