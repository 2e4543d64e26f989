//! Contacts with the other members: heartbeats, acks, relays, lives and replay windows.
//!
//! A peer's life counts only once it is proven by an ack that echoes a fresh number of ours; from then on
//! each of its datagrams counts once.

mod met;
mod peer;

pub use met::Met;
pub(super) use met::kubelet_of;
pub(super) use peer::Peer;

use super::budget::{Budget, SECOND_MS};
use super::context::Context;
use super::own::Own;
use super::{Note, Output};
use crate::Millis;
use crate::roster::{CANDIDATES, Member, MemberId, MemberIndex, Roster};
use crate::wire::{Ack, Body, Datagram, Facts, Frame, Header, Heartbeat, Relay};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// An unanswered heartbeat is forgotten after this time: a later echo proves nothing fresh.
const FORGET_SENT_MS: u64 = 3_000;
/// A peer of unknown life is asked at most this often.
const CHALLENGE_EVERY_MS: u64 = 200;
/// Of what a peer makes this agent send, at most so many datagrams a second.
const RELAYS: u32 = 30;
const ROSTER_PARTS: u32 = 30;
/// Of what a peer sends, at most so many datagrams a second are acted on. In a round about a whole cell of 64
/// one peer sends some twenty. After a pause the socket's buffer may hold 277 of them.
const DATAGRAMS: u32 = 300;
/// It has the whole cell looked for at most so often: in each second, and in each ten seconds. Where all
/// members are listed within a second, each has a round of its own at first; then they share one every four
/// seconds and for each new challenge. In a small cell of which members come and go, that is too little.
const CELLS_A_SECOND: u32 = 4;
const CELLS_IN_TEN_SECONDS: u32 = 8;
const LEAST_SUSPECTS: u32 = 64;
const TEN_SECONDS_MS: u64 = 10_000;
/// At most so many signatures a second are found to be wrong; then no more are checked. That takes a tenth of
/// a core. How many are right follows from the rounds that this agent holds.
const WRONG_SIGNATURES: u32 = 2_000;
/// A peer whose life is not proven gets at most so many answers a second.
const ANSWERS_TO_UNPROVEN: u32 = 10;

/// All that is known of the other members from their own datagrams.
pub(super) struct Contacts {
    /// By position in the roster. At this agent's own place stands one that is never heard of.
    peers: Vec<Peer>,
    /// Heartbeats that wait for an ack, oldest first.
    sent: VecDeque<Sent>,
    /// Members that this life of the agent and those before it have seen alive, and those that their checks
    /// have found.
    remembered: Met,
    /// Wrong signatures of ballots.
    wrong_signatures: Budget,
}

/// A heartbeat under way.
#[derive(Clone, Copy)]
struct Sent {
    sequence: u64,
    at: Millis,
    to: MemberIndex,
    /// Where it was sent to; nothing if it went through a relay.
    address: Option<SocketAddr>,
}

/// What a datagram changed in what is known of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// It counted as silent before.
    pub(super) returned: bool,
    /// It says something else of its node or its view.
    pub(super) facts: bool,
}

/// What an ack proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// It came directly and not through a relay.
    pub(super) direct: bool,
    /// Nothing had proven the peer's life before.
    pub(super) met: bool,
    /// What the peer's former life said of others is void.
    pub(super) new_life: bool,
    /// It is reached at another address than before.
    pub(super) moved: bool,
    pub(super) change: Change,
}

impl Contacts {
    pub(super) fn new(cx: &Context, remembered: Met) -> Self {
        let mut contacts = Self {
            peers: Vec::new(),
            sent: VecDeque::new(),
            remembered,
            wrong_signatures: Budget::default(),
        };
        contacts.take_roster(cx, &Roster::none());
        contacts
    }

