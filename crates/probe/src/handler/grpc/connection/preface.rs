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

    /// What a write or a flush comes to: it succeeds until the greeting is there, whatever became of it.
    ///
    /// A peer that refuses us closes while we still write, so that either direction may fail first. Reading
    /// ends as well then, and alone knows what the peer said before.
    fn written<T>(&self, result: io::Result<T>, all: T) -> io::Result<T> {
        match self.greeting {
            Greeting::Done => result,
            Greeting::Header { .. } | Greeting::Payload { .. } => Ok(result.unwrap_or(all)),
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
            buffer.set_filled(before);
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
        let result = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes));
        Poll::Ready(self.written(result, bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, parts));
        Poll::Ready(self.written(result, parts.iter().map(|part| part.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        Poll::Ready(self.written(result, ()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test]
    async fn a_peer_that_hangs_up_while_we_write_is_heard_to_the_end() {
        for (said, why) in [
            (&b""[..], "EOF"),
            (
                b"HTTP/1.1 400 Bad Request\r\n",
                "the server does not begin with HTTP/2 settings",
            ),
        ] {
            let (ours, mut theirs) = duplex(64);
            theirs.write_all(said).await.unwrap();
            drop(theirs);
            let opened = Opened::default();
            let mut watched = Watched::new(ours, opened.clone());
            watched.write_all(&[0; 100]).await.unwrap();
            watched.flush().await.unwrap();
            watched.read_to_end(&mut Vec::new()).await.unwrap_err();
            let told = opened.why_not().unwrap();
            assert!(
                told.starts_with(&format!("error reading server preface: {why}")),
                "{told}"
            );
        }
    }

    #[tokio::test]
    async fn after_the_greeting_a_write_that_fails_fails() {
        let (ours, mut theirs) = duplex(64);
        theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        drop(theirs);
        let mut watched = Watched::new(ours, Opened::default());
        watched.read_exact(&mut [0; 9]).await.unwrap();
        watched.write_all(&[0; 100]).await.unwrap_err();
    }

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
