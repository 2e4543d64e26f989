use crate::tls::DEADLINE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

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
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "shutdown::child", "--nocapture"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
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
        kill(pid, second).unwrap();
        let status = tokio::time::timeout(DEADLINE, child.wait())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(status.code(), Some(code), "{first} then {second}");
    }
}
