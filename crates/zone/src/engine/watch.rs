//! What an observer sees of its subjects, and how it reports that to the others.

use super::peer::{Phase, Reported, Watch};
use super::{Engine, Note, Output};
use crate::Millis;
use crate::roster::MemberId;
use crate::verdict::{Health, Link};
use crate::wire::{Body, Edge, EdgeState, Edges, Facts};
use std::collections::BTreeSet;

/// Probes directly and through relays before an edge is given up, and the time between two of them.
const PROBES: u8 = 3;
const PROBE_EVERY_MS: u64 = 250;
/// On top of a period, before a subject that sends on its own counts as silent.
pub(super) const PERIOD_GRACE_MS: u64 = 250;
/// A subject that answered this recently is not probed because somebody else lost it.
const JUST_ANSWERED_MS: u64 = 300;
/// Above all-pairs size, everybody keeps an eye on this many candidates for reporting, every fourth period.
const CANDIDATES: usize = 4;

/// When this agent's edges are to be sent again.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// An edge changed since.
    pub(super) changed: bool,
    due: Millis,
    /// Empty lists still to be sent. One alone might get lost, and the others would keep an old view.
    farewells: u8,
}

impl Facts {
    /// Nothing is known to be wrong.
    pub fn are_plain(self) -> bool {
        self.cloud != Link::Down && self.kubelet != Health::Failing && self.runtime != Health::Failing
    }
}

impl Engine {
    pub(super) fn tick_watches(&mut self) {
        for id in self.watched() {
            self.tick_watch(id);
        }
        if !self.roster.all_pairs() && self.now >= self.census_due {
            self.census_due = self.now.plus(self.config.period_ms);
            self.take_census();
        }
    }

    /// The members that this one watches now.
    fn watched(&self) -> Vec<MemberId> {
        let watched = self.peers.iter().filter(|(_, peer)| peer.watch.is_some());
        watched.map(|(id, _)| *id).collect()
    }

    fn tick_watch(&mut self, id: MemberId) {
        let (now, period) = (self.now, self.config.period_ms);
        let Some(peer) = self.peers.get(&id) else { return };
        let Some(Watch { state, phase }) = peer.watch.as_ref() else {
            return;
        };
        match *phase {
            Phase::Waiting { due } if now >= due => {
                let deadline = now.plus(peer.timeout_ms(period));
                self.set_phase(id, Phase::Asked { sent: now, deadline });
                self.send_heartbeat(id, None);
            }
            Phase::Asked { sent, deadline } if now >= deadline => {
                // A subject that is given up already gets one heartbeat a period, until it answers.
                let next = if *state == EdgeState::Down {
                    Phase::Waiting {
                        due: sent.plus(period),
                    }
                } else {
                    Phase::Probing { since: now, sent: 0 }
                };
                self.set_phase(id, next);
                self.probe(id);
            }
            Phase::Probing { .. } => self.probe(id),
            Phase::Waiting { .. } | Phase::Asked { .. } => {}
        }
    }

    /// The next probe of a burst, or its conclusion.
    fn probe(&mut self, id: MemberId) {
        let now = self.now;
        let Some(Phase::Probing { since, sent }) = self.phase(id) else {
            return;
        };
        if sent < PROBES {
            if now >= since.plus(u64::from(sent) * PROBE_EVERY_MS) {
                self.set_phase(
                    id,
                    Phase::Probing {
                        since,
                        sent: sent + 1,
                    },
                );
                self.send_heartbeat(id, None);
                let relay = self.relay_for(id);
                if relay.is_some() {
                    self.send_heartbeat(id, relay);
                }
            }
            return;
        }
        if now < since.plus(u64::from(PROBES) * PROBE_EVERY_MS) {
            return;
        }
        let heard = |at: Option<Millis>| at.is_some_and(|at| at >= since);
        let Some(peer) = self.peers.get(&id) else { return };
        // A living subject sends something in every period. Until one has passed, silence means little.
        let quiet = peer
            .contact
            .is_none_or(|at| now.since(at) > self.config.period_ms + PERIOD_GRACE_MS);
        let state = match (heard(peer.answered), heard(peer.proved), heard(peer.contact)) {
            (true, _, _) => EdgeState::Up,
            (_, true, _) => EdgeState::Degraded,
            (_, _, true) => EdgeState::OneWay,
            _ if quiet => EdgeState::Down,
            _ => return,
        };
        self.conclude(id, state);
    }

    /// Ends the present look at a subject.
    pub(super) fn conclude(&mut self, id: MemberId, state: EdgeState) {
        let (now, period) = (self.now, self.config.period_ms);
        let jitter = self.draw(period / 8);
        let Some(watch) = self.peers.get_mut(&id).and_then(|peer| peer.watch.as_mut()) else {
            return;
        };
        watch.phase = match watch.phase {
            Phase::Asked { sent, .. } => Phase::Waiting {
                due: sent.plus(period),
            },
            Phase::Probing { .. } => Phase::Waiting {
                due: now.plus(period / 2 + jitter),
            },
            waiting @ Phase::Waiting { .. } => waiting,
        };
        let before = std::mem::replace(&mut watch.state, state);
        if before != state {
            self.edges.changed = true;
            let subject = self.name(id);
            self.out.push(Output::Note(Note::Edge { subject, state }));
        }
    }

