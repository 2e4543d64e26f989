use crate::tls::DEADLINE;
use evenkeel_net::log::{LogArgs, LogFormat};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

/// The other process of the tests below: says when it listens, says when it was told to stop, and then hangs.
#[tokio::test]
#[ignore = "run as a child process by the tests of this module"]
async fn child() {
    let stop = evenkeel_net::shutdown::on_signals().unwrap();
    println!("listening");
    stop.cancelled().await;
    println!("stopping");
    std::future::pending::<()>().await;
}

fn start() -> (Child, Lines<BufReader<ChildStdout>>) {
    start_by("shutdown::child", "exec \"$@\"")
}

/// Starts a child as this line of a shell does. Nobody reads its standard error.
fn start_by(name: &str, line: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    // Whoever runs the tests may ignore SIGHUP. A signal that is handled has its default in a child.
    drop(signal(SignalKind::hangup()).unwrap());
    let mut child = Command::new("sh")
        .args(["-c", line, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name, "--nocapture"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

async fn wait_for(lines: &mut Lines<BufReader<ChildStdout>>, word: &str) {
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            // The harness prints the test's name on the same line.
            if line.ends_with(word) {
                return true;
            }
        }
        false
    };
    assert!(
        tokio::time::timeout(DEADLINE, found)
            .await
            .expect("an answer of the child"),
        "no `{word}`"
    );
}

#[tokio::test]
async fn the_first_signal_stops_gracefully_and_the_second_at_once() {
    for (first, second, code) in [
        (Signal::SIGTERM, Signal::SIGTERM, 143),
        (Signal::SIGTERM, Signal::SIGINT, 130),
        (Signal::SIGINT, Signal::SIGTERM, 143),
        (Signal::SIGHUP, Signal::SIGTERM, 143),
    ] {
        let (mut child, mut lines) = start();
        let pid = Pid::from_raw(child.id().unwrap() as i32);
        wait_for(&mut lines, "listening").await;
        kill(pid, first).unwrap();
        wait_for(&mut lines, "stopping").await;
        assert!(
            child.try_wait().unwrap().is_none(),
            "{first} must not end the process"
        );
        // A terminal that goes away says so more than once.
        kill(pid, Signal::SIGHUP).unwrap();
        kill(pid, second).unwrap();
        let status = tokio::time::timeout(DEADLINE, child.wait())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(status.code(), Some(code), "{first} then {second}");
    }
}

#[tokio::test]
async fn who_ignores_sighup_is_not_stopped_by_it() {
    let (mut child, mut lines) = start_by("shutdown::child", "trap '' HUP; exec \"$@\"");
    let pid = Pid::from_raw(child.id().unwrap() as i32);
    wait_for(&mut lines, "listening").await;
    kill(pid, Signal::SIGHUP).unwrap();
    kill(pid, Signal::SIGTERM).unwrap();
    wait_for(&mut lines, "stopping").await;
    kill(pid, Signal::SIGINT).unwrap();
    let ended = tokio::time::timeout(DEADLINE, child.wait()).await;
    let code = ended.expect("it ends").unwrap().code();
    assert_eq!(code, Some(130), "SIGTERM was taken for a second signal");
}

/// The other process of the test below.
#[tokio::test]
#[ignore = "run as a child process by the tests of this module"]
async fn child_that_logs() {
    let log = LogArgs {
        log: None,
        log_format: LogFormat::Text,
    };
    log.init("info").unwrap();
    let stop = evenkeel_net::shutdown::on_signals().unwrap();
    println!("listening");
    stop.cancelled().await;
    tracing::warn!("taking back");
    println!("stopping");
}

#[tokio::test]
async fn a_line_that_no_terminal_takes_any_more_ends_nothing() {
    let (child, mut lines) = start_by("shutdown::child_that_logs", "exec \"$@\"");
    let pid = Pid::from_raw(child.id().unwrap() as i32);
    wait_for(&mut lines, "listening").await;
    kill(pid, Signal::SIGHUP).unwrap();
    wait_for(&mut lines, "stopping").await;
}
