//! What users get wrong.

use super::runner::ended;
use super::world::{LEASE, World};
use nix::sys::signal::Signal;
use std::{fs, net::TcpListener};
use tempfile::TempDir;

/// One line, this exit code, and all of these words.
fn refuses(args: &[&str], code: i32, words: &[&str]) {
    let (got, text) = ended(args);
    assert_eq!(got, code, "{args:?}\n{text}");
    assert_eq!(
        text.trim_end().lines().count(),
        1,
        "one line, for {args:?}:\n{text}"
    );
    for word in words {
        assert!(text.contains(word), "{word:?} is missing for {args:?}:\n{text}");
    }
}

#[test]
fn wrong_flags_are_named_in_one_line() {
    let rest = ["--", "true"];
    let with = |flags: &[&'static str]| [flags, &rest].concat();
    refuses(&["--lease", LEASE], 2, &["COMMAND"]);
    refuses(&["--lease", LEASE, "--"], 2, &["COMMAND"]);
    refuses(&with(&[]), 2, &["--lease"]);
    refuses(&with(&["--lease=mailer"]), 2, &["--lease", "NAMESPACE/NAME"]);
    refuses(&with(&["--lease=Jobs/mailer"]), 2, &["--lease", "`Jobs`"]);
    refuses(
        &with(&["--lease", LEASE, "--lease-duration=5"]),
        2,
        &["--lease-duration", "no unit"],
    );
    refuses(
        &with(&["--lease", LEASE, "--grace=-5s"]),
        2,
        &["--grace", "negative"],
    );
    refuses(
        &with(&["--lease", LEASE, "--on-lost=cry"]),
        2,
        &["--on-lost", "stop"],
    );
    refuses(
        &with(&["--lease", LEASE, "--lease-duration=3s"]),
        2,
        &[
            "--lease-duration",
            "leaseDuration must be greater than renewDeadline",
        ],
    );
    refuses(
        &with(&["--lease", LEASE, "--retry-period=0s"]),
        2,
        &["retryPeriod must be greater than zero"],
    );
    refuses(&with(&["--lease", LEASE, "--identity="]), 2, &["--identity"]);
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named() {
    let home = TempDir::new().unwrap();
    let broken = home.path().join("broken");
    fs::write(&broken, "clusters: 7\n").unwrap();
    for file in [home.path().join("missing"), broken] {
        let file = file.to_str().unwrap();
        refuses(
            &["--lease", LEASE, "--kubeconfig", file, "--", "true"],
            2,
            &[file],
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named() {
    let world = World::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let kubeconfig = world.kubeconfig(address, "anybody", &[]);
    let (kubeconfig, address) = (kubeconfig.to_str().unwrap(), address.to_string());
    refuses(
        &[
            "--lease",
            LEASE,
            "--kubeconfig",
            kubeconfig,
            "--listen",
            &address,
            "--",
            "true",
        ],
        2,
        &["--listen", &address],
    );
}

#[test]
fn a_command_that_cannot_be_run_is_refused_before_the_lease_is_asked_for() {
    let home = TempDir::new().unwrap();
    let text = home.path().join("text");
    fs::write(&text, "no program").unwrap();
    let text = text.to_str().unwrap();
    refuses(
        &["--lease", LEASE, "--", "no-such-command"],
        127,
        &["`no-such-command`", "not found"],
    );
    refuses(&["--lease", LEASE, "--", text], 126, &[text]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_are_told_and_waited_for() {
    let world = World::new().await;
    let link = world.link().await;
    let kubeconfig = world.kubeconfig(link.address(), "intern", &[]);
    let mut runner = world.runner("me").run_with(&kubeconfig, &["true"]);
    runner.says("forbidden").await;
    let output = runner.output();
    assert!(output.contains("intern") && output.contains("leases"), "{output}");
    assert!(runner.runs(), "rights may be given later");
    runner.signal(Signal::SIGTERM);
    assert_eq!(runner.exit_code().await, 0, "{}", runner.output());
}
