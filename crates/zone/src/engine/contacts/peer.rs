//! What an agent knows of one peer.

use crate::Millis;
use crate::engine::budget::Budget;
use crate::engine::window::Window;
use crate::wire::Facts;
use std::net::SocketAddr;

/// On top of a period, before a peer that sends on its own counts as silent.
const PERIOD_GRACE_MS: u64 = 250;

/// So many ended lives of a peer are remembered.
const FORMER_LIVES: usize = 8;

/// Another member of the zone, as this agent knows it.
#[derive(Debug)]
pub(in crate::engine) struct Peer {
    /// Its present life, proven by an ack to a fresh heartbeat of ours.
    pub(super) life: Option<Life>,
    /// Whether this agent, in this or a former life, had proof of its life.
    pub(super) seen_alive: bool,
    /// Whether one of this agent's checks, in this or a former life, has found it where it is now.
    pub(super) found: bool,
    /// Since when this life of this agent has been listening for it under its present key.
    pub(super) known_since: Millis,
    /// Last authenticated datagram of its present life.
    pub(super) contact: Option<Millis>,
    /// Last time that its kubelet proved itself with the pinned certificate.
    pub(super) kubelet_proved: Option<Millis>,
    /// Last ack to a fresh heartbeat of ours, directly.
    pub(super) answered: Option<Millis>,
    /// The same, directly or through a relay.
    pub(super) proved: Option<Millis>,
    /// What it last said of itself.
    pub(super) facts: Facts,
    /// When it last said that, and when it had last reached the API server by its own word.
    pub(super) told: Option<Millis>,
    pub(super) cloud_contact: Option<Millis>,
    /// It doubts its own view.
    pub(super) doubt: bool,
    /// The version of the last roster newer than ours that it has.
    pub(super) newer_roster: u64,
    /// Smoothed round-trip time.
    pub(super) rtt_ms: Option<u64>,
    /// Last heartbeat sent to learn its incarnation.
    pub(super) challenged: Option<Millis>,
    /// Where its last heartbeat came from, if that is not where it is reached.
    pub(super) heard_at: Option<SocketAddr>,
    /// Since when it has been asked directly without an answer.
    pub(super) asked: Option<Millis>,
    /// When it last answered at the address in the roster.
    pub(super) answered_at_home: Option<Millis>,
    /// Incarnations of its last lives before the present one.
    pub(super) former: Vec<u64>,
    /// Bounds of what it can make this agent send.
    pub(super) relays: Budget,
    pub(super) roster_parts: Budget,
    /// Bounds of what its datagrams cost here: those of a life that is not proven, and those that count.
    pub(super) unproven: Budget,
    pub(super) datagrams: Budget,
    pub(super) suspects: Budget,
    pub(super) suspects_at_once: Budget,
}

/// One life of a peer's agent.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) incarnation: u64,
    /// Sequence of the heartbeat of ours whose answer proved it.
    pub(super) proven_by: u64,
    pub(super) window: Window,
}

impl Peer {
    pub(super) fn new(seen_alive: bool, found: bool, now: Millis) -> Self {
        Self {
            life: None,
            seen_alive,
            found,
            known_since: now,
            contact: None,
            kubelet_proved: None,
            answered: None,
            proved: None,
            facts: Facts::default(),
            told: None,
            cloud_contact: None,
            doubt: false,
            newer_roster: 0,
            rtt_ms: None,
            challenged: None,
            heard_at: None,
            asked: None,
            answered_at_home: None,
            former: Vec::new(),
            relays: Budget::default(),
            roster_parts: Budget::default(),
            unproven: Budget::default(),
            datagrams: Budget::default(),
            suspects: Budget::default(),
            suspects_at_once: Budget::default(),
        }
    }

    pub(in crate::engine) fn facts(&self) -> Facts {
        self.facts
    }

    pub(in crate::engine) fn told(&self) -> Option<Millis> {
        self.told
    }

    pub(in crate::engine) fn cloud_contact(&self) -> Option<Millis> {
        self.cloud_contact
    }

