//! Runs of a pod whose server turns bad and recovers.

use super::world::{Running, Server, World, ended, pod};
use crate::support::evenkeel;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

fn http(kind: &str, port: u16, more: &str) -> String {
    format!("{kind}: {{httpGet: {{port: {port}, path: /ready}}, periodSeconds: 1, {more}}}")
}

#[test]
fn readiness_follows_the_server_and_a_signal_ends_the_run() {
    let (world, server) = (World::new(), Server::start(200));
    let file = world.pod(&http("readinessProbe", server.port, "failureThreshold: 2"));
    let mut run = Running::start(&["run", "-f", &file]);
    let at = run.sees(0, &[": the pod is Ready"]);
    server.answer(500);
    let at = run.sees(
        at,
        &["web readiness: event Warning Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 500"],
    );
    let at = run.sees(at, &["web readiness: is failure: "]);
    let at = run.sees(at, &[": the pod is not Ready"]);
    server.answer(200);
    let at = run.sees(at, &["web readiness: is success: "]);
    run.sees(at, &[": the pod is Ready"]);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 0, "ready, and nothing was killed");
    run.sees(
        0,
        &["stopped by a signal", "Ready", "no container had to be killed"],
    );
}

#[test]
fn a_failed_liveness_probe_counts_a_restart_and_the_run_as_failed() {
    let (world, server) = (World::new(), Server::start(200));
    let file = world.pod(&http("livenessProbe", server.port, "failureThreshold: 1"));
    let mut run = Running::start(&["run", "-f", &file, "--output", "json"]);
    run.sees(0, &["\"type\":\"pod\"", "\"ready\":true"]);
    server.answer(500);
    let at = run.sees(0, &["\"type\":\"kill\""]);
    let kill: Value = serde_json::from_str(&run.lines()[at - 1]).unwrap();
    assert_eq!(kill["container"], "web");
    assert_eq!(kill["probe"], "liveness");
    assert_eq!(kill["graceSeconds"], 30.0);
    assert_eq!(
        kill["event"]["message"],
        "Container web failed liveness probe, will be restarted"
    );
    let at = run.sees(at, &["\"type\":\"restart\""]);
    let restart: Value = serde_json::from_str(&run.lines()[at - 1]).unwrap();
    assert_eq!(restart["containerId"], "simulated://web/1");
    assert_eq!(restart["restarts"], 1);
    // The next one waits.
    run.sees(at, &["\"type\":\"backOff\"", "\"seconds\":10.0"]);
    run.signal(Signal::SIGINT);
    assert_eq!(run.code(), 1);
    for line in run.lines() {
        let record: Value = serde_json::from_str(&line).unwrap();
        assert!(record["time"].is_string() && record["type"].is_string(), "{line}");
    }
}

#[test]
fn a_startup_probe_holds_the_others_back() {
    let (world, server) = (World::new(), Server::start(500));
    let file = world.pod(&format!(
        "{}\n{}",
        http("startupProbe", server.port, "failureThreshold: 600"),
        http("readinessProbe", server.port, "failureThreshold: 1")
    ));
    let run = Running::start(&["run", "-f", &file, "--output", "json"]);
    let at = run.sees(
        0,
        &[
            "\"type\":\"attempt\"",
            "\"probe\":\"startup\"",
            "\"verdict\":\"failure\"",
        ],
    );
    server.answer(200);
    let at = run.sees(
        at,
        &[
            "\"type\":\"state\"",
            "\"probe\":\"startup\"",
            "\"state\":\"success\"",
        ],
    );
    let before = run.lines()[..at].join("\n");
    assert!(
        !before.contains("\"type\":\"attempt\",\"container\":\"web\",\"probe\":\"readiness\""),
        "{before}"
    );
    run.sees(at, &["\"type\":\"pod\"", "\"ready\":true"]);
}

