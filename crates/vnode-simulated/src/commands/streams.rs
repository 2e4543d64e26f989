//! Where input comes from and output goes.

use super::tty::Tty;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// A reader that several commands share, one after the other.
type Shared = Arc<Mutex<BufReader<Box<dyn AsyncRead + Send + Unpin>>>>;

type Taker = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Longest line that is read at once.
const LINE: u64 = 64 << 10;

/// Where input comes from.
#[derive(Clone)]
pub(crate) enum Input {
    /// Nowhere: it ends at once.
    Nothing,
    Stream(Shared),
    /// Somebody types it.
    Typed(Arc<Tty>),
}

impl Input {
    /// From a stream.
    pub(crate) fn stream(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::Stream(Arc::new(Mutex::new(BufReader::new(Box::new(reader)))))
    }

    /// Some bytes; none at the end.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Nothing => Ok(0),
            Self::Stream(reader) => reader.lock().await.read(buffer).await,
            Self::Typed(tty) => Ok(tty.read(buffer).await),
        }
    }

    /// So many bytes, or fewer at the end.
    pub(crate) async fn read_full(&self, buffer: &mut [u8]) -> io::Result<usize> {
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
    pub(crate) async fn read_line(&self) -> io::Result<Vec<u8>> {
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

#[derive(Clone)]
pub(crate) enum Output {
    Nothing,
    /// A stream; with a terminal each end of line becomes CR LF.
    Stream {
        writer: Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>,
        /// Whether it is a terminal.
        terminal: bool,
    },
    /// Whatever is to be done with it.
    Given(Taker),
}

impl Output {
    pub(crate) fn stream(writer: impl AsyncWrite + Send + Unpin + 'static, terminal: bool) -> Self {
        Self::Stream {
            writer: Arc::new(Mutex::new(Box::new(writer))),
            terminal,
        }
    }

    /// Writes all of it; waits for the reader.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
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
pub(crate) fn with_returns(bytes: &[u8]) -> Vec<u8> {
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
pub(crate) struct Streams {
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) errors: Output,
}

impl Streams {
    /// Writes a complaint; if nobody hears it, nothing can be done.
    pub(crate) async fn complain(&self, message: &str) {
        let _ = self.errors.write(format!("{message}\n").as_bytes()).await;
    }
}
