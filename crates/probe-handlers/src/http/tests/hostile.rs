//! Servers that mean harm: time and memory stay bounded.

use super::server::{After, SHORT, answer, ask, head, listen, scripted};
use crate::{Outcome, Verdict};
use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Sends `first`, then `again` for as long as somebody takes it; counts bytes.
async fn flood(first: &'static str, again: &'static str) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let address = listen("127.0.0.1:0", move |mut stream: TcpStream| {
        let counter = counter.clone();
        async move {
            if head(&mut stream).await.is_none() || stream.write_all(first.as_bytes()).await.is_err() {
                return;
            }
            let block = again.repeat(1 + 8192 / again.len());
            while stream.write_all(block.as_bytes()).await.is_ok() {
                counter.fetch_add(block.len(), Ordering::Relaxed);
            }
        }
    })
    .await;
    (address, sent)
}

/// How much of a flood can be on its way in the queues of a connection.
const QUEUES: usize = 16 << 20;

#[rstest]
#[case::status_line("", "a")]
#[case::long_header("HTTP/1.1 200 OK\r\nX: ", "a")]
#[case::headers("HTTP/1.1 200 OK\r\n", "X: y\r\n")]
#[case::newlines("HTTP/1.1 200 OK\r\nX: y\r\n", " \r\n")]
#[tokio::test]
async fn an_endless_head_is_not_read_to_its_end(#[case] first: &'static str, #[case] again: &'static str) {
    let (address, sent) = flood(first, again).await;
    let outcome = ask(address, "/").go().await;
    assert_eq!(
        (outcome.verdict, &outcome.error),
        (Verdict::Failure, &None),
        "{outcome:?}"
    );
    assert!(!outcome.output.contains("Client.Timeout"), "{outcome:?}");
    assert!(
        outcome.output.len() <= Outcome::OUTPUT,
        "{}",
        outcome.output.len()
    );
    assert!(sent.load(Ordering::Relaxed) < QUEUES);
}

#[rstest]
#[case::until_the_end("HTTP/1.1 200 OK\r\n\r\n", "a")]
#[case::long("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n", "a")]
#[case::chunks("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n")]
#[case::huge_chunk(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
    "a"
)]
#[tokio::test]
async fn an_endless_body_is_read_up_to_the_limit(#[case] first: &'static str, #[case] again: &'static str) {
    let (address, sent) = flood(first, again).await;
    let outcome = ask(address, "/").go().await;
    assert_eq!(outcome, Outcome::success("a".repeat(Outcome::OUTPUT)));
    assert!(sent.load(Ordering::Relaxed) < QUEUES);
}

#[rstest]
#[case::trailers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n")]
#[case::one_trailer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", "y")]
#[case::chunk_extensions("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "x")]
#[case::chunk_number("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1")]
#[tokio::test]
async fn what_surrounds_chunks_is_bounded_too(#[case] first: &'static str, #[case] again: &'static str) {
    let (address, sent) = flood(first, again).await;
    let outcome = ask(address, "/").go().await;
    assert_eq!(outcome.verdict, Verdict::Failure);
    let error = outcome.error.unwrap();
    assert!(!error.contains("deadline"), "{error}");
    assert!(sent.load(Ordering::Relaxed) < QUEUES);
}

#[tokio::test]
async fn a_head_without_end_is_refused_in_gos_words() {
    let (address, sent) = flood("HTTP/1.1 200 OK\r\nX: ", "y").await;
    let outcome = ask(address, "/").go().await;
    let text = outcome.error.unwrap_or(outcome.output);
    assert!(
        text.contains("server response headers exceeded 65536 bytes; aborted"),
        "{text}"
    );
    assert!(sent.load(Ordering::Relaxed) < QUEUES);
}

/// One byte at a time, and informational answers without end: only the time ends these.
#[rstest]
#[case::head("HTTP/1.1 200 OK\r\nX: ", "a")]
#[case::body("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "a")]
#[case::chunks("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n")]
#[tokio::test]
async fn a_drip_does_not_outlast_the_timeout(#[case] first: &'static str, #[case] drop: &'static str) {
    let address = listen("127.0.0.1:0", move |mut stream: TcpStream| async move {
        let _ = head(&mut stream).await;
        let mut next = first;
        while stream.write_all(next.as_bytes()).await.is_ok() {
            next = drop;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let outcome = ask(address, "/").within(SHORT).go().await;
    let text = outcome.error.unwrap_or(outcome.output);
    assert!(text.contains("context deadline exceeded"), "{text}");
}

#[rstest]
#[case::continues("HTTP/1.1 100 Continue\r\n\r\n")]
#[case::hints("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")]
#[tokio::test]
async fn informational_answers_without_end_do_not_outlast_the_timeout(#[case] again: &'static str) {
    let (address, _) = flood("", again).await;
    // The timeout itself is under test: without one of its own this would never end.
    let outcome = evenkeel_testkit::ends("it ends", ask(address, "/").within(SHORT).go()).await;
    assert!(outcome.output.contains("Client.Timeout exceeded"), "{outcome:?}");
}

#[tokio::test]
async fn a_head_of_many_lines_is_read_if_it_is_not_absurd() {
    let lines = "X-Some-Header: y\r\n".repeat(200);
    let address = super::server::routed(move |_, _| answer(200, &lines, "x")).await;
    assert_eq!(ask(address, "/").go().await, Outcome::success("x"));
    let long = format!("X: {}\r\n", "y".repeat(50 << 10));
    let address = super::server::routed(move |_, _| answer(200, &long, "x")).await;
    assert_eq!(ask(address, "/").go().await, Outcome::success("x"));
}

/// Random cuts and changes of a good answer: an outcome, whatever comes, within the time.
#[tokio::test]
async fn broken_answers_never_panic() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random: rand::rngs::StdRng = rand::SeedableRng::seed_from_u64(seed);
    let good = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n3\r\nabc\r\n0\r\nT: u\r\n\r\n";
    for _ in 0..200 {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..rand::Rng::random_range(&mut random, 1..4) {
            let at = rand::Rng::random_range(&mut random, 0..bytes.len());
            bytes[at] = rand::Rng::random(&mut random);
        }
        bytes.truncate(rand::Rng::random_range(&mut random, 0..=bytes.len()));
        let (address, _) = scripted(bytes.clone(), After::Close).await;
        let outcome = ask(address, "/").go().await;
        let text = outcome.error.as_ref().unwrap_or(&outcome.output);
        assert!(
            !text.contains("deadline"),
            "{:?}: {outcome:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}