    /// Makes peers of the members of a new roster and forgets those who left.
    pub(super) fn take_roster(&mut self, cx: &Context, before: &Roster) {
        self.remembered.take_roster(cx.me(), before, cx.roster());
        let mut old: Vec<Option<Peer>> = std::mem::take(&mut self.peers).into_iter().map(Some).collect();
        let stays = |id: MemberId, member: &Member| {
            let index = before.position(id)?;
            before
                .member(index)
                .filter(|old| old.goes_on_as(member))
                .map(|_| index)
        };
        for member in cx.roster().members() {
            let mut known = stays(member.id, member)
                .and_then(|index| old.get_mut(index.at()))
                .and_then(Option::take);
            // What it had looked for was measured by another cell.
            if let Some(peer) = &mut known {
                peer.suspects = Budget::default();
                peer.found &= before.get(member.id).map(kubelet_of) == Some(kubelet_of(member));
            }
            // Whom a former life met under another key is a stranger, and so is a kubelet that is elsewhere.
            let Met { seen_alive, found } = &self.remembered;
            let new = || {
                let is_known = seen_alive.get(&member.id).is_some_and(|key| member.has_key(key));
                let kubelet = found.get(&member.id).map(String::as_str);
                Peer::new(
                    is_known,
                    is_known && kubelet == Some(kubelet_of(member)),
                    cx.now(),
                )
            };
            self.peers.push(known.unwrap_or_else(new));
        }
        self.sent.retain_mut(|sent| {
            let id = before.member(sent.to).map(|member| member.id);
            let to = id.and_then(|id| cx.roster().position(id));
            sent.to = to.unwrap_or(sent.to);
            to.is_some()
        });
    }

    pub(super) fn peer(&self, index: MemberIndex) -> Option<&Peer> {
        self.peers.get(index.at())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberIndex, &Peer)> {
        (0..).map(MemberIndex).zip(&self.peers)
    }

    /// The members that have proven their life to this agent since its machine booted.
    pub(super) fn met(&self) -> impl Iterator<Item = MemberIndex> {
        let met = self.iter().filter(|(_, peer)| peer.seen_alive);
        met.map(|(index, _)| index)
    }

    /// After a pause, acks of the time before it prove nothing.
    pub(super) fn forget_sent(&mut self) {
        self.sent.clear();
    }

    pub(super) fn of(&self, cx: &Context, member: MemberId) -> Option<&Peer> {
        self.peer(cx.roster().position(member)?)
    }

    fn of_mut(&mut self, cx: &Context, member: MemberId) -> Option<&mut Peer> {
        self.peers.get_mut(cx.roster().position(member)?.at())
    }

    /// A voter's check found the kubelet with its pinned certificate.
    pub(super) fn kubelet_proved(&mut self, cx: &Context, member: MemberId) {
        if let Some(peer) = self.of_mut(cx, member) {
            peer.kubelet_proved = Some(cx.now());
        }
    }

    /// A check reached it.
    pub(super) fn found(&mut self, cx: &mut Context, member: MemberId) {
        let peer = self.of_mut(cx, member);
        let is_news = peer.is_some_and(|peer| !std::mem::replace(&mut peer.found, true));
        // What is remembered is where the roster says that it is.
        let is_home = cx.moved_to(member).is_none();
        if let Some(member) = cx.roster().get(member).filter(|_| is_news && is_home) {
            self.remembered.note_found(member);
            cx.put(Output::Met);
        }
    }

    /// Checks do not reach it, though its agent answers.
    pub(super) fn not_found(&mut self, cx: &mut Context, member: MemberId) {
        if let Some(peer) = self.of_mut(cx, member) {
            peer.found = false;
        }
        if self.remembered.found.remove(&member).is_some() {
            cx.put(Output::Met);
        }
    }

    /// Whom this agent has met, to be remembered across restarts.
    pub(super) fn remembered(&self) -> &Met {
        &self.remembered
    }

    /// Whether the datagram belongs to the sender's proven life and was not seen before; if so, it is a
    /// contact. A sender of another life is asked for proof. `source` is where it came from, if nobody
    /// relayed it.
    pub(super) fn take(
        &mut self,
        cx: &mut Context,
        own: &Own,
        from: MemberIndex,
        header: &Header,
        source: Option<SocketAddr>,
    ) -> Option<Change> {
        let (now, period) = (cx.now(), cx.period_ms());
        let elsewhere = source.filter(|source| Some(*source) != cx.address(from));
        let peer = self.peers.get_mut(from.at())?;
        if let Some(life) = peer
            .life
            .as_mut()
            .filter(|life| life.incarnation == header.incarnation)
        {
            if life.window.accept(header.sequence) {
                let returned = !peer.is_fresh(now, period);
                peer.contact = Some(now);
                if source.is_some() {
                    peer.heard_at = elsewhere;
                }
                return Some(Change {
                    returned,
                    facts: false,
                });
            }
        } else if peer
            .challenged
            .is_none_or(|at| now.since(at) >= CHALLENGE_EVERY_MS)
        {
            peer.challenged = Some(now);
            // A machine may have another address after a boot. While its present life is heard, it is not
            // looked for elsewhere. A vote on it takes longer than a period, and finds it where it is.
            if elsewhere.is_some() && peer.is_quiet(now, period) {
                peer.heard_at = elsewhere;
            }
            self.send_heartbeat(cx, own, header.from, None);
        }
        cx.put(Output::Refused("replay"));
        None
    }

