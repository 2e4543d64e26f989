//! What all parts of an engine share: who it is, the time, the roster, random draws, and what is to be done.

use super::{Config, Identity, Note, Output};
use crate::Millis;
use crate::keys::{self, Mac, Signer, Verifier};
use crate::roster::{Contact, Member, MemberId, MemberIndex, Roster, RosterKeys};
use crate::wire::{self, Body, Challenge, Datagram, Frame, Header, Message, WireError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Of a part that waits for no time.
pub(super) const NEVER: Millis = Millis(u64::MAX);

const LINKED_MS: u64 = 30_000;

/// An agent of another cell.
#[derive(Clone)]
pub(super) struct Stranger {
    pub(super) contact: Contact,
    /// The key of this agent that the secret is made of.
    pub(super) own_key: [u8; 32],
    shared: Arc<dyn Mac>,
}

/// Another pair of keys than the usual one: whether this agent's key is its other one, and the member's the
/// one that takes the place of its present one.
type Pair = (MemberIndex, bool, bool);

/// What the parts of an engine share.
pub(super) struct Context {
    config: Config,
    now: Millis,
    me: MemberId,
    uid: String,
    key: Arc<dyn Signer>,
    /// Its next key, or its former one: as long as others may use it, what they prove with it counts.
    other_key: Option<Arc<dyn Signer>>,
    verifier: Arc<dyn Verifier>,
    incarnation: u64,
    /// For how long the machine had been up at the start, and when that was.
    uptime: (u64, Millis),
    sequence: u64,
    seed: [u8; 32],
    nonces: u64,
    draws: SplitMix64,
    /// What the controller wants ballots to sign.
    challenge: Challenge,
    roster: Arc<Roster>,
    /// Who may sign rosters.
    roster_keys: RosterKeys,
    /// By position in the roster: where the member was last reached, if that is not the address in the roster
    /// (hazard 53).
    moved: Vec<Option<SocketAddr>>,
    /// By position in the roster: what this agent shares with the member, once it was needed.
    shared: Vec<Option<Box<dyn Mac>>>,
    /// The same of other pairs of their keys, while one of them changes its key.
    spare: BTreeMap<Pair, Box<dyn Mac>>,
    /// By which of these pairs a member proved itself last, if not by the usual one: what is said to it goes
    /// by the same, because it may not know of another one yet, or any more.
    proved: BTreeMap<MemberIndex, Pair>,
    /// Position of this agent's node; `None` if the roster does not hold it.
    place: Option<MemberIndex>,
    /// The minor version of the format that this agent speaks.
    version: u8,
    /// Datagrams are put together here.
    buffer: Vec<u8>,
    out: Vec<Output>,
}

impl Context {
    pub(super) fn new(
        config: Config,
        identity: Identity,
        verifier: Arc<dyn Verifier>,
        roster: Arc<Roster>,
        now: Millis,
    ) -> Self {
        let me = MemberId::of(&identity.uid);
        let draws: [u8; 8] = keys::prefix(&keys::hash("evenkeel draw", &[&identity.seed]));
        Self {
            config,
            now,
            me,
            challenge: Challenge::NONE,
            place: roster.position(me),
            uid: identity.uid,
            key: identity.key,
            other_key: None,
            spare: BTreeMap::new(),
            proved: BTreeMap::new(),
            verifier,
            incarnation: identity.incarnation,
            uptime: (identity.uptime_ms, now),
            sequence: identity.sequence_base,
            seed: identity.seed,
            nonces: 0,
            draws: SplitMix64(u64::from_be_bytes(draws)),
            shared: roster.members().iter().map(|_| None).collect(),
            moved: vec![None; roster.len()],
            roster_keys: RosterKeys::default(),
            roster,
            version: wire::MINOR,
            buffer: Vec::new(),
            out: Vec::new(),
        }
    }

    #[cfg(any(test, feature = "fixture"))]
    pub(super) fn speak_version(&mut self, version: u8) {
        self.version = version;
    }

    /// Whether the version that this agent speaks has [`wire::Voted`].
    pub(super) fn knows_voted(&self) -> bool {
        self.version >= wire::VOTED_SINCE
    }

    /// What the version that this agent speaks appends to a request. The present one appends nothing.
    pub(super) fn later_fields(&self) -> Vec<u8> {
        if self.version > wire::MINOR {
            b"later".into()
        } else {
            Vec::new()
        }
    }

    pub(super) fn trust(&mut self, keys: RosterKeys) {
        self.roster_keys = keys;
    }

    pub(super) fn roster_keys(&self) -> &RosterKeys {
        &self.roster_keys
    }

    pub(super) fn verify_with(&mut self, verifier: Arc<dyn Verifier>) {
        self.verifier = verifier;
    }

    /// The time never runs backwards: if the caller's does, it stands still.
    pub(super) fn advance(&mut self, now: Millis) {
        self.now = now.max(self.now);
    }

    /// Exchanges the list of what is to be done for the caller's.
    pub(super) fn swap_outputs(&mut self, out: &mut Vec<Output>) {
        std::mem::swap(&mut self.out, out);
    }

    /// A newer roster is in force from now on. Returns the one before, or `None` if this one is not newer.
    pub(super) fn take_roster(&mut self, roster: Arc<Roster>) -> Option<Arc<Roster>> {
        if roster.reference().version <= self.roster.reference().version {
            return None;
        }
        self.place = roster.position(self.me);
        let before = std::mem::replace(&mut self.roster, roster);
        let mut old = std::mem::take(&mut self.shared);
        let keep = |member: &Member| {
            let index = before.position(member.id)?;
            let same_key = before.member(index)?.key == member.key;
            old.get_mut(index.at()).filter(|_| same_key)?.take()
        };
        self.shared = self.roster.members().iter().map(keep).collect();
        self.spare.clear();
        self.proved.clear();
        let moved = std::mem::take(&mut self.moved);
        let stays = |member: &Member| {
            let index = before.position(member.id)?;
            // With an address in the roster that is new, it is looked for there first.
            let same = before.member(index)?.address == member.address;
            moved.get(index.at()).copied().flatten().filter(|_| same)
        };
        self.moved = self.roster.members().iter().map(stays).collect();
        Some(before)
    }

    pub(super) fn challenge(&self) -> Challenge {
        self.challenge
    }

    /// Returns whether it is another one than before.
    pub(super) fn take_challenge(&mut self, challenge: Challenge) -> bool {
        std::mem::replace(&mut self.challenge, challenge) != challenge
    }

    pub(super) fn now(&self) -> Millis {
        self.now
    }

    /// The heartbeat period T.
    pub(super) fn period_ms(&self) -> u64 {
        self.config.period_ms
    }

    /// For so long a member counts as linked after its last contact with the API server, and after the last
    /// word that it does; with long periods, for three of them.
    pub(super) fn linked_ms(&self) -> u64 {
        LINKED_MS.max(3 * self.period_ms())
    }

    pub(super) fn cloud_down_after_ms(&self) -> u64 {
        self.config.cloud_down_after_ms
    }

    pub(super) fn me(&self) -> MemberId {
        self.me
    }

    /// This agent proves what it says with `key` from now on, and takes what others prove by `other`, too.
    pub(super) fn take_keys(&mut self, key: Arc<dyn Signer>, other: Option<Arc<dyn Signer>>) {
        if self.key.public() != key.public() {
            self.shared.fill_with(|| None);
        }
        self.key = key;
        self.accept(other);
    }

    /// What others prove by this key of the agent counts, too.
    pub(super) fn accept(&mut self, other: Option<Arc<dyn Signer>>) {
        self.spare.clear();
        self.proved.clear();
        self.other_key = other;
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) fn place(&self) -> Option<MemberIndex> {
        self.place
    }

    /// Whether the roster holds this agent's node, without a vote.
    pub(super) fn is_learner(&self) -> bool {
        self.place.is_some() && !self.roster.is_voter(self.me)
    }

    pub(super) fn is_me(&self, index: MemberIndex) -> bool {
        self.place == Some(index)
    }

    /// For how many seconds the machine has been up, saturating.
    pub(super) fn uptime_s(&self) -> u16 {
        let (at_start, start) = self.uptime;
        let uptime = at_start.saturating_add(self.now.since(start)) / 1_000;
        u16::try_from(uptime).unwrap_or(u16::MAX)
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Name of a member's node.
    pub(super) fn name(&self, id: MemberId) -> String {
        let member = self.roster.get(id);
        member.map_or_else(|| format!("{id:?}"), |member| member.name.clone())
    }

    /// A number below `bound` (0 for 0), from the seed: the same seed and inputs give the same run. It is for
    /// jitter and choices, and may be guessed.
    pub(super) fn draw(&mut self, bound: u64) -> u64 {
        self.draws.next().checked_rem(bound).unwrap_or_default()
    }

    /// A number that nobody guesses who does not know the secret seed.
    pub(super) fn nonce(&mut self) -> [u8; 16] {
        self.nonces += 1;
        keys::prefix(&keys::hash(
            "evenkeel nonce",
            &[&self.seed, &self.nonces.to_be_bytes()],
        ))
    }

    /// Reads the frame of a datagram for this agent. Refuses it with a reason for metrics.
    pub(super) fn parse<'a>(&self, bytes: &'a [u8]) -> Result<Frame<'a>, &'static str> {
        let frame = Frame::parse(bytes).map_err(wire::WireError::reason)?;
        if frame.from() == self.me {
            Err("own")
        } else if frame.to() != self.me {
            Err("addressee")
        } else {
            Ok(frame)
        }
    }

    /// Reads what a member wrote.
    pub(super) fn open(&mut self, frame: &Frame<'_>, from: MemberIndex) -> Result<Message, &'static str> {
        let member = self.roster.member(from).ok_or("stranger")?;
        let shared = self.shared.get_mut(from.at()).ok_or("stranger")?;
        let shared = shared.get_or_insert_with(|| self.key.shared_with(&member.key));
        let opened = frame.open(&mut self.buffer, (&member.key, &*self.verifier), &**shared);
        let opened = match (opened, &member.next_key) {
            // No key of this agent has a part in a signature.
            (Err(WireError::Signature), Some(next)) => {
                frame.open(&mut self.buffer, (next, &*self.verifier), &**shared)
            }
            (Err(WireError::Code), next) if next.is_some() || self.other_key.is_some() => {
                self.open_by_other_keys(frame, from)
            }
            (Ok(message), _) if frame.is_signed() => Ok(message),
            (Ok(message), _) => {
                self.proved.remove(&from);
                Ok(message)
            }
            (opened, _) => opened,
        };
        opened.map_err(WireError::reason)
    }

    /// While one of both changes its key, each takes what is proven with either key of the other one: they
    /// do not hear of it at the same time.
    fn open_by_other_keys(&mut self, frame: &Frame<'_>, from: MemberIndex) -> Result<Message, WireError> {
        let Some(member) = self.roster.member(from) else {
            return Err(WireError::Code);
        };
        for (is_other, is_next) in [(false, true), (true, false), (true, true)] {
            let own = if is_other {
                self.other_key.as_ref()
            } else {
                Some(&self.key)
            };
            let theirs = if is_next {
                member.next_key.as_ref()
            } else {
                Some(&member.key)
            };
            let (Some(own), Some(theirs)) = (own, theirs) else {
                continue;
            };
            let pair = (from, is_other, is_next);
            let shared = self.spare.entry(pair).or_insert_with(|| own.shared_with(theirs));
            match frame.open(&mut self.buffer, (theirs, &*self.verifier), &**shared) {
                Err(WireError::Code) => {}
                opened => {
                    self.proved.insert(from, pair);
                    return opened;
                }
            }
        }
        Err(WireError::Code)
    }

    /// An agent of another cell, with what this agent shares with it.
    pub(super) fn stranger(&self, contact: Contact) -> Stranger {
        Self::stranger_by(&*self.key, contact)
    }

    fn stranger_by(key: &dyn Signer, contact: Contact) -> Stranger {
        Stranger {
            own_key: *key.public().as_bytes(),
            shared: key.shared_with(&contact.key).into(),
            contact,
        }
    }

    /// Reads a datagram of an agent of another cell that is not known yet, by whichever key of this agent it
    /// knows.
    pub(super) fn open_of_new(
        &mut self,
        frame: &Frame<'_>,
        contact: &Contact,
    ) -> Result<(Stranger, Message), &'static str> {
        let keys = [Some(self.key.clone()), self.other_key.clone()];
        let mut refused = "code";
        for key in keys.into_iter().flatten() {
            let stranger = Self::stranger_by(&*key, contact.clone());
            match self.open_from(frame, &stranger) {
                Ok(message) => return Ok((stranger, message)),
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    }

    /// Reads a datagram that an agent of another cell wrote for this one.
    pub(super) fn open_from(
        &mut self,
        frame: &Frame<'_>,
        stranger: &Stranger,
    ) -> Result<Message, &'static str> {
        frame
            .open(
                &mut self.buffer,
                (&stranger.contact.key, &*self.verifier),
                &*stranger.shared,
            )
            .map_err(wire::WireError::reason)
    }

    /// Sends a message to an agent of another cell.
    pub(super) fn send_outside(&mut self, stranger: &Stranger, body: &Body) {
        let Contact { id, address, .. } = stranger.contact;
        let (_, bytes) = self.seal_with(id, &*stranger.shared, body);
        self.send_to(id, address, bytes);
    }

    /// Encodes a message for a member; returns its sequence as well, and nothing for who is no member.
    pub(super) fn seal(&mut self, to: MemberId, body: &Body) -> Option<(u64, Datagram)> {
        let index = self.roster.position(to)?;
        if let Some(pair) = self.proved.get(&index).copied()
            && let Some(shared) = self.spare.remove(&pair)
        {
            let sealed = self.seal_with(to, &*shared, body);
            self.spare.insert(pair, shared);
            return Some(sealed);
        }
        let key = &self.roster.member(index)?.key;
        let shared = self.shared.get_mut(index.at())?.take();
        let shared = shared.unwrap_or_else(|| self.key.shared_with(key));
        let sealed = self.seal_with(to, &*shared, body);
        *self.shared.get_mut(index.at())? = Some(shared);
        Some(sealed)
    }

    fn seal_with(&mut self, to: MemberId, shared: &dyn Mac, body: &Body) -> (u64, Datagram) {
        self.sequence += 1;
        let header = Header {
            from: self.me,
            to,
            incarnation: self.incarnation,
            sequence: self.sequence,
        };
        #[cfg(any(test, feature = "fixture"))]
        if self.version != wire::MINOR {
            let bytes = wire::seal_as_version(self.version, &header, body, &*self.key, shared);
            return (self.sequence, Datagram::from(bytes.as_slice()));
        }
        let bytes = wire::seal(&mut self.buffer, &header, body, &*self.key, shared);
        (self.sequence, Datagram::from(bytes))
    }

    /// Sends a message to a member.
    pub(super) fn send(&mut self, to: MemberId, body: &Body) {
        if let Some((_, bytes)) = self.seal(to, body) {
            self.send_bytes(to, bytes);
        }
    }

    pub(super) fn send_bytes(&mut self, to: MemberId, bytes: Datagram) {
        if let Some(address) = self.roster.position(to).and_then(|index| self.address(index)) {
            self.send_to(to, address, bytes);
        }
    }

    pub(super) fn send_to(&mut self, to: MemberId, address: SocketAddr, bytes: Datagram) {
        self.out.push(Output::Send { to, address, bytes });
    }

    /// Where a member is reached: at the address in the roster, as long as it answers there.
    pub(super) fn address(&self, index: MemberIndex) -> Option<SocketAddr> {
        let moved = self.moved.get(index.at()).copied().flatten();
        moved.or_else(|| self.published_address(index))
    }

    pub(super) fn published_address(&self, index: MemberIndex) -> Option<SocketAddr> {
        self.roster.member(index).map(|member| member.address)
    }

    /// Where a member is reached, if that is not where the roster says.
    pub(super) fn moved_to(&self, member: MemberId) -> Option<SocketAddr> {
        let index = self.roster.position(member)?;
        let published = self.published_address(index);
        self.address(index).filter(|address| Some(*address) != published)
    }

    /// A member is reached at this address from now on. Returns whether it was another one before.
    pub(super) fn reach_at(&mut self, index: MemberIndex, address: SocketAddr) -> bool {
        let published = self.published_address(index);
        let moved = Some(address).filter(|address| Some(*address) != published);
        let known = self.moved.get_mut(index.at());
        known.is_some_and(|known| std::mem::replace(known, moved) != moved)
    }

    pub(super) fn put(&mut self, output: Output) {
        self.out.push(output);
    }

    /// What is to be done so far, to be put back by who takes it.
    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn outputs(&self) -> &[Output] {
        &self.out
    }

    pub(super) fn note(&mut self, note: Note) {
        self.out.push(Output::Note(note));
    }
}

/// The generator of Steele, Lea and Flood (OOPSLA 2014): one addition and one mix per number.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
