//! Datagrams in and out: heartbeats, acks, relays. A peer's life counts only once it is proven by an ack that
//! echoes a fresh number of ours; from then on each of its datagrams counts once.

use super::peer::{Life, Window};
use super::{Engine, Note, Output};
use crate::Millis;
use crate::roster::MemberId;
use crate::wire::{Ack, Body, EdgeState, Facts, Frame, Header, Heartbeat, Message, Relay};

/// An unanswered heartbeat is forgotten after this time: a later echo proves nothing fresh.
pub(super) const FORGET_SENT_MS: u64 = 3_000;
/// A peer of unknown life is asked at most this often.
const CHALLENGE_EVERY_MS: u64 = 200;

/// A heartbeat under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) to: MemberId,
    pub(super) at: Millis,
    pub(super) relayed: bool,
}

impl Engine {
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        match self.open(bytes) {
            Ok(message) => self.accept(message, bytes),
            Err(reason) => self.out.push(Output::Refused(reason)),
        }
    }

    fn open(&self, bytes: &[u8]) -> Result<Message, &'static str> {
        let frame = Frame::parse(bytes).map_err(crate::wire::WireError::reason)?;
        if frame.from() == self.me {
            return Err("own");
        }
        let member = self.roster.get(frame.from()).ok_or("stranger")?;
        let message = frame
            .open_with(&member.key, &*self.verifier)
            .map_err(crate::wire::WireError::reason)?;
        if message.header.to != self.me {
            return Err("addressee");
        }
        Ok(message)
    }

    fn accept(&mut self, message: Message, bytes: &[u8]) {
        let header = message.header;
        if let Body::Ack(ack) = &message.body {
            return self.take_ack(header, ack);
        }
        if let Body::Heartbeat(heartbeat) = &message.body {
            // Answered even before it is known to be new: by the answer the asker learns this agent's present
            // life.
            self.answer(header, heartbeat);
        }
        if !self.is_new(header) {
            self.out.push(Output::Refused("replay"));
            return;
        }
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(&header.from) {
            peer.contact = Some(now);
        }
        match message.body {
            Body::Heartbeat(body) => self.learn(header.from, body.facts, body.doubt, body.roster),
            Body::Relay(relay) => self.pass_on(header.from, relay),
            Body::Edges(edges) => self.take_edges(header.from, &edges),
            Body::Confirm(request) => self.take_request(header.from, &request),
            Body::Ballot(ballot) => self.take_ballot(header.from, ballot, bytes),
            Body::Ack(_) => {}
        }
    }

    /// Whether the datagram belongs to the sender's proven life and was not seen before. A sender of another
    /// life is asked for proof.
    fn is_new(&mut self, header: Header) -> bool {
        let Some(peer) = self.peers.get_mut(&header.from) else {
            return false;
        };
        if let Some(life) = peer
            .life
            .as_mut()
            .filter(|life| life.incarnation == header.incarnation)
        {
            return life.window.accept(header.sequence);
        }
        if peer
            .challenged
            .is_none_or(|at| self.now.since(at) >= CHALLENGE_EVERY_MS)
        {
            peer.challenged = Some(self.now);
            self.send_heartbeat(header.from, None);
        }
        false
    }

    fn take_ack(&mut self, header: Header, ack: &Ack) {
        let fresh = self
            .sent
            .get(&ack.echo_sequence)
            .copied()
            .filter(|sent| sent.to == header.from);
        let Some(sent) = fresh.filter(|_| ack.echo_incarnation == self.identity.incarnation) else {
            self.out.push(Output::Refused("stale-ack"));
            return;
        };
        self.sent.remove(&ack.echo_sequence);
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&header.from) else {
            return;
        };
        if peer
            .life
            .as_ref()
            .is_none_or(|life| life.incarnation != header.incarnation)
        {
            peer.life = Some(Life {
                incarnation: header.incarnation,
                window: Window::default(),
            });
            peer.reported = None;
        }
        if let Some(life) = peer.life.as_mut() {
            life.window.accept(header.sequence);
        }
        (peer.contact, peer.proved) = (Some(now), Some(now));
        if !sent.relayed {
            peer.answered = Some(now);
            peer.measured(now.since(sent.at));
        }
        if !std::mem::replace(&mut peer.seen_alive, true) {
            self.out.push(Output::SeenAlive(header.from));
        }
        self.learn(header.from, ack.facts, ack.doubt, ack.roster);
        if !sent.relayed {
            self.conclude(header.from, EdgeState::Up);
        }
        self.voter_heard(header.from);
        self.reporter_heard(header.from);
    }

    fn answer(&mut self, header: Header, heartbeat: &Heartbeat) {
        let ack = Ack {
            echo_incarnation: header.incarnation,
            echo_sequence: header.sequence,
            roster: self.roster.reference(),
            doubt: u8::from(self.doubting),
            facts: self.facts,
            cloud_age: self.cloud_age(),
        };
        let (_, bytes) = self.seal(header.from, Body::Ack(ack));
        if heartbeat.via == MemberId::NOBODY || heartbeat.via == self.me {
            self.send_bytes(header.from, bytes);
        } else {
            self.send(
                heartbeat.via,
                Body::Relay(Relay {
                    target: header.from,
                    inner: bytes,
                }),
            );
        }
    }

    /// Sends a heartbeat, directly or through a relay.
    pub(super) fn send_heartbeat(&mut self, to: MemberId, via: Option<MemberId>) {
        let heartbeat = Heartbeat {
            roster: self.roster.reference(),
            doubt: u8::from(self.doubting),
            facts: self.facts,
            cloud_age: self.cloud_age(),
            via: via.unwrap_or(MemberId::NOBODY),
        };
        let (sequence, bytes) = self.seal(to, Body::Heartbeat(heartbeat));
        self.sent.insert(
            sequence,
            Sent {
                to,
                at: self.now,
                relayed: via.is_some(),
            },
        );
        match via {
            None => self.send_bytes(to, bytes),
            Some(relay) => self.send(
                relay,
                Body::Relay(Relay {
                    target: to,
                    inner: bytes,
                }),
            ),
        }
    }

    /// Some live member to relay through, drawn anew each time.
    pub(super) fn relay_for(&mut self, subject: MemberId) -> Option<MemberId> {
        let live: Vec<MemberId> = self
            .peers
            .iter()
            .filter(|(id, peer)| **id != subject && self.is_live(peer))
            .map(|(id, _)| *id)
            .collect();
        let position = self.draw(live.len() as u64);
        live.get(position as usize).copied()
    }

    /// Passes on what a peer signed to somebody else.
    fn pass_on(&mut self, from: MemberId, relay: Relay) {
        let now = self.now;
        let allowed = self.peers.get_mut(&from).is_some_and(|peer| peer.may_relay(now));
        let own_words = Frame::parse(&relay.inner).is_ok_and(|frame| frame.from() == from);
        if allowed && own_words && relay.target != self.me && relay.target != from {
            self.send_bytes(relay.target, relay.inner);
        } else {
            self.out.push(Output::Refused("relay"));
        }
    }

    fn learn(&mut self, from: MemberId, facts: Facts, doubt: u8, roster: crate::roster::RosterRef) {
        let newer = roster.version > self.roster.reference().version;
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.facts = facts;
            peer.doubt = doubt > 0;
            if newer && peer.roster != roster {
                self.out.push(Output::Note(Note::NewerRoster(roster.version)));
            }
            peer.roster = roster;
        }
    }

    /// Sends heartbeats at once when the facts about this agent's node change, so that observers and
    /// reporters know of a cut cloud link within milliseconds and not after a period.
    pub(super) fn report_if_changed(&mut self, before: Facts) {
        if self.facts == before || !self.roster.contains(self.me) {
            return;
        }
        let mut hearers = self.roster.observers_of(self.me);
        hearers.extend(self.reporters().into_iter().filter(|id| *id != self.me));
        hearers.sort_unstable();
        hearers.dedup();
        for id in hearers {
            self.send_heartbeat(id, None);
        }
    }
}
