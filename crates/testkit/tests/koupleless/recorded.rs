//! The recordings of arklet, beside the checkout, against the base: each request is made again, in order, and
//! the answers have the same keys, codes, states and messages.

use super::{SOON, built, shape};
use evenkeel_testkit::koupleless::{Built, Setup};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How the base's arklet and container differ from the recorded ones, by their authors' will; see the README
/// of `interop/koupleless-base`. Each is the sign of a [`shape::difference`] and a part of its place.
const KNOWN: [(char, &str); 5] = [
    // Since arklet 1.3.
    ('-', "baseIdentity "),
    // Of sofa-ark 3.1.11.
    ('+', "bizInfos[].dependentPlugins "),
    ('+', "bizInfos[].export"),
    // What the modules throw, below what runs them: theirs has another message and no cause.
    ('-', "throwable.cause.cause."),
    ('+', "throwable.cause.cause."),
];

/// The recordings' directory, or `None` if `test` has to do without.
pub(crate) fn directory(test: &str) -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/arklet");
    if beside.is_dir() {
        return Some(beside);
    }
    evenkeel_testkit::skipped(test, "the recordings of arklet are not beside the checkout");
    None
}

/// The differences in shape and in what is said that are not [`KNOWN`].
pub(crate) fn surprises(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut all = shape::difference(theirs, ours, &told);
    let known = |line: &String| {
        KNOWN
            .iter()
            .any(|&(sign, part)| line.starts_with(sign) && line.contains(part))
    };
    all.retain(|line| !known(line));
    all
}

/// What must be equal: codes, states and reasons, and messages without stack traces, figures and times.
fn told(key: &str, value: &Value) -> Option<String> {
    const SAID: [&str; 8] = [
        "bizName",
        "bizVersion",
        "bizState",
        "state",
        "reason",
        "code",
        "status",
        "message",
    ];
    let text = value.as_str().filter(|_| SAID.contains(&key))?;
    let first = text.lines().next().unwrap_or_default();
    // "…, cost: 42 ms, started at: 10:26:30,937"
    let timeless = first.split(", cost:").next().unwrap_or_default();
    // The JVM names a parameter that is null if the class was compiled with the names.
    Some(format!("{:?}", timeless.replace("\"<parameter1>\"", "\"input\"")))
}

/// One recorded request and what came back.
struct Exchange {
    command: String,
    request: String,
    head: String,
    answer: Value,
}

/// A recording with the base's modules instead of the recorded ones.
pub(crate) fn translated(text: &str, jar: impl Fn(&str, &str) -> String) -> String {
    let mut text = text.to_owned();
    for (theirs, ours) in [
        ("biz1", "good"),
        ("biz2", "one"),
        ("slow", "slow"),
        ("bad", "failing"),
    ] {
        text = text.replace(&format!("\"{theirs}\""), &format!("\"{ours}\""));
        text = text.replace(&format!("{theirs}:"), &format!("{ours}:"));
        for (old, new) in [("0.0.1", "1.0.0"), ("0.0.2", "2.0.0")] {
            let url = format!("file:///opt/biz/{theirs}-{old}-ark-biz.jar");
            if text.contains(&url) {
                text = text.replace(&url, &jar(ours, new));
            }
        }
    }
    text = text.replace("\"0.0.1\"", "\"1.0.0\"").replace(":0.0.1", ":1.0.0");
    text.replace("\"0.0.2\"", "\"2.0.0\"").replace(":0.0.2", ":2.0.0")
}

/// The exchanges of a recording of HTTP with `POST`.
fn exchanges(text: &str) -> Vec<Exchange> {
    text.split("### POST /")
        .skip(1)
        .filter_map(|part| {
            let (request, answer) = part.split_once('\n')?;
            let (command, request) = request.split_once(' ')?;
            let (head, rest) = answer.split_once("\r\n\r\n")?;
            Some(Exchange {
                command: command.to_owned(),
                request: request.to_owned(),
                head: format!("{head}\r\n\r\n"),
                // What follows may be the recorder's label of a request that is none.
                answer: serde_json::from_str(rest.lines().next()?).ok()?,
            })
        })
        .collect()
}

/// Both recordings of HTTP, which are of one process.
fn replay(built: &Built, directory: &std::path::Path) -> Vec<Exchange> {
    ["arklet-http-1.txt", "arklet-http-2.txt"]
        .iter()
        .flat_map(|file| {
            let text = std::fs::read_to_string(directory.join(file)).expect("a recording");
            exchanges(&translated(&text, |name, version| built.jar(name, version)))
        })
        .collect()
}

/// How an answer differs from the recorded one.
fn surprises_of(recorded: &Exchange, mut answer: Value) -> Vec<String> {
    let mut theirs = recorded.answer.clone();
    if recorded.command == "installBiz" && theirs["data"]["status"].is_string() {
        // How far a thread of the pool has come is chance.
        for record in [&mut theirs, &mut answer] {
            if let Some(record) = record["data"].as_object_mut() {
                record
                    .retain(|key, _| !["status", "threadName", "endTime", "message"].contains(&key.as_str()));
            }
        }
    }
    surprises(&theirs, &answer)
}

