//! Bytes of one datagram on their way out.

use std::fmt;
use std::ops::Deref;

/// A heartbeat has 75 bytes, an ack 83, a ballot about one suspect 159; these are nearly all that is sent.
const SHORT: usize = 160;

/// An encoded datagram. Short ones are held in place and not allocated.
#[derive(Clone)]
pub struct Datagram(Bytes);

#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "the large variant is the usual one")]
enum Bytes {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl From<&[u8]> for Datagram {
    fn from(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match (short.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(bytes);
                Self(Bytes::Short { length, bytes: short })
            }
            _ => Self(Bytes::Long(bytes.into())),
        }
    }
}

impl From<Vec<u8>> for Datagram {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl Deref for Datagram {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Datagram {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Datagram {}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datagram({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_keeps_its_bytes_whatever_its_length() {
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, 255, 256, 1_400] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            assert_eq!(&*Datagram::from(bytes.as_slice()), bytes);
        }
    }
}
