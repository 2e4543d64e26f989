//! What the loop is told.

use crate::cloud::{Asked, Seen};
use evenkeel_zone::engine::{CheckResult, Question};
use evenkeel_zone::keys::SigningKey;
use evenkeel_zone::roster::{MemberId, RosterKeys};
use evenkeel_zone::verdict::Health;
use evenkeel_zone::wire::Renewal;
use std::sync::Arc;

/// Something that the loop should know.
#[derive(Debug)]
pub(crate) enum Event {
    /// The API server answered.
    Contact,
    /// ZoneHealth was read.
    Seen(Box<Seen>),
    /// ZoneChallenge was read.
    Asked(Box<Asked>),
    /// ZoneHealth of another cell, by its number, was read.
    OtherSeen(u32, Box<Seen>),
    /// ZoneChallenge of another cell was read.
    OtherAsked(u32, Box<Asked>),
    /// The last renewal of a member of another cell was read, or could not be.
    OtherLeaseRead(u32, MemberId, Option<Renewal>),
    /// A write of a report of another cell ended.
    CarriedWritten {
        cell: u32,
        /// Of the report.
        sequence: i64,
        /// The API server took it.
        written: bool,
    },
    /// The last renewal of a member was read, or could not be.
    LeaseRead(MemberId, Option<Renewal>),
    /// State of the own kubelet.
    Kubelet(Health),
    Checked(Question, MemberId, CheckResult),
    /// The agent's own keys are others now.
    Keys {
        key: Arc<SigningKey>,
        other: Option<Arc<SigningKey>>,
    },
    /// The configuration has other keys of those who may publish rosters.
    RosterKeys(RosterKeys),
    /// Checks are made in another way.
    ChecksChanged,
    /// Whether this agent holds the zone's Lease.
    Leading(bool),
    /// A write of the report ended.
    ReportWritten {
        /// The API server took it.
        written: bool,
    },
    /// A write that was to prove the link ended.
    LinkProof {
        /// The API server took it.
        written: bool,
    },
    /// A write that acknowledges a roster ended.
    Acknowledged {
        /// The API server took it.
        written: bool,
    },
}
