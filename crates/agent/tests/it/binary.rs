//! The binary of the agent alone.

use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel-agent"))
        .args(arguments)
        .env_remove("NODE_NAME")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn it_takes_the_flags_of_the_command() {
    let help = agent(&["--help"]);
    assert!(help.status.success());
    let help = text(&help.stdout);
    for flag in [
        "--node",
        "--listen",
        "--zone-default",
        "--leader-elect",
        "--kubeconfig",
        "--admin",
        "--log",
    ] {
        assert!(help.contains(flag), "{flag} is missing:\n{help}");
    }
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("agent.key");
    let made = agent(&["keygen", "--out", key.to_str().unwrap(), "--log", "warn"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(evenkeel_agent::key::load(&key).is_ok());
}

#[test]
fn what_is_wrong_is_one_line_and_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("agent.key");
    std::fs::write(&key, "no key").unwrap();
    let running = [
        "--node",
        "a",
        "--listen",
        "127.0.0.1:0",
        "--key",
        key.to_str().unwrap(),
    ];
    for (arguments, word) in [
        (&["--node", "a", "--listem", "127.0.0.1:0"][..], "--listem"),
        (&[], "--node"),
        (&running, "agent.key"),
    ] {
        let refused = agent(arguments);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with("evenkeel-agent: ") && said.contains(word),
            "{said}"
        );
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
