//! Runs by Evenkeel's own rules.

use super::world::{Running, Server, World, pod};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// The manifest of a pod with these probes and this annotation.
fn annotated(probes: &str, settings: &str) -> String {
    let metadata =
        format!("metadata: {{name: web, annotations: {{evenkeel.io/probes: '{{web: {{{settings}}}}}'}}}}");
    pod(probes).replace("metadata: {name: web}", &metadata)
}

fn attempts(run: &Running) -> usize {
    let lines = run.lines();
    lines
        .iter()
        .filter(|line| line.contains("\"type\":\"attempt\""))
        .count()
}

#[test]
fn strict_periods_are_milliseconds() {
    let (world, server) = (World::new(), Server::start(200));
    let probe = format!("readinessProbe: {{httpGet: {{port: {}}}}}", server.port);
    let file = world.file("fast.yaml", &annotated(&probe, "readinessProbe: {period: 100ms}"));
    let begun = Instant::now();
    let mut run = Running::start(&["run", "-f", &file, "--strict", "--output", "json"]);
    let at = run.sees(0, &["\"type\":\"start\"", "\"mode\":\"strict\""]);
    run.sees(at, &["\"type\":\"pod\"", "\"ready\":true"]);
    while attempts(&run) < 31 {
        // Whole seconds would take thirty of them at least.
        assert!(
            begun.elapsed() < Duration::from_secs(25),
            "{}",
            run.lines().join("\n")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(begun.elapsed() >= Duration::from_secs(2), "faster than told");
    run.signal(Signal::SIGINT);
    assert_eq!(run.code(), 0);
}

#[test]
fn the_first_strict_probe_comes_at_once_after_the_delay() {
    let (world, server) = (World::new(), Server::start(200));
    let probe = format!("readinessProbe: {{httpGet: {{port: {}}}}}", server.port);
    let settings = "readinessProbe: {initialDelay: 1500ms, period: 1h}";
    let file = world.file("slow.yaml", &annotated(&probe, settings));
    let begun = Instant::now();
    let run = Running::start(&["run", "-f", &file, "--strict", "--output", "json"]);
    // A kubelet would wait for some part of the hour.
    run.sees(0, &["\"type\":\"attempt\"", "\"verdict\":\"success\""]);
    assert!(
        begun.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        begun.elapsed()
    );
    run.sees(0, &["\"type\":\"pod\"", "\"ready\":true"]);
    assert_eq!(attempts(&run), 1);
}

/// Succeeds and fails in turns.
fn in_turns(file: &Path) -> String {
    let file = file.display();
    format!(
        "readinessProbe: {{exec: {{command: [sh, -c, 'if [ -e {file} ]; then rm {file}; exit 1; fi; touch {file}']}}, \
         periodSeconds: 1, failureThreshold: 2}}"
    )
}

#[test]
fn a_window_sees_what_flaps() {
    let world = World::new();
    let settings = "readinessProbe: {period: 50ms, timeout: 10s, window: {failures: 2, of: 4}}";
    let text = annotated(&in_turns(&world.home.path().join("turn")), settings);
    let file = world.file("flaps.yaml", &text);
    let strict = Running::start(&["run", "-f", &file, "--strict", "--output", "json"]);
    let at = strict.sees(0, &["\"type\":\"state\"", "\"state\":\"success\""]);
    let at = strict.sees(at, &["\"type\":\"state\"", "\"state\":\"failure\""]);
    let state: Value = serde_json::from_str(&strict.lines()[at - 1]).unwrap();
    let why = state["why"].as_str().unwrap();
    assert!(why.contains("2 of the last 4 attempts failed"), "{why}");
    drop(strict);

    // The kubelet's rules want two in a row.
    let text = annotated(&in_turns(&world.home.path().join("other")), settings);
    let file = world.file("other.yaml", &text);
    let run = Running::start(&["run", "-f", &file, "--output", "json"]);
    run.sees(0, &["\"type\":\"note\"", "evenkeel.io/probes", "--strict alone"]);
    let mut at = run.sees(0, &["\"type\":\"state\"", "\"state\":\"success\""]);
    for _ in 0..3 {
        at = run.sees(at, &["\"type\":\"event\"", "Unhealthy"]);
    }
    let text = run.lines()[..at].join("\n");
    assert_eq!(
        text.matches("\"state\":\"failure\"").count(),
        1,
        "at the start alone: {text}"
    );
}
