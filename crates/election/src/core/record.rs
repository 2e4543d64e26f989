//! What a lock object says about leadership.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The election record: client-go's `LeaderElectionRecord`, with its JSON. Absent fields read as empty or zero, and
/// none is left out when written.
///
/// Its times are other machines' clocks: they are shown and compared for change, never with a clock of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Holder; empty when nobody holds it.
    #[serde(rename = "holderIdentity")]
    pub holder: String,
    /// For how long the others leave it alone after each change. The holder's setting, not the observer's.
    pub lease_duration_seconds: i32,
    /// When the holder took it. Whole seconds in JSON.
    #[serde(with = "seconds")]
    pub acquire_time: Option<Timestamp>,
    /// When the holder last renewed it. Whole seconds in JSON.
    #[serde(with = "seconds")]
    pub renew_time: Option<Timestamp>,
    /// Changes of holder since the object was made.
    #[serde(rename = "leaderTransitions")]
    pub transitions: i32,
    /// Strategy of a coordinated election; empty otherwise.
    pub strategy: String,
    /// Whom a coordinated election would rather have; empty when the holder is right.
    pub preferred_holder: String,
}

impl Record {
    /// For how long after a change the record is valid. A negative duration is none.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }

    /// The record as client-go compares it: its JSON, with times in whole seconds.
    pub fn raw(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A record with the place where it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observation {
    /// What it says.
    pub record: Record,
    /// UID of the lock object.
    pub uid: String,
    /// resourceVersion: an update of this observation fails if anybody wrote in between.
    pub version: String,
    /// What [`Compat::ClientGo`](super::Compat::ClientGo) compares instead of the version.
    pub raw: String,
}

/// `metav1.Time`: RFC 3339 in whole seconds; absent is `null`.
mod seconds {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.collect_str(&format_args!("{:.0}", trunc(*time))),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Option::<Timestamp>::deserialize(from)
    }

    fn trunc(time: Timestamp) -> Timestamp {
        Timestamp::from_second(time.as_second()).unwrap_or(time)
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
