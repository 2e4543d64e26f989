//! Who belongs to a zone, who watches whom, who reports and who votes.

mod member;
mod published;

pub use member::{Contact, Member};
#[cfg(any(test, feature = "fixture"))]
pub(crate) use published::publish_text;
pub use published::{CellRef, RosterKeys, publish};

use crate::keys::{self, KeyError};
use evenkeel_api::zone::{RosterSpec, SignedRoster};
use member::{read_contact, read_member};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// How many subjects a node watches, and about how many observers it has (zones of up to 11 are all-pairs).
pub const WATCHED: usize = 10;
/// How many members may report for a zone at a time.
pub const REPORTERS: usize = 3;
/// In zones that are not all-pairs, everybody exchanges heartbeats with this many first candidates for
/// reporting: those who report while all is well, and the next one, which has to know when to step in.
pub const CANDIDATES: usize = 4;
/// Name of a member in datagrams: the first 8 bytes of a digest of its node UID. Who wrote something is
/// proven by its key and not by its name, and UIDs are drawn by the API server: that two of 64 members share
/// a name happens once in 10^16 cells.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub [u8; 8]);

impl MemberId {
    /// The name of the member whose node has this UID.
    pub fn of(uid: &str) -> Self {
        Self(keys::prefix(&keys::hash("evenkeel member", &[uid.as_bytes()])))
    }

    /// The name in 16 hex digits.
    pub fn to_hex(self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.0))
    }

    /// Reads a name in 16 hex digits; `None`: it is none.
    pub fn from_hex(text: &str) -> Option<Self> {
        let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16)?;
        Some(Self(number.to_be_bytes()))
    }

    /// No member. A digest of a UID is all zeros with a probability of 2^-64.
    pub const NOBODY: Self = Self([0; 8]);
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Position of a member in one roster, whose members are sorted by UID. In another roster the same member may
/// have another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u16);

