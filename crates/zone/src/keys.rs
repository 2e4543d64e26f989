//! Identity of an agent: an Ed25519 key pair, and the digests by which members and rosters are named.
//!
//! The engine signs through [`Signer`] and checks through [`Verifier`]; what one member alone has to check it
//! proves by [`Mac`]. Agents use [`SigningKey`] and [`Ed25519`]. A simulation that drives hundreds of engines
//! would spend nearly all of its time on Ed25519; it uses the keyed hash of `stand_in` (feature `fixture`),
//! which is never part of the product.

mod shared;
#[cfg(any(test, feature = "fixture"))]
pub mod stand_in;

pub use shared::{MAC_LEN, Mac};

use aws_lc_rs::digest;
use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, ParsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::montgomery::MontgomeryPoint;
use std::fmt;
use std::sync::Arc;

/// Length of an Ed25519 signature.
pub const SIGNATURE_LEN: usize = 64;

/// Label of the PEM block that holds a private key (PKCS#8, RFC 7468).
const PEM_LABEL: &str = "PRIVATE KEY";

/// The private half of one agent: it signs what the agent states.
pub trait Signer: fmt::Debug + Send + Sync {
    /// The public half, as the roster carries it.
    fn public(&self) -> &PublicKey;

    /// Signs. The same message gets the same signature, so that a run can be repeated.
    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN];

    /// What this agent and the owner of `other` share, and nobody else has.
    fn shared_with(&self, other: &PublicKey) -> Box<dyn Mac>;
}

/// Checks the signature of any member.
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Whether `signature` over `message` was made with the private half of `key`.
    fn verifies(&self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool;
}

/// The scheme of the product, RFC 8032. Its private half is [`SigningKey`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Ed25519;

impl Verifier for Ed25519 {
    fn verifies(&self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        key.verifies(message, signature)
    }
}

/// Why a key was refused. Never contains key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not 32 bytes in base64, not a point on the curve, or one of small order, which is nobody's key.
    #[error("public key is not the base64 of an Ed25519 key")]
    Public,
    /// No PEM block, or one of another kind.
    #[error("no PEM block \"{PEM_LABEL}\" found")]
    NotPem,
    /// The block does not hold an Ed25519 key.
    #[error("the PEM block does not hold an Ed25519 private key in PKCS#8")]
    NotEd25519,
}

/// Public key of a member.
#[derive(Clone)]
pub struct PublicKey {
    bytes: [u8; 32],
    parsed: Arc<Parsed>,
}

/// The same key, as each of its two uses needs it.
struct Parsed {
    signatures: ParsedPublicKey,
    /// Its other form, for shared secrets.
    point: MontgomeryPoint,
}

impl PublicKey {
    /// Reads a key from base64 of 32 bytes, as `AgentStatus` carries it.
    pub fn from_base64(text: &str) -> Result<Self, KeyError> {
        let bytes = STANDARD.decode(text).map_err(|_| KeyError::Public)?;
        Self::from_bytes(bytes.try_into().map_err(|_| KeyError::Public)?)
    }

    /// Reads a key from its 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        let signatures = ParsedPublicKey::new(&ED25519, bytes).map_err(|_| KeyError::Public)?;
        let point = CompressedEdwardsY(bytes).decompress();
        let point = point.filter(|point| !point.is_small_order());
        let point = point.ok_or(KeyError::Public)?.to_montgomery();
        Ok(Self {
            bytes,
            parsed: Arc::new(Parsed { signatures, point }),
        })
    }

    /// The key's 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The key as base64, as `AgentStatus` carries it.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.bytes)
    }

    /// Whether `signature` is this key's Ed25519 signature over `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.signatures.verify_sig(message, signature).is_ok()
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for PublicKey {}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.to_base64())
    }
}

/// Private key of an agent. `Debug` shows the public half only.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    /// Its other form, for shared secrets.
    scalar: [u8; 32],
    public: PublicKey,
}

