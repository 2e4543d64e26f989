//! What agents send each other: signed, versioned, compact datagrams.
//!
//! ```text
//! magic "EK" | major | minor | kind | body length (u16) | body | Ed25519 signature (64)
//! ```
//!
//! The signature covers a context string and everything before it, so that a signed datagram can be passed on
//! by a relay or shown to a reader as evidence. All bytes count: a frame of another length is refused. A body
//! may be longer than this version knows (a later minor version appended fields): the rest is ignored.
//! Another major version is refused. Numbers are in network order. See [`Body`] for the fields of each kind,
//! in the order of encoding.

mod challenge;
mod codec;
mod datagram;
mod message;

pub use challenge::{Challenge, Renewal};
pub use datagram::Datagram;
pub use message::{
    Ack, Answer, Ballot, Body, ConfirmRequest, Edge, EdgeState, Edges, Facts, Header, Heartbeat, MAX_LIST,
    MAX_SUSPECTS, Message, Nonce, Published, PublishedVerdict, Relay, RequestDigest, Said, Suspect,
};

use crate::keys::{Ed25519, PublicKey, SIGNATURE_LEN, Signer, Verifier};
use crate::roster::MemberId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Major version spoken here.
pub const MAJOR: u8 = 2;
/// Minor version spoken here.
pub const MINOR: u8 = 0;
/// No datagram of ours is longer.
pub const MAX_FRAME: usize = 1400;

const MAGIC: [u8; 2] = *b"EK";
const HEAD: usize = 7;
const CONTEXT: &[u8] = b"evenkeel zone datagram 2\0";

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than its own fields, or trailing bytes.
    #[error("length does not match the contents")]
    Truncated,
    /// The bytes do not begin as a datagram of an agent does.
    #[error("not a datagram of an agent")]
    Magic,
    /// A major version that this agent does not speak.
    #[error("protocol version {0} is not spoken here")]
    Version(u8),
    /// A kind that this version does not know.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// A field has a value that means nothing.
    #[error("field {0} has a value that means nothing")]
    Field(&'static str),
    /// The signature is not the sender's.
    #[error("signature is not the sender's")]
    Signature,
    /// Evidence in a report that is not base64.
    #[error("evidence is not base64")]
    Base64,
}

impl WireError {
    /// Short name for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Magic => "magic",
            Self::Version(_) => "version",
            Self::Kind(_) => "kind",
            Self::Field(_) => "field",
            Self::Signature => "signature",
            Self::Base64 => "base64",
        }
    }
}

/// A datagram whose frame is intact and whose signature has not been checked yet.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    kind: u8,
    body: &'a [u8],
    covered: &'a [u8],
    signature: &'a [u8],
    from: MemberId,
}

impl<'a> Frame<'a> {
    /// Reads the frame and who claims to have sent it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        if bytes.len() > MAX_FRAME {
            return Err(WireError::Truncated);
        }
        let mut reader = codec::Reader(bytes);
        if reader.array::<2>()? != MAGIC {
            return Err(WireError::Magic);
        }
        let major = reader.u8()?;
        if major != MAJOR {
            return Err(WireError::Version(major));
        }
        let _minor = reader.u8()?;
        let kind = reader.u8()?;
        let length = usize::from(reader.u16()?);
        let body = reader.bytes(length)?;
        let signature = reader.bytes(SIGNATURE_LEN)?;
        if !reader.0.is_empty() {
            return Err(WireError::Truncated);
        }
        let (covered, _) = bytes
            .split_at_checked(HEAD + length)
            .ok_or(WireError::Truncated)?;
        let from = MemberId(codec::Reader(body).array()?);
        Ok(Self {
            kind,
            body,
            covered,
            signature,
            from,
        })
    }

    /// Who claims to have sent it.
    pub fn from(&self) -> MemberId {
        self.from
    }

    /// Checks the Ed25519 signature, then reads the body.
    pub fn open(&self, key: &PublicKey) -> Result<Message, WireError> {
        self.open_with(key, &Ed25519)
    }

    /// The same, with the signature scheme of `verifier`.
    pub fn open_with(&self, key: &PublicKey, verifier: &dyn Verifier) -> Result<Message, WireError> {
        self.open_in(&mut Vec::new(), key, verifier)
    }

    /// The same. The signed text is put together in `buffer`, so that who opens many datagrams allocates
    /// nothing.
    pub(crate) fn open_in(
        &self,
        buffer: &mut Vec<u8>,
        key: &PublicKey,
        verifier: &dyn Verifier,
    ) -> Result<Message, WireError> {
        buffer.clear();
        buffer.extend_from_slice(CONTEXT);
        buffer.extend_from_slice(self.covered);
        if !verifier.verifies(key, buffer, self.signature) {
            return Err(WireError::Signature);
        }
        message::decode(self.kind, self.body)
    }
}

/// Encodes a message and signs it.
pub fn seal(message: &Message, key: &dyn Signer) -> Vec<u8> {
    seal_in(&mut Vec::new(), &message.header, &message.body, key).to_vec()
}

/// The same; returns the datagram as a part of `buffer`, so that who seals many datagrams allocates nothing.
pub(crate) fn seal_in<'a>(
    buffer: &'a mut Vec<u8>,
    header: &Header,
    body: &Body,
    key: &dyn Signer,
) -> &'a [u8] {
    frame(buffer, body.kind(), key, |out| message::encode(out, header, body))
}

/// Frames and signs the bytes of a body, also of one that means nothing.
#[cfg(test)]
pub(crate) fn seal_body(kind: u8, body: &[u8], key: &dyn Signer) -> Vec<u8> {
    let write = |out: &mut codec::Writer<'_>| {
        out.bytes(body);
    };
    frame(&mut Vec::new(), kind, key, write).to_vec()
}

fn frame<'a>(
    buffer: &'a mut Vec<u8>,
    kind: u8,
    key: &dyn Signer,
    write: impl FnOnce(&mut codec::Writer<'_>),
) -> &'a [u8] {
    buffer.clear();
    let mut out = codec::Writer(buffer);
    out.bytes(CONTEXT)
        .bytes(&MAGIC)
        .u8(MAJOR)
        .u8(MINOR)
        .u8(kind)
        .u16(0);
    let before = out.0.len();
    write(&mut out);
    let length = (out.0.len() - before) as u16;
    if let Some(place) = out.0.get_mut(before - 2..before) {
        place.copy_from_slice(&length.to_be_bytes());
    }
    let signature = key.sign(out.0);
    out.bytes(&signature);
    buffer.get(CONTEXT.len()..).unwrap_or_default()
}

/// Text of a signed datagram, as a report carries it.
pub fn to_evidence(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes of a signed datagram from a report.
pub fn from_evidence(text: &str) -> Result<Vec<u8>, WireError> {
    // 4 characters for 3 bytes: what is longer than any datagram is not decoded at all.
    if text.len() > MAX_FRAME * 4 / 3 + 4 {
        return Err(WireError::Truncated);
    }
    STANDARD.decode(text).map_err(|_| WireError::Base64)
}

#[cfg(test)]
mod tests;
