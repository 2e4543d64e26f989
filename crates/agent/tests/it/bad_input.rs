//! What is wrong with an agent's surroundings is one line and exit code 2.

use crate::machine::Machine;
use crate::zone::cluster;
use clap::Parser;
use evenkeel_agent::state::StateDir;
use evenkeel_agent::{AgentArgs, AgentError};
use evenkeel_api::names;
use evenkeel_testkit::{eventually, skipped};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    agent: AgentArgs,
}

async fn refused(words: &[&str]) -> AgentError {
    let cli = Cli::try_parse_from([&["agent"], words].concat()).unwrap_or_else(|error| panic!("{error}"));
    let error = evenkeel_agent::run(cli.agent, CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

const KUBECONFIG: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}"#;

#[tokio::test]
async fn an_agent_whose_key_others_may_read_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("agent.key");
    evenkeel_agent::key::generate(&key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let key = key.to_str().unwrap();
    let run = [
        "--node",
        "a",
        "--listen",
        "127.0.0.1:0",
        "--key",
        key,
        "--state-dir",
        directory.path().to_str().unwrap(),
    ];
    let error = refused(&run).await.to_string();
    assert!(
        error.contains(key) && error.contains("mode 0644") && error.contains("chmod 600"),
        "{error}"
    );
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 1, "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_node_can_be_in_no_roster_is_ready() {
    let cases = [
        (names::ZONE_LABELS[0], "shore", names::CONTROL_PLANE_LABEL, ""),
        (names::ZONE_LABELS[0], "shore", "type", "virtual-kubelet"),
        ("shelf", "top", "shelf", "top"),
    ];
    let (api, cluster) = cluster().await;
    for (name, (first, zone, key, value)) in ["a", "b", "c"].into_iter().zip(cases) {
        let labels = json!({first: zone, key: value});
        cluster
            .create::<Node>(json!({"metadata": {"name": name, "labels": labels}}))
            .await;
        let mut machine = Machine::new(name, &api).await;
        machine.start_agent();
        eventually("it is ready", Duration::from_secs(40), || async {
            let answer = machine.ask("/readyz?verbose").ok()?;
            let metrics = machine.ask("/metrics").ok()?;
            (answer.contains("[+]roster ok") && metrics.contains("evenkeel_agent_kept_out 1")).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_key_is_made_once() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("agent.key");
    let words = ["keygen", "--out", key.to_str().unwrap()];
    let cli =
        Cli::try_parse_from([&["agent"], &words[..]].concat()).unwrap_or_else(|error| panic!("{error}"));
    evenkeel_agent::run(cli.agent, CancellationToken::new())
        .await
        .unwrap();
    let made = std::fs::read(&key).unwrap();
    assert!(refused(&words).await.to_string().contains("exists"));
    assert_eq!(std::fs::read(&key).unwrap(), made);
}

#[tokio::test]
async fn a_taken_address_a_missing_kubeconfig_and_a_bad_directory_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    evenkeel_agent::key::generate(&directory.path().join("agent.key")).unwrap();
    std::fs::write(directory.path().join("kubeconfig"), KUBECONFIG).unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (key, kubeconfig, state, missing, file) = (
        path("agent.key"),
        path("kubeconfig"),
        path("state"),
        path("missing"),
        path("file"),
    );
    let cases: [(&str, &str, &str, &str); 3] = [
        (&taken, &kubeconfig, &state, &taken),
        ("127.0.0.1:0", &missing, &state, &missing),
        ("127.0.0.1:0", &kubeconfig, &file, &file),
    ];
    for (listen, kubeconfig, state, named) in cases {
        let words = [
            "--node",
            "a",
            "--listen",
            listen,
            "--key",
            &key,
            "--state-dir",
            state,
            "--kubeconfig",
            kubeconfig,
        ];
        let error = refused(&words).await.to_string();
        assert!(error.contains(named), "{error} does not name {named}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_checks_or_the_file_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("agent.yaml");
    let text = "apiVersion: evenkeel.io/v1alpha1\nkind: AgentConfiguration\nnode: a\nheartbeet: 2s\n";
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let cases: [(&[&str], &str); 6] = [
        (
            &["--check", "pong"],
            "--check pong: there is no check plugin \"pong\"",
        ),
        (
            &["--check", "ping:weight=0"],
            "--check ping: weight=0: give more than 0",
        ),
        (
            &["--check", "ping:weight=0.5"],
            "--check-score-line: 100: all checks together reach 50 points",
        ),
        (
            &["--check-score-line", "0"],
            "--check-score-line: 0: give more than 0",
        ),
        (
            &["--pingplugin", "timeout=5,retrytime=3,weight=1,port=51005"],
            "--ping-plugin: timeout=5: give 0.01 to 1",
        ),
        (&["--config", config], ":4:1: there is no field \"heartbeet\""),
    ];
    for (words, named) in cases {
        let line = [&["--node", "a", "--listen", "127.0.0.1:0"], words].concat();
        let error = refused(&line).await.to_string();
        assert!(error.contains(named), "{error} does not say {named}");
    }
}

/// A file system that is full while this lives.
struct Full {
    directory: tempfile::TempDir,
}

impl Full {
    /// One with this file in it; nothing where this process may mount none.
    fn with(name: &str, content: &[u8]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(directory.path()).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let full = Self { directory };
        std::fs::write(full.directory.path().join(name), content).unwrap();
        let error = std::fs::write(full.filler(), vec![0; 32 << 10]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        Some(full)
    }

    fn filler(&self) -> PathBuf {
        self.directory.path().join("filler")
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.directory.path()).status();
        assert!(unmounted.unwrap().success(), "{:?} stays mounted", self.directory);
    }
}

#[test]
fn a_full_disk_keeps_no_agent_from_running_that_ran_before() {
    let test = "a_full_disk_keeps_no_agent_from_running_that_ran_before";
    let before =
        br#"{"node":"a","bootId":"f00d","sequenceBase":7340032,"foundAt":{"00000000000000aa":"10.0.0.9:10250"}}"#;
    let Some(full) = Full::with("agent-state.json", before) else {
        return skipped(test, "this process may mount no file system");
    };
    let open = || StateDir::open(full.directory.path(), "a", "f00d", 0);
    let mut state = open().unwrap();
    assert!(!state.is_saved());
    assert_eq!(
        (state.memory().met().found.len(), state.memory().sequence_base),
        (1, 8 << 20)
    );
    assert!(state.update(|_| {}).is_err(), "there is still no room");
    std::fs::remove_file(full.filler()).unwrap();
    state.update(|_| {}).unwrap();
    assert!(state.is_saved());
    assert_eq!(open().unwrap().memory().sequence_base, 9 << 20);
}
