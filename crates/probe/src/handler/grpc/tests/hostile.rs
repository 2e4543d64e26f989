//! Peers that do not behave: bounded time and memory, and always a failure.

use super::{SECOND, ask};
use crate::core::{Compat, Verdict};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A literal header without indexing (RFC 7541, 6.2.2).
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127);
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// Status 200 and the content type of gRPC.
fn ok_headers() -> Vec<u8> {
    let mut headers = vec![0x88];
    headers.extend(header("content-type", "application/grpc"));
    headers
}

/// A peer that sends `first`, then `again` for as long as it can, or once if it is empty. What it receives is
/// discarded.
async fn peer(first: Vec<u8>, again: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(babble(stream, first.clone(), again.clone()));
        }
    });
    address
}

async fn babble(stream: TcpStream, first: Vec<u8>, again: Vec<u8>) {
    let (mut read, mut write) = stream.into_split();
    let mut sink = vec![0; 64 << 10];
    // The client's preface and request, as far as they come in one piece.
    let _ = read.read(&mut sink).await;
    tokio::spawn(async move { while matches!(read.read(&mut sink).await, Ok(1..)) {} });
    if write.write_all(&first).await.is_err() {
        return;
    }
    if again.is_empty() {
        std::future::pending::<()>().await;
    }
    let many = again.repeat((64 << 10) / again.len() + 1);
    while write.write_all(&many).await.is_ok() {}
}

/// How much this process has in memory, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// In a process of its own: the memory of other tests would be counted, too.
#[test]
fn whatever_a_peer_sends_the_probe_fails_in_time_and_stays_small() {
    let name = "handler::grpc::tests::hostile::every_peer_that_does_not_behave";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name, "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains(" 1 passed;"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the test above runs it in a process of its own"]
async fn every_peer_that_does_not_behave() {
    let greeted = |rest: Vec<u8>| [SETTINGS.to_vec(), rest].concat();
    let mut huge_message = vec![0, 0xff, 0xff, 0xff, 0xff];
    huge_message.resize(16 << 10, 0);
    let messages = {
        let empty = [0, 0, 0, 0, 0].repeat(100);
        frame(0, 0, 1, &empty)
    };
    let long = "x".repeat(120);
    let many_headers = header("x-many", &long).repeat(100);
    let cases: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        ("garbage", vec![0xff; 100], vec![0xff; 100]),
        ("zeros", vec![0; 100], vec![0; 100]),
        (
            "text without end",
            b"HTTP/1.1 200 OK\r\n".to_vec(),
            b"a: b\r\n".to_vec(),
        ),
        ("silence", Vec::new(), Vec::new()),
        ("half a greeting", SETTINGS[..5].to_vec(), Vec::new()),
        ("silence after a greeting", SETTINGS.to_vec(), Vec::new()),
        ("settings", SETTINGS.to_vec(), SETTINGS.to_vec()),
        ("pings", SETTINGS.to_vec(), frame(6, 0, 0, &[7; 8])),
        ("window updates", SETTINGS.to_vec(), frame(8, 0, 0, &[0, 0, 0, 1])),
        (
            "frames of an unknown type",
            SETTINGS.to_vec(),
            frame(99, 0, 0, &[0; 1000]),
        ),
        (
            "a reset of our stream",
            greeted(frame(3, 0, 1, &[0, 0, 0, 8])),
            Vec::new(),
        ),
        ("farewell", greeted(frame(7, 0, 0, &[0; 8])), Vec::new()),
        (
            "informational headers",
            SETTINGS.to_vec(),
            frame(1, 4, 1, &header(":status", "103")),
        ),
        (
            "headers that go on and on",
            greeted(frame(1, 0, 1, &ok_headers())),
            frame(9, 0, 1, &many_headers),
        ),
        (
            "trailers that go on and on",
            greeted([frame(1, 4, 1, &ok_headers()), frame(1, 0, 1, &many_headers)].concat()),
            frame(9, 0, 1, &many_headers),
        ),
        (
            "a message of 4 GiB",
            greeted([frame(1, 4, 1, &ok_headers()), frame(0, 0, 1, &huge_message)].concat()),
            frame(0, 0, 1, &[0; 16 << 10]),
        ),
        (
            "messages without end",
            greeted(frame(1, 4, 1, &ok_headers())),
            messages,
        ),
        (
            "an answer without a message",
            greeted([frame(1, 4, 1, &ok_headers()), frame(0, 1, 1, &[])].concat()),
            Vec::new(),
        ),
        (
            "an answer that is no protobuf",
            greeted(
                [
                    frame(1, 4, 1, &ok_headers()),
                    frame(0, 0, 1, &[0, 0, 0, 0, 2, 0xff, 0xff]),
                ]
                .concat(),
            ),
            Vec::new(),
        ),
        (
            "a compressed answer",
            greeted([frame(1, 4, 1, &ok_headers()), frame(0, 1, 1, &[1, 0, 0, 0, 1, 0])].concat()),
            Vec::new(),
        ),
        (
            "a promise",
            SETTINGS.to_vec(),
            frame(5, 4, 1, &[0, 0, 0, 2, 0x82]),
        ),
    ];
    for (what, first, again) in cases {
        let address = peer(first, again).await;
        let (begun, before) = (Instant::now(), resident());
        let outcome = ask(address, Duration::from_millis(300), Compat::Strict).await;
        let took = begun.elapsed();
        let grown = resident().saturating_sub(before);
        assert_eq!(
            (outcome.verdict, &outcome.error),
            (Verdict::Failure, &None),
            "{what}"
        );
        let known = ["timeout: ", "error: "]
            .iter()
            .any(|start| outcome.output.starts_with(start));
        assert!(known, "{what}: {outcome:?}");
        assert!(outcome.output.len() <= crate::core::Outcome::OUTPUT, "{what}");
        assert!(took < SECOND * 20, "{what}: {took:?}");
        // Kernel buffers are not in it; the peer's own in this process are.
        assert!(grown < 32 << 10, "{what}: {grown} KiB more");
    }
}

#[tokio::test]
async fn what_does_not_speak_http2_is_told_so() {
    let address = peer(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Vec::new()).await;
    let outcome = ask(address, SECOND * 600, Compat::Strict).await;
    let why = "the server does not begin with HTTP/2 settings; does it speak gRPC there?";
    assert!(outcome.output.ends_with(why), "{outcome:?}");
}

#[tokio::test]
async fn silence_before_the_greeting_is_a_missing_connection_and_after_it_a_missing_answer() {
    let silent = peer(Vec::new(), Vec::new()).await;
    let greeting = peer(SETTINGS.to_vec(), Vec::new()).await;
    for compat in [Compat::Kubelet, Compat::Strict] {
        let outcome = ask(silent, Duration::from_millis(200), compat).await;
        assert_eq!(
            outcome.output,
            format!(
                "timeout: failed to connect service \"{silent}\" within 200ms: context deadline exceeded"
            )
        );
        let outcome = ask(greeting, Duration::from_millis(200), compat).await;
        assert_eq!(
            outcome.output,
            "timeout: health rpc did not complete within 200ms"
        );
    }
}