    /// What its heartbeat or ack says. Tenths of a second since its last contact with the API server, the
    /// largest number if there was none or it is too long ago.
    pub(super) fn learn(&mut self, now: Millis, facts: Facts, doubt: bool, cloud_age: u16) {
        (self.facts, self.doubt, self.told) = (facts, doubt, Some(now));
        let ago = Some(u64::from(cloud_age) * 100).filter(|_| cloud_age < u16::MAX);
        self.cloud_contact = ago.map(|ago| Millis(now.0.saturating_sub(ago)));
    }

    pub(in crate::engine) fn doubts(&self) -> bool {
        self.doubt
    }

    /// Since when this life of this agent has been listening for it under its present key.
    pub(in crate::engine) fn known_since(&self) -> Millis {
        self.known_since
    }

    pub(in crate::engine) fn seen_alive(&self) -> bool {
        self.seen_alive
    }

    pub(in crate::engine) fn found(&self) -> bool {
        self.found
    }

    pub(in crate::engine) fn contact(&self) -> Option<Millis> {
        self.contact
    }

    pub(in crate::engine) fn answered(&self) -> Option<Millis> {
        self.answered
    }

    pub(in crate::engine) fn proved(&self) -> Option<Millis> {
        self.proved
    }

    /// The incarnation of its present life, if one is proven.
    pub(in crate::engine) fn incarnation(&self) -> Option<u64> {
        self.life.as_ref().map(|life| life.incarnation)
    }

    /// For how many milliseconds neither agent nor kubelet has proved its identity, as far as this life can
    /// vouch for it: without any contact that is the time for which it has been listening.
    pub(in crate::engine) fn silent_for(&self, now: Millis) -> u64 {
        now.since(self.contact.max(self.kubelet_proved).unwrap_or(self.known_since))
    }

    /// From when on its silence means something: a living peer sends something in every period, and the grace
    /// is for the way. `None` if there was no contact.
    pub(in crate::engine) fn quiet_from(&self, period_ms: u64) -> Option<Millis> {
        self.contact.map(|at| at.plus(period_ms + PERIOD_GRACE_MS + 1))
    }

    /// Whether its silence means something by now.
    pub(in crate::engine) fn is_quiet(&self, now: Millis, period_ms: u64) -> bool {
        self.quiet_from(period_ms).is_none_or(|from| now >= from)
    }

    /// Until when its last contact counts as life: three periods.
    pub(in crate::engine) fn live_until(&self, period_ms: u64) -> Option<Millis> {
        self.contact.map(|at| at.plus(3 * period_ms + 1))
    }

    pub(super) fn is_fresh(&self, now: Millis, period_ms: u64) -> bool {
        self.live_until(period_ms).is_some_and(|until| now < until)
    }

    /// How long to wait for an answer: four round trips, within bounds.
    pub(in crate::engine) fn timeout_ms(&self, period_ms: u64) -> u64 {
        let most = (period_ms / 2).clamp(200, 500);
        self.rtt_ms.map_or(most, |rtt| (4 * rtt).clamp(200, most))
    }

    /// Whether it has answered at the address in the roster within a period and what an answer takes.
    pub(super) fn answers_at_home(&self, now: Millis, period_ms: u64) -> bool {
        let since = self.answered_at_home.map(|at| now.since(at));
        since.is_some_and(|since| since <= period_ms + PERIOD_GRACE_MS)
    }

    /// Whether an answer is overdue.
    pub(super) fn is_silent_when_asked(&self, now: Millis, period_ms: u64) -> bool {
        self.asked
            .is_some_and(|at| now.since(at) >= self.timeout_ms(period_ms))
    }

    pub(super) fn measured(&mut self, rtt_ms: u64) {
        self.rtt_ms = Some(self.rtt_ms.map_or(rtt_ms, |old| (7 * old + rtt_ms) / 8));
    }

    /// The life with this incarnation is proven. Returns whether it is another one than before.
    /// `proven_by` is the sequence of the heartbeat of ours that it has answered.
    pub(super) fn begin_life(&mut self, incarnation: u64, proven_by: u64) -> bool {
        let new = self.incarnation() != Some(incarnation);
        if new {
            if let Some(before) = self.incarnation() {
                self.former.push(before);
                self.former.retain(|former| *former != incarnation);
                let surplus = self.former.len().saturating_sub(FORMER_LIVES);
                self.former.drain(..surplus);
            }
            self.life = Some(Life {
                incarnation,
                proven_by,
                window: Window::default(),
            });
        }
        new
    }
}
