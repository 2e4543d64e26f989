//! Frames, to and from bytes.

use super::header::{Deflater, Headers, Inflater, LONGEST};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// The protocol's version; 3.1 says 3.
const VERSION: u16 = 3;
/// A frame's head.
const HEAD: usize = 8;
/// Flag of frames after which the sender sends no more on the stream.
const FIN: u8 = 1;
/// Flag of a SYN_STREAM whose receiver sends nothing on the stream.
const UNIDIRECTIONAL: u8 = 2;
/// SETTINGS of so many entries at most; eight are defined.
const MOST_SETTINGS: usize = 64;

/// The longest piece of a data frame's payload that is handed out: an empty stream always takes one.
pub const PIECE: usize = 16 * 1024;

/// The longest payload of a data frame.
pub const LONGEST_DATA: usize = (1 << 24) - 1;

/// A frame of SPDY/3.1, as far as Kubernetes sends them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// Odd of clients, even of servers, growing.
        stream: u32,
        /// The stream that it belongs to; 0 for none.
        associated: u32,
        /// 0 is the highest, 7 the lowest.
        priority: u8,
        /// The sender sends nothing on it.
        fin: bool,
        /// The receiver sends nothing on it.
        unidirectional: bool,
        /// What it is for.
        headers: Headers,
    },
    /// Accepts a stream.
    SynReply {
        /// Number of the stream.
        stream: u32,
        /// The sender sends nothing on it.
        fin: bool,
        /// Nothing, in Kubernetes.
        headers: Headers,
    },
    /// Ends a stream at once in both directions.
    RstStream {
        /// Number of the stream.
        stream: u32,
        /// Why the stream ends, a status of the protocol.
        status: u32,
    },
    /// Settings: flags, name and value.
    Settings {
        /// Forget earlier persisted ones.
        clear: bool,
        /// Flags, name, value.
        values: Vec<(u8, u32, u32)>,
    },
    /// To be sent back by the receiver; its own come back with an odd number to clients, an even one to
    /// servers.
    Ping(u32),
    /// No further streams are taken.
    GoAway {
        /// The last stream that was taken.
        last: u32,
        /// 0: all is well.
        status: u32,
    },
    /// Further headers of a stream.
    Headers {
        /// Of which stream.
        stream: u32,
        /// The sender sends no more on it.
        fin: bool,
        /// Names and values.
        headers: Headers,
    },
    /// The receiver may send more.
    WindowUpdate {
        /// On which stream; 0 for all together.
        stream: u32,
        /// So many bytes.
        delta: u32,
    },
    /// Data. The decoder hands out a frame's payload piece by piece as it comes, the flag with the last.
    Data {
        /// On which stream.
        stream: u32,
        /// The sender sends no more on it.
        fin: bool,
        /// What the frame carries.
        data: Bytes,
    },
    /// A control frame that is not known, and passed over.
    Unknown {
        /// Type of the control frame.
        kind: u16,
    },
}

/// Statuses of [`Frame::RstStream`].
pub mod reset {
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// There is no such stream.
    /// The stream is not taken.
    pub const REFUSED_STREAM: u32 = 3;
    /// The stream is not wanted any more.
    pub const CANCEL: u32 = 5;
}

/// Statuses of [`Frame::GoAway`].
pub mod go_away {
    /// All is well.
    pub const OK: u32 = 0;
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: u32 = 1;
}

/// The setting that says with which window streams begin.
pub const INITIAL_WINDOW_SIZE: u32 = 7;

/// Why bytes are no frames. The connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks another version of the protocol.
    #[error("SPDY frame of version {0}, expected 3")]
    Version(u16),
    /// A control frame that no client sends.
    #[error("SPDY control frame of type {kind} with {length} bytes, which is too long")]
    TooLong {
        /// Type of the control frame.
        kind: u16,
        /// Length that the frame states, in bytes.
        length: usize,
    },
    /// A control frame whose length does not fit its type.
    #[error("SPDY control frame of type {kind} with {length} bytes, which does not fit")]
    Length {
        /// Type of the control frame.
        kind: u16,
        /// Length that the frame states, in bytes.
        length: usize,
    },
    /// Stream 0, or a ping of number 0, where there is none.
    #[error("SPDY control frame of type {0} for stream 0")]
    ZeroStream(u16),
    /// A header block that is no zlib stream with SPDY's dictionary.
    #[error("SPDY header block cannot be unpacked")]
    Compression,
    /// A header block that is not made of names and values.
    #[error("SPDY header block is malformed")]
    Headers,
    /// A header block that is too long when unpacked.
    #[error("SPDY header block is too long")]
    HeadersTooLong,
}

