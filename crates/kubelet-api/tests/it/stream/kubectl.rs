//! kubectl itself, every version that is here, over SPDY and over WebSocket.

use super::stand_in::{StandIn, pattern};
use evenkeel_testkit::kubectl::{Kubectl, PATIENCE, text};
use std::path::Path;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

const LARGE: usize = 10 * 1024 * 1024;
/// What a kubectl upgrades to, by its version and the environment.
async fn upgrades_to(kubectl: &Kubectl, since: u32) -> &'static str {
    let told = kubectl.succeeds(&["version", "--client", "-o", "json"]).await;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let minor = told["clientVersion"]["minor"].as_str().unwrap();
    let minor: u32 = minor.trim_end_matches('+').parse().unwrap();
    if kubectl.websockets && minor >= since {
        "websocket"
    } else {
        "SPDY/3.1"
    }
}

/// Every kubectl with both protocols; says that the test is skipped if there is none.
pub(super) fn all(test: &str, server: &StandIn, scheme: &str) -> Vec<Kubectl> {
    let server = format!("{scheme}://{}", server.address);
    let flags = [
        "--server",
        &server,
        "--insecure-skip-tls-verify",
        "--token",
        "none",
    ];
    Kubectl::all(test, Path::new("/dev/null"), &flags)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_commands_and_learns_how_they_ended() {
    let server = StandIn::start().await;
    for kubectl in all("kubectl_runs_commands_and_learns_how_they_ended", &server, "http") {
        let ended = kubectl
            .output(&["exec", "pod", "--", "echo", "hello there"])
            .await;
        assert_eq!(
            text(&ended.stdout),
            "hello there\n",
            "{kubectl}: {}",
            text(&ended.stderr)
        );
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));
        let upgrade = server.seen.upgrades.lock().unwrap().pop().unwrap();
        assert_eq!(upgrade, upgrades_to(&kubectl, 29).await, "{kubectl}");

        let ended = kubectl
            .output(&["exec", "pod", "--", "fail", "42", "it failed"])
            .await;
        assert_eq!(
            ended.status.code(),
            Some(42),
            "{kubectl}: {}",
            text(&ended.stderr)
        );
        let wanted = "it failedcommand terminated with exit code 42\n";
        assert_eq!(text(&ended.stderr), wanted, "{kubectl}");

        for command in ["unknown", "panic"] {
            let ended = kubectl.output(&["exec", "pod", "--", command]).await;
            assert_eq!(ended.status.code(), Some(1), "{kubectl}: {}", text(&ended.stderr));
            let why = if command == "panic" {
                "the provider panicked"
            } else {
                "there is no such container"
            };
            let wanted = format!("Internal error occurred: error executing command in container: {why}");
            assert!(
                text(&ended.stderr).contains(&wanted),
                "{kubectl}: {}",
                text(&ended.stderr)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_sends_and_receives_ten_mebibytes() {
    let server = StandIn::with(Default::default(), true).await;
    for kubectl in all("kubectl_sends_and_receives_ten_mebibytes", &server, "https") {
        let data = pattern(LARGE);
        let ended = kubectl
            .fed(&["exec", "-i", "pod", "--", "cat"], Some(&data))
            .await;
        assert_eq!(ended.stdout.len(), LARGE, "{kubectl}: {}", text(&ended.stderr));
        assert!(ended.stdout == data, "{kubectl}");
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));

        let ended = kubectl
            .fed(&["exec", "-i", "pod", "--", "count"], Some(&data))
            .await;
        assert_eq!(
            text(&ended.stdout),
            format!("{LARGE} true"),
            "{kubectl}: {}",
            text(&ended.stderr)
        );

        let ended = kubectl
            .output(&["exec", "pod", "--", "write", &LARGE.to_string()])
            .await;
        assert!(ended.stdout == data, "{kubectl}: {}", text(&ended.stderr));

        // A command that reads nothing ends all the same.
        let ended = kubectl
            .fed(&["exec", "-i", "pod", "--", "echo", "bye"], Some(&data))
            .await;
        assert_eq!(text(&ended.stdout), "bye\n", "{kubectl}: {}", text(&ended.stderr));
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_attaches() {
    let server = StandIn::start().await;
    for kubectl in all("kubectl_attaches", &server, "http") {
        let ended = kubectl.output(&["attach", "pod"]).await;
        assert!(
            text(&ended.stdout).contains("hello\n"),
            "{kubectl}: {}",
            text(&ended.stderr)
        );
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));
        let ended = kubectl.fed(&["attach", "-i", "pod"], Some(b"typed")).await;
        assert!(
            text(&ended.stdout).ends_with("hello\ntyped"),
            "{kubectl}: {}",
            text(&ended.stderr)
        );
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubectl_that_is_killed_ends_its_command() {
    let server = StandIn::start().await;
    for (index, kubectl) in all("a_kubectl_that_is_killed_ends_its_command", &server, "http")
        .iter()
        .enumerate()
    {
        let mut child = kubectl.command(&["exec", "pod", "--", "hang"]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .await
            .unwrap();
        assert_eq!(line, "ready\n", "{kubectl}");
        child.kill().await.unwrap();
        evenkeel_testkit::until_within("the command is dropped", PATIENCE, async || {
            *server.seen.dropped.lock().unwrap() > index
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_forwards_several_connections_at_once() {
    let server = StandIn::start().await;
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = echo.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = echo.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = socket.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    for kubectl in all("kubectl_forwards_several_connections_at_once", &server, "http") {
        let forwarding = kubectl.forward("pod", port).await;
        let local = forwarding.port;
        let mut connections = tokio::task::JoinSet::new();
        for number in 0..8usize {
            connections.spawn(async move {
                let mut data = pattern(1024 * 1024);
                data.rotate_left(number);
                let mut socket = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
                let (mut read, mut write) = socket.split();
                let mut back = Vec::new();
                let send = async {
                    write.write_all(&data).await.unwrap();
                    write.shutdown().await.unwrap();
                };
                let ((), received) = tokio::join!(send, read.read_to_end(&mut back));
                received.unwrap();
                assert!(back == data, "connection {number}");
            });
        }
        let all = async {
            while let Some(ended) = connections.join_next().await {
                ended.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .unwrap_or_else(|_| panic!("{kubectl} hangs"));
        let upgrade = server.seen.upgrades.lock().unwrap().last().unwrap().clone();
        assert_eq!(upgrade, upgrades_to(&kubectl, 30).await, "{kubectl}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_is_told_why_a_port_cannot_be_forwarded() {
    let server = StandIn::start().await;
    for kubectl in all("kubectl_is_told_why_a_port_cannot_be_forwarded", &server, "http") {
        let mut forwarding = kubectl.forward("pod", 99).await;
        let local = forwarding.port;
        let mut socket = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
        let mut lines = BufReader::new(forwarding.child.stderr.take().unwrap()).lines();
        let wanted = "error forwarding port 99 to pod: nothing listens on 99";
        let found = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(wanted) {
                    return;
                }
            }
            panic!("{kubectl} ended without {wanted:?}");
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap();
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap_or(0), 0, "{kubectl}");
    }
}
