//! One connection over one WebSocket.

use super::pings::Pings;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::{Buf as _, Bytes};
use futures::{Sink, Stream as _};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest message that we send.
const PIECE: usize = 64 * 1024;

/// A WebSocket whose binary messages are one stream of bytes in each direction.
pub(super) struct Tunnel {
    socket: WebSocket,
    received: Bytes,
    closed: bool,
    pings: Pings,
}

impl Tunnel {
    pub(super) fn new(socket: WebSocket) -> Self {
        Self {
            socket,
            received: Bytes::new(),
            closed: false,
            pings: Pings::new(),
        }
    }

    fn socket(&mut self) -> Pin<&mut WebSocket> {
        Pin::new(&mut self.socket)
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.received.is_empty() {
            match ready!(self.socket().poll_next(context)) {
                None | Some(Ok(Message::Close(_))) => return Poll::Ready(Ok(())),
                Some(Ok(Message::Binary(data))) => self.received = data,
                Some(Ok(Message::Ping(payload))) if self.pings.flood(payload.len()) => {
                    let error = "too many pings";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(_))) => {
                    let error = "invalid message type received";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let count = self.received.len().min(buffer.remaining());
        buffer.put_slice(&self.received[..count]);
        self.received.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.socket().poll_ready(context)).map_err(io::Error::other)?;
        let piece = &data[..data.len().min(PIECE)];
        let message = Message::Binary(Bytes::copy_from_slice(piece));
        self.socket().start_send(message).map_err(io::Error::other)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_flush(context).map_err(io::Error::other)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closed {
            ready!(self.socket().poll_ready(context)).map_err(io::Error::other)?;
            let normal = CloseFrame {
                code: close_code::NORMAL,
                reason: "".into(),
            };
            self.closed = true;
            self.socket()
                .start_send(Message::Close(Some(normal)))
                .map_err(io::Error::other)?;
        }
        self.socket().poll_flush(context).map_err(io::Error::other)
    }
}