/// Makes frames of bytes. Keeps at most one control frame's bytes, none of data.
pub struct Decoder {
    inflater: Inflater,
    /// The data frame under way.
    data: Option<DataHead>,
}

#[derive(Clone, Copy)]
struct DataHead {
    stream: u32,
    fin: bool,
    left: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            inflater: Inflater::new(),
            data: None,
        }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// Takes the next frame off `bytes`; `None` when it needs more. It never needs more than 64 KiB and a
    /// head.
    pub fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if self.data.is_none() {
            let Some(head) = bytes.first_chunk::<HEAD>() else {
                return Ok(None);
            };
            let [a, b, c, d, flags, length @ ..] = *head;
            let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
            if a & 0x80 != 0 {
                let (version, kind) = (u16::from_be_bytes([a & 0x7f, b]), u16::from_be_bytes([c, d]));
                return self.control(version, kind, flags, length, bytes);
            }
            bytes.advance(HEAD);
            self.data = Some(DataHead {
                stream: u32::from_be_bytes([a, b, c, d]),
                fin: flags & FIN != 0,
                left: length,
            });
        }
        Ok(self.piece(bytes))
    }

    fn piece(&mut self, bytes: &mut BytesMut) -> Option<Frame> {
        let DataHead { stream, fin, left } = self.data?;
        if bytes.is_empty() && left > 0 {
            return None;
        }
        let data = bytes.split_to(left.min(bytes.len()).min(PIECE)).freeze();
        let left = left - data.len();
        self.data = (left > 0).then_some(DataHead { stream, fin, left });
        let fin = fin && left == 0;
        Some(Frame::Data { stream, fin, data })
    }

    fn control(
        &mut self,
        version: u16,
        kind: u16,
        flags: u8,
        length: usize,
        bytes: &mut BytesMut,
    ) -> Result<Option<Frame>, FrameError> {
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if length > LONGEST {
            return Err(FrameError::TooLong { kind, length });
        }
        if bytes.len() < HEAD + length {
            return Ok(None);
        }
        bytes.advance(HEAD);
        let payload = bytes.split_to(length);
        self.parse(kind, flags, &payload).map(Some)
    }

    fn parse(&mut self, kind: u16, flags: u8, payload: &[u8]) -> Result<Frame, FrameError> {
        let length = payload.len();
        let misfit = FrameError::Length { kind, length };
        let word = |at: usize| -> Result<u32, FrameError> {
            let bytes = payload.get(at..at + 4).and_then(|four| four.first_chunk());
            Ok(u32::from_be_bytes(*bytes.ok_or(misfit)?))
        };
        let stream = |at: usize| match word(at)? & 0x7fff_ffff {
            0 => Err(FrameError::ZeroStream(kind)),
            stream => Ok(stream),
        };
        let block = |at: usize| payload.get(at..).ok_or(misfit);
        let exactly = |wanted: usize| if length == wanted { Ok(()) } else { Err(misfit) };
        let fin = flags & FIN != 0;
        Ok(match kind {
            1 => Frame::SynStream {
                associated: word(4)? & 0x7fff_ffff,
                priority: payload.get(8).ok_or(misfit)? >> 5,
                fin,
                unidirectional: flags & UNIDIRECTIONAL != 0,
                headers: self.inflater.read(block(10)?)?,
                stream: stream(0)?,
            },
            2 => Frame::SynReply {
                fin,
                headers: self.inflater.read(block(4)?)?,
                stream: stream(0)?,
            },
            3 => {
                exactly(8)?;
                let (stream, status) = (stream(0)?, word(4)?);
                Frame::RstStream { stream, status }
            }
            4 => {
                let count = word(0)? as usize;
                if count > MOST_SETTINGS {
                    return Err(misfit);
                }
                exactly(4 + 8 * count)?;
                let value = |at: usize| {
                    let name = word(at)?;
                    Ok(((name >> 24) as u8, name & 0xff_ffff, word(at + 4)?))
                };
                let values = (0..count).map(|index| value(4 + 8 * index));
                Frame::Settings {
                    clear: fin,
                    values: values.collect::<Result<_, _>>()?,
                }
            }
            6 => {
                exactly(4)?;
                match word(0)? {
                    0 => return Err(FrameError::ZeroStream(kind)),
                    number => Frame::Ping(number),
                }
            }
            7 => {
                exactly(8)?;
                let (last, status) = (word(0)? & 0x7fff_ffff, word(4)?);
                Frame::GoAway { last, status }
            }
            8 => Frame::Headers {
                fin,
                headers: self.inflater.read(block(4)?)?,
                stream: stream(0)?,
            },
            9 => {
                exactly(8)?;
                let (stream, delta) = (word(0)? & 0x7fff_ffff, word(4)? & 0x7fff_ffff);
                Frame::WindowUpdate { stream, delta }
            }
            kind => Frame::Unknown { kind },
        })
    }
}

