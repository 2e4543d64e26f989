//! What the votes of a round rest on: a challenge of the controller's, and the suspects' last renewals.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A random number of the controller's, replaced every few seconds or minutes. A ballot that signs it is
/// younger than it (hazard 41).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Challenge(pub [u8; 16]);

impl Challenge {
    /// What an agent signs that knows no challenge. No reader accepts it.
    pub const NONE: Self = Self([0; 16]);

    /// Reads a challenge from base64 of its 16 bytes; nothing if it is anything else.
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// Base64 of its 16 bytes.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

/// A renewal of a node's Lease: the resourceVersion that the Lease has since. It grows with every write of
/// the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Renewal(pub u64);

impl Renewal {
    /// The node has no Lease.
    pub const NO_LEASE: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_read_and_nothing_else() {
        let challenge = Challenge(*b"sixteen  letters");
        assert_eq!(Challenge::from_base64(&challenge.to_base64()), Some(challenge));
        let others = ["", "%", "c2l4dGVlbg==", "c2l4dGVlbiAgbGV0dGVyc3M="];
        assert_eq!(others.map(Challenge::from_base64), [None; 4]);
    }
}
