//! Each plugin against something that answers, or does not.

use super::weigh::Checks;
use super::{Attempt, Failure, Outcome, Plugin, Registry, Suspect};
use evenkeel_zone::engine::CheckResult;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(20);

fn suspect(kubelet: SocketAddr) -> Suspect {
    Suspect {
        node: "shore-1".to_owned(),
        kubelet,
        pin: None,
        source: None,
    }
}

fn checks(check: &str, command: &[&str]) -> Checks {
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let none = std::iter::empty();
    Registry::default()
        .checks(&[check.to_owned()], none, &command, 100.0)
        .unwrap()
}

async fn outcome(check: &str, command: &[&str], kubelet: SocketAddr) -> Outcome {
    let checks = checks(check, command);
    checks.plugins[0]
        .run(&suspect(kubelet), Instant::now() + LONG)
        .await
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

const BARE: Outcome = Outcome::Alive { identity: false };

#[tokio::test]
async fn ping_connects_to_the_port_that_it_is_given() {
    let (_listener, open) = listen().await;
    let (closed, kubelet) = listen().await;
    drop(closed);
    assert_eq!(
        outcome("ping", &[], kubelet).await,
        Outcome::Failed(Failure::Refused)
    );
    let check = format!("ping:port={}", open.port());
    assert_eq!(outcome(&check, &[], kubelet).await, BARE);
}

#[tokio::test]
async fn http_asks_for_its_path_and_any_status_is_an_answer() {
    let (listener, address) = listen().await;
    let (unused, kubelet) = listen().await;
    let check = format!("http:port={},path=/livez?x=1", address.port());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let length = stream.read(&mut asked).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        String::from_utf8(asked[..length].to_vec()).unwrap()
    };
    let (found, asked) = tokio::join!(outcome(&check, &[], kubelet), serve);
    assert_eq!(found, BARE);
    assert!(asked.starts_with("HEAD /livez?x=1 HTTP/1.1\r\n"), "{asked}");
    drop((listener, unused));
    assert_eq!(
        outcome(&check, &[], kubelet).await,
        Outcome::Failed(Failure::Refused)
    );
}

#[tokio::test]
async fn attempts_are_made_as_often_and_wait_as_long_as_is_said() {
    // It accepts, and says nothing.
    let (listener, address) = listen().await;
    let accepted = AtomicU32::new(0);
    let check = format!("http:port={},timeout=0.05,retries=3", address.port());
    let serve = async {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
            accepted.fetch_add(1, Ordering::Relaxed);
        }
    };
    let found = tokio::select! {
        found = outcome(&check, &[], address) => found,
        () = serve => unreachable!("it serves for ever"),
    };
    assert_eq!(found, Outcome::Failed(Failure::Timeout));
    assert_eq!(accepted.load(Ordering::Relaxed), 3);
}

/// One packet of three is enough, and a late answer to the first one, too.
#[tokio::test(start_paused = true)]
async fn attempts_whose_time_nobody_says_overlap() {
    struct Slow(AtomicU32);
    impl Plugin for Slow {
        fn attempt<'a>(&'a self, _: &'a Suspect, _: Duration) -> Attempt<'a> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                match number {
                    0 => tokio::time::sleep(Duration::from_millis(700)).await,
                    _ => std::future::pending().await,
                }
                BARE
            })
        }
    }
    let registry = Registry::default().with("slow", 3, |_| Ok(Arc::new(Slow(AtomicU32::new(0)))));
    let find = async |check: &str| {
        let check = [check.to_owned()];
        let checks = registry.checks(&check, std::iter::empty(), &[], 100.0).unwrap();
        let address = "192.0.2.7:1".parse().unwrap();
        let begun = Instant::now();
        let found = checks.check(&suspect(address), Duration::from_millis(750)).await;
        (found, begun.elapsed().as_millis())
    };
    assert_eq!(find("slow").await, (CheckResult::Inconclusive, 700));
    assert_eq!(find("slow:timeout=0.25").await.0, CheckResult::Failed);
}

#[tokio::test]
async fn icmp_reaches_this_machine_or_says_what_it_lacks() {
    const TEST: &str = "icmp_reaches_this_machine_or_says_what_it_lacks";
    let checks = checks("icmp", &[]);
    if let Some(problem) = checks.lacking().problem {
        assert!(
            problem.contains("NET_RAW") && problem.contains("ping_group_range"),
            "{problem}"
        );
        return evenkeel_testkit::skipped(TEST, &problem);
    }
    let (_listener, address) = listen().await;
    assert_eq!(outcome("icmp", &[], address).await, BARE);
}

#[tokio::test]
async fn exec_tells_its_command_whom_to_look_for_and_takes_its_exit_code() {
    let address: SocketAddr = "192.0.2.7:10250".parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("look");
    std::fs::write(
        &script,
        "#!/bin/sh\n[ \"$NODE $ADDRESS $1\" = \"shore-1 192.0.2.7 192.0.2.7\" ]\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    assert_eq!(outcome("exec", &[script, "$(ADDRESS)"], address).await, BARE);
    let other = outcome("exec", &[script, "other"], address).await;
    assert_eq!(other, Outcome::Failed(Failure::Command(1)));
    for ours in ["exit 127", "kill -9 $$$$"] {
        let found = outcome("exec", &["/bin/sh", "-c", ours], address).await;
        assert!(found.is_ours(), "{ours}: {found:?}");
    }
    let checks = checks("exec", &["/nowhere/look"]);
    let problem = checks.lacking().problem.unwrap();
    assert!(
        problem.starts_with("exec: checkCommand /nowhere/look: No such file")
            && problem.ends_with("this agent votes no node dead"),
        "{problem}"
    );
    let nothing = checks.check(&suspect(address), LONG).await;
    assert_eq!(nothing, CheckResult::Unavailable, "what is ours is no vote");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("children");
    let script = format!(
        "sleep 100 & echo $! > {0}.part && mv {0}.part {0}; wait",
        file.display()
    );
    let command = ["/bin/sh", "-c", &script];
    let address: SocketAddr = "192.0.2.7:10250".parse().unwrap();
    let found = outcome("exec:timeout=1", &command, address).await;
    assert_eq!(found, Outcome::Failed(Failure::Timeout));
    let child = std::fs::read_to_string(file).unwrap();
    let stat = format!("/proc/{}/stat", child.trim());
    evenkeel_testkit::eventually("the child is gone", LONG, || async {
        // What is left of it may wait for its new parent.
        let is_gone = std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        is_gone.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_program_may_have_plugins_of_its_own() {
    struct Never;
    impl Plugin for Never {
        fn attempt<'a>(&'a self, _: &'a Suspect, _: Duration) -> Attempt<'a> {
            Box::pin(std::future::pending())
        }
    }
    let registry = Registry::default().with("never", 1, |_| Ok(Arc::new(Never)));
    let check = ["never:timeout=0.01".to_owned()];
    let checks = registry.checks(&check, std::iter::empty(), &[], 100.0).unwrap();
    let found = checks.check(&suspect("192.0.2.7:1".parse().unwrap()), LONG).await;
    assert_eq!(found, CheckResult::Failed, "one that does not end is ended");
}
