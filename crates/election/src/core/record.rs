//! What a Lease says about leadership.

use jiff::Timestamp;
use std::time::Duration;

/// The election record of a Lease: client-go's `LeaderElectionRecord`. Absent fields read as empty or zero.
///
/// Its times are other machines' clocks: they are shown and compared for change, never with a clock of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Holder; empty when nobody holds it.
    pub holder: String,
    /// For how long the others leave it alone after each change. The holder's setting, not the observer's.
    pub lease_duration_seconds: i32,
    /// When the holder took it.
    pub acquire_time: Option<Timestamp>,
    /// When the holder last renewed it.
    pub renew_time: Option<Timestamp>,
    /// Changes of holder since the object was made.
    pub transitions: i32,
}

impl Record {
    /// For how long after a change the record is valid. A negative duration is none.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }
}

/// A record with the place where it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What it says.
    pub record: Record,
    /// UID of the Lease.
    pub uid: String,
    /// resourceVersion: an update of this observation fails if anybody wrote in between.
    pub version: String,
}
