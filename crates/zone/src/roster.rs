//! Who belongs to a zone, who watches whom, who reports and who votes.

use crate::keys::{self, KeyError, PublicKey};
use evenkeel_api::zone::{KubeletEndpoint, RosterMember, RosterSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

/// How many subjects a node watches, and about how many observers it has (zones of up to 11 are all-pairs).
pub const WATCHED: usize = 10;
/// How many members may report for a zone at a time.
pub const REPORTERS: usize = 3;
/// Name of a member in datagrams: the first 16 bytes of a digest of its node UID.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub [u8; 16]);

impl MemberId {
    /// The name of the member whose node has this UID.
    pub fn of(uid: &str) -> Self {
        Self(keys::prefix(&keys::hash("evenkeel member", &[uid.as_bytes()])))
    }

    /// No member. A digest of a UID is all zeros with a probability of 2^-128.
    pub const NOBODY: Self = Self([0; 16]);
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Digest of a roster: two rosters of one version never pass for each other.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub [u8; 8]);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A roster by its version and digest: what a vote is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RosterRef {
    /// Version given by its one writer.
    pub version: u64,
    /// Digest of its contents.
    pub epoch: Epoch,
}

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
    /// How its kubelet is checked.
    pub kubelet: Option<KubeletEndpoint>,
}

/// Why a roster was refused. The text names the member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// Versions go from 1 to [`RosterSpec::LAST_VERSION`].
    #[error("roster version {0} is not between 1 and {last}", last = RosterSpec::LAST_VERSION)]
    Version(i64),
    /// A member without a name or a UID.
    #[error("member {0} has no name or no UID")]
    Unnamed(usize),
    /// A UID occurs twice.
    #[error("node {name} shares its UID {uid} with another member")]
    SharedUid {
        /// Name of the second node that has it.
        name: String,
        /// The UID that both have.
        uid: String,
    },
    /// A key occurs twice: one agent would have two votes.
    #[error("node {name} shares its public key with another member: one agent would have two votes")]
    SharedKey {
        /// Name of the second node that has it.
        name: String,
    },
    /// A key cannot be read.
    #[error("public key of node {name}: {source}")]
    Key {
        /// Name of the node.
        name: String,
        /// Why the key cannot be read.
        source: KeyError,
    },
    /// An address cannot be read.
    #[error("address \"{address}\" of node {name} is not IP:PORT")]
    Address {
        /// Name of the node.
        name: String,
        /// The address as its agent gave it.
        address: String,
    },
}

/// A validated roster, members sorted by UID.
#[derive(Clone, PartialEq)]
pub struct Roster {
    reference: RosterRef,
    members: Vec<Member>,
    index: BTreeMap<MemberId, usize>,
    /// By member: whom it watches. Empty in all-pairs zones.
    watches: Vec<Vec<usize>>,
    /// The same the other way round: by member, who watches it.
    watched_by: Vec<Vec<usize>>,
    /// All members in their order as reporters. It depends on nothing but them, so it is hashed once per
    /// roster and not at each tick.
    rendezvous: Vec<MemberId>,
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
        write!(
            f,
            "Roster(v{} {} {names:?})",
            self.reference.version, self.reference.epoch
        )
    }
}

impl Roster {
    /// Checks the members and sorts them by UID.
    pub fn from_spec(spec: &RosterSpec) -> Result<Self, RosterError> {
        let version = u64::try_from(spec.version).ok().filter(|_| spec.has_version());
        let version = version.ok_or(RosterError::Version(spec.version))?;
        let mut members = Vec::with_capacity(spec.members.len());
        for (position, member) in spec.members.iter().enumerate() {
            members.push(read_member(position, member)?);
        }
        members.sort_by(|a, b| a.uid.cmp(&b.uid));
        let mut index = BTreeMap::new();
        let mut keys_seen = BTreeSet::new();
        for (position, member) in members.iter().enumerate() {
            if index.insert(member.id, position).is_some() {
                return Err(RosterError::SharedUid {
                    name: member.name.clone(),
                    uid: member.uid.clone(),
                });
            }
            if !keys_seen.insert(*member.key.as_bytes()) {
                return Err(RosterError::SharedKey {
                    name: member.name.clone(),
                });
            }
        }
        let watches = rings(&members);
        let mut watched_by = vec![Vec::new(); watches.len()];
        for (observer, subjects) in watches.iter().enumerate() {
            for subject in subjects {
                if let Some(observers) = watched_by.get_mut(*subject) {
                    observers.push(observer);
                }
            }
        }
        let epoch = epoch(version, &members);
        let mut rendezvous: Vec<MemberId> = members.iter().map(|member| member.id).collect();
        rendezvous.sort_by_cached_key(|id| (keys::hash("evenkeel reporter", &[&id.0]), *id));
        Ok(Self {
            reference: RosterRef { version, epoch },
            members,
            index,
            watches,
            watched_by,
            rendezvous,
        })
    }

    /// The empty roster with version 0: what an agent begins with before it knows its zone.
    pub fn none() -> Self {
        Self {
            reference: RosterRef::default(),
            members: Vec::new(),
            index: BTreeMap::new(),
            watches: Vec::new(),
            watched_by: Vec::new(),
            rendezvous: Vec::new(),
        }
    }

    /// The roster as data again, members sorted by UID.
    pub fn to_spec(&self) -> RosterSpec {
        let members = self.members.iter().map(|member| RosterMember {
            name: member.name.clone(),
            uid: member.uid.clone(),
            address: member.address.to_string(),
            public_key: member.key.to_base64(),
            kubelet: member.kubelet.clone(),
        });
        RosterSpec {
            version: self.reference.version as i64,
            members: members.collect(),
        }
    }

