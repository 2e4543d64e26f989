//! A cheap stand-in for Ed25519, for simulations that drive hundreds of engines. Not part of the product.
//!
//! A simulation has one secret. The public key of an agent is derived from that secret and from the agent's
//! seed. A tag is a short hash of the secret, the public key and the message, so that a datagram that was
//! forged or changed on its way is refused as it would be with Ed25519. Whoever knows the simulation's secret
//! can sign for everybody, and the hash is chosen for its speed alone, which is why this scheme protects
//! nothing outside of a simulation.
//!
//! Public keys have 32 bytes and are points on the curve, and signatures have 64 bytes. Rosters and datagrams
//! are therefore those of the product.

use super::{MAC_LEN, Mac, PublicKey, SIGNATURE_LEN, Signer, Verifier, hash, prefix};
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};

/// Makes signers, and checks what they signed. Two schemes with the same secret are the same scheme.
#[derive(Clone)]
pub struct StandIn {
    secret: [u8; 32],
}

impl StandIn {
    /// The scheme of one simulation.
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The private half of the agent that has this seed.
    pub fn signer(&self, seed: &[u8; 32]) -> StandInSigner {
        let public = (0_u64..)
            .map(|attempt| hash("stand-in public", &[&self.secret, seed, &attempt.to_be_bytes()]))
            .find_map(|bytes| PublicKey::from_bytes(bytes).ok())
            .expect("every second string of 32 bytes is a point on the curve");
        let secret = self.secret;
        StandInSigner { public, secret }
    }
}

impl Verifier for StandIn {
    fn verifies(&self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        signature == tag(&self.secret, key, message)
    }
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandIn")
    }
}

/// The private half of one simulated agent.
pub struct StandInSigner {
    public: PublicKey,
    secret: [u8; 32],
}

impl Signer for StandInSigner {
    fn public(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        tag(&self.secret, &self.public, message)
    }

    fn shared_with(&self, other: &PublicKey) -> Box<dyn Mac> {
        let mut keys = [self.public.as_bytes(), other.as_bytes()];
        keys.sort_unstable();
        let [low, high] = keys;
        let secret = hash("stand-in shared secret", &[&self.secret, low, high]);
        Box::new(StandInMac(prefix(&secret)))
    }
}

/// What two simulated agents share.
struct StandInMac([u8; MAC_LEN]);

impl Mac for StandInMac {
    fn code(&self, message: &[u8]) -> [u8; MAC_LEN] {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.0);
        hasher.write(message);
        let mut out = [0; MAC_LEN];
        repeat(&mut out, hasher.finish());
        out
    }
}

impl fmt::Debug for StandInMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandInMac")
    }
}

impl fmt::Debug for StandInSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StandInSigner(public {})", self.public.to_base64())
    }
}

/// A hash of 8 bytes, written again and again to fill the place of a signature.
fn tag(secret: &[u8; 32], public: &PublicKey, message: &[u8]) -> [u8; SIGNATURE_LEN] {
    let mut hasher = DefaultHasher::new();
    for part in [secret, public.as_bytes(), message] {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    let mut out = [0; SIGNATURE_LEN];
    repeat(&mut out, hasher.finish());
    out
}

fn repeat(out: &mut [u8], hash: u64) {
    for (to, from) in out.iter_mut().zip(hash.to_be_bytes().iter().cycle()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Ed25519, SigningKey};

    #[test]
    fn a_tag_counts_for_its_signer_its_message_and_its_simulation_alone() {
        let scheme = StandIn::new([1; 32]);
        let (one, other) = (scheme.signer(&[1; 32]), scheme.signer(&[2; 32]));
        let signature = one.sign(b"text");
        assert_ne!(one.public(), other.public());
        assert!(scheme.verifies(one.public(), b"text", &signature));
        assert!(StandIn::new([1; 32]).verifies(one.public(), b"text", &signature));
        assert!(!scheme.verifies(other.public(), b"text", &signature));
        assert!(!scheme.verifies(one.public(), b"other", &signature));
        assert!(!scheme.verifies(one.public(), b"text", &signature[..32]));
        assert!(!StandIn::new([2; 32]).verifies(one.public(), b"text", &signature));
        for bit in 0..SIGNATURE_LEN * 8 {
            let mut flipped = signature;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!scheme.verifies(one.public(), b"text", &flipped), "bit {bit}");
        }
    }

    #[test]
    fn what_two_agents_share_counts_between_them_and_in_their_simulation_alone() {
        let scheme = StandIn::new([1; 32]);
        let [one, two, three] = [1, 2, 3].map(|seed| scheme.signer(&[seed; 32]));
        let code = one.shared_with(two.public()).code(b"text");
        assert!(two.shared_with(one.public()).verifies(b"text", &code));
        assert!(!two.shared_with(one.public()).verifies(b"other", &code));
        assert!(!one.shared_with(three.public()).verifies(b"text", &code));
        let elsewhere = StandIn::new([2; 32]).signer(&[1; 32]);
        assert!(!elsewhere.shared_with(two.public()).verifies(b"text", &code));
    }

    #[test]
    fn the_two_schemes_refuse_each_other() {
        let (scheme, key) = (StandIn::new([1; 32]), SigningKey::from_seed(&[1; 32]).unwrap());
        let signer = scheme.signer(&[1; 32]);
        assert!(!Ed25519.verifies(signer.public(), b"text", &signer.sign(b"text")));
        assert!(!scheme.verifies(key.public(), b"text", &key.sign(b"text")));
    }

    #[test]
    fn the_same_seed_gives_the_same_agent_and_the_secret_stays_out_of_debug() {
        let scheme = StandIn::new([65; 32]);
        let (one, again) = (scheme.signer(&[1; 32]), scheme.signer(&[1; 32]));
        assert_eq!(
            (one.public(), one.sign(b"text")),
            (again.public(), again.sign(b"text"))
        );
        assert!(!format!("{scheme:?} {one:?}").contains("65"));
    }
}
