//! Supervision of real processes. The children are shells: what matters is their life, not their work.

use evenkeel_lab::supervise::{ChildSpec, ChildState, PARENT_STDIN, Supervised, stop_with_parent};
use nix::{errno::Errno, sys::signal::kill, unistd::Pid};
use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);

/// A shell that runs `script`.
fn shell(place: &Path, script: &str) -> ChildSpec {
    ChildSpec {
        name: "child".to_owned(),
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        log: place.join("child.log"),
        candidate: None,
        admin: None,
    }
}

/// Waits for a state and returns it.
async fn becomes(child: &Supervised, what: &str, wanted: impl Fn(&ChildState) -> bool) -> ChildState {
    evenkeel_testkit::becomes(what, SOON, child.watch(), wanted).await
}

fn pid(state: &ChildState) -> u32 {
    let ChildState::Running { pid, .. } = state else {
        panic!("not running: {state:?}")
    };
    *pid
}

fn is_gone(pid: u32) -> bool {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), None) == Err(Errno::ESRCH)
}

#[tokio::test]
async fn a_crashed_child_is_started_again() {
    let place = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let child = Supervised::start(shell(place.path(), "echo up; exec cat"), stop.clone()).unwrap();
    let first = pid(&child.state());
    child.crash();
    let crashed = becomes(&child, "crashed", |state| {
        matches!(state, ChildState::Crashed { .. })
    })
    .await;
    assert_eq!(
        crashed,
        ChildState::Crashed {
            how: "SIGKILL".to_owned(),
            refused: false
        }
    );
    let again = becomes(&child, "running", |state| {
        matches!(state, ChildState::Running { restarts: 1, .. })
    })
    .await;
    assert!(is_gone(first) && pid(&again) != first);
    stop.cancel();
    child.stopped().await;
    assert!(is_gone(pid(&again)));
}

#[tokio::test]
async fn a_child_that_refuses_its_configuration_is_told_apart() {
    let place = tempfile::tempdir().unwrap();
    let spec = shell(place.path(), "echo wrong flag >&2; exit 2");
    let log = spec.log.clone();
    let child = Supervised::start(spec, CancellationToken::new()).unwrap();
    let state = becomes(&child, "crashed", |state| {
        matches!(state, ChildState::Crashed { .. })
    })
    .await;
    assert_eq!(
        state,
        ChildState::Crashed {
            how: "exit code 2".to_owned(),
            refused: true
        }
    );
    assert!(std::fs::read_to_string(log).unwrap().contains("wrong flag"));
}

#[tokio::test]
async fn without_power_a_child_stays_down() {
    let place = tempfile::tempdir().unwrap();
    let child = Supervised::start(shell(place.path(), "exec cat"), CancellationToken::new()).unwrap();
    let first = pid(&child.state());
    child.power_off();
    becomes(&child, "off", |state| *state == ChildState::Off).await;
    assert!(is_gone(first));
    child.crash();
    child.power_on();
    let again = becomes(&child, "running", |state| {
        matches!(state, ChildState::Running { .. })
    })
    .await;
    assert_eq!(
        again,
        ChildState::Running {
            pid: pid(&again),
            restarts: 1
        },
        "no crash happened in between"
    );
}

/// Runs the test of this name again, as another process in another role.
fn in_role(test: &str, role: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args([&format!("supervise::{test}"), "--exact", "--nocapture"])
        .env("LAB_TEST_ROLE", role);
    command
}

fn role() -> Option<String> {
    std::env::var("LAB_TEST_ROLE").ok()
}

#[tokio::test]
async fn children_do_not_outlive_a_lab_that_is_killed() {
    if let Some(log) = role() {
        // The lab: it starts a child that ignores SIGTERM, and waits to be killed.
        let script = "trap '' TERM; echo pid=$$; cat; echo the lab is gone";
        let spec = ChildSpec {
            log: log.into(),
            ..shell(Path::new("/"), script)
        };
        let _child = Supervised::start(spec, CancellationToken::new()).unwrap();
        std::future::pending::<()>().await;
    }
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("child.log");
    let mut lab = in_role(
        "children_do_not_outlive_a_lab_that_is_killed",
        log.to_str().unwrap(),
    )
    .spawn()
    .unwrap();
    let child = evenkeel_testkit::eventually("the child of the lab", SOON, || async {
        std::fs::read_to_string(&log)
            .ok()?
            .lines()
            .next()?
            .strip_prefix("pid=")?
            .parse::<u32>()
            .ok()
    })
    .await;
    let alive = !is_gone(child);
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(alive, "the child ended before the lab");
    evenkeel_testkit::eventually("the child's end", SOON, || async {
        std::fs::read_to_string(&log)
            .ok()
            .filter(|text| text.contains("the lab is gone"))
    })
    .await;
    evenkeel_testkit::until("nothing left", async || is_gone(child)).await;
}