    /// Begins anew with every subject, spread over half a period.
    pub(super) fn schedule_watches(&mut self) {
        for id in self.watched() {
            let due = self.now.plus(self.draw(self.config.period_ms / 2));
            self.set_phase(id, Phase::Waiting { due });
        }
    }

    /// What a peer sees. Its first loss of a subject makes us look at once.
    pub(super) fn take_edges(&mut self, from: MemberId, edges: &Edges) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        peer.doubt = edges.doubt > 0;
        let list = edges
            .edges
            .iter()
            .map(|edge| (edge.subject, (edge.state, edge.facts)))
            .collect();
        peer.reported = Some(Reported { at: now, edges: list });
        if edges.doubt > 0 {
            return;
        }
        for edge in edges.edges.iter().filter(|edge| edge.state == EdgeState::Down) {
            let Some(peer) = self.peers.get_mut(&edge.subject) else {
                continue;
            };
            let just_answered = peer.answered.is_some_and(|at| now.since(at) < JUST_ANSWERED_MS);
            let Some(watch) = peer.watch.as_mut() else {
                continue;
            };
            let looking = matches!(watch.phase, Phase::Probing { .. });
            if !just_answered && !looking && watch.state != EdgeState::Down {
                watch.phase = Phase::Probing { since: now, sent: 0 };
            }
        }
    }

    /// Sends this agent's edges to the others: at once on a change, and every period while something is
    /// wrong.
    pub(super) fn tick_edges(&mut self) {
        let (now, period) = (self.now, self.config.period_ms);
        if !self.edges.changed && now < self.edges.due {
            return;
        }
        let list = self.own_edges();
        let all_pairs = self.roster.all_pairs();
        if !list.is_empty() {
            self.edges.farewells = 3;
        } else if self.edges.farewells > 0 {
            self.edges.farewells -= 1;
        } else if all_pairs {
            // Everything is well, and the others have been sent that three times.
            (self.edges.changed, self.edges.due) = (false, now.plus(period));
            return;
        }
        let mut hearers: BTreeSet<MemberId> = if all_pairs {
            self.roster.others(self.me)
        } else {
            self.reporters()
        }
        .into_iter()
        .collect();
        if self.edges.changed && !all_pairs {
            for edge in list.iter().filter(|edge| edge.state == EdgeState::Down) {
                hearers.extend(self.roster.observers_of(edge.subject));
            }
        }
        hearers.remove(&self.me);
        let body = Edges {
            roster: self.roster.reference(),
            doubt: u8::from(self.doubting),
            edges: list,
        };
        for id in hearers {
            self.send(id, Body::Edges(body.clone()));
        }
        (self.edges.changed, self.edges.due) = (false, now.plus(period));
    }

    fn own_edges(&self) -> Vec<Edge> {
        let entry = |(id, peer): (&MemberId, &super::peer::Peer)| {
            let state = peer.watch.as_ref()?.state;
            let age = peer.contact.map_or(u64::MAX, |at| self.now.since(at) / 10);
            let edge = Edge {
                subject: *id,
                state,
                facts: peer.facts,
                age: u16::try_from(age).unwrap_or(u16::MAX),
            };
            (state != EdgeState::Up || !peer.facts.are_plain()).then_some(edge)
        };
        self.peers.iter().filter_map(entry).collect()
    }

    /// In zones above all-pairs size: one member a period in turn, so that everybody has seen everybody
    /// alive, and the candidates for reporting every fourth period.
    fn take_census(&mut self) {
        let strangers: Vec<MemberId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.watch.is_none())
            .map(|(id, _)| *id)
            .collect();
        self.census = self.census.wrapping_add(1);
        let mut asked: BTreeSet<MemberId> = BTreeSet::new();
        asked.extend(
            self.census
                .checked_rem(strangers.len())
                .and_then(|position| strangers.get(position)),
        );
        if self.census.is_multiple_of(4) {
            let candidates = self.roster.reporters_by_rank(|_| true);
            asked.extend(
                candidates
                    .into_iter()
                    .take(CANDIDATES)
                    .filter(|id| strangers.contains(id)),
            );
        }
        for id in asked {
            self.send_heartbeat(id, None);
        }
    }

    fn phase(&self, id: MemberId) -> Option<Phase> {
        Some(self.peers.get(&id)?.watch.as_ref()?.phase)
    }

    fn set_phase(&mut self, id: MemberId, phase: Phase) {
        if let Some(watch) = self.peers.get_mut(&id).and_then(|peer| peer.watch.as_mut()) {
            watch.phase = phase;
        }
    }
}
