//! The recordings, replayed: each answer of the fake is the recorded one. Its JSON is compared as a reader
//! takes it: the order of keys and the spelling of numbers and texts do not count.

use super::fed::{Facts, Fed};
use super::{SOON, post, raw, recorded_jars, send, url};
use crate::arklet::engine::Output;
use crate::arklet::{Base, Identity, Moment, Setup, heartbeat};
use crate::{eventually, skipped, until};
use serde_json::Value;
use std::path::PathBuf;

/// A recording, or `None` where there is none.
pub(super) fn recording(test: &str, file: &str) -> Option<String> {
    let home = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let places = ["../../../shared/golden/arklet", "../arklet/tests/golden"];
    let found = places
        .iter()
        .find_map(|place| std::fs::read_to_string(home.join(place).join(file)).ok());
    if found.is_none() {
        skipped(test, &format!("no recording {file} beside the checkout"));
    }
    found
}

struct Exchange {
    /// The recorder's line without `### `.
    request: String,
    /// The answer without the line feeds that the recorder added.
    answer: String,
    /// Its document, or null.
    document: Value,
}

fn exchanges(recording: &str) -> Vec<Exchange> {
    recording
        .split("### ")
        .skip(1)
        .map(|part| {
            let (request, answer) = part.split_once('\n').unwrap();
            let answer = answer.trim_end_matches('\n');
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            Exchange {
                request: request.to_owned(),
                answer: answer.to_owned(),
                document: serde_json::from_str(body).unwrap_or_default(),
            }
        })
        .collect()
}

impl Exchange {
    fn command(&self) -> &str {
        self.request
            .strip_prefix("POST /")
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or_default()
    }

    fn body(&self) -> &str {
        self.request.splitn(3, ' ').nth(2).unwrap_or_default()
    }

    /// What `queryAllBiz` told of one module.
    fn listed(&self, name: &str, version: &str) -> Option<&Value> {
        let modules = self.document["data"].as_array()?;
        modules
            .iter()
            .find(|module| module["bizName"] == name && module["bizVersion"] == version)
    }
}

/// A message of HTTP as its reader takes it: its head, and the JSON of its body, or the body itself if it is
/// no JSON.
fn read(message: &str) -> (&str, Result<Value, &str>) {
    let (head, body) = message.split_once("\r\n\r\n").unwrap_or((message, ""));
    (head, serde_json::from_str(body).map_err(|_| body))
}

/// Instants of an installation, out of its answer: `response` is sofa-ark's own.
pub(super) fn feed_install(facts: &mut Facts, response: &Value) {
    let Some(info) = response["bizInfos"].get(0) else {
        return;
    };
    let name = info["bizName"].as_str().unwrap();
    let about = url(name, info["bizVersion"].as_str().unwrap());
    let work_dir = info["bizTempWorkDir"].as_str().unwrap();
    let stamp = work_dir.rsplit('-').nth(1).unwrap();
    let parse = |text: &str| {
        let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", &text[..14]).unwrap();
        let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
        zoned.timestamp().as_millisecond() + text[14..].parse::<i64>().unwrap()
    };
    facts.time(Moment::TempFile, &about, parse(stamp));
    let message = response["message"].as_str().unwrap();
    let begun = message.split("started at: ").nth(1).unwrap();
    let begun = begun.replace([':', ','], "");
    facts.time(Moment::Begun, &about, parse(&format!("{}{begun}", &stamp[..8])));
    let records = info["bizStateRecords"].as_array().unwrap();
    facts.time(
        Moment::Created,
        &about,
        records[0]["changeTime"].as_i64().unwrap(),
    );
    facts.time(Moment::Ended, &about, records[1]["changeTime"].as_i64().unwrap());
}

/// Facts of sofa-ark's or arklet's own answer, common to both tunnels.
pub(super) fn feed_answer(facts: &mut Facts, data: &Value) {
    facts.space = data["elapsedSpace"].as_i64();
    feed_install(facts, data);
    if let Some(responses) = data["bizUrlToResponse"].as_object() {
        for response in responses.values() {
            feed_install(facts, response);
        }
    }
}

/// What the answer to an exchange, and those after it, show of the world at its time.
fn feed(facts: &mut Facts, exchange: &Exchange, later: &[Exchange]) {
    let data = &exchange.document["data"];
    feed_answer(facts, data);
    if let Some(trace) = exchange.document["errorStackTrace"].as_str() {
        facts.trace(trace);
    }
    let asked: Value = serde_json::from_str(exchange.body()).unwrap_or_default();
    let name = asked["bizName"].as_str().unwrap_or_default();
    let version = asked["bizVersion"].as_str().unwrap_or_default();
    let listed = later.iter().find_map(|later| later.listed(name, version));
    if exchange.command() == "switchBiz"
        && let Some(records) = listed.and_then(|listed| listed["bizStateRecords"].as_array())
    {
        let switched = records.last().unwrap()["changeTime"].as_i64().unwrap();
        facts.time(Moment::Switched, &format!("{name}:{version}"), switched);
    }
    if exchange.command() == "installBiz"
        && let Some(id) = data["requestId"].as_str()
    {
        facts
            .at_once
            .insert(id.to_owned(), data["threadName"].is_string());
        facts.time(Moment::Accepted, id, data["startTime"].as_i64().unwrap());
        let done = later
            .iter()
            .map(|later| &later.document["data"])
            .find(|data| data["requestId"] == id && data["endTime"].is_i64());
        let done = done.unwrap();
        facts.time(Moment::Finished, id, done["endTime"].as_i64().unwrap());
        if done["throwable"].is_object() {
            facts.bean(&done["throwable"]);
        }
        if let Some(listed) = listed {
            let created = listed["bizStateRecords"][0]["changeTime"].as_i64().unwrap();
            facts.time(Moment::Created, &url(name, version), created);
        }
    }
}