    /// What a heartbeat or an ack says of its sender's node. Returns whether that is news.
    pub(super) fn learn(
        &mut self,
        cx: &mut Context,
        from: MemberIndex,
        (facts, doubt, cloud_age): (Facts, bool, u16),
        roster: u64,
    ) -> bool {
        let now = cx.now();
        let Some(peer) = self.peers.get_mut(from.at()) else {
            return false;
        };
        if roster > cx.roster().reference().version
            && std::mem::replace(&mut peer.newer_roster, roster) != roster
        {
            cx.note(Note::NewerRoster(roster));
        }
        let before = (peer.facts, peer.doubt);
        peer.learn(now, facts, doubt, cloud_age);
        before != (facts, doubt)
    }

    /// It doubts its own view, or ceases to. Returns whether that is news.
    pub(super) fn learn_doubt(&mut self, from: MemberIndex, doubt: bool) -> bool {
        let peer = self.peers.get_mut(from.at());
        peer.is_some_and(|peer| std::mem::replace(&mut peer.doubt, doubt) != doubt)
    }

    /// Whether a datagram is of a life that ended, or was seen before: whoever recorded it gets no answer.
    /// That costs less than the check of its proof, and comes before it.
    pub(super) fn is_replay(&self, from: MemberIndex, header: &Header) -> bool {
        self.peer(from).is_some_and(|peer| {
            let of_life = |life: &&peer::Life| life.incarnation == header.incarnation;
            let life = peer.life.as_ref().filter(of_life);
            peer.former.contains(&header.incarnation)
                || life.is_some_and(|life| !life.window.is_new(header.sequence))
        })
    }

    /// Whether one more signature may be checked.
    pub(super) fn allows_signature(&self, now: Millis) -> bool {
        self.wrong_signatures.is_left(now, WRONG_SIGNATURES)
    }

    /// A signature was checked with so many keys, and was made with none of them.
    pub(super) fn signatures_were_wrong(&mut self, now: Millis, keys: usize) {
        for _ in 0..keys {
            self.wrong_signatures.allows(now, WRONG_SIGNATURES);
        }
    }

    /// Whether one more heartbeat of a peer is answered whose life is not proven, or whose words are old.
    pub(super) fn allows_answer(&mut self, from: MemberIndex, now: Millis) -> bool {
        let peer = self.peers.get_mut(from.at());
        peer.is_some_and(|peer| peer.unproven.allows(now, ANSWERS_TO_UNPROVEN))
    }

    /// Whether one more datagram of a peer's present life, which was not seen before, is acted on. Nobody but
    /// the peer can use that up.
    pub(super) fn allows_datagram(&mut self, from: MemberIndex, now: Millis) -> bool {
        let peer = self.peers.get_mut(from.at());
        peer.is_some_and(|peer| peer.datagrams.allows(now, DATAGRAMS))
    }

    /// Whether so many more suspects are looked for because a peer asks.
    pub(super) fn allows_suspects(&mut self, from: MemberIndex, now: Millis, suspects: usize) -> bool {
        let [members, suspects] =
            [self.peers.len(), suspects].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let most = |cells: u32| members.saturating_mul(cells).max(LEAST_SUSPECTS);
        let (at_once, in_all) = (most(CELLS_A_SECOND), most(CELLS_IN_TEN_SECONDS));
        let peer = self.peers.get_mut(from.at());
        peer.is_some_and(|peer| {
            peer.suspects_at_once.takes(now, suspects, (at_once, SECOND_MS))
                && peer.suspects.takes(now, suspects, (in_all, TEN_SECONDS_MS))
        })
    }

