//! What users get wrong: exit code 2, and a first line that says what, where and what to do.

use super::world::{Running, World, ended, pod};

/// Exit code 2, nothing on standard output, and a first line that holds all of `words`.
fn refused(args: &[&str], words: &[&str]) {
    let (code, out, text) = ended(args);
    assert_eq!(code, 2, "{args:?}\n{out}{text}");
    assert_eq!(out, "", "{args:?}");
    let first = text.lines().next().unwrap_or_default();
    for word in words {
        assert!(first.contains(word), "{word:?} is missing for {args:?}:\n{text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn single_probes_name_what_is_wrong_with_their_target() {
    refused(&["http", "127.0.0.1:80"], &["http://"]);
    refused(&["http", "http://:80/"], &["no host"]);
    refused(&["http", "http://a/", "-H", "nonsense"], &["no colon"]);
    refused(&["http", "http://a/", "-H", "b c: x"], &["no header name"]);
    refused(&["tcp", "127.0.0.1"], &["as in 127.0.0.1:8080"]);
    refused(&["tcp", "::1:80"], &["brackets"]);
    refused(&["tcp", "127.0.0.1:0"], &["1 to 65535"]);
    refused(&["grpc", "nobody.invalid:80"], &["nobody.invalid"]);
    refused(&["exec"], &["COMMAND"]);
    refused(
        &["exec", "--", "/no/such/program"],
        &["/no/such/program", "cannot be run"],
    );
    refused(&["exec", "--", "no-such-program-anywhere"], &["PATH"]);
}

#[test]
fn times_and_counts_must_be_some() {
    let target = ["tcp", "127.0.0.1:1"];
    for (flag, word) in [
        ("--timeout=0", "more than 0"),
        ("--timeout=1", "no unit"),
        ("--timeout=-1s", "negative"),
        ("--timeout=99999h", "longer than a year"),
        ("--interval=0s", "more than 0"),
        ("--count=0", "0"),
        ("--output=xml", "json"),
        ("--as=birth", "liveness"),
    ] {
        refused(&[target[0], target[1], flag], &[word]);
    }
}

#[test]
fn a_manifest_that_kubernetes_would_refuse_is_refused_in_its_words() {
    let world = World::new();
    for (probes, path, words) in [
        (
            "livenessProbe: {httpGet: {port: 80}, tcpSocket: {port: 80}}",
            "livenessProbe.tcpSocket",
            "may not specify more than 1 handler type",
        ),
        (
            "livenessProbe: {periodSeconds: 5}",
            "livenessProbe",
            "must specify a handler type",
        ),
        (
            "livenessProbe: {tcpSocket: {port: 0}}",
            "livenessProbe.tcpSocket.port",
            "must be between 1 and 65535",
        ),
        (
            "livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: 'a b', value: x}]}}",
            "livenessProbe.httpGet.httpHeaders",
            "valid HTTP header",
        ),
        (
            "livenessProbe: {tcpSocket: {port: 80}, successThreshold: 2}",
            "livenessProbe.successThreshold",
            "must be 1",
        ),
        (
            "readinessProbe: {tcpSocket: {port: 80}, failureThreshold: -1}",
            "readinessProbe.failureThreshold",
            "must be greater than or equal to 0",
        ),
        (
            "readinessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 5}",
            "readinessProbe.terminationGracePeriodSeconds",
            "must not be set for readinessProbes",
        ),
        (
            "livenessProbe: {tcpSocket: {port: nobody}}",
            "livenessProbe",
            "nobody",
        ),
    ] {
        let file = world.pod(probes);
        refused(
            &["run", "-f", &file, "--for", "1s"],
            &[&file, "Pod default/web", path, words],
        );
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let world = World::new();
    let file = world.pod("livenessProbe: {periodSeconds: -5}\nreadinessProbe: {}");
    let (code, _, text) = ended(&["lint", "-f", &file]);
    assert_eq!(code, 2, "{text}");
    assert!(text.lines().count() >= 3, "{text}");
    assert!(text.lines().all(|line| line.contains(&file)), "{text}");
}

#[test]
fn files_that_hold_no_pod_are_named() {
    let world = World::new();
    let empty = world.file("empty.yaml", "");
    let text = world.file("text.yaml", "a: [b");
    let map = world.file(
        "map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n",
    );
    let two = world.file(
        "two.yaml",
        &format!(
            "{}---\n{}",
            pod("livenessProbe: {tcpSocket: {port: 80}}"),
            pod("livenessProbe: {tcpSocket: {port: 80}}").replace("{name: web}", "{name: shop}")
        ),
    );
    for (file, words) in [
        ("/no/such/file", vec!["cannot read", "No such file"]),
        ("/etc", vec!["cannot read", "directory"]),
        (empty.as_str(), vec!["has no pod", "empty"]),
        (text.as_str(), vec!["text.yaml:"]),
        (map.as_str(), vec!["has no pod", "ConfigMap", "settings"]),
    ] {
        refused(&["run", "-f", file], &words);
        refused(&["lint", "-f", file], &words);
    }
    refused(
        &["run", "-f", &two],
        &["has 2 pods", "default/web", "default/shop"],
    );
}

#[test]
fn what_cannot_be_run_is_told_before_anything_runs() {
    let world = World::new();
    let good = world.pod("livenessProbe: {tcpSocket: {port: 80}}");
    refused(
        &["run", "-f", &good, "--container", "shop"],
        &["--container", "\"shop\"", "web"],
    );
    refused(&["run", "-f", &good, "--address", "here"], &["--address"]);
    refused(&["run", "-f", &good, "--for", "0s"], &["--for", "more than 0"]);
    refused(&["run", "-f", &good, "--events"], &["--events", "metadata.uid"]);
    let socket = world.home.path().join("no.sock");
    let socket = socket.to_str().unwrap();
    refused(
        &["run", "-f", &good, "--address", "127.0.0.1", "--cri", socket],
        &["--cri", socket, "does not exist"],
    );
    refused(&["run", "-f", &good, "--cri", socket], &["--address IP"]);
    refused(&["lint", "-f", &good, "--allow", "EK-X"], &["--allow", "EK-P001"]);
    let none = world.pod("env: []");
    refused(&["run", "-f", &none], &["has no probes"]);
    let exec = world.pod("livenessProbe: {exec: {command: [/no/such/program]}}");
    refused(&["run", "-f", &exec], &["/no/such/program", "--cri"]);
}

#[test]
fn a_place_where_no_state_can_be_kept_is_refused() {
    let world = World::new();
    let good = world.pod("livenessProbe: {tcpSocket: {port: 80}}");
    let home = world.home.path().to_str().unwrap();
    refused(
        &["run", "-f", &good, "--state", home],
        &["--state", home, "directory"],
    );
    let nowhere = world.home.path().join("none/state.json");
    refused(
        &["run", "-f", &good, "--state", nowhere.to_str().unwrap()],
        &["--state", "no directory", "none"],
    );
}

#[test]
fn standard_input_is_told_what_is_wrong_with_it_as_a_file_is() {
    use std::io::Write as _;
    use std::process::Stdio;
    for (bytes, words) in [
        (&b"\nkind: \xff"[..], "standard input:2: this is not UTF-8"),
        (b"", "standard input has no pod: it is empty"),
    ] {
        let mut child = crate::support::evenkeel()
            .args(["probe", "lint", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_manifest_that_never_comes() {
    use nix::sys::signal::Signal;
    use nix::sys::stat::Mode;
    let world = World::new();
    let pipe = world.home.path().join("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let pipe = pipe.to_str().unwrap();
    for command in ["run", "lint"] {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let mut running = Running::start(&[command, "-f", pipe]);
            running.handles(signal);
            running.signal(signal);
            assert_eq!(running.code(), 1, "{command} {signal}");
        }
    }
}