/// Waits until the base is where the recorded one was: what ran beside it had an unknown time to get there.
async fn settle(base: &Base, exchange: &Exchange) {
    let data = &exchange.document["data"];
    match exchange.command() {
        "queryBizOps" if data["status"].is_string() => {
            if data["status"] == "SUCCEEDED" {
                base.release(&url("slow", "0.0.1"));
            }
            let id = data["requestId"].as_str().unwrap();
            let wanted = data["endTime"].is_i64();
            eventually("the record is closed or open as recorded", SOON, async || {
                let record = base.with_engine(|engine| engine.query_ops(id))?;
                let Output::Success(record) = record else {
                    return None;
                };
                (record["endTime"].is_i64() == wanted).then_some(())
            })
            .await;
        }
        "queryAllBiz" => {
            let wanted: Vec<_> = data
                .as_array()
                .unwrap()
                .iter()
                .map(|module| module["bizState"].as_str().unwrap())
                .collect();
            until("the modules are in the recorded states", async || {
                let states: Vec<_> = base
                    .modules()
                    .iter()
                    .map(|module| module.state.to_string())
                    .collect();
                states == wanted
            })
            .await;
        }
        _ => {}
    }
}

/// A base as it was recorded.
pub(super) fn recorded_base(fed: &Fed) -> Base {
    Base::start(Setup {
        identity: Some(Identity::stock("192.0.2.2")),
        told_port: Some(12_380),
        jars: recorded_jars(),
        metaspace: crate::arklet::Metaspace {
            used: 16_471_152,
            committed: 16_777_216,
            max: 268_435_456,
        },
        world: Box::new(fed.clone()),
        ..Setup::default()
    })
}

#[tokio::test]
async fn every_recorded_http_exchange_is_answered_as_recorded() {
    let test = "every_recorded_http_exchange_is_answered_as_recorded";
    let (Some(first), Some(second)) = (
        recording(test, "arklet-http-1.txt"),
        recording(test, "arklet-http-2.txt"),
    ) else {
        return;
    };
    let mut all = exchanges(&first);
    assert_eq!(all.len(), 27);
    all.extend(exchanges(&second));
    assert_eq!(all.len(), 27 + 23);
    let fed = Fed::default();
    let base = recorded_base(&fed);
    for (index, exchange) in all.iter().enumerate() {
        feed(&mut fed.0.lock().unwrap(), exchange, &all[index + 1..]);
        settle(&base, exchange).await;
        let unanswered = match exchange.request.as_str() {
            "GET health" => None,
            // The bodies sent are not recorded.
            "bad json" => Some(r#"{"bizName":"#),
            "array json" => Some("[]"),
            _ => None,
        };
        if let Some(body) = unanswered {
            assert!(
                exchange
                    .answer
                    .contains("timed out after 4001 milliseconds with 0 bytes")
            );
            is_never_answered(&base, body).await;
            continue;
        }
        let request = match exchange.request.as_str() {
            "GET health" => "GET /health HTTP/1.1\r\nHost: 127.0.0.1:12380\r\n\r\n".to_owned(),
            _ => post(exchange.command(), exchange.body()),
        };
        let answer = raw(base.address(), &request).await;
        assert!(
            read(&answer) == read(&exchange.answer),
            "exchange {index}: {}\nrecorded: {}\nanswered: {answer}",
            exchange.request,
            exchange.answer
        );
    }
}

/// The request is read, and neither answered nor is its connection closed.
pub(super) async fn is_never_answered(base: &Base, body: &str) {
    let before = base.requests("installBiz");
    let stream = send(base.address(), &post("installBiz", body)).await;
    until("the request is read", async || {
        base.requests("installBiz") > before
    })
    .await;
    // The loop is free again: the base is done with it.
    for _ in 0..4 {
        raw(base.address(), &post("help", "")).await;
    }
    let nothing = stream.try_read(&mut [0; 16]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn the_heartbeat_is_the_recorded_one() {
    let Some(recording) = recording("the_heartbeat_is_the_recorded_one", "arklet-heartbeat.txt") else {
        return;
    };
    for line in recording.lines() {
        // The recorder printed time, path, headers as a Python dictionary, and body.
        let (_, rest) = line.split_once(' ').unwrap();
        let (path, rest) = rest.split_once(' ').unwrap();
        let (headers, body) = rest.split_once("} {").unwrap();
        let mut expected = vec![format!("POST {path} HTTP/1.1")];
        for header in headers.trim_start_matches('{').split("', '") {
            let (name, value) = header.split_once("': '").unwrap();
            let (name, value) = (name.trim_matches('\''), value.trim_matches('\''));
            expected.push(format!("{name}: {value}"));
        }
        expected.extend([String::new(), format!("{{{body}")]);
        let identity = Identity::stock("192.0.2.2");
        let host = "127.0.0.1:17777";
        let sent = heartbeat::request(host, "/heartbeat", &identity, 12_380);
        assert_eq!(read(&sent), read(&expected.join("\r\n")));
    }
}
