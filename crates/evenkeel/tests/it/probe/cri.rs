//! Runs whose containers are those of a real containerd.

use super::world::{Running, Server, World, ended, pod};
use evenkeel_testkit::containerd::{Containerd, missing};
use evenkeel_testkit::skipped;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::Duration;

/// What the container `web` does.
const SLEEP: [&str; 3] = ["sh", "-c", "touch /tmp/ok; sleep 1000000"];
const EXEC: &str = "readinessProbe: {exec: {command: [cat, /tmp/ok]}, periodSeconds: 1, failureThreshold: 1}";

/// A run of `file` with the containers of `containerd`, that writes JSON.
fn start(containerd: &Containerd, file: &str, more: &[&str]) -> Running {
    Running::start(&arguments(&socket(containerd), file, more))
}

fn arguments<'a>(socket: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run", "-f", file, "--cri", socket, "--address", "127.0.0.1"];
    args.extend(["--output", "json"]);
    args.extend(more);
    args
}

fn socket(containerd: &Containerd) -> String {
    containerd
        .socket()
        .to_str()
        .expect("temporary names are UTF-8")
        .to_owned()
}

/// Runs a command in a container; it must succeed.
async fn run_in(containerd: &Containerd, id: &str, command: &[&str]) {
    let command: Vec<String> = command.iter().map(|&part| part.to_owned()).collect();
    let ran = containerd
        .client()
        .exec(id, &command, Duration::from_secs(60))
        .await;
    assert_eq!(
        ran.map(|ran| ran.exit_code).expect("the runtime answers"),
        0,
        "{command:?}"
    );
}

