//! What agents send each other: authenticated, versioned, compact datagrams.
//!
//! ```text
//! magic "EK" | major | minor | kind | body length (u16) | body | proof
//! ```
//!
//! The proof says who wrote the datagram. Of kinds below 128 it is a code of 16 bytes under the secret that
//! sender and receiver share (see [`Mac`]), which the receiver alone can check. Kinds from 128 on are
//! evidence: the proof is an Ed25519 signature of 64 bytes, which anybody can check. Both cover a context
//! string and everything before them, sender and receiver included. All bytes count: a frame of another
//! length is refused. A body may be longer than this version knows (a later minor version appended fields):
//! the rest is ignored. Another major version is refused. Numbers are in network order. See [`Body`] for the
//! fields of each kind, in the order of encoding.

mod challenge;
mod codec;
mod datagram;
mod fields;
mod message;

pub use challenge::{Challenge, Renewal};
pub use datagram::Datagram;
pub use message::{
    Ack, Answer, Ballot, Body, Carried, ConfirmRequest, Edge, EdgeState, Edges, Facts, HandOver, Header,
    Heartbeat, MAX_LIST, MAX_REFERRED, MAX_SUSPECTS, Message, Nonce, PART, Part, PartAsked, Published,
    PublishedVerdict, Referral, Referred, Relay, RenewalsAsked, RenewalsRead, RequestDigest, Said, Suspect,
    Voted,
};

use crate::keys::{MAC_LEN, Mac, PublicKey, SIGNATURE_LEN, Signer, Verifier};
use crate::roster::MemberId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Major version spoken here.
pub const MAJOR: u8 = 3;
/// Minor version spoken here.
pub const MINOR: u8 = 1;
/// The first minor version that knows [`Voted`].
pub(crate) const VOTED_SINCE: u8 = 1;
/// No datagram of ours is longer.
pub const MAX_FRAME: usize = 1400;

const MAGIC: [u8; 2] = *b"EK";
const HEAD: usize = 7;
const CONTEXT: &[u8] = b"evenkeel zone datagram 3\0";

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
    /// A kind that this version does not know, or that is no evidence where evidence is read.
    #[error("a datagram of kind {0} is not expected here")]
    Kind(u8),
    /// A field has a value that means nothing.
    #[error("field {0} has a value that means nothing")]
    Field(&'static str),
    /// The signature is not the sender's.
    #[error("signature is not the sender's")]
    Signature,
    /// The code was not made by the sender for this receiver.
    #[error("authentication code was not made by the sender for this receiver")]
    Code,
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
            Self::Code => "code",
            Self::Base64 => "base64",
        }
    }
}

/// A datagram whose frame is intact and whose proof has not been checked yet.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    minor: u8,
    kind: u8,
    body: &'a [u8],
    covered: &'a [u8],
    proof: &'a [u8],
    from: MemberId,
    to: MemberId,
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
        let minor = reader.u8()?;
        let kind = reader.u8()?;
        let length = usize::from(reader.u16()?);
        let body = reader.bytes(length)?;
        let proof = reader.bytes(proof_len(kind))?;
        if !reader.0.is_empty() {
            return Err(WireError::Truncated);
        }
        let (covered, _) = bytes
            .split_at_checked(HEAD + length)
            .ok_or(WireError::Truncated)?;
        let mut start = codec::Reader(body);
        let [from, to] = [MemberId(start.array()?), MemberId(start.array()?)];
        Ok(Self {
            minor,
            kind,
            body,
            covered,
            proof,
            from,
            to,
        })
    }

    /// Who claims to have sent it.
    pub fn from(&self) -> MemberId {
        self.from
    }

    /// For whom it claims to be.
    pub fn to(&self) -> MemberId {
        self.to
    }

    /// Whether its sender knows [`Voted`].
    pub(crate) fn knows_voted(&self) -> bool {
        self.minor >= VOTED_SINCE
    }

    /// Whether it claims to answer a heartbeat.
    pub(crate) fn is_ack(&self) -> bool {
        self.kind == message::ACK
    }

    /// The header that it claims to have.
    pub(crate) fn header(&self) -> Result<Header, WireError> {
        fields::read_header(&mut codec::Reader(self.body))
    }

    /// The request that it claims to answer; nothing where it is no ballot.
    pub(crate) fn claimed_request(&self) -> Option<RequestDigest> {
        let mut fields = codec::Reader(self.body);
        fields.bytes(fields::HEADER_LEN).ok()?;
        let digest = fields.array().ok()?;
        (self.kind == message::SIGNED).then_some(RequestDigest(digest))
    }

    /// Whether it is signed, so that others can check it than its receiver.
    pub(crate) fn is_signed(&self) -> bool {
        self.kind >= message::SIGNED
    }

    /// Whether its kind passes between agents of different cells.
    pub(crate) fn is_between_cells(&self) -> bool {
        (message::HAND_OVER..=message::LAST_BETWEEN_CELLS).contains(&self.kind)
    }

    /// The key that its sender claims to have; nothing where its kind names none.
    pub(crate) fn claimed_key(&self) -> Option<[u8; 32]> {
        let mut fields = codec::Reader(self.body);
        fields.bytes(fields::HEADER_LEN).ok()?;
        let key = fields.array().ok()?;
        (self.kind == message::HAND_OVER).then_some(key)
    }

    /// Checks the signature of a datagram that is evidence, of an author with these keys, then reads it.
    pub fn open_evidence<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k PublicKey>,
        verifier: &dyn Verifier,
    ) -> Result<(Header, Ballot), WireError> {
        if self.kind < message::SIGNED {
            return Err(WireError::Kind(self.kind));
        }
        let message = self.open_in(&mut Vec::new(), |text, proof| {
            keys.into_iter().any(|key| verifier.verifies(key, text, proof))
        })?;
        match message.body {
            Body::Ballot(ballot) => Ok((message.header, ballot)),
            _ => Err(WireError::Kind(self.kind)),
        }
    }

    /// Checks that the sender, which has this key and shares this secret, wrote it for this receiver. The
    /// text is put together in `buffer`, so that who opens many datagrams allocates nothing.
    pub(crate) fn open(
        &self,
        buffer: &mut Vec<u8>,
        (key, verifier): (&PublicKey, &dyn Verifier),
        shared: &dyn Mac,
    ) -> Result<Message, WireError> {
        self.open_in(buffer, |text, proof| {
            if self.kind < message::SIGNED {
                shared.verifies(text, proof)
            } else {
                verifier.verifies(key, text, proof)
            }
        })
    }

    fn open_in(
        &self,
        buffer: &mut Vec<u8>,
        proves: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Result<Message, WireError> {
        buffer.clear();
        buffer.extend_from_slice(CONTEXT);
        buffer.extend_from_slice(self.covered);
        if !proves(buffer, self.proof) {
            let signed = self.kind >= message::SIGNED;
            return Err(if signed {
                WireError::Signature
            } else {
                WireError::Code
            });
        }
        fields::decode(self.kind, self.body)
    }
}

