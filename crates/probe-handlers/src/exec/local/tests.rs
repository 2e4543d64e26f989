//! Real processes.

use super::Local;
use crate::exec::{Execute as _, Ran, outcome};
use crate::{Container, Outcome, Target, Verdict};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn target(env: &[(&str, &str)]) -> Target {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Target {
        address: None,
        source: None,
        container: Arc::new(Container {
            env: env.collect(),
            ..Container::default()
        }),
        container_id: "".into(),
    }
}

fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
}

async fn run(script: &str, timeout: Duration) -> Ran {
    Local.execute(&target(&[]), &shell(script), timeout).await
}

fn exited(code: i32, output: &str) -> Ran {
    Ran::Exited {
        code,
        output: output.into(),
    }
}

/// Whether there is such a process, zombies included.
fn there(id: i32) -> bool {
    Path::new(&format!("/proc/{id}")).exists()
}

/// Whether it runs: a zombie does not.
fn runs(id: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

async fn read(file: &Path) -> i32 {
    evenkeel_testkit::eventually("a process ID in the file", LONG, || async {
        fs::read_to_string(file)
            .ok()
            .and_then(|text| text.trim().parse().ok())
    })
    .await
}

async fn gone(id: i32) {
    evenkeel_testkit::until("the process is gone, and no zombie", async || !there(id)).await;
}

async fn ended(id: i32) {
    evenkeel_testkit::until("the process has ended", async || !runs(id)).await;
}

#[tokio::test]
async fn exit_codes_and_output_come_back() {
    for (script, ran) in [
        ("exit 0", exited(0, "")),
        ("echo OK", exited(0, "OK\n")),
        (
            "echo out; echo err >&2; echo more; exit 1",
            exited(1, "out\nmore\nerr\n"),
        ),
        ("exit 255", exited(255, "")),
        ("kill -9 $$", exited(137, "")),
        ("cat", exited(0, "")),
    ] {
        assert_eq!(run(script, LONG).await, ran, "{script}");
    }
}

#[tokio::test]
async fn output_beyond_the_cap_is_forgotten_and_the_command_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let script = format!(
        "yes logs-12 | head -c 3000000; yes errors | head -c 3000000 >&2; echo > {}; exit 3",
        done.display()
    );
    let Ran::Exited { code, output } = run(&script, LONG).await else {
        panic!("it ends");
    };
    assert_eq!((code, output.len()), (3, Outcome::OUTPUT));
    assert_eq!(output, "logs-12\n".repeat(Outcome::OUTPUT / 8).into_bytes());
    assert!(done.exists());
    // The wrapper keeps what was said next to the result.
    let outcome = outcome(Ran::Exited { code, output });
    assert_eq!(
        (outcome.verdict, outcome.output.len()),
        (Verdict::Failure, Outcome::OUTPUT)
    );
}

#[tokio::test]
async fn standard_error_fills_what_standard_output_leaves() {
    let Ran::Exited { output, .. } = run("printf 12345; yes | head -c 100000 >&2", LONG).await else {
        panic!("it ends");
    };
    assert_eq!(output.len(), Outcome::OUTPUT);
    assert!(output.starts_with(b"12345y\n"));
}

#[tokio::test]
async fn a_timeout_kills_the_command_and_its_descendants() {
    let dir = tempfile::tempdir().unwrap();
    let (parent, child) = (dir.path().join("parent"), dir.path().join("child"));
    let script = format!(
        "echo $$ > {}; (trap '' TERM HUP; sleep 1000 & echo $! > {}; wait) & wait",
        parent.display(),
        child.display()
    );
    let running = tokio::spawn(async move { run(&script, Duration::from_secs(2)).await });
    let (parent, child) = (read(&parent).await, read(&child).await);
    let Ran::TimedOut { message } = running.await.unwrap() else {
        panic!("it never ends by itself");
    };
    assert!(
        message.starts_with("command timed out: \"/bin/sh -c echo $$ > "),
        "{message}"
    );
    assert!(message.ends_with(" wait\" timed out after 2s"), "{message}");
    assert!(!there(parent), "it was reaped");
    ended(child).await;
}

#[tokio::test]
async fn a_dropped_probe_kills_and_reaps_the_command_and_kills_its_descendants() {
    let dir = tempfile::tempdir().unwrap();
    let (parent, child) = (dir.path().join("parent"), dir.path().join("child"));
    let script = format!(
        "echo $$ > {}; sleep 1000 & echo $! > {}; wait",
        parent.display(),
        child.display()
    );
    let running = tokio::spawn(async move { run(&script, LONG * 60).await });
    let (parent, child) = (read(&parent).await, read(&child).await);
    assert!(runs(parent) && runs(child));
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    gone(parent).await;
    ended(child).await;
}

#[tokio::test]
async fn descendants_that_hold_the_output_do_not_hold_the_probe() {
    let begun = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("child");
    let script = format!("sleep 1000 & echo $! > {}; echo OK; exit 0", file.display());
    assert_eq!(run(&script, LONG * 60).await, exited(0, "OK\n"));
    assert!(begun.elapsed() < LONG);
    ended(read(&file).await).await;
}