#[tokio::test]
async fn http_answers_are_those_of_the_recordings() {
    const TEST: &str = "http_answers_are_those_of_the_recordings";
    let (Some(directory), Some(built)) = (directory(TEST), built(TEST)) else {
        return;
    };
    // Longer than what is asked meanwhile takes.
    let slow = Duration::from_secs(8);
    let setup = Setup {
        slow,
        ..Setup::default()
    };
    let base = built.start(setup).await;
    let recorded = replay(&built, &directory);
    let mut wrong = Vec::new();
    let mut compared = 0;
    // Arklet 2.1.6 has no such command, and what follows shows what it has done.
    let before = recorded.iter().take_while(|one| one.command != "batchInstallBiz");
    for recorded in before {
        let asked = format!("{} {}", recorded.command, recorded.request);
        let end = tokio::time::Instant::now() + SOON;
        let surprises = loop {
            let (head, answer) = base.post_raw(&recorded.command, &recorded.request).await;
            assert_eq!(head, recorded.head, "{asked}");
            let answer = serde_json::from_str(&answer).expect("JSON");
            let surprises = surprises_of(recorded, answer);
            // Questions are asked again, so as to be as late as the recorder was.
            let again = recorded.command.starts_with("query") && tokio::time::Instant::now() < end;
            if surprises.is_empty() || !again {
                break surprises;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        compared += 1;
        if !surprises.is_empty() {
            wrong.push(format!("{asked}\n{surprises:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 40, "only {compared} of {}", recorded.len());
}

#[tokio::test]
async fn what_is_no_request_gets_the_recorded_answer_or_none() {
    const TEST: &str = "what_is_no_request_gets_the_recorded_answer_or_none";
    let (Some(directory), Some(built)) = (directory(TEST), built(TEST)) else {
        return;
    };
    let text = std::fs::read_to_string(directory.join("arklet-http-1.txt")).unwrap();
    let (_, part) = text.split_once("### GET health\n").unwrap();
    let (recorded, _) = part.split_once("\n### ").unwrap();
    let base = built.start(Setup::default()).await;
    let mut stream = TcpStream::connect(base.address()).await.unwrap();
    let request = b"GET /health HTTP/1.1\r\nHost: base\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, recorded.trim_end_matches('\n'));

    let mut silent = Vec::new();
    for body in ["{\"bizName\":", "[1]"] {
        let mut stream = TcpStream::connect(base.address()).await.unwrap();
        let length = body.len();
        let request = format!("POST /health HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    // As many as it has threads for connections, so that each was at work since.
    for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
        base.post("queryAllBiz", &json!({})).await;
    }
    for stream in silent {
        let mut some = [0; 64];
        let read = stream.try_read(&mut some).map_err(|error| error.kind());
        assert_eq!(read, Err(std::io::ErrorKind::WouldBlock), "it says nothing");
    }
}

#[test]
fn a_recording_is_read_with_the_base_s_modules() {
    let text = "### POST /x {\"bizName\":\"biz1\",\"bizUrl\":\"file:///opt/biz/biz1-0.0.2-ark-biz.jar\"}\nHTTP/1.1 200 OK\r\n\r\n\
                {\"message\":\"biz1:0.0.2 bad:0.0.1\"}\n\n### GET health\nHTTP/1.1 500\r\n\r\nPOST\n\
                ### POST /y \nHTTP/1.1 200 OK\r\n\r\n{}\n";
    let read = exchanges(&translated(text, |name, version| {
        format!("file:///{name}-{version}.jar")
    }));
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].command, "x");
    assert_eq!(
        read[0].request,
        "{\"bizName\":\"good\",\"bizUrl\":\"file:///good-2.0.0.jar\"}"
    );
    assert_eq!(read[0].head, "HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(read[0].answer, json!({ "message": "good:2.0.0 failing:1.0.0" }));
    assert_eq!((read[1].command.as_str(), read[1].request.as_str()), ("y", ""));
}

#[test]
fn a_key_less_and_another_code_are_surprises() {
    let theirs = json!({ "baseIdentity": "a", "code": "SUCCESS", "data": [] });
    let no_surprise: [&str; 0] = [];
    assert_eq!(
        surprises(&theirs, &json!({ "code": "SUCCESS", "data": [] })),
        no_surprise
    );
    assert_eq!(
        surprises(&theirs, &json!({ "code": "FAILED" })),
        ["-code \"SUCCESS\"", "-data list", "+code \"FAILED\""]
    );
    let (one, other) = (
        "Install Biz: a:1 success, cost: 4 ms",
        "Install Biz: a:1 success, cost: 5 ms",
    );
    assert_eq!(
        surprises(&json!({ "message": one }), &json!({ "message": other })),
        no_surprise
    );
}
