//! Several streams over one WebSocket: each message begins with the number of its channel.
//!
//! There are no windows: while an input that nobody reads is full, the whole socket is not read.

use super::pings::Pings;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::PollSender;

/// Message of `v5` that closes the channel whose number follows.
const CLOSE: u8 = 255;
/// What an input holds until it is read.
const INPUT: usize = 64 * 1024;
/// The longest message that we send.
const PIECE: usize = 32 * 1024;
/// Messages that wait to be written.
const OUTPUT: usize = 4;
/// How long to wait for the client to close after us.
const LINGER: Duration = Duration::from_secs(5);
/// Clients leave after a minute without an answer to their pings, which are not seen while the socket is not
/// read.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Codec {
    /// As text: the channel's number as a digit, then the data in Base64.
    pub(super) base64: bool,
    /// Inputs can be closed.
    pub(super) close: bool,
}

impl Codec {
    /// Of a subprotocol.
    pub(super) fn of(protocol: &str) -> Self {
        Self {
            base64: protocol.ends_with("base64.channel.k8s.io"),
            close: protocol == "v5.channel.k8s.io",
        }
    }

    fn encode(self, channel: u8, data: &[u8]) -> Message {
        if self.base64 {
            let mut text = String::with_capacity(1 + data.len().div_ceil(3) * 4);
            text.push(char::from(b'0'.wrapping_add(channel)));
            STANDARD.encode_string(data, &mut text);
            return Message::Text(text.into());
        }
        let mut bytes = BytesMut::with_capacity(1 + data.len());
        bytes.put_u8(channel);
        bytes.put_slice(data);
        Message::Binary(bytes.freeze())
    }

