use super::*;
use kube::core::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

fn full() -> Record {
    Record {
        holder: "me".into(),
        lease_duration_seconds: 15,
        acquire_time: Some("2026-11-20T12:00:00.123456Z".parse().unwrap()),
        renew_time: Some("2026-11-20T12:00:02.000001Z".parse().unwrap()),
        transitions: 7,
        strategy: "OldestEmulationVersion".into(),
        preferred_holder: "you".into(),
    }
}

fn lease(spec: Value) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "x"}, "spec": spec}))
    .unwrap()
}

fn written(record: &Record) -> DynamicObject {
    let mut object = lease(json!({"holderIdentity": "before", "strategy": "before"}));
    (SPEC.write)(&mut object, record).unwrap();
    object
}

// Upstream's round trips: record to Lease to record, with and without the fields of coordinated elections.
#[rstest]
#[case::full(full())]
#[case::no_strategy(Record { strategy: String::new(), preferred_holder: String::new(), ..full() })]
#[case::released(Record { holder: String::new(), lease_duration_seconds: 1, ..full() })]
#[case::zero(Record::default())]
fn a_record_survives_the_lease(#[case] record: Record) {
    // Through text, as on the wire.
    let text = serde_json::to_string(&written(&record)).unwrap();
    let object: DynamicObject = serde_json::from_str(&text).unwrap();
    let (read, raw) = (SPEC.read)(&object).unwrap();
    assert_eq!(read, record);
    assert_eq!(raw, record.raw());
    let json: Record = serde_json::from_str(&raw).unwrap();
    assert_eq!(json.holder, record.holder);
}

#[test]
fn times_are_written_in_microseconds() {
    let record = Record {
        renew_time: Some("2026-11-20T12:00:00.123456789Z".parse().unwrap()),
        acquire_time: Some("2026-11-20T12:00:00Z".parse().unwrap()),
        ..full()
    };
    let spec = &written(&record).data["spec"];
    assert_eq!(spec["renewTime"], "2026-11-20T12:00:00.123456Z");
    assert_eq!(spec["acquireTime"], "2026-11-20T12:00:00.000000Z");
}

#[test]
fn renewals_within_a_second_differ_in_the_record_but_not_in_what_client_go_compares() {
    let later = Record {
        renew_time: Some("2026-11-20T12:00:02.900001Z".parse().unwrap()),
        ..full()
    };
    let (first, second) = (written(&full()), written(&later));
    let ((first, first_raw), (second, second_raw)) =
        ((SPEC.read)(&first).unwrap(), (SPEC.read)(&second).unwrap());
    assert_ne!(first, second);
    assert_eq!(first_raw, second_raw);
}

#[test]
fn the_whole_spec_is_written_empty_and_zero_too() {
    let expected = json!({"holderIdentity": "", "leaseDurationSeconds": 0, "leaseTransitions": 0});
    assert_eq!(written(&Record::default()).data["spec"], expected);
}

// As found in clusters of several ages.
#[rstest]
#[case::without_spec(Value::Null, Record::default())]
#[case::empty(json!({}), Record::default())]
#[case::times_without_fraction(
    json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "acquireTime": "2019-03-01T10:00:00Z",
        "renewTime": "2019-03-01T10:00:02Z", "leaseTransitions": 2}),
    Record {
        holder: "a".into(),
        lease_duration_seconds: 15,
        acquire_time: Some("2019-03-01T10:00:00Z".parse().unwrap()),
        renew_time: Some("2019-03-01T10:00:02Z".parse().unwrap()),
        transitions: 2,
        ..Record::default()
    },
)]
#[case::heartbeat_of_a_node(
    json!({"holderIdentity": "node-1", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.500000Z"}),
    Record {
        holder: "node-1".into(),
        lease_duration_seconds: 40,
        renew_time: Some("2026-01-01T00:00:00.5Z".parse().unwrap()),
        ..Record::default()
    },
)]
#[case::third_party_coordinated(
    json!({"strategy": "example.com/mine", "preferredHolder": "b", "newerField": {"x": 1}}),
    Record { strategy: "example.com/mine".into(), preferred_holder: "b".into(), ..Record::default() },
)]
fn leases_of_others_are_read(#[case] spec: Value, #[case] expected: Record) {
    assert_eq!((SPEC.read)(&lease(spec)).unwrap().0, expected);
}

#[rstest]
#[case(json!({"leaseDurationSeconds": "ten"}))]
#[case(json!({"renewTime": "yesterday"}))]
#[case(json!("no object"))]
fn a_spec_that_cannot_be_read_is_named(#[case] spec: Value) {
    let what = (SPEC.read)(&lease(spec)).unwrap_err();
    assert!(what.starts_with("its spec is not that of a Lease ("), "{what}");
}
