//! One change that many wait for.

use crate::load::{MAPS, Target};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// How many watches begin at the same time.
const AT_ONCE: usize = 64;

/// For each change the seconds from sending it until the last watcher has it. Each watcher has a connection
/// of its own.
pub(crate) async fn measure(target: &Target, watchers: u32, changes: usize) -> Vec<f64> {
    let mut writer = target.connect().await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"news"},"data":{"n":"0"}}"#;
    let made = writer
        .takes(Method::POST, MAPS, body.to_owned(), StatusCode::CREATED)
        .await;
    let made: Value = serde_json::from_slice(&made).unwrap();
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dnews&resourceVersion={version}");
    let (seen, mut sightings) = unbounded_channel();
    let mut watching = JoinSet::new();
    let mut begun = stream::iter(0..watchers)
        .map(async |_| {
            let mut connection = target.connect().await;
            let answer = connection.send(Method::GET, &path, String::new()).await;
            assert_eq!(answer.status(), StatusCode::OK);
            (connection, answer.into_body())
        })
        .buffer_unordered(AT_ONCE);
    while let Some((connection, events)) = begun.next().await {
        let seen = seen.clone();
        watching.spawn(async move {
            watch(events, seen).await;
            drop(connection);
        });
    }
    let mut rounds = Vec::new();
    for number in 1..=changes {
        let body = format!(r#"{{"data":{{"n":"{number}"}}}}"#);
        let sent = Instant::now();
        let news = format!("{MAPS}/news");
        writer.takes(Method::PATCH, &news, body, StatusCode::OK).await;
        let mut last = sent;
        for _ in 0..watchers {
            let at: Instant = sightings.recv().await.expect("a sender is here");
            last = last.max(at);
        }
        rounds.push((last - sent).as_secs_f64());
    }
    rounds
}

/// Tells of each event, which is a line.
async fn watch(mut events: Incoming, seen: UnboundedSender<Instant>) {
    while let Some(frame) = events.frame().await {
        let frame = frame.expect("the watch goes on");
        let ends = |data: &Bytes| data.split(|byte| *byte == b'\n').count() - 1;
        let lines = frame.data_ref().map_or(0, ends);
        for _ in 0..lines {
            // Without a receiver the benchmark has ended.
            if seen.send(Instant::now()).is_err() {
                return;
            }
        }
    }
}
