//! The election record in a lock object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The election record: client-go's `LeaderElectionRecord`, with its JSON. Absent fields read as empty or
/// zero, and none is left out when written.
///
/// Its times come from the clocks of other machines. They are shown and compared with each other, and never
/// with a clock of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The holder of the lock; empty when nobody holds it.
    #[serde(rename = "holderIdentity")]
    pub holder: String,
    /// For how long others do not take the lock after each change. This is the holder's setting, not the
    /// observer's.
    pub lease_duration_seconds: i32,
    /// When the holder took the lock. Whole seconds in JSON.
    #[serde(with = "seconds")]
    pub acquire_time: Option<Timestamp>,
    /// When the holder last renewed the lock. Whole seconds in JSON.
    #[serde(with = "seconds")]
    pub renew_time: Option<Timestamp>,
    /// Number of changes of holder since the object was created.
    #[serde(rename = "leaderTransitions")]
    pub transitions: i32,
    /// The strategy of a coordinated election; otherwise empty.
    pub strategy: String,
    /// The candidate that a coordinated election prefers to the holder; empty if it prefers the holder.
    pub preferred_holder: String,
}

impl Record {
    /// For how long the record is valid after a change. A negative duration counts as zero.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }

    /// The record as client-go compares it: its JSON, with times in whole seconds.
    pub fn raw(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A record together with the version of the object in which it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observation {
    /// The record that was seen.
    pub record: Record,
    /// UID of the lock object.
    pub uid: String,
    /// The object's resourceVersion: an update with it fails if somebody wrote in between.
    pub version: String,
    /// The text that [`Compat::ClientGo`](super::Compat::ClientGo) compares instead of the version.
    pub raw: String,
}

/// The time without its fraction of a second.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// `metav1.Time`: RFC 3339 in whole seconds; absent is `null`.
mod seconds {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.collect_str(&format_args!("{:.0}", super::whole_seconds(*time))),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Option::<Timestamp>::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_client_gos() {
        let record = Record {
            holder: "me".into(),
            lease_duration_seconds: 15,
            acquire_time: Some("2026-11-20T12:00:00.9Z".parse().unwrap()),
            renew_time: None,
            transitions: 3,
            ..Record::default()
        };
        let text = r#"{"holderIdentity":"me","leaseDurationSeconds":15,"acquireTime":"2026-11-20T12:00:00Z","renewTime":null,"leaderTransitions":3,"strategy":"","preferredHolder":""}"#;
        assert_eq!(record.raw(), text);
        let read: Record = serde_json::from_str(text).unwrap();
        assert_eq!(read.raw(), text);
        assert_eq!(
            serde_json::from_str::<Record>(r#"{"holderIdentity":"x"}"#)
                .unwrap()
                .holder,
            "x"
        );
    }
}
