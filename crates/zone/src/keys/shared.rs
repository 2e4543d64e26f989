//! The secret that two agents share, and what one of them proves to the other with it.
//!
//! Only what somebody else has to check is signed. All else is read by one member alone, to which a message
//! authentication code proves as much in 16 bytes instead of 64, and in a hundredth of the time. The secret
//! needs no message and no further key: each side derives it from its own private key and the other's public
//! one, which the roster holds.
//!
//! An Ed25519 key pair is also one for X25519: the private scalar is the same, and the public point is mapped
//! to the other form of the curve (RFC 7748, section 4.1). Thormarker (IACR ePrint 2021/509) shows that one
//! key may serve both purposes where the secret is hashed, for one static and one ephemeral key; ours are
//! both static, and the hash covers both of them. Keys of small order are refused, so that no secret is known
//! in advance.
//!
//! What a signature would give besides: whoever steals the key of one agent can pass for any other *towards
//! that agent*. Evidence is not concerned, since the thief could sign as that agent in any case.

use super::{PublicKey, SigningKey, hash};
use aws_lc_rs::digest::{SHA512, digest};
use aws_lc_rs::{constant_time, hmac};
use std::fmt;

/// Length of a message authentication code.
pub const MAC_LEN: usize = 16;

/// What two agents share: each can prove to the other, and to nobody else, that it wrote a message. The same
/// for both, so that a message has to say which of them wrote it.
pub trait Mac: fmt::Debug + Send + Sync {
    /// The code of a message.
    fn code(&self, message: &[u8]) -> [u8; MAC_LEN];

    /// Whether this is the code of the message. Takes as long for a wrong one as for the right one.
    fn verifies(&self, message: &[u8], code: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.code(message), code).is_ok()
    }
}

/// HMAC-SHA256 cut to its first 16 bytes (RFC 2104, section 5).
pub(super) struct Hmac(hmac::Key);

impl Hmac {
    /// The secret of `own` and `other`: a hash of their X25519 secret and of both public keys.
    pub(super) fn between(own: &SigningKey, other: &PublicKey) -> Self {
        let secret = other.parsed.point.mul_clamped(own.scalar).to_bytes();
        let mut keys = [own.public().as_bytes(), other.as_bytes()];
        keys.sort_unstable();
        let [low, high] = keys;
        let key = hash("evenkeel shared secret", &[&secret, low, high]);
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }
}

impl Mac for Hmac {
    fn code(&self, message: &[u8]) -> [u8; MAC_LEN] {
        super::prefix(hmac::sign(&self.0, message).as_ref())
    }
}

impl fmt::Debug for Hmac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hmac")
    }
}

/// The private key for X25519 of an Ed25519 seed (RFC 8032, section 5.1.5). It is clamped where it is used.
pub(super) fn scalar(seed: &[u8]) -> [u8; 32] {
    super::prefix(digest(&SHA512, seed).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyError;
    use crate::keys::Signer as _;
    use aws_lc_rs::agreement::{self, X25519};
    use aws_lc_rs::error::Unspecified;
    use proptest::prelude::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32]).unwrap()
    }

    proptest! {
        /// The map of the public key and the scalar belong together: another library, which knows nothing of
        /// Ed25519 here, computes the same public key from the scalar, and the same secret.
        #[test]
        fn a_key_for_signatures_is_one_for_agreement(one: [u8; 32], other: [u8; 32]) {
            let (one, other) = (SigningKey::from_seed(&one).unwrap(), SigningKey::from_seed(&other).unwrap());
            let private = agreement::PrivateKey::from_private_key(&X25519, &one.scalar).unwrap();
            let public = private.compute_public_key().unwrap();
            prop_assert_eq!(public.as_ref(), one.public().parsed.point.as_bytes());
            let peer = agreement::UnparsedPublicKey::new(&X25519, other.public().parsed.point.as_bytes());
            let secret = agreement::agree(&private, peer, Unspecified, |secret| Ok(secret.to_vec())).unwrap();
            let ours = other.public().parsed.point.mul_clamped(one.scalar);
            prop_assert_eq!(&secret[..], ours.as_bytes());
        }

        #[test]
        fn both_sides_share_it_and_nobody_else_does(text: Vec<u8>, other_text: Vec<u8>) {
            let (one, two, three) = (key(1), key(2), key(3));
            let mac = one.shared_with(two.public());
            let code = mac.code(&text);
            prop_assert!(two.shared_with(one.public()).verifies(&text, &code));
            prop_assert!(!one.shared_with(three.public()).verifies(&text, &code));
            prop_assert!(!three.shared_with(two.public()).verifies(&text, &code));
            prop_assert!(!mac.verifies(&text, &code[..8]));
            prop_assert!(text == other_text || !mac.verifies(&other_text, &code));
        }
    }

    /// Nobody can hold the private half of a point of small order, and every secret with it is zero.
    #[test]
    fn points_of_small_order_are_no_keys() {
        let points = [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000080",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        ];
        for point in points {
            let mut bytes = [0; 32];
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::from_str_radix(&point[2 * at..2 * at + 2], 16).unwrap();
            }
            assert_eq!(
                PublicKey::from_bytes(bytes).unwrap_err(),
                KeyError::Public,
                "{point}"
            );
        }
    }

    #[test]
    fn secrets_stay_out_of_debug() {
        let mac = key(1).shared_with(key(2).public());
        assert_eq!(format!("{mac:?}"), "Hmac");
    }
}
