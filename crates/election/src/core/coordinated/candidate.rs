//! A candidate as its object describes it, and the order between two.

use super::{Timing, later};
use jiff::Timestamp;
use semver::Version;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What a LeaseCandidate says. Times are as written there: some by the candidate's clock, some by the coordinator's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the object, which is the identity that the Lease would name as its holder.
    pub name: String,
    /// Name of the Lease it stands for, in its own namespace.
    pub lease_name: String,
    /// When the coordinator last asked for a sign of life; the coordinator's clock.
    pub ping_time: Option<Timestamp>,
    /// When the candidate last gave one; its own clock.
    pub renew_time: Option<Timestamp>,
    /// Version of the program, as written.
    pub binary_version: String,
    /// Version that it behaves like, at most the one above; empty if it does not say.
    pub emulation_version: String,
    /// Name of the strategy by which it wants the leader to be chosen.
    pub strategy: String,
    /// When the object was made, by the API server's clock, in whole seconds.
    pub created: Option<Timestamp>,
    /// What strategies other than [`super::OldestEmulationVersion`] may go by.
    pub annotations: BTreeMap<String, String>,
}

impl Candidate {
    /// Whether it has been silent for so long that it counts as gone.
    pub fn is_expired(&self, timing: &Timing, now: Timestamp) -> bool {
        self.renew_time
            .is_none_or(|renewed| later(renewed, timing.candidate_valid) < now)
    }

    /// Whether it gave a sign of life within the election's duration.
    pub fn is_fresh(&self, timing: &Timing, now: Timestamp) -> bool {
        self.renew_time
            .is_some_and(|renewed| later(renewed, timing.election) > now)
    }

    /// The ping that it has not answered yet.
    pub fn unanswered_ping(&self) -> Option<Timestamp> {
        self.ping_time
            .filter(|pinged| self.renew_time.is_none_or(|renewed| renewed < *pinged))
    }

    /// The program's version, or zero if there is none to be read.
    pub fn binary_version(&self) -> Version {
        parse_version(&self.binary_version).unwrap_or(ZERO)
    }

    /// The emulated version, or zero if there is none to be read.
    pub fn emulation_version(&self) -> Version {
        parse_version(&self.emulation_version).unwrap_or(ZERO)
    }
}

const ZERO: Version = Version::new(0, 0, 0);

/// Reads a semantic version as tolerantly as Kubernetes' coordinator: a leading `v`, missing minor and patch numbers
/// and leading zeros are forgiven.
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

/// Which of two candidates the oldest emulation version prefers: the smaller one. Lower emulation version, then lower
/// binary version, then the older object. A version that cannot be read counts as zero.
///
/// Objects have ages of whole seconds, so replicas of one rollout often tie. Kubernetes then takes whichever its cache
/// lists first; here the name decides, so that the choice does not change from look to look.
pub fn compare(left: &Candidate, right: &Candidate) -> Ordering {
    left.emulation_version()
        .cmp_precedence(&right.emulation_version())
        .then_with(|| left.binary_version().cmp_precedence(&right.binary_version()))
        .then_with(|| left.created.cmp(&right.created))
        .then_with(|| left.name.cmp(&right.name))
}
