use super::*;
use serde_json::json;

fn of(answer: &Value) -> Outcome {
    Outcome::of(&Envelope::read(answer.clone()).unwrap(), None)
}

fn record(data: &Value) -> Record {
    Record::read(data).unwrap()
}

fn listed(id: &ModuleId, created: i64) -> Value {
    json!({"bizName": id.name, "bizVersion": id.version, "bizState": "activated",
        "bizStateRecords": [{"state": "resolved", "changeTime": created}]})
}

#[test]
fn unknown_codes_and_missing_parts_fail_with_what_there_is() {
    let table = [
        (json!({"code": "TEAPOT"}), "TEAPOT"),
        (
            json!({"code": "FAILED", "message": " ", "data": {"code": "ODD", "message": "m"}}),
            "m",
        ),
        (
            json!({"code": "FAILED", "message": "outer", "data": {"code": "SUCCESS", "message": "inner"}}),
            "inner",
        ),
        (json!({"code": "SUCCESS", "data": {"code": "FAILED"}}), "SUCCESS"),
        (
            json!({"code": "CMD_NOT_FOUND", "message": "please follow the doc"}),
            "please follow the doc",
        ),
    ];
    for (answer, cause) in table {
        match of(&answer) {
            Outcome::Failed(failure) => assert_eq!(failure.cause, cause, "{answer}"),
            other => panic!("{answer}: {other:?}"),
        }
    }
}

#[test]
fn removing_a_module_that_is_starting_is_an_illegal_state() {
    let trace = "java.lang.IllegalArgumentException: BizState must be ACTIVATED, DEACTIVATED or BROKEN.\n\tat a.B.c(B.java:1)";
    let http = json!({"code": "CMD_PROCESS_INTERNAL_ERROR", "errorStackTrace": trace,
        "message": "Internal Error: BizState must be ACTIVATED, DEACTIVATED or BROKEN."});
    let mqtt = json!({"code": "FAILED", "data": {"code": "FAILED", "message": trace}, "message": "BizState must be ACTIVATED"});
    let inner = json!({"code": "FAILED", "data": {"code": "ILLEGAL_STATE_BIZ", "message": "Switch Biz: x's state must not be Y."}});
    for answer in [http, mqtt, inner] {
        assert!(matches!(of(&answer), Outcome::IllegalState { .. }), "{answer}");
    }
}

#[test]
fn a_success_without_modules_is_taken_at_its_word() {
    let answer =
        Envelope::read(json!({"code": "success", "data": {"code": "Success", "bizInfos": "?"}})).unwrap();
    let asked = ModuleId::new("a", "1");
    assert_eq!(
        Outcome::of(&answer, Some(&asked)),
        Outcome::Done { modules: vec![] }
    );
}

#[test]
fn what_an_asynchronous_install_made_is_told_by_when_it_came_to_be() {
    let (asked, other) = (ModuleId::new("a", "1"), ModuleId::new("b", "1"));
    let done = record(&json!({"status": "SUCCEEDED", "startTimestamp": 100, "endTimestamp": 200}));
    let end = |entries: Value| {
        let list = ModuleList::read(&entries).unwrap();
        match step(&done, Some(&asked), Some(&list)) {
            Step::End(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(step(&done, Some(&asked), None), Step::List);
    let ids = |outcome: Outcome| match outcome {
        Outcome::Done { modules } => modules.iter().map(|m| m.id.to_string()).collect::<Vec<_>>(),
        Outcome::Mismatch { found, .. } => found.iter().map(|id| format!("stray {id}")).collect(),
        other => panic!("{other:?}"),
    };
    let table = [
        (json!([listed(&asked, 150)]), vec!["a:1"]),
        (json!([listed(&other, 150)]), vec!["stray b:1"]),
        // The jar held another module while one of the asked identity was there before.
        (
            json!([listed(&asked, 50), listed(&other, 150)]),
            vec!["stray b:1"],
        ),
        // Another install that went on at the same time.
        (json!([listed(&asked, 150), listed(&other, 160)]), vec!["a:1"]),
        (json!([listed(&asked, 50)]), vec!["a:1"]),
        (json!([]), vec![]),
    ];
    for (entries, wanted) in table {
        assert_eq!(ids(end(entries.clone())), wanted, "{entries}");
    }
    assert!(matches!(end(json!([])), Outcome::Mismatch { .. }));
    assert!(
        matches!(end(json!([{"bizName": "a"}])), Outcome::Done { .. }),
        "something unreadable is there"
    );
}

#[test]
fn an_asynchronous_install_that_met_the_same_module_is_a_repeat() {
    let asked = ModuleId::new("a", "1");
    let failed = record(&json!({"status": "FAILED", "message": "install biz not success!"}));
    assert_eq!(step(&failed, Some(&asked), None), Step::List);
    let list = ModuleList::read(&json!([listed(&asked, 1)])).unwrap();
    assert!(matches!(
        step(&failed, Some(&asked), Some(&list)),
        Step::End(Outcome::Repeat { .. })
    ));
    let empty = ModuleList::default();
    assert!(matches!(
        step(&failed, Some(&asked), Some(&empty)),
        Step::End(Outcome::Failed(_))
    ));
    assert!(matches!(step(&failed, None, None), Step::End(Outcome::Failed(_))));
}

#[test]
fn a_batch_that_is_half_nonsense_tells_what_it_can() {
    let installs = [
        Install::new(ModuleId::new("a", "1"), "file:a"),
        Install::new(ModuleId::new("b", "1"), "file:same"),
        Install::new(ModuleId::new("c", "1"), "file:same"),
    ];
    let answer = json!({"code": "FAILED", "message": "install biz not success!", "data": {"code": "FAILED", "bizUrlToResponse": {
        "file:a": 5,
        "file:same": {"code": "SUCCESS", "bizInfos": [{"bizName": "c", "bizVersion": "1", "bizState": "activated"}]},
    }}});
    let batch = BatchOutcome::of(&Envelope::read(answer).unwrap(), &installs);
    assert!(matches!(&batch.overall, Outcome::Failed(_)));
    assert!(matches!(&batch.by_url["file:a"], Outcome::Failed(_)));
    assert!(matches!(&batch.by_url["file:same"], Outcome::Done { modules } if modules.len() == 1));
}

#[test]
fn outcomes_read_well() {
    let mismatch = Outcome::Mismatch {
        asked: ModuleId::new("a", "1"),
        found: vec![ModuleId::new("b", "2")],
    };
    assert_eq!(
        mismatch.to_string(),
        "asked for a:1, but the manifest of the jar says otherwise: b:2"
    );
}
