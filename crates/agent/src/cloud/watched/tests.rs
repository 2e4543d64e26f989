use super::*;
use crate::agent::PONG;
use crate::cloud::back_off::LONGEST;
use evenkeel_api::crd::ZoneChallenge;
use evenkeel_testkit::{Cluster, ServedApi};
use http::StatusCode;
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;

/// A server on whose answers the test decides.
struct Server {
    client: Client,
    answers: mpsc::UnboundedSender<(StatusCode, DuplexStream)>,
    /// What it was asked, and when.
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Server {
    fn new() -> Self {
        let (answers, next) = mpsc::unbounded_channel();
        let next = Arc::new(tokio::sync::Mutex::new(next));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let next = Arc::clone(&next);
            seen.lock()
                .unwrap()
                .push((Instant::now(), request.uri().to_string()));
            async move {
                let (code, body): (StatusCode, DuplexStream) = next.lock().await.recv().await.unwrap();
                let body = axum::body::Body::from_stream(ReaderStream::new(body));
                http::Response::builder().status(code).body(body)
            }
        });
        Self {
            client: Client::new(service, "default"),
            answers,
            asked,
        }
    }

    fn watched(&self) -> Watched {
        Watched::new::<ZoneChallenge>(self.client.clone(), "watching", "shore.1")
    }

    /// Answers the next request. What is returned writes further events, and ends the answer when dropped.
    async fn answers(&self, code: u16, lines: &[Value]) -> DuplexStream {
        let (mut near, far) = duplex(1 << 20);
        for line in lines {
            tell(&mut near, line).await;
        }
        self.answers
            .send((StatusCode::from_u16(code).unwrap(), far))
            .unwrap();
        near
    }

    /// From which versions watches were begun.
    fn positions(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let position =
            |(_, uri): &(Instant, String)| uri.rsplit_once("resourceVersion=").unwrap().1.to_owned();
        asked.iter().map(position).collect()
    }

    /// How long it took from one request to the next.
    fn pauses(&self) -> Vec<Duration> {
        let asked = self.asked.lock().unwrap();
        asked.windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
    }
}

async fn tell(answer: &mut DuplexStream, event: &Value) {
    answer.write_all(format!("{event}\n").as_bytes()).await.unwrap();
}

fn event(kind: &str, version: u64) -> Value {
    json!({ "type": kind, "object": { "metadata": { "resourceVersion": version.to_string() } } })
}

fn gone() -> Value {
    json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "reason": "Expired" } })
}

/// A step in words.
async fn next(watched: &mut Watched) -> String {
    match watched.next(LONGEST).await {
        Step::Began { anew: true } => "anew".into(),
        Step::Began { anew: false } => "resumed".into(),
        Step::Put(object) => object.pointer("/metadata/resourceVersion").unwrap().to_string(),
        Step::Gone => "gone".into(),
        Step::Failed(error) => error.to_string(),
    }
}

async fn steps<const N: usize>(watched: &mut Watched) -> [String; N] {
    let mut words = [const { String::new() }; N];
    for word in &mut words {
        *word = next(watched).await;
    }
    words
}

