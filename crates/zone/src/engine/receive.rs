//! What becomes of a datagram: who sent it, whether it counts, and which part it concerns.

use super::reporter::View;
use super::voter::Asker;
use super::{Engine, Output, contacts, roster_fetch};
use crate::roster::{MemberId, MemberIndex};
use crate::wire::{Body, EdgeState, Frame, Message, Voted, WireError};
use contacts::Change;
use std::net::SocketAddr;

impl Engine {
    pub(super) fn receive(&mut self, bytes: &[u8], source: SocketAddr) {
        let source = SocketAddr::new(source.ip().to_canonical(), source.port());
        let taken = self.cx.parse(bytes).and_then(|frame| {
            if self.is_from_outside(&frame) {
                self.receive_outside(&frame, source)
            } else {
                let from = self.cx.roster().position(frame.from()).ok_or("stranger")?;
                self.admit(&frame, from)?;
                let message = self.cx.open(&frame, from).inspect_err(|why| {
                    if *why == WireError::Signature.reason() {
                        let keys = self
                            .cx
                            .roster()
                            .member(from)
                            .map_or(0, |member| member.keys().count());
                        self.contacts.signatures_were_wrong(self.cx.now(), keys);
                    }
                })?;
                self.receive_inside((from, &message), &frame, (source, bytes));
                Ok(())
            }
        });
        if let Err(reason) = taken {
            self.cx.put(Output::Refused(reason));
        }
    }

    /// What is looked at before the proof of a datagram is checked: the check costs more, that of a signature
    /// fifty times as much as that of a code.
    fn admit(&self, frame: &Frame<'_>, from: MemberIndex) -> Result<(), &'static str> {
        let header = frame.header().map_err(WireError::reason)?;
        // What is fresh in an ack is what it repeats, and not its own sequence: by it a life proves itself
        // that was taken for a former one, or whose sequences went back with its machine.
        if !frame.is_ack() && self.contacts.is_replay(from, &header) {
            return Err("replay");
        }
        if frame.claimed_request().is_none() {
            return Ok(());
        }
        if !self.is_awaited(frame) {
            Err("unasked")
        } else if !self.contacts.allows_signature(self.cx.now()) {
            Err("budget")
        } else {
            Ok(())
        }
    }

    /// Whether it is a ballot that this agent waits for.
    fn is_awaited(&self, frame: &Frame<'_>) -> bool {
        let request = frame.claimed_request();
        request.is_some_and(|request| self.reporter.awaits(frame.from(), request))
    }

    /// A ballot whose voter has proven itself by a code: it may cost the check of its signature without a
    /// budget, because the datagrams of a member have one.
    fn take_voted(&mut self, from: MemberIndex, voted: &Voted) -> Result<(), &'static str> {
        let frame = self.cx.parse(&voted.ballot)?;
        if self.cx.roster().position(frame.from()) != Some(from) || !self.is_awaited(&frame) {
            return Err("unasked");
        }
        if let Body::Ballot(ballot) = self.cx.open(&frame, from)?.body {
            self.reporter
                .take_ballot(&self.cx, frame.from(), &ballot, &voted.ballot);
        }
        Ok(())
    }