fn record(run: &Running, number: usize) -> Value {
    serde_json::from_str(&run.lines()[number - 1]).expect("each line is an object")
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_follow_what_happens_in_a_real_container() {
    if let Some(why) = missing() {
        return skipped("probes_follow_what_happens_in_a_real_container", &why);
    }
    let containerd = Containerd::start().await;
    let sandbox = containerd.sandbox("default", "web").await;
    let id = containerd.container(&sandbox, "web", 0, &SLEEP).await;
    let (world, server) = (World::new(), Server::start(200));
    let port = server.port;
    let file = world.pod(&format!(
        "startupProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1}}\n{EXEC}\nlivenessProbe: {{httpGet: {{port: \
         {port}, path: /live}}, periodSeconds: 1, failureThreshold: 2}}"
    ));
    let mut run = start(&containerd, &file, &[]);
    let at = run.sees(0, &["\"type\":\"container\"", "\"running\":true"]);
    let container = record(&run, at);
    assert_eq!(container["containerId"], format!("containerd://{id}"));
    let at = run.sees(
        at,
        &[
            "\"type\":\"state\"",
            "\"probe\":\"startup\"",
            "\"state\":\"success\"",
        ],
    );
    let at = run.sees(at, &["\"type\":\"pod\"", "\"ready\":true"]);

    run_in(&containerd, &id, &["rm", "/tmp/ok"]).await;
    let at = run.sees(
        at,
        &[
            "\"type\":\"event\"",
            "Readiness probe failed: cat: can't open '/tmp/ok'",
        ],
    );
    let at = run.sees(at, &["\"type\":\"pod\"", "\"ready\":false"]);
    run_in(&containerd, &id, &["touch", "/tmp/ok"]).await;
    let at = run.sees(at, &["\"type\":\"pod\"", "\"ready\":true"]);

    // What a kubelet would do is said once, and not done.
    server.answer(500);
    let at = run.sees(
        at,
        &[
            "\"type\":\"kill\"",
            "Container web failed liveness probe, will be restarted",
        ],
    );
    run_in(&containerd, &id, &["touch", "/tmp/still-there"]).await;
    run.sees(at, &["\"type\":\"attempt\"", "\"probe\":\"readiness\""]);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 1, "a container would have been killed");
    let at = run.sees(0, &["\"type\":\"end\""]);
    let end = record(&run, at);
    assert_eq!(
        (&end["reason"], &end["kills"]),
        (&"signal".into(), &1.into()),
        "{end}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_and_its_successor_are_noticed() {
    if let Some(why) = missing() {
        return skipped("a_container_that_ends_and_its_successor_are_noticed", &why);
    }
    let containerd = Containerd::start().await;
    let sandbox = containerd.sandbox("default", "web").await;
    let first = containerd.container(&sandbox, "web", 0, &SLEEP).await;
    let world = World::new();
    let mut run = start(&containerd, &world.pod(EXEC), &[]);
    let at = run.sees(0, &["\"type\":\"pod\"", "\"ready\":true"]);
    containerd.end_container(&sandbox, &first).await;
    let at = run.sees(
        at,
        &[
            "\"type\":\"container\"",
            &first,
            "\"running\":false",
            "\"ready\":false",
        ],
    );
    let at = run.sees(at, &["\"type\":\"pod\"", "\"ready\":false"]);
    let second = containerd.container(&sandbox, "web", 1, &SLEEP).await;
    let at = run.sees(
        at,
        &[
            "\"type\":\"container\"",
            &second,
            "\"running\":true",
            "\"restarts\":1",
        ],
    );
    let at = run.sees(at, &["\"type\":\"state\"", &second, "\"state\":\"success\""]);
    run.sees(at, &["\"type\":\"pod\"", "\"ready\":true"]);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 0, "ready, and no probe asked for a kill");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_containers_is_waited_for_and_one_that_is_not_there_refused() {
    if let Some(why) = missing() {
        return skipped(
            "a_pod_without_containers_is_waited_for_and_one_that_is_not_there_refused",
            &why,
        );
    }
    let containerd = Containerd::start().await;
    let world = World::new();
    let file = world.pod(EXEC);
    let socket = socket(&containerd);
    let (code, out, text) = ended(&arguments(&socket, &file, &[]));
    assert_eq!((code, out.as_str()), (2, ""), "{text}");
    for word in ["--cri", &socket, "no pod default/web", "namespace"] {
        assert!(text.contains(word), "{word}: {text}");
    }

    let sandbox = containerd.sandbox("default", "web").await;
    let mut run = start(&containerd, &file, &["--until-ready", "--for", "60s"]);
    run.sees(0, &["\"type\":\"container\"", "\"running\":false"]);
    run.sees(0, &["\"type\":\"pod\"", "\"ready\":false"]);
    let id = containerd.container(&sandbox, "web", 0, &SLEEP).await;
    assert_eq!(run.code(), 0);
    run.sees(0, &["\"type\":\"container\"", &id, "\"ready\":true"]);
    containerd.end_container(&sandbox, &id).await;

    // One that has ended for good ends the run.
    let never = world.file(
        "never.yaml",
        &pod(EXEC).replace("spec:", "spec:\n  restartPolicy: Never"),
    );
    let mut run = start(&containerd, &never, &["--until-ready"]);
    assert_eq!(run.code(), 1);
    run.sees(0, &["\"type\":\"end\"", "\"reason\":\"failed\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_dies_or_hangs_holds_nothing_else_up() {
    if let Some(why) = missing() {
        return skipped("a_runtime_that_dies_or_hangs_holds_nothing_else_up", &why);
    }
    let mut containerd = Containerd::start().await;
    let sandbox = containerd.sandbox("default", "web").await;
    let id = containerd.container(&sandbox, "web", 0, &SLEEP).await;
    let (world, server) = (World::new(), Server::start(200));
    let file = world.pod(&format!(
        "{EXEC}\nlivenessProbe: {{httpGet: {{port: {}}}, periodSeconds: 1, failureThreshold: 100000}}",
        server.port
    ));
    let mut run = start(&containerd, &file, &[]);
    let at = run.sees(0, &["\"type\":\"pod\"", "\"ready\":true"]);

    containerd.kill();
    let at = run.sees(
        at,
        &[
            "\"type\":\"note\"",
            "the containers are as last seen",
            &socket(&containerd),
        ],
    );
    // Errors count for nothing, and the other probe goes on.
    let at = run.sees(at, &["\"probe\":\"readiness\"", "\"verdict\":\"error\""]);
    let at = run.sees(at, &["\"probe\":\"liveness\"", "\"verdict\":\"success\""]);
    containerd.again().await;
    let at = run.sees(at, &["the container runtime answers again"]);
    let at = run.sees(at, &["\"probe\":\"readiness\"", "\"verdict\":\"success\""]);
    let text = run.lines()[..at].join("\n");
    assert!(!text.contains("\"ready\":false,\"restarts\":1"), "{text}");
    assert_eq!(
        text.matches("\"type\":\"pod\",\"ready\":false").count(),
        1,
        "at the start alone: {text}"
    );

    containerd.hang();
    server.answer(500);
    let at = run.sees(at, &["\"probe\":\"liveness\"", "\"verdict\":\"failure\""]);
    // A probe's period is a second, and the runtime is given five.
    let text = run.lines()[..at].join("\n");
    assert!(
        !text.contains("no answer to"),
        "told while it was still waited for: {text}"
    );
    server.answer(200);
    let at = run.sees(at, &["the containers are as last seen: no answer to"]);
    containerd.wake();
    let at = run.sees(at, &["the container runtime answers again"]);
    run.sees(at, &["\"probe\":\"readiness\"", "\"verdict\":\"success\""]);
    run_in(&containerd, &id, &["cat", "/tmp/ok"]).await;
    containerd.hang();
    run.signal(Signal::SIGTERM);
    run.code();
    run.sees(0, &["\"type\":\"end\"", "\"reason\":\"signal\""]);
}