    /// What a message says; `None` is passed over.
    fn decode(self, mut message: Bytes) -> Result<Option<Received>, &'static str> {
        let Some(&first) = message.first() else {
            return Ok(None);
        };
        if self.close && first == CLOSE {
            return match message[..] {
                [_, channel] => Ok(Some(Received::Close(channel))),
                _ => Err("a close signal does not name one channel"),
            };
        }
        let data = message.split_off(1);
        if !self.base64 {
            return Ok(Some(Received::Data(first, data)));
        }
        let channel = first.wrapping_sub(b'0');
        match STANDARD.decode(&data) {
            Ok(data) => Ok(Some(Received::Data(channel, data.into()))),
            Err(error) => {
                tracing::debug!(%error, channel, "a client sent something that is not Base64");
                Ok(None)
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Received {
    Data(u8, Bytes),
    Close(u8),
}

/// What is written to the socket.
enum Sent {
    Data(u8, Bytes),
    Heartbeat,
    Close,
}

/// A socket with channels. Outputs and inputs are made first, then it is [`run`](Self::run).
pub(super) struct Channels {
    codec: Codec,
    /// By number; `None` for what is passed over.
    inputs: Vec<Option<InputEnd>>,
    output: mpsc::Sender<Sent>,
    sent: mpsc::Receiver<Sent>,
    idle: Idle,
}

struct InputEnd {
    pipe: DuplexStream,
    complete: Arc<AtomicBool>,
}

/// What a client sends on a channel. Its end is an error unless the client has closed it, so that input that
/// was cut off does not look complete.
pub(super) struct Input {
    pipe: DuplexStream,
    complete: Arc<AtomicBool>,
}

/// What a client receives on a channel.
pub(super) struct Output {
    channel: u8,
    socket: PollSender<Sent>,
}

/// Ends the socket.
pub(super) struct Closer(mpsc::Sender<Sent>);

impl Channels {
    pub(super) fn new(codec: Codec, idle: Duration) -> Self {
        let (output, sent) = mpsc::channel(OUTPUT);
        Self {
            codec,
            inputs: Vec::new(),
            output,
            sent,
            idle: Idle::new(idle),
        }
    }

    pub(super) fn input(&mut self, channel: u8) -> Input {
        let (pipe, ours) = tokio::io::duplex(INPUT);
        let complete = Arc::new(AtomicBool::new(false));
        let index = usize::from(channel);
        if self.inputs.len() <= index {
            self.inputs.resize_with(index + 1, || None);
        }
        self.inputs[index] = Some(InputEnd {
            pipe: ours,
            complete: complete.clone(),
        });
        Input { pipe, complete }
    }

    pub(super) fn output(&self, channel: u8) -> Output {
        Output {
            channel,
            socket: PollSender::new(self.output.clone()),
        }
    }

    pub(super) fn closer(&self) -> Closer {
        Closer(self.output.clone())
    }

    /// Serves the socket until the client leaves, breaks the protocol or idles, or [`Closer::close`] is
    /// called and everything before has been written.
    pub(super) async fn run(self, socket: WebSocket) {
        let (sink, source) = socket.split();
        let Self {
            codec,
            inputs,
            output,
            sent,
            idle,
        } = self;
        tokio::select! {
            () = write(codec, sink, sent, &idle) => {}
            () = read(codec, source, inputs, output, &idle) => {}
            () = idle.over() => tracing::debug!("a client's stream was idle for too long"),
        }
    }
}

async fn read(
    codec: Codec,
    mut source: SplitStream<WebSocket>,
    mut inputs: Vec<Option<InputEnd>>,
    output: mpsc::Sender<Sent>,
    idle: &Idle,
) {
    let mut pings = Pings::new();
    loop {
        let message = match source.next().await {
            None | Some(Ok(Message::Close(_))) => return,
            Some(Err(error)) => {
                tracing::debug!(%error, "a client's WebSocket failed");
                return;
            }
            Some(Ok(message)) => message,
        };
        idle.touch();
        // The codec decides what is text, not the message.
        let message = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Ping(payload) if pings.flood(payload.len()) => {
                tracing::debug!("a client sends too many pings");
                return;
            }
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => continue,
        };
        match codec.decode(message) {
            Ok(None) => {}
            Ok(Some(Received::Data(channel, data))) => {
                if let Some(Some(input)) = inputs.get_mut(usize::from(channel)) {
                    // Who does not want more input has dropped its end; the rest goes on.
                    let _ = write_input(&mut input.pipe, &data, &output).await;
                }
            }
            Ok(Some(Received::Close(channel))) => match inputs.get_mut(usize::from(channel)) {
                Some(input) => {
                    if let Some(input) = input.take() {
                        input.complete.store(true, Ordering::Release);
                    }
                }
                // Outputs have numbers too.
                None if channel <= 4 => {}
                None => return,
            },
            Err(why) => {
                tracing::debug!(why, "a client broke the protocol");
                return;
            }
        }
    }
}

async fn write_input(pipe: &mut DuplexStream, data: &[u8], output: &mpsc::Sender<Sent>) -> io::Result<()> {
    let write = pipe.write_all(data);
    tokio::pin!(write);
    loop {
        match tokio::time::timeout(HEARTBEAT, &mut write).await {
            Ok(written) => return written,
            // Full means that there is something to write as it is.
            Err(_) => drop(output.try_send(Sent::Heartbeat)),
        }
    }
}

async fn write(
    codec: Codec,
    mut sink: SplitSink<WebSocket, Message>,
    mut sent: mpsc::Receiver<Sent>,
    idle: &Idle,
) {
    while let Some(next) = sent.recv().await {
        let message = match next {
            Sent::Data(channel, data) => {
                idle.touch();
                codec.encode(channel, &data)
            }
            // An answer that nobody asked for: every client takes it for a sign of life.
            Sent::Heartbeat => Message::Pong(Bytes::new()),
            Sent::Close => break,
        };
        if let Err(error) = sink.send(message).await {
            tracing::debug!(%error, "a client's WebSocket failed");
            return;
        }
    }
    drop(sent);
    let normal = CloseFrame {
        code: close_code::NORMAL,
        reason: "".into(),
    };
    if sink.send(Message::Close(Some(normal))).await.is_ok() {
        // The reader sees the client's answer, and ends us.
        tokio::time::sleep(LINGER).await;
    }
}

impl Closer {
    /// Closes once everything before has been written.
    pub(super) async fn close(self) {
        // Whoever is gone needs no goodbye.
        let _ = self.0.send(Sent::Close).await;
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(context, buffer))?;
        let end = buffer.filled().len() == before && buffer.remaining() > 0;
        if end && !self.complete.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.socket.poll_reserve(context)).map_err(gone)?;
        let piece = &data[..data.len().min(PIECE)];
        let channel = self.channel;
        let message = Sent::Data(channel, Bytes::copy_from_slice(piece));
        self.socket.send_item(message).map_err(gone)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The socket's writer needs no pushing.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The client is not told: the protocol has no words for it.
        self.socket.close();
        Poll::Ready(Ok(()))
    }
}

