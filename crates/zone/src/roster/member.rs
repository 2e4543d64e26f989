//! Members of a roster, and agents of other cells.

use super::{MemberId, RosterError};
use crate::keys::PublicKey;
use evenkeel_api::zone::{KubeletEndpoint, RosterContact, RosterMember};
use std::net::SocketAddr;

/// A member of the zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name in datagrams.
    pub id: MemberId,
    /// Node name.
    pub name: String,
    /// Node UID.
    pub uid: String,
    /// Where its agent listens.
    pub address: SocketAddr,
    /// Key of its agent.
    pub key: PublicKey,
    /// The key that takes its place soon. What is proven with either of them counts.
    pub next_key: Option<PublicKey>,
    /// How its kubelet is checked.
    pub kubelet: Option<KubeletEndpoint>,
    /// It has no vote yet, and counts in no majority.
    pub learner: bool,
}

impl Member {
    /// Its key, and the one that takes its place soon.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        std::iter::once(&self.key).chain(&self.next_key)
    }

    /// Whether this is the same agent as a member of the same UID in a later roster: its key stayed, or
    /// changed to the one that was announced. With another key it is another agent, and nothing that was
    /// known of this one holds for it.
    pub fn goes_on_as(&self, later: &Self) -> bool {
        self.has_key(&later.key)
    }

    /// Whether this is its key, or its next one.
    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.keys().any(|known| known == key)
    }
}

/// An agent of another cell of the zone, or one that such an agent knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Contact {
    /// Its name in datagrams.
    pub id: MemberId,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its key.
    pub key: PublicKey,
}

pub(super) fn read_member(position: usize, member: &RosterMember) -> Result<Member, RosterError> {
    if member.name.is_empty() || member.uid.is_empty() {
        return Err(RosterError::Unnamed(position));
    }
    let read = |key: &String| {
        PublicKey::from_base64(key).map_err(|source| RosterError::Key {
            name: member.name.clone(),
            source,
        })
    };
    let key = read(&member.public_key)?;
    let next_key = member.next_public_key.as_ref().map(read).transpose()?;
    let address = member.address.parse().map_err(|_| RosterError::Address {
        name: member.name.clone(),
        address: member.address.clone(),
    })?;
    Ok(Member {
        id: MemberId::of(&member.uid),
        name: member.name.clone(),
        uid: member.uid.clone(),
        address,
        key,
        next_key,
        kubelet: member.kubelet.clone(),
        learner: member.learner,
    })
}

/// Nothing for one that cannot be read: the members vote without it.
pub(super) fn read_contact(contact: &RosterContact) -> Option<Contact> {
    Some(Contact {
        id: MemberId::of(&contact.uid),
        address: contact.address.parse().ok()?,
        key: PublicKey::from_base64(&contact.public_key).ok()?,
    })
}
