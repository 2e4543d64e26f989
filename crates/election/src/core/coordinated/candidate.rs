//! A candidate as its LeaseCandidate describes it, and the order of two candidates.

use super::{Timing, later};
use jiff::Timestamp;
use semver::Version;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The content of a LeaseCandidate. Some of its times are of the candidate's clock, some of the
/// coordinator's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the object, which is the identity that the Lease would name as its holder.
    pub name: String,
    /// Name of the Lease for which it stands, in its own namespace.
    pub lease_name: String,
    /// When the coordinator last pinged it, on the coordinator's clock.
    pub ping_time: Option<Timestamp>,
    /// When the candidate last renewed the object, on its own clock.
    pub renew_time: Option<Timestamp>,
    /// Version of the program, as it stands in the object.
    pub binary_version: String,
    /// The version whose behaviour it emulates, at most `binary_version`; empty if it names none.
    pub emulation_version: String,
    /// Name of the strategy by which it wants the leader to be chosen.
    pub strategy: String,
    /// When the object was created, on the API server's clock, in whole seconds.
    pub created: Option<Timestamp>,
    /// Annotations, which strategies other than [`super::OldestEmulationVersion`] may use.
    pub annotations: BTreeMap<String, String>,
}

impl Candidate {
    /// Whether its last renewal is so old that it counts as gone.
    pub fn is_expired(&self, timing: &Timing, now: Timestamp) -> bool {
        self.renew_time
            .is_none_or(|renewed| later(renewed, timing.candidate_valid) < now)
    }

    /// Whether it has renewed its object within the duration of an election.
    pub fn is_fresh(&self, timing: &Timing, now: Timestamp) -> bool {
        self.renew_time
            .is_some_and(|renewed| later(renewed, timing.election) > now)
    }

    /// The time of a ping that it has not answered yet.
    pub fn unanswered_ping(&self) -> Option<Timestamp> {
        self.ping_time
            .filter(|pinged| self.renew_time.is_none_or(|renewed| renewed < *pinged))
    }

    /// The program's version; zero if it cannot be read.
    pub fn binary_version(&self) -> Version {
        parse_version(&self.binary_version).unwrap_or(ZERO)
    }

    /// The emulated version; zero if it cannot be read.
    pub fn emulation_version(&self) -> Version {
        parse_version(&self.emulation_version).unwrap_or(ZERO)
    }
}

const ZERO: Version = Version::new(0, 0, 0);

/// Reads a semantic version as tolerantly as Kubernetes' coordinator, which accepts a leading `v`, missing
/// minor and patch numbers, and leading zeros.
pub fn parse_version(text: &str) -> Option<Version> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<&str> = numbers.split('.').collect();
    if parts.len() > 3 || parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    parts.resize(3, "0");
    let plain: Vec<&str> = parts
        .iter()
        .map(|part| match part.trim_start_matches('0') {
            "" => "0",
            number => number,
        })
        .collect();
    Version::parse(&format!("{}{rest}", plain.join("."))).ok()
}

/// Orders candidates for [`super::OldestEmulationVersion`], which chooses the smallest: by emulation version,
/// then by binary version, then by the time of creation. A version that cannot be read counts as zero.
///
/// Creation times are whole seconds, so replicas of one rollout are often equal. Kubernetes then takes the
/// one that its cache lists first. Here the name decides, so that the choice does not change from one
/// reconciliation to the next.
pub fn compare(left: &Candidate, right: &Candidate) -> Ordering {
    left.emulation_version()
        .cmp_precedence(&right.emulation_version())
        .then_with(|| left.binary_version().cmp_precedence(&right.binary_version()))
        .then_with(|| left.created.cmp(&right.created))
        .then_with(|| left.name.cmp(&right.name))
}
