//! Decides what a candidate writes to its own object.

use super::{Candidate, RENEW_INTERVAL, later};
use jiff::Timestamp;
use std::time::Duration;

/// What a candidate has to do with its own object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Create the object, which does not exist.
    Create,
    /// Write the object, because of a ping, or because its renewal is due, or because its content is not as
    /// wanted.
    Renew {
        /// The `renewTime` to write: our own time, but always after the ping, also if our clock is behind the
        /// coordinator's.
        renew_time: Timestamp,
    },
    /// Do nothing: the object is for another Lease, which cannot be changed, so somebody else uses this
    /// identity.
    Foreign {
        /// The Lease for which the object is.
        lease_name: String,
    },
    /// Do nothing for a while.
    Wait {
        /// Time until the next renewal.
        at_most: Duration,
    },
}

/// Decides what a candidate does that finds the object `found` and wants it to be like `wanted`, except for
/// the times.
///
/// If our clock is behind, the `renewTime` is one microsecond after the ping. With our own time the ping
/// would count as unanswered until our clock has passed it.
pub fn answer(found: Option<&Candidate>, wanted: &Candidate, now: Timestamp) -> Answer {
    let Some(found) = found else {
        return Answer::Create;
    };
    if found.lease_name != wanted.lease_name {
        return Answer::Foreign {
            lease_name: found.lease_name.clone(),
        };
    }
    // After the ping, whatever our clock says.
    let renew_time = found
        .ping_time
        .map_or(now, |ping| later(ping, Duration::from_micros(1)).max(now));
    let renewed_until = found.renew_time.map(|renewed| later(renewed, RENEW_INTERVAL));
    // A time later than now was not written by us, or our clock was set back since.
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
