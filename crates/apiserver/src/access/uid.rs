//! Random UIDs.

use uuid::Builder;

/// A version 4 UUID (RFC 9562, 5.4).
pub(crate) fn random() -> String {
    Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

/// Five characters as upstream appends to generated names: no vowels, nothing easily mistaken.
pub(crate) fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    rand::random::<[u8; 5]>()
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}
