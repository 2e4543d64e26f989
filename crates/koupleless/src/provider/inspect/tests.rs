use super::super::Settings;
use super::super::base::Table;
use super::*;
use crate::core::{Base, Connection, Endpoint, Identity};
use evenkeel_vnode::provider::PodId;
use rstest::rstest;
use serde_json::{Value, json};

fn bound() -> Bound {
    Bound {
        node: "n".into(),
        base: Arc::new(Base {
            identity: Identity::new("a").unwrap(),
            name: None,
            version: None,
            cluster: None,
            host_name: None,
            endpoint: Endpoint {
                address: "192.0.2.2".parse().unwrap(),
                by: Connection::Http(1238),
            },
            pod: None,
        }),
        memory: Table::default().of("n", &Settings::default()),
    }
}

/// A list of one module that was created at `created` and is in this state since `changed`.
fn list(state: &str, created: i64, changed: Option<i64>) -> ModuleList {
    let mut latest = json!({"state": state, "reason": "Switched", "message": ""});
    if let Some(changed) = changed {
        latest["changeTime"] = json!(changed);
    }
    let first = json!({"state": "resolved", "reason": "Created", "message": "", "changeTime": created});
    let module: Value =
        json!({"bizName": "m", "bizVersion": "1", "bizState": state, "bizStateRecords": [first, latest]});
    ModuleList::read(&json!([module])).unwrap()
}

fn running(state: &mut State, list: &ModuleList, now: Timestamp) {
    let id = ModuleId::new("m", "1");
    let module = list.get(&id).unwrap();
    let running = Running {
        pod: PodId {
            uid: "u".into(),
            namespace: "default".into(),
            name: "p".into(),
            node: "n".into(),
        },
        container: ContainerId("c".into()),
        created: module.created_ms(),
        doing: doing(module, now, now),
        url: "file:///m.jar".into(),
    };
    state.running.insert((id, "u".into()), running);
}

/// The released controller compares seconds of the minute alone, and so misses every second change.
#[rstest]
#[case::within_a_minute(Some(10), Some(25))]
#[case::over_a_minute(Some(50), Some(65))]
#[case::after_a_whole_minute(Some(50), Some(110))]
#[case::in_the_same_second(Some(50), Some(50))]
#[case::by_a_clock_that_was_set_back(Some(50), Some(20))]
#[case::without_a_time(Some(50), None)]
fn a_change_is_told_once_whenever_it_was(#[case] before: Option<i64>, #[case] after: Option<i64>) {
    let bound = bound();
    let mut state = State::default();
    // The last second of a minute: the next one's is less.
    let created = 1_795_170_059_000;
    let at = |seconds: i64| created + seconds * 1000;
    let first = list("activated", created, before.map(at));
    running(&mut state, &first, Timestamp::now());
    assert!(compare(&bound, &mut state, &first).is_empty());
    let second = list("deactivated", created, after.map(at));
    let told = compare(&bound, &mut state, &second);
    let [Report::Container { name, observed, .. }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(&**name, "m");
    assert!(matches!(&observed.doing, Doing::Stalled { reason, .. } if reason == "Deactivated"));
    assert!(compare(&bound, &mut state, &second).is_empty(), "once");
    let told = compare(&bound, &mut state, &list("activated", created, after.map(at)));
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn another_times_in_the_records_are_no_change() {
    let bound = bound();
    let mut state = State::default();
    let created = 1_795_170_059_000;
    let first = list("activated", created, Some(created));
    running(&mut state, &first, Timestamp::now());
    for seconds in 0..120 {
        let later = list("activated", created, Some(created + seconds * 1000));
        assert!(compare(&bound, &mut state, &later).is_empty(), "{seconds}");
    }
}

#[test]
fn modules_that_nobody_here_runs_are_passed_over() {
    let bound = bound();
    let mut state = State::default();
    let told = compare(&bound, &mut state, &list("activated", 1, Some(1)));
    assert!(told.is_empty() && state.running.is_empty(), "{told:?}");
}
