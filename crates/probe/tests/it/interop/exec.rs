//! Commands, run on this machine by both sides.

use super::case::{Allowed, Case, Part, compare};
use evenkeel_probe::core::Handler;
use evenkeel_probe::handler::Handlers;
use evenkeel_probe::handler::exec::Local;
use std::sync::Arc;
use std::time::Duration;

/// Ours.
pub(crate) fn handlers() -> Handlers {
    evenkeel_net::init_crypto();
    Handlers::new(Arc::new(Local))
}

fn exec(name: &str, command: &[&str]) -> Case {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    Case::new(name, Handler::Exec { command })
}

fn commands() -> Vec<Case> {
    let second = Duration::from_secs(1);
    vec![
        exec("exit 0", &["true"]),
        exec("exit 1", &["false"]),
        exec("output", &["sh", "-c", "echo out; echo err >&2"]),
        exec(
            "output and exit 3",
            &["sh", "-c", "echo err >&2; echo out; exit 3"],
        ),
        exec(
            "killed",
            &["sh", "-c", "echo before; kill -KILL $(sh -c 'echo $PPID')"],
        ),
        exec("11 KiB", &["sh", "-c", "head -c 11264 /dev/zero | tr '\\0' a"]),
        exec(
            "11 KiB and exit 1",
            &["sh", "-c", "head -c 11264 /dev/zero | tr '\\0' a; exit 1"],
        ),
        exec(
            "10 KiB, then errors",
            &["sh", "-c", "head -c 10239 /dev/zero | tr '\\0' a; echo err >&2"],
        ),
        exec("1 MiB", &["sh", "-c", "head -c 1048576 /dev/zero | tr '\\0' a"]),
        exec("output that is not UTF-8", &["printf", "\\377\\376a"]),
        exec("missing", &["/no/such/program"]),
        exec("missing on the path", &["no-such-program-anywhere"]),
        exec("not executable", &["/etc/passwd"]),
        exec("directory", &["/tmp"]),
        exec("timeout", &["sleep", "30"]).within(second),
        exec(
            "timeout with children and output",
            &["sh", "-c", "echo x; sleep 30; echo y"],
        )
        .within(Duration::from_millis(1500)),
        exec("timeout, quoted", &["sh", "-c", "sleep 30 # \"\t\\é'\u{7}"]).within(second),
        exec("no shell", &["echo", "a b", "*", "$HOME", ";", "|"]),
        exec("standard input is empty", &["cat"]),
        exec(
            "environment",
            &[
                "echo",
                "$(A)",
                "$(B)",
                "$$(A)",
                "$A",
                "$(",
                "x$$(A)y",
                "$(A",
                "$((A))",
                "$$$(A)",
                "$()",
                "$",
                "$$",
                "$(A)$(A)",
                "$(A )",
                "$(EMPTY)|",
                "$(C)",
                "$$$$(A)",
                "é$(A)é",
                "$é",
                ")$(A)(",
                "$(A$(A))",
            ],
        )
        .container(|container| {
            container.env = [("A", "1"), ("EMPTY", ""), ("C", "$(A)"), ("A ", "2")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec();
        }),
        exec("the last of two values", &["echo", "$(A)"]).container(|container| {
            container.env = ["1", "2"]
                .map(|value| ("A".to_owned(), value.to_owned()))
                .to_vec();
        }),
    ]
}

const fn start(case: &'static str) -> Allowed {
    Allowed {
        case,
        part: Part::Text,
        why: "why a command cannot start is the container runtime's word in a kubelet, and Go's in its stand-in",
    }
}

const ALLOWED: &[Allowed] = &[
    start("missing"),
    start("missing on the path"),
    start("not executable"),
    start("directory"),
];

#[tokio::test]
async fn commands_are_judged_as_by_the_kubelet() {
    compare(
        "commands_are_judged_as_by_the_kubelet",
        handlers(),
        commands(),
        ALLOWED,
    )
    .await;
}
