//! The reader's side: from published evidence to a verdict that may be acted upon.
//!
//! The planner and the webhook believe no writer. They check the signatures of more than half of the roster
//! themselves, remember the newest sequence of every voter about every subject, and let evidence of life decay.

mod evidence;
mod zone;

pub use evidence::{Refusal, check, check_with};

use crate::Millis;
use evenkeel_api::zone::{RosterSpec, ZoneHealthStatus};
use std::collections::BTreeMap;
use zone::Zone;

/// Evidence of life is worth this long after the reader received it (hazard 1).
pub const ALIVE_TTL_MS: u64 = 15_000;
/// A zone whose report and Lease did not advance for this long is silent.
pub const SILENT_AFTER_MS: u64 = 15_000;
/// For this long after a new roster was seen, verdicts need the majority of the one before as well (hazard 4).
pub const ROSTER_SETTLE_MS: u64 = 15_000;

/// Whether a report's sequence is newer than another's. It goes on from the other end when numbers run out, so that
/// one report with the highest of all numbers does not silence the zone for ever.
pub fn is_newer_report(sequence: i64, than: i64) -> bool {
    sequence.wrapping_sub(than) > 0
}

/// A verdict as a reader may use it, at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No majority, no valid evidence, or evidence that ran out. Neither healthy nor dead.
    None(NoVerdict),
    /// A majority of the roster has fresh contact with the node's agent.
    Alive {
        /// What the agent says of its link to the API server.
        cloud: Link,
        /// What the agent and its peers say of the kubelet.
        kubelet: Health,
        /// What the agent says of the container runtime.
        runtime: Health,
    },
    /// A majority of the roster voted no in one confirm round.
    Dead {
        /// When that round began, on the reader's clock, by the most careful reading of its age: the earliest
        /// possible. Evidence that was already there when the reader began has an unknown age and reads as
        /// `Millis(0)`; reporters confirm the dead again every few seconds, which gives it one.
        round_began: Millis,
    },
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVerdict {
    /// The zone reports, and this node is not among the troubled ones: plainly healthy to its peers.
    NotListed,
    /// The node is in no roster.
    NotAMember,
    /// Nobody reports for the zone, or its report has not been seen to advance yet (hazard 20).
    ZoneSilent,
    /// There was evidence of life, and it ran out.
    Expired,
    /// The reporters themselves say that there is no majority either way.
    NoMajority,
    /// Signatures, roster or sequence did not hold: the text was refused.
    Refused,
}

/// A link as its owner sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Nothing known.
    #[default]
    Unknown,
    /// The last contact is recent.
    Up,
    /// No contact.
    Down,
}

/// Health of a part of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Nothing known.
    #[default]
    Unknown,
    /// It answers.
    Ok,
    /// It does not.
    Failing,
}

/// What a reader remembers of all zones, and what it concludes.
///
/// Feed it every ZoneHealth that a watch delivers and every renewal of a zone's Lease; ask it for verdicts.
///
/// ```
/// # use evenkeel_zone::{Millis, verdict::{Book, NoVerdict, Verdict}};
/// let book = Book::new();
/// assert_eq!(book.verdict("4a5c…", Millis(0)), Verdict::None(NoVerdict::NotAMember));
/// ```
#[derive(Debug, Default)]
pub struct Book {
    zones: BTreeMap<String, Zone>,
}

impl Book {
    /// Knows nothing: every zone is void until its report has been seen to advance once (hazard 20).
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a ZoneHealth as it was received at `now`. Returns what was refused in it, for logs; a refusal never
    /// changes a verdict that stands.
    ///
    /// `zone` is the caller's key, the same as in [`Book::heartbeat`]. When the object is replaced by another of its
    /// name (its UID changed), call [`Book::forget`] first: versions and sequences begin anew.
    pub fn observe(
        &mut self,
        now: Millis,
        zone: &str,
        roster: &RosterSpec,
        status: &ZoneHealthStatus,
    ) -> Vec<(String, Refusal)> {
        self.zones
            .entry(zone.to_owned())
            .or_default()
            .observe(now, roster, status)
    }

    /// Takes in a renewal of the zone's Lease (its `renewTime` or holder changed), received at `now`. The first one
    /// only shows where the Lease stands; the second proves that somebody renews it.
    pub fn heartbeat(&mut self, now: Millis, zone: &str) {
        self.zones.entry(zone.to_owned()).or_default().heartbeat(now);
    }

    /// The zone's ZoneHealth is gone.
    pub fn forget(&mut self, zone: &str) {
        self.zones.remove(zone);
    }

    /// The verdict on a node as it stands at `now`.
    pub fn verdict(&self, node_uid: &str, now: Millis) -> Verdict {
        let zone = self.zones.values().find(|zone| zone.has_member(node_uid));
        zone.map_or(Verdict::None(NoVerdict::NotAMember), |zone| {
            zone.verdict(node_uid, now)
        })
    }

    /// Whether anybody reports for the zone at `now`: seen to advance, and within [`SILENT_AFTER_MS`].
    pub fn reports(&self, zone: &str, now: Millis) -> bool {
        self.zones.get(zone).is_some_and(|zone| zone.reports(now))
    }

    /// More than max(1, 25 %) of the zone died within a minute, by the evidence of its last report (hazard 24).
    pub fn storm(&self, zone: &str) -> bool {
        self.zones.get(zone).is_some_and(Zone::storm)
    }
}

#[cfg(test)]
mod tests;
