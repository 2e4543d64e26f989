//! What a connection's two tasks and its streams share.

use super::connection::Limits;
use super::frame::{self, Encoder, Frame, FrameError, INITIAL_WINDOW_SIZE, go_away, reset};
use super::header::Headers;
use super::stream::{Offer, Stream};
use bytes::{Buf as _, BytesMut};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::ReadBuf;
use tokio::time::Instant;

/// A stream's window at first, by the draft.
const WINDOW: i64 = 64 * 1024;
/// What is consumed is told in steps of half a window.
const STEP: u32 = 32 * 1024;
/// One frame of a stream's data, so that streams take turns.
const PIECE: usize = 32 * 1024;
/// Streams wait while so much is waiting to be written.
const OUTPUT: usize = 256 * 1024;
/// Answers to a peer that sends without reading end its connection at this length.
const FLOOD: usize = 1024 * 1024;

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The peer closed it, by GOAWAY or by closing the socket.
    #[error("the client closed the connection")]
    Closed,
    /// Nothing was sent for too long.
    #[error("the connection was idle for too long")]
    Idle,
    /// The peer broke the protocol.
    #[error(transparent)]
    Protocol(#[from] FrameError),
    /// The peer makes us answer without reading the answers.
    #[error("the client does not read answers")]
    Flood,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(io::ErrorKind),
    /// We closed it.
    #[error("the connection is closed")]
    Here,
}

impl From<Ended> for io::Error {
    fn from(ended: Ended) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, ended)
    }
}

/// One connection, shared.
pub(super) struct Shared {
    state: Mutex<State>,
    limits: Limits,
}

