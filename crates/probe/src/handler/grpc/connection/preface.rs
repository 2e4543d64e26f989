//! Whether the other side speaks HTTP/2: the first frame of a server is SETTINGS (RFC 9113, 3.4).

use evenkeel_probe_handlers::wording;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Length of a frame's header.
const HEADER: usize = 9;
/// Type of the frame SETTINGS.
const SETTINGS: u8 = 4;
/// Largest frame that a client accepts before it has said anything else.
const FRAME: u32 = 16 << 10;

/// What became of the server's greeting.
#[derive(Clone, Debug, Default)]
pub(super) struct Opened(Arc<OnceLock<Result<(), String>>>);

impl Opened {
    /// Whether it has been read to its end.
    pub(super) fn get(&self) -> bool {
        matches!(self.0.get(), Some(Ok(())))
    }

    /// Why it cannot be read. Kept here because the HTTP/2 client tells nobody.
    pub(super) fn why_not(&self) -> Option<&str> {
        self.0.get()?.as_ref().err().map(String::as_str)
    }

    /// Only the first word counts.
    fn set(&self, result: Result<(), String>) {
        let _ = self.0.set(result);
    }
}

/// In Go's words.
fn system(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        _ => wording::system(error),
    }
}

/// How much of the greeting is still to come.
#[derive(Debug)]
enum Greeting {
    Header { read: Vec<u8> },
    Payload { left: usize },
    Done,
}

impl Greeting {
    fn new() -> Self {
        Self::Header {
            read: Vec::with_capacity(HEADER),
        }
    }

    /// Takes what was read. `Err` if no HTTP/2 server begins like that.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if let Self::Header { read } = self {
            let (head, rest) = bytes.split_at(bytes.len().min(HEADER - read.len()));
            read.extend_from_slice(head);
            bytes = rest;
            let [a, b, c, kind, flags, stream @ ..] = read.as_slice() else {
                return Ok(());
            };
            if stream.len() < 4 {
                return Ok(());
            }
            let length = u32::from_be_bytes([0, *a, *b, *c]);
            if *kind != SETTINGS || *flags & 1 != 0 || stream != [0; 4] || length > FRAME {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the server does not begin with HTTP/2 settings; does it speak gRPC there?",
                ));
            }
            *self = Self::Payload {
                left: length as usize,
            };
        }
        if let Self::Payload { left } = self {
            *left = left.saturating_sub(bytes.len());
            if *left == 0 {
                *self = Self::Done;
            }
        }
        Ok(())
    }
}

/// A stream whose first bytes are looked at on their way.
pub(super) struct Watched<S> {
    inner: S,
    greeting: Greeting,
    opened: Opened,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, opened: Opened) -> Self {
        Self {
            inner,
            greeting: Greeting::new(),
            opened,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer));
        if matches!(self.greeting, Greeting::Done) {
            return Poll::Ready(read);
        }
        let bytes = &buffer.filled()[before..];
        let taken = read.and_then(|()| match bytes {
            [] => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => self.greeting.take(bytes),
        });
        if let Err(error) = taken {
            self.opened
                .set(Err(format!("error reading server preface: {}", system(&error))));
            return Poll::Ready(Err(error));
        }
        if matches!(self.greeting, Greeting::Done) {
            self.opened.set(Ok(()));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(bytes: &[u8], chunk: usize) -> io::Result<bool> {
        let mut greeting = Greeting::new();
        for part in bytes.chunks(chunk) {
            greeting.take(part)?;
        }
        Ok(matches!(greeting, Greeting::Done))
    }

    #[test]
    fn settings_open_a_connection_however_they_are_cut() {
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        for chunk in 1..=settings.len() {
            assert!(greeting(&settings, chunk).unwrap(), "chunks of {chunk}");
            for end in 0..settings.len() {
                assert!(!greeting(&settings[..end], chunk).unwrap(), "{end} bytes");
            }
        }
        assert!(
            greeting(&[0, 0, 0, 4, 0, 0, 0, 0, 0], 9).unwrap(),
            "empty settings"
        );
    }

    #[test]
    fn anything_else_first_is_no_http2() {
        for (what, bytes) in [
            ("HTTP/1", &b"HTTP/1.1 400 Bad Request\r\n"[..]),
            ("an acknowledgement", &[0, 0, 0, 4, 1, 0, 0, 0, 0]),
            ("a ping", &[0, 0, 8, 6, 0, 0, 0, 0, 0]),
            ("settings of a stream", &[0, 0, 0, 4, 0, 0, 0, 0, 1]),
            ("settings of 16 MiB", &[255, 255, 255, 4, 0, 0, 0, 0, 0]),
        ] {
            greeting(bytes, 4).expect_err(what);
        }
    }
}