    fn receive_inside(
        &mut self,
        (from, message): (MemberIndex, &Message),
        frame: &Frame<'_>,
        (source, bytes): (SocketAddr, &[u8]),
    ) {
        let header = &message.header;
        if let Body::Ack(ack) = &message.body {
            let ack_of = (header, source);
            if let Some(proof) = self.contacts.take_ack(&mut self.cx, from, ack_of, ack) {
                self.take_proof(from, header.from, proof);
                self.roster_fetch.hear(&mut self.cx, header.from, ack.roster);
            }
            return;
        }
        let direct = matches!(&message.body, Body::Heartbeat(heartbeat) if heartbeat.via == MemberId::NOBODY);
        let heard_at = Some(source).filter(|_| direct);
        let taken = self
            .contacts
            .take(&mut self.cx, &self.own, from, header, heard_at);
        // Only what counts uses up what its sender may cost: recordings are of no life that is proven.
        let now = self.cx.now();
        let allowed = match taken {
            Some(_) => self.contacts.allows_datagram(from, now),
            None => self.contacts.allows_answer(from, now),
        };
        if let Body::Heartbeat(heartbeat) = &message.body
            && allowed
        {
            let (asker, way) = ((from, header), (source, taken.is_some()));
            self.contacts
                .answer(&mut self.cx, &self.own, asker, way, heartbeat);
        }
        let Some(mut change) = taken else {
            return;
        };
        if !allowed {
            self.cx.put(Output::Refused("budget"));
            return self.take_change(from, change);
        }
        match &message.body {
            Body::Heartbeat(body) => {
                let said = (body.facts, body.doubt > 0, body.cloud_age);
                change.facts = self.contacts.learn(&mut self.cx, from, said, body.roster);
                self.roster_fetch.hear(&mut self.cx, header.from, body.roster);
            }
            Body::RosterAsked(asked) => {
                roster_fetch::answer(&mut self.cx, &mut self.contacts, from, asked);
            }
            Body::RosterPart(part) => {
                if let Some(roster) = self.roster_fetch.take_part(&mut self.cx, header.from, part) {
                    self.take_passed_on(roster);
                }
            }
            Body::Relay(relay) => self.contacts.pass_on(&mut self.cx, from, header, relay),
            Body::Edges(edges) => {
                change.facts = self.contacts.learn_doubt(from, edges.doubt > 0);
                change.facts |= self.edges.take(&self.cx, from, edges);
                let lost = edges.edges.iter().filter(|edge| edge.state == EdgeState::Down);
                // Who doubts its own view alarms nobody.
                for edge in lost.filter(|_| edges.doubt == 0) {
                    self.watches.alarm(&self.cx, &self.contacts, from, edge.subject);
                }
            }
            Body::Confirm(request) => {
                let asker = Asker {
                    id: header.from,
                    knows_voted: frame.knows_voted() && self.cx.knows_voted(),
                };
                self.take_request(asker, request);
            }
            Body::Voted(voted) => {
                let taken = if self.cx.knows_voted() {
                    self.take_voted(from, voted)
                } else {
                    Err("kind")
                };
                if let Err(reason) = taken {
                    self.cx.put(Output::Refused(reason));
                }
            }
            Body::Ballot(ballot) => self.reporter.take_ballot(&self.cx, header.from, ballot, bytes),
            Body::Published(published) => self.publication.take_told(&self.cx, published),
            // These pass between cells.
            Body::Ack(_)
            | Body::HandOver(_)
            | Body::Carried(_)
            | Body::Referral(_)
            | Body::ReportAsked(_)
            | Body::ReportPart(_)
            | Body::RenewalsAsked(_)
            | Body::RenewalsRead(_) => {}
        }
        self.take_change(from, change);
    }

    fn take_proof(&mut self, from: MemberIndex, id: MemberId, proof: contacts::Proof) {
        if proof.new_life {
            self.edges.forget(from);
        }
        if proof.met {
            self.acknowledgement.look_again(&mut self.cx, &self.contacts);
        }
        if proof.moved {
            self.regular_checks.member_moved(&self.cx, id);
        } else if proof.new_life {
            self.regular_checks.member_began_anew(&mut self.cx, id);
        }
        if proof.direct {
            let before = self.watches.changes();
            self.watches.answered(&mut self.cx, from);
            self.look_at_changes(before);
        }
        self.voter.heard(&mut self.cx, &self.own, &self.contacts, id);
        self.count_own_ballots();
        self.reporter.member_proved(&self.cx, id);
        self.take_change(from, proof.change);
    }

    fn take_change(&mut self, from: MemberIndex, change: Change) {
        if change.returned {
            if let Some(member) = self.cx.roster().member(from) {
                self.regular_checks.member_returned(&self.cx, member.id);
            }
            if self.watches.is_watched(from) {
                self.own.count_again(&self.cx);
            }
            let view = View {
                own: &self.own,
                contacts: &self.contacts,
                watches: &self.watches,
                edges: &self.edges,
            };
            self.reporter.member_returned(&self.cx, view, from);
        }
        if change.facts {
            self.edges.look_again(&self.cx);
            self.reporter.look_again(&self.cx);
        }
    }
}
