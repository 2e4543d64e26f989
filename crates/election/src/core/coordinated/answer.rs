//! What a candidate does about its own object.

use super::{Candidate, RENEW_INTERVAL, later};
use jiff::Timestamp;
use std::time::Duration;

/// What to do about one's own object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is not there: make it.
    Create,
    /// A ping, or its time has come, or it does not say what we are: write it with this `renewTime`.
    Renew {
        /// Our time; but after the ping, if our clock is behind the coordinator's.
        renew_time: Timestamp,
    },
    /// It stands for another Lease, which cannot be changed: somebody else uses this identity.
    Foreign {
        /// The Lease it stands for.
        lease_name: String,
    },
    /// Nothing, for so long.
    Wait {
        /// Until the next renewal.
        at_most: Duration,
    },
}

/// What a candidate that wants its object to be as `wanted` (times aside) does when it finds `found`.
///
/// An answer is dated one microsecond after the ping if our clock is behind: otherwise it would never count, and the
/// ping would look unanswered for as long as the clock is.
pub fn answer(found: Option<&Candidate>, wanted: &Candidate, now: Timestamp) -> Answer {
    let Some(found) = found else {
        return Answer::Create;
    };
    if found.lease_name != wanted.lease_name {
        return Answer::Foreign {
            lease_name: found.lease_name.clone(),
        };
    }
    // Not before the ping, whatever our clock says.
    let renew_time = found
        .ping_time
        .map_or(now, |ping| later(ping, Duration::from_micros(1)).max(now));
    let renewed_until = found.renew_time.map(|renewed| later(renewed, RENEW_INTERVAL));
    // A later time than we would write is not ours: our clock was set back, or another wrote it.
    let due = renewed_until.is_none_or(|until| until <= now) || found.renew_time > Some(renew_time);
    let outdated = found.binary_version != wanted.binary_version
        || found.emulation_version != wanted.emulation_version
        || found.strategy != wanted.strategy
        || wanted
            .annotations
            .iter()
            .any(|(key, value)| found.annotations.get(key) != Some(value));
    if due || outdated || found.unanswered_ping().is_some() {
        return Answer::Renew { renew_time };
    }
    let until = renewed_until.unwrap_or(now);
    let at_most = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    Answer::Wait {
        at_most: at_most.min(RENEW_INTERVAL),
    }
}
