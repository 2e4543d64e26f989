use super::*;
use rstest::rstest;
use serde_json::json;

fn annotated(text: Option<&str>) -> DynamicObject {
    let annotations = text.map(|text| json!({"other": "stays", LEADER_ANNOTATION: text}));
    serde_json::from_value(json!({"metadata": {"name": "x", "annotations": annotations},
        "data": {"key": "value"}}))
    .unwrap()
}

// Annotations as Kubernetes components of several ages have left them.
#[rstest]
#[case::kubernetes_1_6(
    r#"{"holderIdentity":"master-1","leaseDurationSeconds":15,"acquireTime":"2017-05-02T09:10:11Z","renewTime":"2017-05-02T09:12:13Z","leaderTransitions":4}"#,
    "master-1", 15, 4
)]
#[case::time_zone(
    r#"{"holderIdentity":"a_b","leaseDurationSeconds":15,"acquireTime":"2017-05-02T11:10:11+02:00","renewTime":"2017-05-02T11:12:13+02:00","leaderTransitions":0}"#,
    "a_b", 15, 0
)]
#[case::released(
    r#"{"holderIdentity":"","leaseDurationSeconds":1,"acquireTime":"2021-01-01T00:00:00Z","renewTime":"2021-01-01T00:00:00Z","leaderTransitions":9}"#,
    "", 1, 9
)]
#[case::zero_times(
    r#"{"holderIdentity":"x","leaseDurationSeconds":10,"acquireTime":null,"renewTime":null,"leaderTransitions":1}"#,
    "x", 10, 1
)]
#[case::kubernetes_1_31(
    r#"{"holderIdentity":"x","leaseDurationSeconds":10,"acquireTime":null,"renewTime":null,"leaderTransitions":1,"strategy":"OldestEmulationVersion","preferredHolder":"y"}"#,
    "x", 10, 1
)]
#[case::unknown_fields(
    r#"{"holderIdentity":"x","leaseDurationSeconds":10,"somethingNew":[1]}"#,
    "x",
    10,
    0
)]
fn annotations_of_all_ages_are_read(
    #[case] text: &str,
    #[case] holder: &str,
    #[case] seconds: i32,
    #[case] transitions: i32,
) {
    let (record, raw) = read(&annotated(Some(text))).unwrap();
    assert_eq!(record.holder, holder);
    assert_eq!(
        (record.lease_duration_seconds, record.transitions),
        (seconds, transitions)
    );
    assert_eq!(raw, text, "compared as it stands there");
}

#[test]
fn times_in_another_zone_are_the_same_times() {
    let text = r#"{"renewTime":"2017-05-02T11:12:13+02:00"}"#;
    let (record, _) = read(&annotated(Some(text))).unwrap();
    assert_eq!(record.renew_time, Some("2017-05-02T09:12:13Z".parse().unwrap()));
}

#[test]
fn without_the_annotation_nobody_ever_held_it() {
    assert_eq!(read(&annotated(None)), Ok((Record::default(), String::new())));
}

#[rstest]
#[case("")]
#[case("me")]
#[case(r#"{"holderIdentity":5}"#)]
#[case(r#"{"holderIdentity":"me","renewTime":"soon"}"#)]
fn a_broken_annotation_is_named(#[case] text: &str) {
    let what = read(&annotated(Some(text))).unwrap_err();
    let start = "its annotation control-plane.alpha.kubernetes.io/leader is no election record (";
    assert!(what.starts_with(start), "{what}");
}

#[test]
fn a_record_is_written_as_client_go_wrote_it_and_the_rest_stays() {
    let record = Record {
        holder: "me".into(),
        lease_duration_seconds: 15,
        acquire_time: Some("2026-11-20T12:00:00.9Z".parse().unwrap()),
        renew_time: Some("2026-11-20T12:00:02.1Z".parse().unwrap()),
        transitions: 3,
        ..Record::default()
    };
    let mut object = annotated(Some("{}"));
    write(&mut object, &record).unwrap();
    let annotations = object.metadata.annotations.as_ref().unwrap();
    assert_eq!(
        annotations[LEADER_ANNOTATION],
        r#"{"holderIdentity":"me","leaseDurationSeconds":15,"acquireTime":"2026-11-20T12:00:00Z","renewTime":"2026-11-20T12:00:02Z","leaderTransitions":3,"strategy":"","preferredHolder":""}"#
    );
    assert_eq!(annotations["other"], "stays");
    assert_eq!(object.data["data"], json!({"key": "value"}));
    assert_eq!(read(&object).unwrap().0.holder, "me");
}
