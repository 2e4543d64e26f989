//! What an agent knows of one peer.

use crate::Millis;
use crate::roster::{MemberId, RosterRef};
use crate::wire::{EdgeState, Facts};
use std::collections::BTreeMap;

/// Another member of the zone, as this agent knows it.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its present life, proven by an ack to a fresh heartbeat of ours.
    pub(super) life: Option<Life>,
    /// Whether this agent, in this or a former life, had proof of its life.
    pub(super) seen_alive: bool,
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
    /// It doubts its own view.
    pub(super) doubt: bool,
    /// The roster it has.
    pub(super) roster: RosterRef,
    /// Smoothed round-trip time.
    pub(super) rtt_ms: Option<u64>,
    /// Last heartbeat sent to learn its incarnation.
    pub(super) challenged: Option<Millis>,
    /// Datagrams relayed for it since, to bound what it can make us send.
    pub(super) relayed: (Millis, u32),
    /// What we see of it, if it is one of our subjects.
    pub(super) watch: Option<Watch>,
    /// What it sees of its subjects, and when it said so.
    pub(super) reported: Option<Reported>,
}

/// A peer's view of its subjects.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) at: Millis,
    pub(super) edges: BTreeMap<MemberId, (EdgeState, Facts)>,
}

/// One life of a peer's agent.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) incarnation: u64,
    pub(super) window: Window,
}

impl Peer {
    pub(super) fn new(seen_alive: bool, now: Millis) -> Self {
        Self {
            life: None,
            seen_alive,
            known_since: now,
            contact: None,
            kubelet_proved: None,
            answered: None,
            proved: None,
            facts: Facts::default(),
            doubt: false,
            roster: RosterRef::default(),
            rtt_ms: None,
            challenged: None,
            relayed: (Millis(0), 0),
            watch: None,
            reported: None,
        }
    }

    /// For how many milliseconds neither agent nor kubelet has proved its identity, as far as this life can
    /// vouch for it: without any contact that is the time for which it has been listening.
    pub(super) fn silent_for(&self, now: Millis) -> u64 {
        now.since(self.contact.max(self.kubelet_proved).unwrap_or(self.known_since))
    }

    /// Waiting for an answer of it.
    pub(super) fn is_busy(&self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| !matches!(watch.phase, Phase::Waiting { .. }))
    }

    /// How long to wait for an answer: four round trips, within bounds.
    pub(super) fn timeout_ms(&self, period_ms: u64) -> u64 {
        let most = (period_ms / 2).clamp(200, 500);
        self.rtt_ms.map_or(most, |rtt| (4 * rtt).clamp(200, most))
    }

    pub(super) fn measured(&mut self, rtt_ms: u64) {
        self.rtt_ms = Some(self.rtt_ms.map_or(rtt_ms, |old| (7 * old + rtt_ms) / 8));
    }

    /// At most 30 datagrams a second are passed on for a peer.
    pub(super) fn may_relay(&mut self, now: Millis) -> bool {
        let (since, count) = &mut self.relayed;
        if now.since(*since) >= 1_000 {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= 30
    }
}

/// The edge to a subject.
#[derive(Debug)]
pub(super) struct Watch {
    /// What the last look at the subject concluded.
    pub(super) state: EdgeState,
    pub(super) phase: Phase,
}

/// Where the present look at a subject stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The next heartbeat is due at this time.
    Waiting { due: Millis },
    /// A heartbeat was sent, its ack is awaited.
    Asked { sent: Millis, deadline: Millis },
    /// The ack did not come, or somebody else lost the subject: three probes directly and three relayed.
    Probing {
        since: Millis,
        /// Probes sent so far.
        sent: u8,
    },
}

impl Watch {
    pub(super) fn new(due: Millis) -> Self {
        Self {
            state: EdgeState::Up,
            phase: Phase::Waiting { due },
        }
    }
}

/// Which sequences of a life were seen: the highest, and the 64 below it. Datagrams may overtake each other,
/// none counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    highest: u64,
    seen: u64,
}

impl Window {
    /// Whether this sequence is new; it is not, from then on.
    pub(super) fn accept(&mut self, sequence: u64) -> bool {
        if sequence > self.highest {
            let ahead = sequence - self.highest;
            let marked = if self.highest == 0 {
                0
            } else {
                (self.seen << 1) | 1
            };
            self.seen = u32::try_from(ahead - 1)
                .ok()
                .and_then(|by| marked.checked_shl(by))
                .unwrap_or_default();
            self.highest = sequence;
            return true;
        }
        let Some(behind) = (self.highest - sequence).checked_sub(1) else {
            return false;
        };
        let Some(mask) = u32::try_from(behind).ok().and_then(|by| 1_u64.checked_shl(by)) else {
            return false;
        };
        let new = self.seen & mask == 0;
        self.seen |= mask;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_window_takes_each_sequence_once_also_out_of_order() {
        let mut window = Window::default();
        let taken: Vec<bool> = [5, 7, 6, 7, 5, 100, 36, 35, 99, 100, 101]
            .map(|sequence| window.accept(sequence))
            .into();
        assert_eq!(
            taken,
            [
                true, true, true, false, false, true, true, false, true, false, true
            ]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice(sequences in proptest::collection::vec(1_u64..200, 0..300)) {
            let (mut window, mut taken) = (Window::default(), BTreeSet::new());
            for sequence in sequences {
                if window.accept(sequence) {
                    prop_assert!(taken.insert(sequence));
                }
            }
        }
    }
}