struct State {
    encoder: Encoder,
    /// Encoded frames that wait for the writer.
    output: BytesMut,
    streams: HashMap<u32, StreamState>,
    /// Bytes received and not read, of all streams.
    buffered: usize,
    /// The newest stream of the peer.
    newest: u32,
    /// The peer keeps windows.
    windows: bool,
    /// With which window streams begin.
    initial: i64,
    /// Bytes sent on all streams, and the window for all, kept once the peer tells one.
    sent: i64,
    session: Option<i64>,
    /// Bytes read of all streams and not told.
    consumed: u32,
    /// When something was last sent or received.
    active: Instant,
    /// We close: write what there is, take nothing more.
    closing: bool,
    ended: Option<Ended>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct StreamState {
    received: BytesMut,
    /// The peer sends no more.
    fin_received: bool,
    /// We send no more.
    fin_sent: bool,
    /// The peer has ended the stream.
    reset: bool,
    window: i64,
    consumed: u32,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl StreamState {
    fn wake(&mut self) {
        wake(&mut self.reader);
        wake(&mut self.writer);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl State {
    fn push(&mut self, frame: &Frame) {
        self.encoder.encode(frame, &mut self.output);
        wake(&mut self.writer);
    }

    fn reset(&mut self, stream: u32, status: u32) {
        self.push(&Frame::RstStream { stream, status });
    }

    /// Tells a peer that keeps windows that bytes are not kept any more, read or not: it may send so many
    /// others.
    fn consume(&mut self, count: usize) {
        if !self.windows {
            return;
        }
        // Only what has been received, in pieces, is ever counted.
        self.consumed = self.consumed.saturating_add(count as u32);
        if self.consumed >= STEP {
            let delta = std::mem::take(&mut self.consumed);
            self.push(&Frame::WindowUpdate { stream: 0, delta });
        }
    }

    fn full(&self, limits: &Limits, stream: u32) -> bool {
        !self.closing
            && self.ended.is_none()
            && self.streams.get(&stream).is_some_and(|state| {
                let some = !state.received.is_empty();
                state.received.len() >= limits.stream_buffer || some && self.buffered >= limits.buffer
            })
    }

    fn wake_writers(&mut self) {
        for stream in self.streams.values_mut() {
            wake(&mut stream.writer);
        }
    }
}

impl Shared {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let state = State {
            encoder: Encoder::default(),
            output: BytesMut::new(),
            streams: HashMap::new(),
            buffered: 0,
            newest: 0,
            windows: false,
            initial: WINDOW,
            sent: 0,
            session: None,
            consumed: 0,
            active: Instant::now(),
            closing: false,
            ended: None,
            reader: None,
            writer: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            limits,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; if something did, the connection is no worse for it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a frame of the peer asks; hands back a stream that it opens.
    pub(super) fn take(self: &Arc<Self>, frame: Frame) -> Result<Option<Offer>, Ended> {
        let mut state = self.lock();
        if state.output.len() > FLOOD {
            return Err(Ended::Flood);
        }
        match frame {
            Frame::SynStream {
                stream,
                fin,
                unidirectional,
                headers,
                ..
            } => return Ok(self.open(&mut state, stream, fin, unidirectional, headers)),
            Frame::Data { stream, fin, data } => {
                if let Some(known) = state.streams.get_mut(&stream).filter(|known| !known.fin_received) {
                    known.received.extend_from_slice(&data);
                    known.fin_received = fin;
                    wake(&mut known.reader);
                    state.buffered += data.len();
                } else {
                    // Passed over, but it was in the window.
                    state.consume(data.len());
                }
            }
            Frame::Headers {
                stream, fin: true, ..
            } => {
                if let Some(known) = state.streams.get_mut(&stream) {
                    known.fin_received = true;
                    wake(&mut known.reader);
                }
            }
            Frame::RstStream { stream, .. } => {
                if let Some(known) = state.streams.get_mut(&stream) {
                    known.reset = true;
                    known.wake();
                }
            }
            Frame::Settings { values, .. } => {
                state.windows = true;
                let initial = values
                    .iter()
                    .rev()
                    .find(|(_, name, _)| *name == INITIAL_WINDOW_SIZE);
                if let Some((_, _, size)) = initial {
                    let size = i64::from(*size & 0x7fff_ffff);
                    let more = size - state.initial;
                    state.initial = size;
                    for known in state.streams.values_mut() {
                        known.window += more;
                    }
                    state.wake_writers();
                }
            }
            Frame::WindowUpdate { stream: 0, delta } => {
                state.windows = true;
                let window = state.session.unwrap_or(WINDOW - state.sent);
                state.session = Some(window.saturating_add(i64::from(delta)));
                state.wake_writers();
            }
            Frame::WindowUpdate { stream, delta } => {
                state.windows = true;
                if let Some(known) = state.streams.get_mut(&stream) {
                    known.window = known.window.saturating_add(i64::from(delta));
                    wake(&mut known.writer);
                }
            }
            // Even ones are our own, come back.
            Frame::Ping(number) if number % 2 == 1 => state.push(&Frame::Ping(number)),
            Frame::GoAway { .. } => return Err(Ended::Closed),
            Frame::Ping(_) | Frame::SynReply { .. } | Frame::Headers { .. } | Frame::Unknown { .. } => {}
        }
        Ok(None)
    }

    fn open(
        self: &Arc<Self>,
        state: &mut State,
        stream: u32,
        fin: bool,
        unidirectional: bool,
        headers: Headers,
    ) -> Option<Offer> {
        if state.closing {
            return None;
        }
        if stream.is_multiple_of(2) || stream <= state.newest {
            state.reset(stream, reset::PROTOCOL_ERROR);
            return None;
        }
        state.newest = stream;
        if state.streams.len() >= self.limits.streams {
            state.reset(stream, reset::REFUSED_STREAM);
            return None;
        }
        let known = StreamState {
            received: BytesMut::new(),
            fin_received: fin,
            fin_sent: unidirectional,
            reset: false,
            window: state.initial,
            consumed: 0,
            reader: None,
            writer: None,
        };
        state.streams.insert(stream, known);
        Some(Offer::new(Stream::new(self.clone(), stream), headers))
    }

    /// Something was received.
    pub(super) fn active(&self) {
        self.lock().active = Instant::now();
    }

    /// When the connection is idle for too long, as things are.
    pub(super) fn idle_at(&self) -> Instant {
        self.lock().active + self.limits.idle
    }

    /// Waits until a stream has room for data.
    pub(super) fn poll_window(&self, stream: u32, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.full(&self.limits, stream) {
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// A frame that every peer passes over: the answer to a ping that it never sent.
    pub(super) fn heartbeat(&self) {
        let mut state = self.lock();
        if state.output.len() < OUTPUT {
            state.push(&Frame::Ping(0x7fff_ffff));
        }
    }

    /// Waits for something to write; `None` once we close and all is written.
    pub(super) fn poll_output(&self, context: &Context<'_>) -> Poll<Option<BytesMut>> {
        let mut state = self.lock();
        if state.output.is_empty() {
            if state.closing {
                return Poll::Ready(None);
            }
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let output = std::mem::take(&mut state.output);
        state.wake_writers();
        Poll::Ready(Some(output))
    }

    /// Says goodbye: nothing is taken any more, and the writer ends once all is written.
    pub(super) fn close(&self, because: Option<FrameError>) {
        let mut state = self.lock();
        if !state.closing {
            let status = because.map_or(go_away::OK, |_| go_away::PROTOCOL_ERROR);
            let last = state.newest;
            state.push(&Frame::GoAway { last, status });
            state.closing = true;
            wake(&mut state.writer);
            wake(&mut state.reader);
        }
    }

    /// The connection is over.
    pub(super) fn end(&self, ended: Ended) {
        let mut state = self.lock();
        state.ended.get_or_insert(ended);
        for stream in state.streams.values_mut() {
            stream.wake();
        }
    }

    /// Accepts a stream.
    pub(super) fn reply(&self, stream: u32) {
        self.lock().push(&Frame::SynReply {
            stream,
            fin: false,
            headers: Headers::default(),
        });
    }

    pub(super) fn poll_read(
        &self,
        stream: u32,
        context: &Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(known) = state.streams.get_mut(&stream) else {
            return Poll::Ready(Err(Ended::Here.into()));
        };
        if known.received.is_empty() {
            // Input that was cut off must not look like input that is complete.
            return match (known.fin_received, known.reset, state.ended) {
                (true, _, _) => Poll::Ready(Ok(())),
                (_, true, _) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                (_, _, Some(ended)) => Poll::Ready(Err(ended.into())),
                _ => {
                    known.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            };
        }
        let count = known.received.len().min(buffer.remaining());
        buffer.put_slice(&known.received[..count]);
        known.received.advance(count);
        if known.received.is_empty() {
            // Gives the memory back.
            known.received = BytesMut::new();
        }
        state.buffered -= count;
        wake(&mut state.reader);
        if state.windows {
            known.consumed += count as u32;
            if known.consumed >= STEP && !known.fin_received {
                let delta = std::mem::take(&mut known.consumed);
                state.push(&Frame::WindowUpdate { stream, delta });
            }
            state.consume(count);
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write(
        &self,
        stream: u32,
        context: &Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let ended = state.ended.or(state.closing.then_some(Ended::Here));
        let Some(known) = state.streams.get_mut(&stream) else {
            return Poll::Ready(Err(Ended::Here.into()));
        };
        if let Some(ended) = ended {
            return Poll::Ready(Err(ended.into()));
        }
        if known.reset || known.fin_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut count = data.len().min(PIECE);
        if state.windows {
            let window = known.window.min(state.session.unwrap_or(i64::MAX));
            count = count.min(usize::try_from(window).unwrap_or(0));
        }
        if state.output.len() >= OUTPUT || count == 0 && !data.is_empty() {
            known.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        frame::put_data(&mut state.output, stream, false, &data[..count]);
        known.window -= count as i64;
        state.sent += count as i64;
        state.session = state.session.map(|window| window - count as i64);
        state.active = Instant::now();
        wake(&mut state.writer);
        Poll::Ready(Ok(count))
    }

    /// Ends our direction of a stream.
    pub(super) fn finish(&self, stream: u32) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(known) = state.streams.get_mut(&stream)
            && !known.fin_sent
            && !known.reset
            && !state.closing
        {
            known.fin_sent = true;
            wake(&mut known.writer);
            frame::put_data(&mut state.output, stream, true, &[]);
            wake(&mut state.writer);
        }
    }

    /// Nobody wants a stream any more.
    pub(super) fn forget(&self, stream: u32) {
        let mut state = self.lock();
        if let Some(known) = state.streams.remove(&stream) {
            state.buffered -= known.received.len();
            wake(&mut state.reader);
            if !state.closing {
                state.consume(known.received.len());
            }
            // Who keeps no windows loses nothing by what is passed over.
            let over = known.reset || known.fin_sent && (known.fin_received || !state.windows);
            if !over && !state.closing {
                state.reset(stream, reset::CANCEL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Decoder, PIECE};
    use super::*;
    use bytes::Bytes;

    fn open(shared: &Arc<Shared>, stream: u32) -> Option<Offer> {
        let headers = Headers::default();
        let frame = Frame::SynStream {
            stream,
            associated: 0,
            priority: 0,
            fin: false,
            unidirectional: false,
            headers,
        };
        shared.take(frame).unwrap()
    }

    fn data(stream: u32, length: usize) -> Frame {
        Frame::Data {
            stream,
            fin: false,
            data: Bytes::from(vec![0; length]),
        }
    }

    #[test]
    fn a_client_that_opens_all_streams_and_fills_them_is_held_up() {
        let limits = Limits::default();
        let shared = Shared::new(limits);
        let offers: Vec<_> = (0..5_000)
            .filter_map(|index| open(&shared, 2 * index + 1))
            .collect();
        assert_eq!(offers.len(), limits.streams);
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::default();
        for offer in &offers {
            let mut bytes = BytesMut::new();
            encoder.encode(&data(offer.id(), 512 * 1024), &mut bytes);
            while let Some(frame) = decoder.decode(&mut bytes).unwrap() {
                if shared.lock().full(&limits, offer.id()) {
                    continue;
                }
                shared.take(frame).unwrap();
            }
        }
        let buffered = shared.lock().buffered;
        let most = limits.buffer + limits.streams * PIECE;
        assert!((limits.buffer..=most).contains(&buffered), "{buffered}");
        assert!(most <= 20 * 1024 * 1024);
    }

    /// Otherwise the window for all streams together shrinks until nothing can be sent any more.
    #[test]
    fn data_that_nobody_reads_is_given_back_to_the_session() {
        let told = |shared: &Shared| {
            let mut output = std::mem::take(&mut shared.lock().output);
            let (mut decoder, mut told) = (Decoder::default(), 0);
            while let Some(frame) = decoder.decode(&mut output).unwrap() {
                if let Frame::WindowUpdate { stream: 0, delta } = frame {
                    told += delta;
                }
            }
            told
        };
        let shared = Shared::new(Limits::default());
        let values = Vec::new();
        let settings = Frame::Settings { clear: false, values };
        shared.take(settings).unwrap();
        let offer = open(&shared, 1).unwrap();
        shared.take(data(1, 20_000)).unwrap();
        shared.take(data(1, 20_000)).unwrap();
        assert_eq!(told(&shared), 0);
        drop(offer);
        assert_eq!(told(&shared), 40_000, "a stream that is dropped unread");
        shared.take(data(1, 40_000)).unwrap();
        assert_eq!(told(&shared), 40_000, "a stream that there is not");
    }
}
