//! Nothing that a base may say reaches a panic.

use super::golden::Exchange;
use evenkeel_arklet::biz::ModuleList;
use evenkeel_arklet::envelope::Envelope;
use evenkeel_arklet::health::Health;
use evenkeel_arklet::heartbeat::Heartbeat;
use evenkeel_arklet::help::Offer;
use evenkeel_arklet::outcome::{self, accepted};
use evenkeel_arklet::{BatchOutcome, Install, ModuleId, Outcome, cause, ops};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Reads bytes as everything that they could be.
fn read_all(bytes: &[u8]) {
    let id = ModuleId::new("biz1", "0.0.1");
    let installs = [Install::new(id.clone(), "file:a")];
    let _ = Heartbeat::decode(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = (
        cause::of_trace(&text),
        cause::is_trace(&text),
        cause::shorten(&text),
    );
    let Ok(envelope) = Envelope::decode(bytes) else {
        return;
    };
    let _ = Outcome::of(&envelope, Some(&id)).to_string();
    let _ = BatchOutcome::of(&envelope, &installs);
    let _ = ops::lookup(&envelope);
    let list = envelope
        .data
        .as_ref()
        .and_then(|data| ModuleList::read(data).ok());
    if let Ok(record) = accepted(&envelope, Some(&id)) {
        let _ = outcome::step(&record, Some(&id), list.as_ref());
        let _ = outcome::step(&record, None, list.as_ref());
    }
    if let Some(data) = &envelope.data {
        let _ = Health::read(data);
        let _ = Offer::read_all(data);
    }
}

/// JSON out of the words that are looked for, with values of any type under them.
fn json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "code",
        "data",
        "message",
        "errorStackTrace",
        "bizInfos",
        "bizName",
        "bizVersion",
        "bizState",
        "bizStateRecords",
        "latestStateRecord",
        "state",
        "reason",
        "changeTime",
        "healthData",
        "jvm",
        "cpu",
        "run time(s)",
        "java max metaspace",
        "count",
        "free (%)",
        "masterBizInfo",
        "bizListInfo",
        "bizInfo",
        "pluginListInfo",
        "status",
        "startTimestamp",
        "endTimestamp",
        "throwable",
        "cause",
        "@type",
        "bizUrlToResponse",
        "file:a",
        "baseMetadata",
        "identity",
        "localIP",
        "port",
    ]);
    let texts = prop::sample::select(vec![
        "SUCCESS",
        "FAILED",
        "REPEAT_BIZ",
        "EXECUTING",
        "SUCCEEDED",
        "activated",
        "BROKEN",
        "biz1",
        "0.0.1",
        "",
        "a.B: c\n\tat d.E.f(E.java:1)\nCaused by: ü\n",
        "192.0.2.1",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((words.clone(), inner), 0..8).prop_map(|entries| {
                let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value));
                Value::Object(entries.collect::<Map<_, _>>())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    #[test]
    fn objects_of_any_shape_are_read_without_panic(value in json(), code in "SUCCESS|FAILED|x") {
        read_all(value.to_string().as_bytes());
        let mut envelope = Map::new();
        envelope.insert("code".to_owned(), Value::from(code));
        envelope.insert("data".to_owned(), value);
        read_all(Value::Object(envelope).to_string().as_bytes());
    }

    #[test]
    fn recorded_answers_with_a_flaw_are_read_without_panic(
        nth in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let exchanges: Vec<Exchange> = ["arklet-http-1.txt", "arklet-http-2.txt"]
            .into_iter()
            .flat_map(Exchange::all)
            .filter(|exchange| exchange.answer.is_some())
            .collect();
        let answer = exchanges[nth.index(exchanges.len())].answer.as_deref().unwrap();
        let mut body = answer.split_once("\r\n\r\n").unwrap().1.as_bytes().to_vec();
        let at = at.index(body.len());
        if cut {
            body.truncate(at);
        } else {
            body[at] = byte;
        }
        read_all(&body);
    }
}