fn proof_len(kind: u8) -> usize {
    if kind < message::SIGNED {
        MAC_LEN
    } else {
        SIGNATURE_LEN
    }
}

/// Encodes and signs a ballot, as evidence.
pub fn sign(header: &Header, ballot: Ballot, key: &dyn Signer) -> Vec<u8> {
    let body = Body::Ballot(ballot);
    let write = |out: &mut codec::Writer<'_>| fields::encode(out, header, &body);
    frame(&mut Vec::new(), body.kind(), write, |text| key.sign(text)).to_vec()
}

/// Encodes a message for the member with which the sender shares `shared`, and proves who wrote it. Returns
/// the datagram as a part of `buffer`, so that who seals many datagrams allocates nothing.
pub(crate) fn seal<'a>(
    buffer: &'a mut Vec<u8>,
    header: &Header,
    body: &Body,
    key: &dyn Signer,
    shared: &dyn Mac,
) -> &'a [u8] {
    seal_as(buffer, body.kind(), (key, shared), |out| {
        fields::encode(out, header, body);
    })
}

/// The same as an agent of another minor version writes it. A later one may have more fields at the end of
/// each body (those of a request are part of it), and a state of the runtime that has no meaning here.
#[cfg(any(test, feature = "fixture"))]
pub(crate) fn seal_as_version(
    version: u8,
    header: &Header,
    body: &Body,
    key: &dyn Signer,
    shared: &dyn Mac,
) -> Vec<u8> {
    let mut fields = Vec::new();
    fields::encode(&mut codec::Writer(&mut fields), header, body);
    if version > MINOR {
        fields::make_runtime_unknown(body, &mut fields);
        if !matches!(body, Body::Confirm(_)) {
            fields.extend_from_slice(b"later");
        }
    }
    let mut buffer = Vec::new();
    let kind = body.kind();
    let bytes = seal_as(&mut buffer, kind, (key, shared), |out| {
        // The minor version stands three bytes before the body: kind and length come between.
        let minor = out.0.len() - 4;
        out.0[minor] = version;
        out.bytes(&fields);
    });
    bytes.to_vec()
}

/// The bytes of a body, also of one that means nothing, as a datagram.
#[cfg(test)]
pub(crate) fn seal_body(kind: u8, body: &[u8], key: &dyn Signer, shared: &dyn Mac) -> Vec<u8> {
    let write = |out: &mut codec::Writer<'_>| {
        out.bytes(body);
    };
    seal_as(&mut Vec::new(), kind, (key, shared), write).to_vec()
}

fn seal_as<'a>(
    buffer: &'a mut Vec<u8>,
    kind: u8,
    (key, shared): (&dyn Signer, &dyn Mac),
    write: impl FnOnce(&mut codec::Writer<'_>),
) -> &'a [u8] {
    if kind < message::SIGNED {
        frame(buffer, kind, write, |text| shared.code(text))
    } else {
        frame(buffer, kind, write, |text| key.sign(text))
    }
}

fn frame<const PROOF: usize>(
    buffer: &mut Vec<u8>,
    kind: u8,
    write: impl FnOnce(&mut codec::Writer<'_>),
    prove: impl FnOnce(&[u8]) -> [u8; PROOF],
) -> &[u8] {
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
    let proof = prove(out.0);
    out.bytes(&proof);
    buffer.get(CONTEXT.len()..).unwrap_or_default()
}

/// Text of evidence, as a report carries it.
pub fn to_evidence(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes of evidence from a report.
pub fn from_evidence(text: &str) -> Result<Vec<u8>, WireError> {
    // 4 characters for 3 bytes: what is longer than any datagram is not decoded at all.
    if text.len() > MAX_FRAME * 4 / 3 + 4 {
        return Err(WireError::Truncated);
    }
    STANDARD.decode(text).map_err(|_| WireError::Base64)
}

#[cfg(test)]
mod tests;
