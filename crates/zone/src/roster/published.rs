//! Rosters as they are published: who may publish one, and what has to hold before one counts.

use super::{Roster, RosterError};
use crate::keys::{Ed25519, PublicKey, SIGNATURE_LEN, Signer, Verifier};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_api::zone::{RosterSpec, SignedRoster};
use std::sync::Arc;

/// Before the text in what is signed: a signature of a roster is one of nothing else.
const CONTEXT: &[u8] = b"evenkeel roster\0";

/// Keys of those who may publish rosters, the present one first. While a key is replaced there are two.
///
/// Without any key a roster counts because the API server shows it.
#[derive(Clone, Debug)]
pub struct RosterKeys {
    keys: Vec<PublicKey>,
    verifier: Arc<dyn Verifier>,
}

impl Default for RosterKeys {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl RosterKeys {
    /// Rosters count that are signed with one of these keys.
    pub fn new(keys: Vec<PublicKey>) -> Self {
        Self {
            keys,
            verifier: Arc::new(Ed25519),
        }
    }

    /// The same where controllers sign by another scheme.
    #[must_use]
    pub fn verifying_with(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.verifier = verifier;
        self
    }

    /// Whether a signature is asked for.
    pub fn ask_for_signatures(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether the present key signed it; a roster that another one signed is to be published anew.
    pub fn is_of_present_key(&self, published: &SignedRoster) -> bool {
        let signed_with = |key| self.signed_with(std::slice::from_ref(key), published);
        self.keys.first().is_none_or(signed_with)
    }

    fn signed_with(&self, keys: &[PublicKey], published: &SignedRoster) -> bool {
        let signature = STANDARD.decode(&published.signature).unwrap_or_default();
        let message = message(&published.text);
        keys.iter()
            .any(|key| self.verifier.verifies(key, &message, &signature))
    }

    fn check(&self, published: &SignedRoster) -> Result<(), RosterError> {
        if self.keys.is_empty() || self.signed_with(&self.keys, published) {
            Ok(())
        } else if published.signature.is_empty() {
            Err(RosterError::Unsigned)
        } else {
            Err(RosterError::Signature)
        }
    }
}

/// A cell by the name and the UID of its ZoneHealth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// Name of the object.
    pub name: &'a str,
    /// UID of the object.
    pub uid: &'a str,
}

/// The roster as it is published; unsigned without a key.
pub fn publish(roster: &RosterSpec, key: Option<&dyn Signer>) -> SignedRoster {
    publish_text(roster, roster.to_text(), key)
}

/// The same with a text that may say more than this version knows.
pub(crate) fn publish_text(roster: &RosterSpec, text: String, key: Option<&dyn Signer>) -> SignedRoster {
    let signature = key.map(|key| STANDARD.encode(key.sign(&message(&text))));
    SignedRoster {
        version: roster.version,
        members: count(roster),
        text,
        signature: signature.unwrap_or_default(),
    }
}

fn message(text: &str) -> Vec<u8> {
    [CONTEXT, text.as_bytes()].concat()
}

impl Roster {
    /// Reads what the object of a cell, or a member of it, shows as the cell's roster.
    pub fn open(published: &SignedRoster, cell: CellRef<'_>, keys: &RosterKeys) -> Result<Self, RosterError> {
        keys.check(published)?;
        Self::of_cell(&read_text(&published.text)?, published.clone(), cell, keys)
    }

    /// Reads a roster that counted before, whichever cell it names.
    pub fn reopen(published: &SignedRoster, keys: &RosterKeys) -> Result<Self, RosterError> {
        keys.check(published)?;
        Self::read(&read_text(&published.text)?, Arc::new(published.clone()))
    }

    /// What is written in a published roster that counts.
    fn of_cell(
        spec: &RosterSpec,
        published: SignedRoster,
        cell: CellRef<'_>,
        keys: &RosterKeys,
    ) -> Result<Self, RosterError> {
        // A former version named no cell, and nothing of it was signed.
        let names_none = spec.cell.is_empty() && !keys.ask_for_signatures();
        if !names_none && (spec.cell.as_str(), spec.cell_uid.as_str()) != (cell.name, cell.uid) {
            return Err(RosterError::Cell {
                cell: spec.cell.clone(),
                uid: spec.cell_uid.clone(),
            });
        }
        Self::read(spec, Arc::new(published))
    }

    /// The roster as it was published.
    pub fn published(&self) -> &Arc<SignedRoster> {
        &self.published
    }

    /// The cell that it names.
    pub fn cell(&self) -> CellRef<'_> {
        CellRef {
            name: &self.cell.0,
            uid: &self.cell.1,
        }
    }

    /// The roster as one string of bytes, signature first, as one agent passes it on to another; nothing
    /// where it is not signed.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let signature = STANDARD.decode(&self.published.signature).ok();
        let signature = signature.filter(|signature| signature.len() == SIGNATURE_LEN)?;
        Some([signature.as_slice(), self.published.text.as_bytes()].concat())
    }

    /// Reads what [`Roster::to_bytes`] wrote.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        cell: CellRef<'_>,
        keys: &RosterKeys,
    ) -> Result<Self, RosterError> {
        let (signature, text) = bytes
            .split_at_checked(SIGNATURE_LEN)
            .ok_or(RosterError::Signature)?;
        let text = std::str::from_utf8(text).map_err(|error| RosterError::Text(error.to_string()))?;
        let published = SignedRoster {
            text: text.to_owned(),
            signature: STANDARD.encode(signature),
            ..SignedRoster::default()
        };
        keys.check(&published)?;
        let spec = read_text(text)?;
        let published = SignedRoster {
            version: spec.version,
            members: count(&spec),
            ..published
        };
        Self::of_cell(&spec, published, cell, keys)
    }
}

fn read_text(text: &str) -> Result<RosterSpec, RosterError> {
    RosterSpec::from_text(text).map_err(|error| RosterError::Text(error.to_string()))
}

fn count(roster: &RosterSpec) -> i32 {
    i32::try_from(roster.members.len()).unwrap_or(i32::MAX)
}