impl MemberIndex {
    /// The position as an index of lists that are ordered as the members are.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// Digest of a roster as it was published: two rosters of one version never pass for each other. It is made
/// of the published bytes and not of what this version reads in them, so that agents that know other fields
/// vote under the same roster (hazard 48).
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

/// Why a roster was refused. The text names the member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// The published text cannot be read.
    #[error("it cannot be read: {0}")]
    Text(String),
    /// Nobody has signed it, where a signature is asked for.
    #[error(
        "it is not signed: give the controllers --roster-key, or take --roster-public-key from this process"
    )]
    Unsigned,
    /// It is not signed with a key that counts.
    #[error("it is not signed with a key of --roster-public-key")]
    Signature,
    /// It is the roster of another cell, or of an object that was made anew since.
    #[error("it is the roster of cell {cell:?} with UID {uid:?}")]
    Cell {
        /// The cell that it names.
        cell: String,
        /// The UID of that cell's ZoneHealth.
        uid: String,
    },
    /// Versions go from 1 to [`RosterSpec::LAST_VERSION`].
    #[error("roster version {0} is not between 1 and {last}", last = RosterSpec::LAST_VERSION)]
    Version(i64),
    /// More members than there are positions.
    #[error("{0} members are more than {most}", most = u16::MAX)]
    TooMany(usize),
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
    published: Arc<SignedRoster>,
    /// Name and UID of the cell's ZoneHealth.
    cell: (String, String),
    members: Vec<Member>,
    /// Who voted in the last settled roster and is still a member; nobody once this roster is settled.
    settled_voters: Vec<MemberIndex>,
    contacts: Vec<Contact>,
    positions: Positions,
    /// By member: whom it watches.
    subjects: Vec<Vec<MemberIndex>>,
    /// The same the other way round: by member, who watches it.
    observers: Vec<Vec<MemberIndex>>,
    /// All voters in their order as reporters. It depends on nothing but them, so it is hashed once per
    /// roster.
    rendezvous: Vec<MemberIndex>,
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
    /// A roster that nobody has signed, from its data.
    pub fn from_spec(spec: &RosterSpec) -> Result<Self, RosterError> {
        Self::read(spec, Arc::new(publish(spec, None)))
    }

    /// Checks the members and sorts them by UID. `spec` is what the published text says.
    fn read(spec: &RosterSpec, published: Arc<SignedRoster>) -> Result<Self, RosterError> {
        let version = u64::try_from(spec.version).ok().filter(|_| spec.has_version());
        let version = version.ok_or(RosterError::Version(spec.version))?;
        let mut members = Vec::with_capacity(spec.members.len());
        for (position, member) in spec.members.iter().enumerate() {
            members.push(read_member(position, member)?);
        }
        members.sort_by(|a, b| a.uid.cmp(&b.uid));
        if members.len() > usize::from(u16::MAX) {
            return Err(RosterError::TooMany(members.len()));
        }
        let mut keys_seen = BTreeSet::new();
        for (position, member) in members.iter().enumerate() {
            // Members are sorted by UID, and equal UIDs stand side by side.
            let before = position.checked_sub(1).and_then(|before| members.get(before));
            if before.is_some_and(|before| before.uid == member.uid) {
                return Err(RosterError::SharedUid {
                    name: member.name.clone(),
                    uid: member.uid.clone(),
                });
            }
            if !member.keys().all(|key| keys_seen.insert(*key.as_bytes())) {
                return Err(RosterError::SharedKey {
                    name: member.name.clone(),
                });
            }
        }
        let (subjects, observers) = neighbours(&members);
        let text = published.text.as_bytes();
        let epoch = Epoch(keys::prefix(&keys::hash("evenkeel roster", &[text])));
        let is_voter = |index: &MemberIndex| members.get(index.at()).is_some_and(|member| !member.learner);
        let mut rendezvous: Vec<MemberIndex> = indices(members.len()).filter(is_voter).collect();
        let id_of = |index: &MemberIndex| {
            members
                .get(index.at())
                .map(|member| member.id)
                .unwrap_or_default()
        };
        rendezvous.sort_by_cached_key(|index| {
            let id = id_of(index);
            (keys::hash("evenkeel reporter", &[&id.0]), id)
        });
        let positions = Positions::of(&members);
        let settled = spec.settled_voters.iter().map(|uid| MemberId::of(uid));
        let settled = settled.filter_map(|id| positions.find(&members, id));
        Ok(Self {
            reference: RosterRef { version, epoch },
            published,
            cell: (spec.cell.clone(), spec.cell_uid.clone()),
            settled_voters: settled.collect(),
            contacts: spec.contacts.iter().filter_map(read_contact).collect(),
            positions,
            members,
            subjects,
            observers,
            rendezvous,
        })
    }

    /// The empty roster with version 0: what an agent begins with before it knows its zone.
    pub fn none() -> Self {
        Self {
            reference: RosterRef::default(),
            published: Arc::new(SignedRoster::default()),
            cell: (String::new(), String::new()),
            members: Vec::new(),
            settled_voters: Vec::new(),
            contacts: Vec::new(),
            positions: Positions::of(&[]),
            subjects: Vec::new(),
            observers: Vec::new(),
            rendezvous: Vec::new(),
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

    /// Position of the member with this name in datagrams.
    pub fn position(&self, id: MemberId) -> Option<MemberIndex> {
        self.positions.find(&self.members, id)
    }

    /// The member at a position.
    pub fn member(&self, index: MemberIndex) -> Option<&Member> {
        self.members.get(index.at())
    }

    /// All positions, in order.
    pub fn positions(&self) -> impl DoubleEndedIterator<Item = MemberIndex> + use<> {
        indices(self.members.len())
    }

    /// The member with this name in datagrams.
    pub fn get(&self, id: MemberId) -> Option<&Member> {
        self.member(self.position(id)?)
    }

    /// Whether it is a member.
    pub fn contains(&self, id: MemberId) -> bool {
        self.position(id).is_some()
    }

    /// Number of members that have a vote.
    pub fn voters(&self) -> usize {
        self.rendezvous.len()
    }

    /// Whether it is a member that has a vote.
    pub fn is_voter(&self, id: MemberId) -> bool {
        self.position(id).is_some_and(|index| self.has_vote(index))
    }

    /// Whether the member at a position has a vote.
    pub fn has_vote(&self, index: MemberIndex) -> bool {
        self.member(index).is_some_and(|member| !member.learner)
    }

    /// More than half of all voters, a suspect that is one counted in.
    pub fn majority(&self) -> usize {
        self.voters() / 2 + 1
    }

    /// Who voted in the last settled roster and is still a member: a verdict needs their majority, too.
    /// Nobody once this roster is settled.
    pub fn settled_voters(&self) -> impl Iterator<Item = MemberId> {
        let members = self.settled_voters.iter().filter_map(|index| self.member(*index));
        members.map(|member| member.id)
    }

    /// Whether the voters of the one before do not yet know this roster.
    pub fn is_settling(&self) -> bool {
        !self.settled_voters.is_empty()
    }

    /// Agents of other cells, which take what this cell reports while none of its members has a link.
    pub fn contacts(&self) -> &[Contact] {
        &self.contacts
    }

    /// Number of the cell in its zone; nothing where the name of its object holds none.
    pub fn cell_number(&self) -> Option<u32> {
        match self.cell.0.split_once('.') {
            Some((_, number)) => number.parse().ok(),
            None => (!self.cell.0.is_empty()).then_some(0),
        }
    }

    /// Whether everybody watches everybody.
    pub fn all_pairs(&self) -> bool {
        self.members.len() <= WATCHED + 1
    }

    /// Whom `observer` watches: K = min(10, N-1) members.
    pub fn subjects_of(&self, observer: MemberIndex) -> &[MemberIndex] {
        self.subjects.get(observer.at()).map_or(&[], Vec::as_slice)
    }

    /// Who watches `subject`.
    pub fn observers_of(&self, subject: MemberIndex) -> &[MemberIndex] {
        self.observers.get(subject.at()).map_or(&[], Vec::as_slice)
    }

    /// All voters in their order as reporters, of those that do not differ in their contact with the cloud.
    pub fn rendezvous(&self) -> &[MemberIndex] {
        &self.rendezvous
    }
}

/// Name of the `ZoneHealth` object of a cell, and suffix of its Lease. The first cell of a zone is named
/// after the zone; the others have their number behind a dot, which no name of a zone holds.
pub fn cell_object_name(zone: &str, cell: u32) -> String {
    let name = zone_object_name(zone);
    if cell == 0 { name } else { format!("{name}.{cell}") }
}

/// Place of an agent, by the UID of its node, in the order in which a cell, by the name of its object, would
/// choose its contacts: each cell has one of its own, which looks drawn at random.
pub fn contact_rank(cell: &str, uid: &str) -> u64 {
    let hash = keys::hash("evenkeel contact", &[cell.as_bytes(), uid.as_bytes()]);
    u64::from_be_bytes(keys::prefix(&hash))
}

/// Name of the `ZoneReport` object of a reporter. Always with the number of the cell, so that name and zone
/// of a node can be told apart, whatever dots the node's name holds.
pub fn report_object_name(zone: &str, cell: u32, node: &str) -> String {
    format!("{}.{cell}.{node}", zone_object_name(zone))
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

/// A table from names in datagrams to positions. Names are digests, so their first bytes are as good as any
/// hash of them; of members with the same first bytes each stands in the next free place.
#[derive(Clone, PartialEq)]
struct Positions {
    /// At least twice as many places as members, and a power of two. The empty places are what ends a search.
    places: Box<[u16]>,
}

/// No member has this position, see [`RosterError::TooMany`].
const EMPTY: u16 = u16::MAX;

impl Positions {
    fn of(members: &[Member]) -> Self {
        let places = (2 * members.len()).next_power_of_two();
        let mut table = Self {
            places: vec![EMPTY; places].into(),
        };
        for (position, member) in members.iter().enumerate() {
            let free = table
                .search(member.id)
                .find(|place| table.places.get(*place) == Some(&EMPTY));
            if let Some(place) = free.and_then(|place| table.places.get_mut(place)) {
                *place = position as u16;
            }
        }
        table
    }

    /// The places in which a member may stand, in the order of preference.
    fn search(&self, id: MemberId) -> impl Iterator<Item = usize> + use<> {
        let first = u64::from_le_bytes(keys::prefix(&id.0)) as usize;
        let last = self.places.len() - 1;
        (0..=last).map(move |step| first.wrapping_add(step) & last)
    }

    fn find(&self, members: &[Member], id: MemberId) -> Option<MemberIndex> {
        for place in self.search(id) {
            let position = *self.places.get(place)?;
            let member = members.get(usize::from(position))?;
            if member.id == id {
                return Some(MemberIndex(position));
            }
        }
        None
    }
}

fn indices(count: usize) -> impl DoubleEndedIterator<Item = MemberIndex> + use<> {
    (0..count as u16).map(MemberIndex)
}

/// By member, whom it watches and who watches it.
///
/// Up to K + 1 members everybody watches everybody. Above, there are K rings, ordered by a hash of (ring,
/// member), and on each of them a node watches its next neighbour that it does not watch already. The rings
/// do not depend on the epoch: a change of one member moves few edges.
fn neighbours(members: &[Member]) -> (Vec<Vec<MemberIndex>>, Vec<Vec<MemberIndex>>) {
    let count = members.len();
    if count <= WATCHED + 1 {
        let others = |index| indices(count).filter(move |other| *other != index).collect();
        let all: Vec<Vec<MemberIndex>> = indices(count).map(others).collect();
        return (all.clone(), all);
    }
    let mut subjects = vec![Vec::with_capacity(WATCHED); count];
    for ring in 0..WATCHED as u64 {
        let place = |(member, index): (&Member, MemberIndex)| {
            let hash = keys::hash("evenkeel ring", &[&ring.to_be_bytes(), &member.id.0]);
            (hash, index)
        };
        let mut order: Vec<([u8; 32], MemberIndex)> = members.iter().zip(indices(count)).map(place).collect();
        order.sort_unstable();
        for (place, (_, observer)) in order.iter().enumerate() {
            let after = order.iter().cycle().skip(place + 1).take(count - 1);
            let Some(list) = subjects.get_mut(observer.at()) else {
                continue;
            };
            let next = after
                .map(|(_, subject)| *subject)
                .find(|subject| !list.contains(subject));
            list.extend(next);
        }
    }
    let mut observers = vec![Vec::new(); count];
    for (list, observer) in subjects.iter().zip(indices(count)) {
        for subject in list {
            if let Some(observers) = observers.get_mut(subject.at()) {
                observers.push(observer);
            }
        }
    }
    (subjects, observers)
}

#[cfg(test)]
mod tests;