/// When something was last sent or received.
struct Idle {
    limit: Duration,
    last: Mutex<Instant>,
}

impl Idle {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            last: Mutex::new(Instant::now()),
        }
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    async fn over(&self) {
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            tokio::time::sleep_until(last + self.limit).await;
            if last == *self.last.lock().unwrap_or_else(PoisonError::into_inner) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const BINARY: Codec = Codec {
        base64: false,
        close: false,
    };
    const BASE64: Codec = Codec {
        base64: true,
        close: false,
    };
    const V5: Codec = Codec {
        base64: false,
        close: true,
    };

    #[rstest]
    #[case("", BINARY)]
    #[case("channel.k8s.io", BINARY)]
    #[case("v4.channel.k8s.io", BINARY)]
    #[case("base64.channel.k8s.io", BASE64)]
    #[case("v4.base64.channel.k8s.io", BASE64)]
    #[case("v5.channel.k8s.io", V5)]
    fn a_subprotocol_says_how_messages_are_written(#[case] protocol: &str, #[case] codec: Codec) {
        assert_eq!(Codec::of(protocol), codec);
    }

    #[rstest]
    #[case(BINARY, b"", Ok(None))]
    #[case(BINARY, b"\0hello", Ok(Some(Received::Data(0, Bytes::from_static(b"hello")))))]
    #[case(BINARY, b"\xff\0", Ok(Some(Received::Data(255, Bytes::from_static(b"\0")))))]
    #[case(V5, b"\xff\0", Ok(Some(Received::Close(0))))]
    #[case(V5, b"\xff", Err("a close signal does not name one channel"))]
    #[case(V5, b"\xff\0\0", Err("a close signal does not name one channel"))]
    #[case(BASE64, b"0aGk=", Ok(Some(Received::Data(0, Bytes::from_static(b"hi")))))]
    #[case(BASE64, b"0*", Ok(None))]
    fn messages_are_read_as_upstream_does(
        #[case] codec: Codec,
        #[case] message: &'static [u8],
        #[case] read: Result<Option<Received>, &'static str>,
    ) {
        assert_eq!(codec.decode(Bytes::from_static(message)), read);
    }

    #[test]
    fn messages_are_written_as_upstream_does() {
        assert_eq!(
            BINARY.encode(1, b"hi"),
            Message::Binary(Bytes::from_static(b"\x01hi"))
        );
        assert_eq!(BASE64.encode(3, b"hi"), Message::Text("3aGk=".into()));
        assert_eq!(BASE64.encode(1, b""), Message::Text("1".into()));
    }

    proptest! {
        #[test]
        fn random_messages_are_survived(message in prop::collection::vec(any::<u8>(), 0..100)) {
            for codec in [BINARY, BASE64, V5] {
                let _ = codec.decode(message.clone().into());
            }
        }
    }
}