    /// An ack counts once, for a heartbeat of this life that was sent to its sender lately.
    pub(super) fn take_ack(
        &mut self,
        cx: &mut Context,
        from: MemberIndex,
        (header, source): (&Header, SocketAddr),
        ack: &Ack,
    ) -> Option<Proof> {
        let Some(sent) = self.take_sent(cx, from, ack) else {
            cx.put(Output::Refused("stale-ack"));
            return None;
        };
        let (now, period) = (cx.now(), cx.period_ms());
        let peer = self.peers.get_mut(from.at())?;
        // An answer that was under way when the present life had proven itself is one of a former life.
        let is_late = peer
            .life
            .as_ref()
            .is_some_and(|life| sent.sequence < life.proven_by);
        if is_late && peer.incarnation() != Some(header.incarnation) {
            cx.put(Output::Refused("stale-ack"));
            return None;
        }
        let returned = !peer.is_fresh(now, period) || !peer.seen_alive;
        let new_life = peer.begin_life(header.incarnation, sent.sequence);
        if let Some(life) = peer.life.as_mut() {
            life.window.accept(header.sequence);
        }
        (peer.contact, peer.proved) = (Some(now), Some(now));
        let direct = sent.address.is_some();
        let mut moved = false;
        if let Some(address) = sent.address {
            peer.answered = Some(now);
            peer.asked = None;
            peer.measured(now.since(sent.at));
            // The roster's address wins as long as there are answers from there. Any other one has to answer
            // itself: who only passes on what it hears shall not stand between the two.
            let published = cx.published_address(from) == Some(address);
            if published {
                peer.answered_at_home = Some(now);
            }
            if published || source == address && !peer.answers_at_home(now, period) {
                moved = cx.reach_at(from, address);
            }
        }
        let met = !std::mem::replace(&mut peer.seen_alive, true);
        if moved {
            // Whether checks reach it there is not known.
            self.not_found(cx, header.from);
        }
        if let Some(member) = cx.roster().member(from).filter(|_| met) {
            self.remembered.note_seen_alive(member);
            cx.put(Output::Met);
        }
        let said = (ack.facts, ack.doubt > 0, ack.cloud_age);
        let facts = self.learn(cx, from, said, ack.roster);
        Some(Proof {
            direct,
            met,
            new_life,
            moved,
            change: Change { returned, facts },
        })
    }

