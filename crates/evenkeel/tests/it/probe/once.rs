//! Single probes against real servers and commands.

use super::world::{Running, Server, World, ended};
use evenkeel_testkit::eventually_here;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;

fn tells(args: &[&str], code: i32, words: &[&str]) {
    let (got, out, text) = ended(args);
    assert_eq!(got, code, "{args:?}\n{out}{text}");
    assert_eq!(out.lines().count(), 1, "one line, for {args:?}:\n{out}");
    for word in words {
        assert!(out.contains(word), "{word:?} is missing for {args:?}:\n{out}");
    }
}

#[test]
fn http_answers_are_judged_as_a_kubelet_does() {
    let server = Server::start(200);
    let url = format!("http://127.0.0.1:{}/ready", server.port);
    tells(&["http", &url], 0, &["success in ", &url, "body"]);
    server.answer(503);
    tells(
        &["http", &url],
        1,
        &[
            "failure in ",
            "Readiness probe failed: HTTP probe failed with statuscode: 503",
        ],
    );
    tells(&["http", &url, "--as", "liveness"], 1, &["Liveness probe failed"]);
    server.answer(304);
    tells(&["http", &url], 0, &["warning in ", "Readiness probe warning: "]);
}

#[test]
fn programs_get_an_object() {
    let server = Server::start(500);
    let url = format!("http://127.0.0.1:{}/", server.port);
    let (code, out, _) = ended(&["http", &url, "--output", "json"]);
    assert_eq!(code, 1);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["verdict"], "failure");
    assert_eq!(answer["handler"], "httpGet");
    assert_eq!(answer["target"], url);
    assert_eq!(answer["event"]["reason"], "Unhealthy");
    assert!(answer["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_port_where_nobody_listens_is_a_failure() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tells(&["tcp", &address], 0, &["success in ", &address]);
    drop(listener);
    tells(&["tcp", &address], 1, &["connect: connection refused"]);
    tells(
        &["grpc", &address],
        1,
        &["failure in ", "Readiness probe failed: "],
    );
}

#[test]
fn commands_are_judged_by_their_exit_code() {
    tells(&["exec", "--", "true"], 0, &["success in "]);
    tells(
        &["exec", "--", "sh", "-c", "echo oh; printf '\\033[31m'; exit 3"],
        1,
        &["Readiness probe failed: oh\\n\\u{1b}[31m"],
    );
    tells(
        &["exec", "--timeout", "100ms", "--", "sleep", "60"],
        1,
        &["command timed out"],
    );
    tells(
        &["exec", "--", "echo", "$$(HOME) $(HOME)"],
        0,
        &["$$(HOME) $(HOME)"],
    );
}

#[test]
fn several_attempts_have_the_highest_exit_code() {
    let (code, out, _) = ended(&["exec", "--count", "3", "--interval", "10ms", "--", "false"]);
    assert_eq!((code, out.lines().count()), (1, 3), "{out}");
}

#[test]
fn help_says_what_a_command_does_and_how_it_ends() {
    for (args, words) in [
        (&["--help"][..], &["Exit codes:", "0    success"][..]),
        (
            &["run", "--help"],
            &["Nothing is ever killed", "0    all containers are ready"],
        ),
        (&["lint", "--help"], &["0    there are no findings"]),
    ] {
        let (code, text, _) = ended(args);
        assert_eq!(code, 0, "{args:?}");
        for word in words {
            assert!(text.contains(word), "{word:?} is missing for {args:?}:\n{text}");
        }
    }
}

#[test]
fn a_signal_ends_an_attempt_and_its_command() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let world = World::new();
        let file = world.home.path().join("id");
        let script = format!(
            "echo $$ >{0}.new; mv {0}.new {0}; exec sleep 1000",
            file.display()
        );
        let mut run = Running::start(&["exec", "--timeout", "1h", "--", "sh", "-c", &script]);
        let started = || std::fs::read_to_string(&file).ok();
        let id = eventually_here(|| "the command starts".to_owned(), started);
        let command = Path::new("/proc").join(id.trim());
        assert!(command.exists());
        run.signal(signal);
        assert_eq!(run.code(), 1);
        let gone = || (!command.exists()).then_some(());
        eventually_here(|| "the command ends with its probe".to_owned(), gone);
    }
}
