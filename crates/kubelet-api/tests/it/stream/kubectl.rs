//! kubectl itself, every version that is here, over SPDY and over WebSocket.

use super::stand_in::{StandIn, pattern};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const LARGE: usize = 10 * 1024 * 1024;
/// Machines may be busy; a kubectl that hangs fails the test.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Kubectl {
    program: PathBuf,
    websockets: bool,
    home: tempfile::TempDir,
    server: String,
}

impl Kubectl {
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("HOME", self.home.path())
            .env("KUBECONFIG", "/dev/null")
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", self.websockets.to_string())
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", self.websockets.to_string())
            .args([
                "--server",
                &self.server,
                "--insecure-skip-tls-verify",
                "--token",
                "none",
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it to its end. An older kubectl (1.32 is one) reads from a WebSocket before it has made all its
    /// streams, throws away what comes so soon, and says so (kubernetes/kubernetes#131203): it is run again,
    /// since nothing that a server does could prevent it.
    async fn run(&self, arguments: &[&str], input: Option<Vec<u8>>) -> Output {
        let mut left = 5;
        loop {
            let ended = self.run_once(arguments, input.clone()).await;
            left -= 1;
            if left == 0 || !text(&ended.stderr).contains("Unknown stream id") {
                return ended;
            }
        }
    }

    async fn run_once(&self, arguments: &[&str], input: Option<Vec<u8>>) -> Output {
        let mut command = self.command(arguments);
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let write = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A command that wants no more input ends this early.
                let _ = stdin.write_all(&input).await;
            }
        };
        let both = async { tokio::join!(write, child.wait_with_output()).1.unwrap() };
        let ended = tokio::time::timeout(PATIENCE, both).await;
        ended.unwrap_or_else(|_| panic!("{self}: {arguments:?} hangs"))
    }

    /// What it upgrades to, by its version and the environment.
    async fn upgrade(&self, since: u32) -> &'static str {
        let told = self.run(&["version", "--client", "-o", "json"], None).await;
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let minor = told["clientVersion"]["minor"].as_str().unwrap();
        let minor: u32 = minor.trim_end_matches('+').parse().unwrap();
        if self.websockets && minor >= since {
            "websocket"
        } else {
            "SPDY/3.1"
        }
    }
}

impl std::fmt::Display for Kubectl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (websockets: {})", self.program.display(), self.websockets)
    }
}

/// Every kubectl with both protocols; says that the test is skipped if there is none.
pub(super) fn all(test: &str, server: &StandIn, scheme: &str) -> Vec<Kubectl> {
    let programs = evenkeel_testkit::kubectls();
    if programs.is_empty() {
        evenkeel_testkit::skipped(test, "no kubectl on PATH");
    }
    let kubectl = |program: &Path, websockets| Kubectl {
        program: program.to_owned(),
        websockets,
        home: tempfile::tempdir().unwrap(),
        server: format!("{scheme}://{}", server.address),
    };
    programs
        .iter()
        .flat_map(|program| [kubectl(program, false), kubectl(program, true)])
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_commands_and_learns_how_they_ended() {
    let server = StandIn::start().await;
    for kubectl in all("kubectl_runs_commands_and_learns_how_they_ended", &server, "http") {
        let ended = kubectl
            .run(&["exec", "pod", "--", "echo", "hello there"], None)
            .await;
        assert_eq!(
            text(&ended.stdout),
            "hello there\n",
            "{kubectl}: {}",
            text(&ended.stderr)
        );
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));
        let upgrade = server.seen.upgrades.lock().unwrap().pop().unwrap();
        assert_eq!(upgrade, kubectl.upgrade(29).await, "{kubectl}");

        let ended = kubectl
            .run(&["exec", "pod", "--", "fail", "42", "it failed"], None)
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
            let ended = kubectl.run(&["exec", "pod", "--", command], None).await;
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
            .run(&["exec", "-i", "pod", "--", "cat"], Some(data.clone()))
            .await;
        assert_eq!(ended.stdout.len(), LARGE, "{kubectl}: {}", text(&ended.stderr));
        assert!(ended.stdout == data, "{kubectl}");
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));

        let ended = kubectl
            .run(&["exec", "-i", "pod", "--", "count"], Some(data.clone()))
            .await;
        assert_eq!(
            text(&ended.stdout),
            format!("{LARGE} true"),
            "{kubectl}: {}",
            text(&ended.stderr)
        );

        let ended = kubectl
            .run(&["exec", "pod", "--", "write", &LARGE.to_string()], None)
            .await;
        assert!(ended.stdout == data, "{kubectl}: {}", text(&ended.stderr));

        // A command that reads nothing ends all the same.
        let ended = kubectl
            .run(&["exec", "-i", "pod", "--", "echo", "bye"], Some(data))
            .await;
        assert_eq!(text(&ended.stdout), "bye\n", "{kubectl}: {}", text(&ended.stderr));
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_attaches() {
    let server = StandIn::start().await;
    for kubectl in all("kubectl_attaches", &server, "http") {
        let ended = kubectl.run(&["attach", "pod"], None).await;
        assert!(
            text(&ended.stdout).contains("hello\n"),
            "{kubectl}: {}",
            text(&ended.stderr)
        );
        assert!(ended.status.success(), "{kubectl}: {}", text(&ended.stderr));
        let ended = kubectl
            .run(&["attach", "-i", "pod"], Some(b"typed".to_vec()))
            .await;
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

/// A kubectl that forwards a port; its own port.
async fn forwards(kubectl: &Kubectl, port: u16) -> (Child, u16) {
    let mut child = kubectl
        .command(&[
            "port-forward",
            "--address",
            "127.0.0.1",
            "pod",
            &format!(":{port}"),
        ])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .unwrap()
        .unwrap();
    let Some(line) = line else {
        let mut why = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut why)
            .await
            .unwrap();
        panic!("{kubectl}: {why}");
    };
    let local = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.split(' ').next());
    let local = local.unwrap().parse().unwrap();
    // Its further lines must be read, or it waits.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, local)
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
        let (_child, local) = forwards(&kubectl, port).await;
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
        assert_eq!(upgrade, kubectl.upgrade(30).await, "{kubectl}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_is_told_why_a_port_cannot_be_forwarded() {
    let server = StandIn::start().await;
    for kubectl in all("kubectl_is_told_why_a_port_cannot_be_forwarded", &server, "http") {
        let (mut child, local) = forwards(&kubectl, 99).await;
        let mut socket = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
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