/// Makes bytes of frames. Frames with headers must be sent in the order in which they are encoded.
pub struct Encoder(Deflater);

impl Default for Encoder {
    fn default() -> Self {
        Self(Deflater::new())
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// Appends a frame. Data longer than [`LONGEST_DATA`] becomes several; [`Frame::Unknown`] becomes
    /// nothing.
    pub fn encode(&mut self, frame: &Frame, bytes: &mut BytesMut) {
        match frame {
            Frame::SynStream {
                stream,
                associated,
                priority,
                fin,
                unidirectional,
                headers,
            } => {
                let block = self.0.write(headers);
                let flags = (u8::from(*fin) * FIN) | (u8::from(*unidirectional) * UNIDIRECTIONAL);
                control(bytes, 1, flags, 10 + block.len());
                bytes.put_u32(*stream);
                bytes.put_u32(*associated);
                bytes.put_u8(priority << 5);
                bytes.put_u8(0);
                bytes.put_slice(&block);
            }
            Frame::SynReply { stream, fin, headers } => self.with_headers(bytes, 2, *fin, *stream, headers),
            Frame::RstStream { stream, status } => words(bytes, 3, [*stream, *status]),
            Frame::Settings { clear, values } => {
                control(bytes, 4, u8::from(*clear) * FIN, 4 + 8 * values.len());
                bytes.put_u32(values.len() as u32);
                for (flags, name, value) in values {
                    bytes.put_u32((u32::from(*flags) << 24) | (name & 0xff_ffff));
                    bytes.put_u32(*value);
                }
            }
            Frame::Ping(number) => words(bytes, 6, [*number]),
            Frame::GoAway { last, status } => words(bytes, 7, [*last, *status]),
            Frame::Headers { stream, fin, headers } => self.with_headers(bytes, 8, *fin, *stream, headers),
            Frame::WindowUpdate { stream, delta } => words(bytes, 9, [*stream, *delta]),
            Frame::Data { stream, fin, data } => {
                let mut rest = data.as_ref();
                loop {
                    let (now, later) = rest.split_at(rest.len().min(LONGEST_DATA));
                    rest = later;
                    put_data(bytes, *stream, *fin && rest.is_empty(), now);
                    if rest.is_empty() {
                        break;
                    }
                }
            }
            Frame::Unknown { .. } => {}
        }
    }

    fn with_headers(&mut self, bytes: &mut BytesMut, kind: u16, fin: bool, stream: u32, headers: &Headers) {
        let block = self.0.write(headers);
        control(bytes, kind, u8::from(fin) * FIN, 4 + block.len());
        bytes.put_u32(stream);
        bytes.put_slice(&block);
    }
}

/// Appends a data frame of at most [`LONGEST_DATA`] bytes.
pub(super) fn put_data(bytes: &mut BytesMut, stream: u32, fin: bool, data: &[u8]) {
    bytes.reserve(HEAD + data.len());
    bytes.put_u32(stream & 0x7fff_ffff);
    bytes.put_u32((u32::from(u8::from(fin) * FIN) << 24) | data.len() as u32);
    bytes.put_slice(data);
}

fn control(bytes: &mut BytesMut, kind: u16, flags: u8, length: usize) {
    bytes.put_u16(0x8000 | VERSION);
    bytes.put_u16(kind);
    bytes.put_u32((u32::from(flags) << 24) | length as u32);
}

fn words<const N: usize>(bytes: &mut BytesMut, kind: u16, words: [u32; N]) {
    control(bytes, kind, 0, 4 * N);
    for word in words {
        bytes.put_u32(word);
    }
}

#[cfg(test)]
mod tests;