    /// Version and digest of this roster.
    pub fn reference(&self) -> RosterRef {
        self.reference
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Members by UID order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member with this name in datagrams.
    pub fn get(&self, id: MemberId) -> Option<&Member> {
        self.index
            .get(&id)
            .and_then(|position| self.members.get(*position))
    }

    /// Whether it is a member.
    pub fn contains(&self, id: MemberId) -> bool {
        self.index.contains_key(&id)
    }

    /// More than half of all members, a suspect counted in.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Whether everybody watches everybody.
    pub fn all_pairs(&self) -> bool {
        self.members.len() <= WATCHED + 1
    }

    /// Whom `observer` watches: K = min(10, N-1) members.
    pub fn subjects_of(&self, observer: MemberId) -> Vec<MemberId> {
        let Some(position) = self.index.get(&observer) else {
            return Vec::new();
        };
        if self.all_pairs() {
            return self.others(observer);
        }
        let watched = self.watches.get(*position).into_iter().flatten();
        watched
            .filter_map(|subject| self.members.get(*subject))
            .map(|member| member.id)
            .collect()
    }

    /// Who watches `subject`.
    pub fn observers_of(&self, subject: MemberId) -> Vec<MemberId> {
        let Some(position) = self.index.get(&subject) else {
            return Vec::new();
        };
        if self.all_pairs() {
            return self.others(subject);
        }
        let watching = self.watched_by.get(*position).into_iter().flatten();
        watching
            .filter_map(|observer| self.members.get(*observer))
            .map(|member| member.id)
            .collect()
    }

    /// All members but this one.
    pub fn others(&self, id: MemberId) -> Vec<MemberId> {
        self.members
            .iter()
            .map(|member| member.id)
            .filter(|other| *other != id)
            .collect()
    }

    /// All members as candidates for reporting, best first: cloud contact as one bit, then rendezvous.
    pub fn reporters_by_rank(&self, has_cloud: impl Fn(MemberId) -> bool) -> Vec<MemberId> {
        let (mut ranked, without): (Vec<_>, Vec<_>) = self.rendezvous.iter().partition(|id| has_cloud(**id));
        ranked.extend(without);
        ranked
    }
}

/// Name of the `ZoneHealth` object of a cell, and suffix of its Lease. The first cell of a zone is named
/// after the zone; the others have their number behind a dot, which no name of a zone holds.
pub fn cell_object_name(zone: &str, cell: u32) -> String {
    let name = zone_object_name(zone);
    if cell == 0 { name } else { format!("{name}.{cell}") }
}

/// Name of the object of a zone's first cell: the zone label's value in lower case, with what an object name
/// cannot hold replaced, and a digest added where something was replaced.
pub fn zone_object_name(zone: &str) -> String {
    let cleaned: String = zone
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let trimmed = cleaned.trim_matches('-');
    if trimmed == zone && !zone.is_empty() && zone.len() <= 63 {
        return zone.to_owned();
    }
    let digest: [u8; 4] = keys::prefix(&keys::hash("evenkeel zone", &[zone.as_bytes()]));
    let suffix = format!("{:08x}", u32::from_be_bytes(digest));
    let stem: String = trimmed.chars().take(50).collect();
    if stem.is_empty() {
        format!("zone-{suffix}")
    } else {
        format!("{}-{suffix}", stem.trim_end_matches('-'))
    }
}

fn read_member(position: usize, member: &RosterMember) -> Result<Member, RosterError> {
    if member.name.is_empty() || member.uid.is_empty() {
        return Err(RosterError::Unnamed(position));
    }
    let key = PublicKey::from_base64(&member.public_key).map_err(|source| RosterError::Key {
        name: member.name.clone(),
        source,
    })?;
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
        kubelet: member.kubelet.clone(),
    })
}

fn epoch(version: u64, members: &[Member]) -> Epoch {
    let mut parts: Vec<Vec<u8>> = vec![version.to_be_bytes().to_vec()];
    for member in members {
        parts.push(member.uid.clone().into_bytes());
        parts.push(member.name.clone().into_bytes());
        parts.push(member.address.to_string().into_bytes());
        parts.push(member.key.as_bytes().to_vec());
        let kubelet = member.kubelet.as_ref();
        parts.push(
            kubelet
                .map(|kubelet| kubelet.address.clone())
                .unwrap_or_default()
                .into_bytes(),
        );
        parts.push(
            kubelet
                .map(|kubelet| kubelet.certificate_sha256.clone())
                .unwrap_or_default()
                .into_bytes(),
        );
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Epoch(keys::prefix(&keys::hash("evenkeel roster", &parts)))
}

/// On each of K rings, ordered by a hash of (ring, member), a node watches its next neighbour that it does
/// not watch already. The rings do not depend on the epoch: a change of one member moves few edges.
fn rings(members: &[Member]) -> Vec<Vec<usize>> {
    let count = members.len();
    if count <= WATCHED + 1 {
        return Vec::new();
    }
    let mut watches = vec![Vec::with_capacity(WATCHED); count];
    for ring in 0..WATCHED as u64 {
        let mut order: Vec<([u8; 32], usize)> = members
            .iter()
            .enumerate()
            .map(|(position, member)| {
                (
                    keys::hash("evenkeel ring", &[&ring.to_be_bytes(), &member.id.0]),
                    position,
                )
            })
            .collect();
        order.sort_unstable();
        for (place, (_, observer)) in order.iter().enumerate() {
            let next = order
                .iter()
                .cycle()
                .skip(place + 1)
                .take(count - 1)
                .map(|(_, subject)| *subject);
            let Some(list) = watches.get_mut(*observer) else {
                continue;
            };
            let mut next = next;
            if let Some(subject) = next.find(|subject| !list.contains(subject)) {
                list.push(subject);
            }
        }
    }
    watches
}

#[cfg(test)]
mod tests;