    /// Whoever hears nobody is answered by nobody, and must forget as well.
    fn forget_unanswered(&mut self, cx: &Context) {
        let is_old = |sent: &Sent| cx.now().since(sent.at) >= FORGET_SENT_MS;
        while self.sent.front().is_some_and(is_old) {
            self.sent.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn unanswered(&self) -> usize {
        self.sent.len()
    }

    fn take_sent(&mut self, cx: &Context, from: MemberIndex, ack: &Ack) -> Option<Sent> {
        self.forget_unanswered(cx);
        let place = self
            .sent
            .binary_search_by_key(&ack.echo_sequence, |sent| sent.sequence);
        let place = place.ok().filter(|_| ack.echo_incarnation == cx.incarnation())?;
        self.sent.get(place).filter(|sent| sent.to == from)?;
        self.sent.remove(place)
    }

    /// Answers a heartbeat, even before it is known to be new: by the answer the asker learns this agent's
    /// present life.
    pub(super) fn answer(
        &self,
        cx: &mut Context,
        own: &Own,
        (from, header): (MemberIndex, &Header),
        (source, is_new): (SocketAddr, bool),
        heartbeat: &Heartbeat,
    ) {
        // One that counts is answered where it came from, and so is the first of a life that is not proven;
        // the others where the peer is reached.
        let asked_for_proof = self
            .peer(from)
            .is_some_and(|peer| peer.challenged == Some(cx.now()));
        let source = Some(source).filter(|_| is_new || asked_for_proof);
        let ack = Body::Ack(Ack {
            echo_incarnation: header.incarnation,
            echo_sequence: header.sequence,
            roster: cx.roster().reference().version,
            doubt: u8::from(own.doubts()),
            facts: own.facts(),
            cloud_age: own.cloud_age(cx.now()),
        });
        let direct = heartbeat.via == MemberId::NOBODY || heartbeat.via == cx.me();
        let Some((_, bytes)) = cx.seal(header.from, &ack) else {
            return;
        };
        if let Some(source) = source.filter(|source| direct && Some(*source) != cx.address(from)) {
            cx.send_to(header.from, source, bytes.clone());
            // Where it has several addresses, answers may pass on the way to the known one alone.
            let (now, period) = (cx.now(), cx.period_ms());
            let at_home = self
                .peer(from)
                .is_some_and(|peer| peer.answers_at_home(now, period));
            if is_new && !at_home {
                return;
            }
        }
        dispatch(cx, header.from, bytes, Some(heartbeat.via).filter(|_| !direct));
    }

    /// Where else to look for a peer: where it was last heard, if it does not answer. Its address may have
    /// changed while the API server cannot say so (hazard 53). While it is reached elsewhere, it is asked at
    /// the roster's address, too.
    fn elsewhere(&self, cx: &Context, index: MemberIndex) -> [Option<SocketAddr>; 2] {
        let heard = self.peer(index).and_then(|peer| {
            let silent = peer.is_silent_when_asked(cx.now(), cx.period_ms());
            peer.heard_at.filter(|_| silent)
        });
        let address = cx.address(index);
        [cx.published_address(index), heard].map(|other| other.filter(|_| other != address))
    }

    /// Sends a heartbeat through a relay, or directly, and then also to where else the peer may be.
    pub(super) fn send_heartbeat(
        &mut self,
        cx: &mut Context,
        own: &Own,
        to: MemberId,
        via: Option<MemberId>,
    ) {
        let Some(index) = cx.roster().position(to) else {
            return;
        };
        let heartbeat = Body::Heartbeat(Heartbeat {
            roster: cx.roster().reference().version,
            doubt: u8::from(own.doubts()),
            facts: own.facts(),
            cloud_age: own.cloud_age(cx.now()),
            via: via.unwrap_or(MemberId::NOBODY),
        });
        let (reached, others) = if via.is_none() {
            (cx.address(index), self.elsewhere(cx, index))
        } else {
            (None, [None; 2])
        };
        let ways = std::iter::once(reached).chain(others.into_iter().flatten().map(Some));
        if let Some(peer) = self.peers.get_mut(index.at()).filter(|_| via.is_none()) {
            peer.asked.get_or_insert(cx.now());
        }
        self.forget_unanswered(cx);
        for address in ways {
            let Some((sequence, bytes)) = cx.seal(to, &heartbeat) else {
                return;
            };
            self.sent.push_back(Sent {
                sequence,
                at: cx.now(),
                to: index,
                address,
            });
            match address {
                Some(address) => cx.send_to(to, address, bytes),
                None => dispatch(cx, to, bytes, via),
            }
        }
    }

    /// Whether a part of a roster may be sent to a peer now.
    pub(super) fn allows_roster_part(&mut self, index: MemberIndex, now: Millis) -> bool {
        let peer = self.peers.get_mut(index.at());
        peer.is_some_and(|peer| peer.roster_parts.allows(now, ROSTER_PARTS))
    }

    /// Sends heartbeats at once when the facts about this agent's node change, so that observers, reporters
    /// and candidates for reporting know of a cut cloud link within milliseconds and not after a period.
    pub(super) fn tell_facts(&mut self, cx: &mut Context, own: &Own, reporters: &[MemberIndex]) {
        let Some(me) = cx.place() else { return };
        let mut hearers = cx.roster().observers_of(me).to_vec();
        let candidates = cx.roster().rendezvous().iter().take(CANDIDATES);
        hearers.extend(reporters.iter().chain(candidates).filter(|index| **index != me));
        hearers.sort_unstable();
        hearers.dedup();
        for hearer in hearers {
            if let Some(id) = cx.roster().member(hearer).map(|member| member.id) {
                self.send_heartbeat(cx, own, id, None);
            }
        }
    }

    /// Passes on what a peer wrote to somebody else, who can check it.
    pub(super) fn pass_on(&mut self, cx: &mut Context, from: MemberIndex, header: &Header, relay: &Relay) {
        let now = cx.now();
        let allowed = self
            .peers
            .get_mut(from.at())
            .is_some_and(|peer| peer.relays.allows(now, RELAYS));
        let own_words = Frame::parse(&relay.inner).is_ok_and(|frame| frame.from() == header.from);
        if allowed && own_words && relay.target != cx.me() && relay.target != header.from {
            let bytes = Datagram::from(relay.inner.as_slice());
            let target = cx.roster().position(relay.target);
            let heard = target.and_then(|target| self.peer(target)?.heard_at);
            if let Some(address) = heard {
                cx.send_to(relay.target, address, bytes.clone());
            }
            cx.send_bytes(relay.target, bytes);
        } else {
            cx.put(Output::Refused("relay"));
        }
    }
}

/// Sends a datagram, directly or through a relay.
fn dispatch(cx: &mut Context, to: MemberId, bytes: Datagram, via: Option<MemberId>) {
    let Some(via) = via else {
        return cx.send_bytes(to, bytes);
    };
    let relay = Relay {
        target: to,
        inner: bytes.to_vec(),
    };
    cx.send(via, &Body::Relay(relay));
}