impl SigningKey {
    /// Makes a key from 32 secret random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, KeyError> {
        Self::from_pair(Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| KeyError::NotEd25519)?)
    }

    /// From PEM text (`-----BEGIN PRIVATE KEY-----`, PKCS#8), as `evenkeel agent keygen` writes it and
    /// `openssl genpkey -algorithm ed25519` does.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let begin = format!("-----BEGIN {PEM_LABEL}-----");
        let end = format!("-----END {PEM_LABEL}-----");
        let (_, rest) = text.split_once(&begin).ok_or(KeyError::NotPem)?;
        let (body, _) = rest.split_once(&end).ok_or(KeyError::NotPem)?;
        let compact: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let der = STANDARD.decode(compact).map_err(|_| KeyError::NotEd25519)?;
        Self::from_pair(Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| KeyError::NotEd25519)?)
    }

    /// The key as PEM text, which is a secret.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let der = self.pair.to_pkcs8v1().map_err(|_| KeyError::NotEd25519)?;
        let body = STANDARD.encode(der.as_ref());
        Ok(format!(
            "-----BEGIN {PEM_LABEL}-----\n{body}\n-----END {PEM_LABEL}-----\n"
        ))
    }

    /// The public half of the key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message. The same message always gives the same signature (RFC 8032).
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        let mut signature = [0; SIGNATURE_LEN];
        let made = self.pair.sign(message);
        // Ed25519 signatures have one length; a shorter copy would only fail to verify.
        for (to, from) in signature.iter_mut().zip(made.as_ref()) {
            *to = *from;
        }
        signature
    }

    fn from_pair(pair: Ed25519KeyPair) -> Result<Self, KeyError> {
        let bytes: [u8; 32] = pair
            .public_key()
            .as_ref()
            .try_into()
            .map_err(|_| KeyError::NotEd25519)?;
        let seed = pair.seed().and_then(|seed| seed.as_be_bytes());
        Ok(Self {
            public: PublicKey::from_bytes(bytes)?,
            scalar: shared::scalar(seed.map_err(|_| KeyError::NotEd25519)?.as_ref()),
            pair,
        })
    }
}

impl Signer for SigningKey {
    fn public(&self) -> &PublicKey {
        self.public()
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        self.sign(message)
    }

    fn shared_with(&self, other: &PublicKey) -> Box<dyn Mac> {
        Box::new(shared::Hmac::between(self, other))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(public {})", self.public.to_base64())
    }
}

/// What the next key of the agent of this Node signs.
fn as_next(uid: &str, present: &PublicKey) -> [u8; 32] {
    hash("evenkeel next key", &[uid.as_bytes(), present.as_bytes()])
}

impl SigningKey {
    /// Proof that this is the next key of the agent of the Node with this UID, whose present one is
    /// `present`: base64.
    pub fn proof_as_next(&self, uid: &str, present: &PublicKey) -> String {
        STANDARD.encode(self.sign(&as_next(uid, present)))
    }
}

impl PublicKey {
    /// Whether that is such a proof of this key.
    pub fn is_next_by(&self, proof: &str, uid: &str, present: &Self) -> bool {
        let signature = STANDARD.decode(proof);
        signature.is_ok_and(|signature| self.verifies(&as_next(uid, present), &signature))
    }
}

/// SHA-256 over length-prefixed parts: two lists of parts never have one encoding.
pub(crate) fn hash(context: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = digest::Context::new(&digest::SHA256);
    for part in std::iter::once(&context.as_bytes()).chain(parts) {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(hasher.finish().as_ref()) {
        *to = *from;
    }
    out
}

/// The first `N` bytes of a digest or a name, which has so many.
pub(crate) fn prefix<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(digest) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_the_way_through_its_file() {
        let key = SigningKey::from_seed(&[7; 32]).unwrap();
        let again = SigningKey::from_pem(&key.to_pem().unwrap()).unwrap();
        assert_eq!(key.public(), again.public());
        assert!(key.public().verifies(b"text", &again.sign(b"text")));
        assert!(!key.public().verifies(b"other", &again.sign(b"text")));
    }

    #[test]
    fn a_key_made_by_openssl_is_read() {
        let text = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
        let key = SigningKey::from_pem(text).unwrap();
        // The pair of RFC 8410, sections 10.3 and 10.1.
        assert_eq!(
            key.public().to_base64(),
            "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
        );
    }

    #[test]
    fn what_is_no_key_is_refused_and_secrets_stay_out_of_debug() {
        assert_eq!(SigningKey::from_pem("hello").unwrap_err(), KeyError::NotPem);
        let other = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----";
        assert_eq!(SigningKey::from_pem(other).unwrap_err(), KeyError::NotEd25519);
        assert_eq!(PublicKey::from_base64("AAAA").unwrap_err(), KeyError::Public);
        let key = SigningKey::from_seed(&[9; 32]).unwrap();
        assert!(!format!("{key:?}").contains(&STANDARD.encode([9_u8; 32])));
    }
}
