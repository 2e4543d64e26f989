//! Objects as they were published when a version of the wire format was made. Whatever changes here: later
//! versions read them, and count what is signed in them.

use super::read;
use evenkeel_api::crd::{AgentStatus, NodeIncident, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_zone::Millis;
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::roster::{CellRef, Roster, RosterKeys};
use evenkeel_zone::verdict::{Book, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Each kind, as this code wrote it when the version was made, and never since.
pub(super) const VERSION_3_0: [(&str, &str); 5] = [
    ("ZoneHealth", include_str!("corpus/3.0/zonehealth.json")),
    ("ZoneChallenge", include_str!("corpus/3.0/zonechallenge.json")),
    ("ZoneReport", include_str!("corpus/3.0/zonereport.json")),
    ("AgentStatus", include_str!("corpus/3.0/agentstatus.json")),
    ("NodeIncident", include_str!("corpus/3.0/nodeincident.json")),
];

fn published(kind: &str) -> Value {
    let (_, text) = VERSION_3_0.iter().find(|(name, _)| *name == kind).unwrap();
    serde_json::from_str(text).unwrap()
}

fn read_as<K: DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// The object as the present types read and write it.
fn written<K: DeserializeOwned + Serialize>(value: &Value) -> Value {
    serde_json::to_value(read_as::<K>(value)).unwrap()
}

fn rewritten(kind: &str, value: &Value) -> Value {
    match kind {
        "ZoneHealth" => written::<ZoneHealth>(value),
        "ZoneChallenge" => written::<ZoneChallenge>(value),
        "ZoneReport" => written::<ZoneReport>(value),
        "AgentStatus" => written::<AgentStatus>(value),
        _ => written::<NodeIncident>(value),
    }
}

/// Where `written` lacks or changes what was published.
fn lost(published: &Value, written: &Value, path: &str) -> Vec<String> {
    match (published, written) {
        (Value::Object(fields), Value::Object(_)) => fields
            .iter()
            .flat_map(|(name, value)| lost(value, &written[name], &format!("{path}.{name}")))
            .collect(),
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => items
            .iter()
            .zip(others)
            .flat_map(|(item, other)| lost(item, other, path))
            .collect(),
        _ if published == written => Vec::new(),
        _ => vec![format!("{path}: {published} reads as {written}")],
    }
}

/// Whom a reader finds dead and alive by these objects, checking each signature.
fn verdicts(health: &Value, challenge: &Value, report: &Value) -> [Verdict; 3] {
    let (health, report) = (read_as::<ZoneHealth>(health), read_as::<ZoneReport>(report));
    let key = Fixture::new(1).roster_key().public().clone();
    let cell = CellRef {
        name: "shore",
        uid: health.metadata.uid.as_deref().unwrap(),
    };
    let roster = Roster::open(
        &health.spec.published().unwrap(),
        cell,
        &RosterKeys::new(vec![key]),
    );
    let (current, issued) = read::challenges(&read_as::<ZoneChallenge>(challenge).spec, "evenkeel-0/1");
    assert_eq!(current.drawn, Some(Millis(1_767_225_600_250)));
    let (now, mut book) = (Millis(1_767_225_601_000), Book::new());
    assert_eq!(book.challenges(now, "shore", &issued), []);
    assert_eq!(book.roster(now, "shore", roster.unwrap()), []);
    assert_eq!(book.report(now, "shore", "node-1", &report.spec.report), []);
    [1, 2, 3].map(|node| book.verdict(&Fixture::uid(node)))
}

fn assert_counts([first, second, third]: [Verdict; 3]) {
    assert!(matches!(first, Verdict::None(_)), "{first:?}");
    assert!(matches!(second, Verdict::Alive(_)), "{second:?}");
    assert!(matches!(third, Verdict::Dead(_)), "{third:?}");
}

#[test]
fn objects_of_version_3_0_are_read_for_ever() {
    for (kind, _) in VERSION_3_0 {
        let object = published(kind);
        assert_eq!(
            lost(&object, &rewritten(kind, &object), kind),
            Vec::<String>::new()
        );
    }
    assert_counts(verdicts(
        &published("ZoneHealth"),
        &published("ZoneChallenge"),
        &published("ZoneReport"),
    ));
}

/// Adds fields that nobody knows to every part of an object but its metadata and its labels.
fn grow(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields
                .iter_mut()
                .filter(|(name, _)| *name != "metadata")
                .for_each(|(_, value)| grow(value));
            fields.insert("laterField".to_owned(), json!({ "deep": [1, null] }));
        }
        Value::Array(items) => items.iter_mut().for_each(grow),
        _ => {}
    }
}

/// Hazard 48: what only a later version knows is passed over, or read as that from which nothing follows.
#[test]
fn objects_of_a_later_version_are_read_as_far_as_they_are_known() {
    let careful = [
        ("ZoneReport", "/spec/nodes/0/verdict", json!("None")),
        ("AgentStatus", "/spec/fencing/method", json!("none")),
        ("NodeIncident", "/status/fence/proof/method", json!("none")),
    ];
    let later = |kind| {
        let mut object = published(kind);
        grow(&mut object);
        for (_, place, _) in careful.iter().filter(|(of, ..)| *of == kind) {
            *object.pointer_mut(place).unwrap() = json!("of-a-later-version");
        }
        object
    };
    for (kind, _) in VERSION_3_0 {
        let mut expected = rewritten(kind, &published(kind));
        for (_, place, value) in careful.iter().filter(|(of, ..)| *of == kind) {
            *expected.pointer_mut(place).unwrap() = value.clone();
        }
        assert_eq!(rewritten(kind, &later(kind)), expected, "{kind}");
    }
    assert_counts(verdicts(
        &later("ZoneHealth"),
        &later("ZoneChallenge"),
        &later("ZoneReport"),
    ));
    // A state that nobody knows is nothing to start from.
    let mut incident = published("NodeIncident");
    incident["status"]["decision"]["state"] = json!("Frozen");
    let status = |value: &Value| read_as::<NodeIncident>(value).status.unwrap();
    let recorded = |value: &Value| crate::planner::incident::recorded(&status(value), Millis(u64::MAX));
    assert!(recorded(&incident).is_none() && recorded(&published("NodeIncident")).is_some());
}
