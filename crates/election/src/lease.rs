//! The record as the spec of a `coordination.k8s.io/v1` Lease.

use crate::core::{Observation, Record};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

/// What a Lease says. Absent fields are empty or zero, as client-go reads them.
pub(crate) fn observation(lease: &Lease) -> Observation {
    let spec = lease.spec.clone().unwrap_or_default();
    Observation {
        record: Record {
            holder: spec.holder_identity.unwrap_or_default(),
            lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquire_time: spec.acquire_time.map(|time| time.0),
            renew_time: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        },
        uid: lease.metadata.uid.clone().unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// The spec that a record is. All of it is written each time, so whatever another elector left there (a strategy, a
/// preferred holder) goes, as with client-go.
pub(crate) fn spec(record: &Record) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: Some(record.lease_duration_seconds),
        acquire_time: record.acquire_time.map(MicroTime),
        renew_time: record.renew_time.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..LeaseSpec::default()
    }
}

/// A new Lease.
pub(crate) fn new(namespace: &str, name: &str, record: &Record) -> Lease {
    Lease {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(spec(record)),
    }
}

/// A time as it comes back from the API: whole microseconds.
pub(crate) fn micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let time = micros("2026-11-20T12:00:00.123456789Z".parse().unwrap());
        Record {
            holder: "me".into(),
            lease_duration_seconds: 15,
            acquire_time: Some(time),
            renew_time: Some(time),
            transitions: 7,
        }
    }

    #[test]
    fn a_record_survives_the_wire() {
        let text = serde_json::to_string(&new("ns", "name", &record())).unwrap();
        assert!(
            text.contains(r#""renewTime":"2026-11-20T12:00:00.123456Z""#),
            "{text}"
        );
        let lease: Lease = serde_json::from_str(&text).unwrap();
        assert_eq!(observation(&lease).record, record());
    }

    #[test]
    fn empty_and_zero_are_written_not_left_out() {
        let spec = serde_json::to_value(spec(&Record::default())).unwrap();
        let expected =
            serde_json::json!({"holderIdentity": "", "leaseDurationSeconds": 0, "leaseTransitions": 0});
        assert_eq!(spec, expected);
    }

    #[test]
    fn a_lease_without_spec_reads_as_an_empty_record() {
        let lease: Lease = serde_json::from_str(
            r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"uid":"u","resourceVersion":"5"}}"#,
        )
        .unwrap();
        let expected = Observation {
            record: Record::default(),
            uid: "u".into(),
            version: "5".into(),
        };
        assert_eq!(observation(&lease), expected);
    }
}