#[test]
fn until_ready_ends_at_once_or_when_the_time_is_over() {
    let (world, server) = (World::new(), Server::start(200));
    let file = world.pod(&http("readinessProbe", server.port, "failureThreshold: 1"));
    let (code, out, text) = ended(&["run", "-f", &file, "--until-ready", "--for", "60s"]);
    assert_eq!(code, 0, "{out}{text}");
    assert!(out.contains("all containers are ready"), "{out}");
    server.answer(500);
    let (code, out, text) = ended(&["run", "-f", &file, "--until-ready", "--for", "1500ms"]);
    assert_eq!(code, 1, "{out}{text}");
    assert!(out.contains("the time is over; the pod is not Ready"), "{out}");
}

#[test]
fn a_pod_that_is_never_restarted_ends_the_run() {
    let (world, server) = (World::new(), Server::start(500));
    let text = pod(&http("livenessProbe", server.port, "failureThreshold: 1"));
    let file = world.file(
        "never.yaml",
        &text.replace("spec:", "spec:\n  restartPolicy: Never"),
    );
    let (code, out, text) = ended(&["run", "-f", &file, "--for", "60s"]);
    assert_eq!(code, 1, "{out}{text}");
    assert!(out.contains("stays ended (restartPolicy Never)"), "{out}");
    assert!(out.contains("Container web failed liveness probe\n"), "{out}");
}

#[test]
fn the_state_of_a_run_is_taken_up_by_the_next() {
    let (world, server) = (World::new(), Server::start(500));
    let file = world.pod(&http("livenessProbe", server.port, "failureThreshold: 1"));
    let state = world.home.path().join("state.json");
    let args = [
        "run",
        "-f",
        &file,
        "--state",
        state.to_str().unwrap(),
        "--output",
        "json",
    ];
    let mut run = Running::start(&args);
    run.sees(0, &["\"type\":\"restart\"", "simulated://web/1"]);
    let at = run.sees(
        0,
        &["\"type\":\"state\"", "simulated://web/1", "\"state\":\"success\""],
    );
    server.answer(200);
    run.sees(at, &["\"type\":\"attempt\""]);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 1);
    assert!(state.exists());
    let run = Running::start(&args);
    run.sees(
        0,
        &["\"type\":\"container\"", "simulated://web/", "\"ready\":true"],
    );
    let text = run.lines().join("\n");
    assert!(!text.contains("simulated://web/0"), "{text}");
}

#[test]
fn manifests_come_from_standard_input_too() {
    let server = Server::start(200);
    let mut child = evenkeel()
        .args(["probe", "run", "-f", "-", "--until-ready", "--for", "60s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let text = pod(&http("readinessProbe", server.port, "failureThreshold: 1"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    let (world, server) = (World::new(), Server::start(200));
    let file = world.pod(&http("readinessProbe", server.port, "failureThreshold: 1"));
    let mut child = evenkeel()
        .args(["probe", "run", "-f", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("probing default/web"), "{first}");
    // The pipe is closed by now; nothing more has to happen for the command to find out.
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.code().is_some());
}

#[test]
fn findings_are_told_with_their_reason() {
    let world = World::new();
    let good = world.pod(
        "readinessProbe: {httpGet: {port: http, path: /ready}}\nlivenessProbe: {httpGet: {port: http, path: /live}, \
         failureThreshold: 6}",
    );
    let (code, out, text) = ended(&["lint", "-f", &good]);
    assert_eq!(code, 0, "{out}{text}");
    let bad = world.pod("livenessProbe: {tcpSocket: {port: http}, timeoutSeconds: 5, periodSeconds: 2}");
    let (code, out, _) = ended(&["lint", "-f", &bad]);
    assert_eq!(code, 1, "{out}");
    for word in ["EK-P018", "why: ", "fix: ", "livenessProbe"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let (_, out, _) = ended(&["lint", "-f", &bad, "--output", "json", "--allow", "EK-P018"]);
    let findings: Value = serde_json::from_str(&out).unwrap();
    let codes: Vec<&str> = findings
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["code"].as_str())
        .collect();
    assert!(!codes.is_empty() && !codes.contains(&"EK-P018"), "{codes:?}");
}