#[tokio::test]
async fn a_process_stops_gracefully_when_its_standard_input_ends() {
    if role().is_some() {
        let shutdown = CancellationToken::new();
        stop_with_parent(&shutdown).unwrap();
        println!("waiting");
        shutdown.cancelled().await;
        println!("stopped gracefully");
        return;
    }
    let mut child = in_role("a_process_stops_gracefully_when_its_standard_input_ends", "child")
        .env(PARENT_STDIN, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("waiting")));
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    assert!(lines.any(|line| line.unwrap().contains("stopped gracefully")));
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn a_dropped_handle_ends_the_child() {
    let place = tempfile::tempdir().unwrap();
    let child = Supervised::start(shell(place.path(), "exec sleep 1000"), CancellationToken::new()).unwrap();
    let running = pid(&child.state());
    drop(child);
    evenkeel_testkit::until("the child's end", async || is_gone(running)).await;
}

#[tokio::test]
async fn a_child_that_ignores_the_request_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let script = "trap '' TERM; echo ready; while true; do sleep 1; done";
    let spec = shell(place.path(), script);
    let log = spec.log.clone();
    let child = Supervised::start(spec, stop.clone()).unwrap();
    evenkeel_testkit::eventually("the trap is set", SOON, || async {
        std::fs::read_to_string(&log)
            .ok()
            .filter(|text| text.contains("ready"))
    })
    .await;
    let running = pid(&child.state());
    stop.cancel();
    evenkeel_testkit::ends("it ends", child.stopped()).await;
    assert!(is_gone(running));
}

#[test]
fn a_missing_program_is_named() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let place = tempfile::tempdir().unwrap();
    let spec = ChildSpec {
        program: "/nonexistent/evenkeel".into(),
        ..shell(place.path(), "")
    };
    let error = runtime.block_on(async { Supervised::start(spec, CancellationToken::new()).err().unwrap() });
    assert!(
        error.to_string().contains("child (/nonexistent/evenkeel)"),
        "{error}"
    );
}

/// State of a process as the kernel has it: `S` sleeping, `T` stopped.
fn kernel_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn a_frozen_child_stands_still_goes_on_and_can_be_stopped() {
    let place = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let child = Supervised::start(shell(place.path(), "exec cat"), stop.clone()).unwrap();
    let first = pid(&child.state());
    let is = |wanted: char| async move { (kernel_state(first)? == wanted).then_some(()) };
    child.freeze();
    evenkeel_testkit::eventually("it stands still", SOON, || is('T')).await;
    child.thaw();
    evenkeel_testkit::eventually("it goes on", SOON, || is('S')).await;
    assert_eq!(pid(&child.state()), first);
    child.freeze();
    evenkeel_testkit::eventually("it stands still again", SOON, || is('T')).await;
    stop.cancel();
    child.stopped().await;
    assert!(is_gone(first));
}

#[tokio::test]
async fn nothing_is_started_on_a_machine_that_stands_still() {
    let place = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let child = Supervised::start(shell(place.path(), "exec cat"), stop.clone()).unwrap();
    child.freeze();
    child.crash();
    becomes(&child, "crashed", |state| {
        matches!(state, ChildState::Crashed { .. })
    })
    .await;
    let again = |state: &ChildState| matches!(state, ChildState::Running { restarts: 1, .. });
    let mut states = child.watch();
    // Longer than the pause before a restart.
    let early = tokio::time::timeout(Duration::from_millis(1_500), states.wait_for(again)).await;
    assert!(early.is_err(), "it was started");
    child.thaw();
    becomes(&child, "running", again).await;
    stop.cancel();
    child.stopped().await;
}

#[tokio::test]
async fn each_start_stands_for_election_under_a_name_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let spec = ChildSpec {
        candidate: Some("controller-2".to_owned()),
        ..shell(place.path(), "echo $0 $1; exec cat")
    };
    let log = spec.log.clone();
    let stop = CancellationToken::new();
    let child = Supervised::start(spec, stop.clone()).unwrap();
    evenkeel_testkit::eventually("it said its name", SOON, || async {
        let text = std::fs::read_to_string(&log).ok()?;
        text.ends_with('\n').then_some(())
    })
    .await;
    child.crash();
    becomes(&child, "running", |state| {
        matches!(state, ChildState::Running { restarts: 1, .. })
    })
    .await;
    let names = evenkeel_testkit::eventually("both said their names", SOON, || async {
        let names: Vec<String> = std::fs::read_to_string(&log)
            .ok()?
            .lines()
            .map(str::to_owned)
            .collect();
        (names.len() == 2).then_some(names)
    })
    .await;
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("--identity controller-2_"))
            && names[0] != names[1],
        "{names:?}"
    );
    stop.cancel();
    child.stopped().await;
}