#[tokio::test]
async fn what_descendants_say_at_once_is_heard() {
    assert_eq!(
        run("echo parent; (echo child) & wait", LONG).await,
        exited(0, "parent\nchild\n")
    );
}

#[tokio::test]
async fn a_command_that_cannot_start_is_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "no program").unwrap();
    let plain = plain.to_str().unwrap().to_owned();
    for (command, error) in [
        (
            vec!["no-such-program".to_owned(), "x".to_owned()],
            "cannot start \"no-such-program\": No such file or directory (os error 2); install it",
        ),
        (
            vec!["/no/such/program".to_owned()],
            "cannot start \"/no/such/program\": No such file or directory (os error 2); is it on this machine",
        ),
        (
            vec![plain],
            "Permission denied (os error 13); it must be a file that this user may execute",
        ),
        (
            vec!["/".to_owned()],
            "Permission denied (os error 13); it must be a file",
        ),
        (vec!["a\0b".to_owned()], "cannot start \"a\\0b\": "),
        (vec![], "cannot run a command without a program"),
    ] {
        let ran = Local.execute(&target(&[]), &command, LONG).await;
        let Ran::Failed { error: found } = &ran else {
            panic!("{command:?}: {ran:?}");
        };
        assert!(found.contains(error), "{found}");
        let outcome = outcome(ran);
        assert_eq!(outcome.verdict, Verdict::Unknown);
        assert!(outcome.error.is_some());
    }
}

#[tokio::test]
async fn the_environment_is_the_containers_with_path_and_home() {
    let env = [
        ("A", "1"),
        ("B", "$(A)2"),
        ("C", "$(D)$$(A)"),
        ("A", "3"),
        ("HOME", "/here"),
    ];
    let command = shell("env | grep -v '^_=\\|^PWD=\\|^SHLVL=' | sort");
    let ran = Local.execute(&target(&env), &command, LONG).await;
    let path = std::env::var("PATH").unwrap();
    assert_eq!(
        ran,
        exited(0, &format!("A=3\nB=12\nC=$(D)$(A)\nHOME=/here\nPATH={path}\n"))
    );
}

#[tokio::test]
async fn an_environment_that_multiplies_is_no_result() {
    let value = "$(A)".repeat(1000);
    let env = [("A", "0123456789"), ("A", &value), ("A", &value), ("A", &value)];
    let ran = Local.execute(&target(&env), &shell("exit 0"), LONG).await;
    let Ran::Failed { error } = ran else {
        panic!("{ran:?}");
    };
    assert!(
        error.starts_with("cannot start \"/bin/sh\": the container's environment: "),
        "{error}"
    );
}

/// A tracer keeps what it traces from being reaped, dead or not; a file server that is gone keeps it from
/// dying. The probe must end all the same.
#[tokio::test]
async fn a_command_that_cannot_be_reaped_does_not_hold_the_probe() {
    let test = "a_command_that_cannot_be_reaped_does_not_hold_the_probe";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tracer");
    // The tracer leaves the group, attaches, and stops itself.
    let script = format!(
        r"setsid sh -c 'echo $$ > {0}.tmp; mv {0}.tmp {0}; exec strace -qq -o /dev/null -p '$$ >/dev/null 2>&1 &
        while sleep 0.1; do :; done",
        file.display()
    );
    let limit = Duration::from_secs(3);
    let running = tokio::spawn(async move { run(&script, limit).await });
    let tracer = read(&file).await;
    let tracee = || {
        let all = fs::read_dir("/proc").unwrap();
        all.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("status")).ok())
            .any(|status| status.contains(&format!("TracerPid:\t{tracer}\n")))
    };
    while !running.is_finished() && !tracee() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if running.is_finished() {
        return evenkeel_testkit::skipped(test, "no strace, or no permission to trace");
    }
    let id = nix::unistd::Pid::from_raw(tracer);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let ran = tokio::time::timeout(LONG / 3, running).await;
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(matches!(
        ran.expect("the probe ends").unwrap(),
        Ran::TimedOut { .. }
    ));
}

#[tokio::test]
async fn a_thousand_commands_leave_no_descriptors_and_no_zombies() {
    let ours = || {
        let open = fs::read_dir("/proc/self/fd").unwrap();
        // Other tests of this process have pipes too; sockets and files are theirs alone.
        open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .filter(|link| link.to_string_lossy().starts_with("pipe:"))
            .count()
    };
    let before = ours();
    for _ in 0..20 {
        let some = (0..50).map(|_| run("exit 0", LONG));
        for ran in futures::future::join_all(some).await {
            assert_eq!(ran, exited(0, ""));
        }
    }
    // A leak of one descriptor each would be a thousand more.
    assert!(ours() < before + 200, "{before} before, {} now", ours());
    let me = std::process::id();
    let zombies = || {
        let all = fs::read_dir("/proc").unwrap();
        all.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .filter(|stat| {
                let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.to_owned());
                fields.is_some_and(|fields| fields.starts_with(&format!("Z {me} ")))
            })
            .count()
    };
    evenkeel_testkit::until("no zombie", async || zombies() == 0).await;
}