#[tokio::test(start_paused = true)]
async fn one_request_tells_the_object_and_its_changes() {
    let server = Server::new();
    let mut watched = server.watched();
    let mut answer = server
        .answers(200, &[event("ADDED", 5), event("MODIFIED", 6)])
        .await;
    assert_eq!(steps(&mut watched).await, ["anew", "\"5\"", "\"6\""]);
    tell(&mut answer, &event("BOOKMARK", 7)).await;
    tell(&mut answer, &event("LATER", 8)).await;
    tell(&mut answer, &event("DELETED", 9)).await;
    assert_eq!(next(&mut watched).await, "gone");
    assert!(watched.stands());
    let asked = server.asked.lock().unwrap();
    let [(_, uri)] = &asked[..] else {
        panic!("{asked:?}");
    };
    for part in [
        "/apis/evenkeel.io/v1alpha1/zonechallenges?",
        "watch=true",
        "fieldSelector=metadata.name%3Dshore.1",
        "allowWatchBookmarks=true",
        "resourceVersion=0",
    ] {
        assert!(uri.contains(part), "{part} in {uri}");
    }
    let (_, lasts) = uri.split_once("timeoutSeconds=").unwrap();
    let lasts: u64 = lasts.split('&').next().unwrap().parse().unwrap();
    assert!((300..=600).contains(&lasts), "{lasts}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_in_time_goes_on_at_once_where_it_was() {
    let server = Server::new();
    let mut watched = server.watched();
    let mut answer = server.answers(200, &[event("ADDED", 5)]).await;
    assert_eq!(steps(&mut watched).await, ["anew", "\"5\""]);
    tokio::time::sleep(2 * LASTS).await;
    tell(&mut answer, &event("BOOKMARK", 70)).await;
    drop(answer);
    let _answer = server.answers(200, &[]).await;
    assert_eq!(next(&mut watched).await, "resumed");
    assert_eq!(server.positions(), ["0", "70"]);
    assert_eq!(server.pauses(), [2 * LASTS]);
}

#[tokio::test(start_paused = true)]
async fn history_that_is_gone_is_no_failure_and_the_watch_begins_anew_at_once() {
    for refused in [true, false] {
        let server = Server::new();
        let mut watched = server.watched();
        drop(server.answers(200, &[event("ADDED", 5)]).await);
        assert_eq!(steps(&mut watched).await, ["anew", "\"5\""]);
        let ended = next(&mut watched).await;
        assert!(ended.contains("before its time"), "{ended}");
        // By the code of the answer, or by an event of a watch that stands.
        let (code, line) = if refused {
            (410, gone()["object"].clone())
        } else {
            (200, gone())
        };
        drop(server.answers(code, &[line]).await);
        let _answer = server.answers(200, &[event("ADDED", 9)]).await;
        let resumed: &[&str] = if refused { &[] } else { &["resumed"] };
        for expected in [resumed, &["anew", "\"9\""]].concat() {
            assert_eq!(next(&mut watched).await, expected, "{refused}");
        }
        assert_eq!(server.positions(), ["0", "5", "0"], "{refused}");
        assert_eq!(server.pauses()[1], Duration::ZERO, "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_what_it_has_just_told_is_not_asked_without_a_pause() {
    let server = Server::new();
    let mut watched = server.watched();
    for _ in 0..3 {
        drop(server.answers(200, &[event("ADDED", 5), gone()]).await);
        let [began, put, failed] = steps(&mut watched).await;
        assert_eq!((began, put), ("anew".into(), "\"5\"".into()));
        assert!(failed.starts_with("watching: "), "{failed}");
    }
    let pauses = server.pauses();
    let at_least = [0.75, 1.5].map(Duration::from_secs_f64);
    assert!(
        pauses.iter().zip(at_least).all(|(pause, least)| *pause >= least),
        "{pauses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn after_failures_it_waits_more_and_more_until_a_watch_has_stood() {
    let server = Server::new();
    let mut watched = server.watched();
    for code in [503, 429, 503, 403, 503, 503, 503] {
        drop(server.answers(code, &[]).await);
        let failed = next(&mut watched).await;
        assert!(failed.contains(&code.to_string()), "{failed}");
    }
    let full = [1.5, 3.0, 6.0, 12.0, 24.0, 30.0].map(Duration::from_secs_f64);
    for (pause, full) in server.pauses().iter().zip(full) {
        assert!(*pause >= full / 2 && *pause <= full, "{pause:?} of {full:?}");
    }
    let answer = server.answers(200, &[]).await;
    assert_eq!(next(&mut watched).await, "anew");
    tokio::time::sleep(STOOD).await;
    drop(answer);
    next(&mut watched).await;
    let asked = Instant::now();
    let _answer = server.answers(200, &[]).await;
    assert_eq!(next(&mut watched).await, "anew");
    assert!(asked.elapsed() <= full[0], "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reporter_does_not_wait_for_long() {
    let server = Server::new();
    let mut watched = server.watched();
    for _ in 0..8 {
        drop(server.answers(503, &[]).await);
        next(&mut watched).await;
    }
    // Not even if it became one while it waited.
    let (began, longest) = (Instant::now(), Duration::from_secs(5));
    watched.hurry(longest);
    for _ in 0..3 {
        drop(server.answers(503, &[]).await);
        assert!(matches!(watched.next(longest).await, Step::Failed(_)));
    }
    assert!(began.elapsed() <= 3 * longest, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn whatever_the_server_refuses_the_next_watch_does_not_insist_on_its_version() {
    let cases = [
        (
            200,
            json!({ "type": "ERROR", "object": { "code": 500, "message": "Too large resource version" } }),
        ),
        (
            504,
            json!({ "kind": "Status", "code": 504, "message": "Too large resource version" }),
        ),
        (200, json!("no event")),
    ];
    for (code, line) in cases {
        let server = Server::new();
        let mut watched = server.watched();
        drop(server.answers(200, &[event("ADDED", 5)]).await);
        for _ in 0..3 {
            next(&mut watched).await;
        }
        drop(server.answers(code, std::slice::from_ref(&line)).await);
        while !next(&mut watched).await.starts_with("watching: ") {}
        let _answer = server.answers(200, &[]).await;
        assert_eq!(next(&mut watched).await, "anew", "{line}");
        assert_eq!(server.positions(), ["0", "5", "0"], "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_begin_is_given_up() {
    let server = Server::new();
    let mut watched = server.watched();
    let began = Instant::now();
    let failed = next(&mut watched).await;
    assert!(failed.contains("no answer within 5s"), "{failed}");
    assert_eq!(began.elapsed(), BEGINS);
    assert!(!watched.stands() && !watched.is_heard_since(began));
}

#[tokio::test(start_paused = true)]
async fn an_event_without_an_end_is_not_kept() {
    let server = Server::new();
    let mut watched = server.watched();
    let mut answer = server.answers(200, &[]).await;
    assert_eq!(next(&mut watched).await, "anew");
    let endless = tokio::spawn(async move {
        // Until nobody reads any more.
        while answer.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    assert!(matches!(watched.next(LONGEST).await, Step::Failed(_)));
    endless.await.unwrap();
}

#[tokio::test]
async fn a_silent_connection_is_noticed_within_eight_seconds_and_left() {
    let api = ServedApi::start().await;
    let cluster = Cluster::of(&api.server);
    cluster.install().await;
    let link = api.link("a").await;
    let access = link.access().await.pong_within(PONG).reading_once();
    let client = access.client("agent").unwrap();
    let mut watched = Watched::new::<ZoneChallenge>(client, "watching", "shore");
    assert_eq!(next(&mut watched).await, "anew");
    link.cut();
    let cut = Instant::now();
    assert!(matches!(watched.next(LONGEST).await, Step::Failed(_)));
    // 5 s until the ping, 3 s for its answer; and a busy machine.
    let noticed = cut.elapsed();
    assert!(noticed < Duration::from_secs(10), "{noticed:?}");
    assert!(!watched.is_heard_since(cut));
    link.mend();
    assert_eq!(next(&mut watched).await, "anew");
    assert!(watched.is_heard_since(cut));
}
