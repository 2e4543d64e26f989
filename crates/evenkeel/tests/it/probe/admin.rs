//! What a run serves about itself.

use super::world::{Running, Server, World, ended};
use evenkeel_testkit::eventually_here;
use nix::sys::signal::Signal;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// Status and body of a path.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

/// Waits until the text of a path is as wanted.
fn until(address: &str, path: &str, what: &str, wanted: impl Fn(u16, &str) -> bool) -> String {
    eventually_here(
        || format!("{path} is {what}: {:?}", get(address, path)),
        || {
            let (status, body) = get(address, path);
            wanted(status, &body).then_some(body)
        },
    )
}

/// The value of the series of this name whose labels hold all of `labels`.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line = text.lines().find(|line| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label))
    })?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn readiness_and_numbers_of_a_run_are_served() {
    let (world, server) = (World::new(), Server::start(200));
    let file = world.pod(&format!(
        "readinessProbe: {{httpGet: {{port: {}, path: /}}, periodSeconds: 1, failureThreshold: 1}}",
        server.port
    ));
    let mut run = Running::start(&["run", "-f", &file, "--admin", "127.0.0.1:0"]);
    let at = run.sees(0, &[" serves /healthz", "/readyz", "/metrics"]);
    let line = run.lines()[at - 1].clone();
    let (_, rest) = line.split_once("http://").expect("a URL");
    let address = rest.split(' ').next().expect("an address");

    assert_eq!(get(address, "/healthz").0, 200);
    assert_eq!(get(address, "/livez").0, 200);
    until(address, "/readyz", "ready", |status, _| status == 200);
    server.answer(500);
    let why = until(address, "/readyz", "not ready", |status, _| status == 500);
    assert!(
        why.contains("containers failed: not all containers are ready"),
        "{why}"
    );
    let web = [
        "probe_type=\"Readiness\"",
        "container=\"web\"",
        "pod=\"web\"",
        "namespace=\"default\"",
    ];
    let with = |more: &'static str| [web[0], web[1], web[2], web[3], more];
    let failed = with("result=\"failed\"");
    let text = until(address, "/metrics", "with three failures", |_, text| {
        value(text, "prober_probe_total", &failed) >= Some(3.0)
    });
    let successful = value(&text, "prober_probe_total", &with("result=\"successful\""));
    assert!(successful >= Some(1.0), "{text}");
    assert!(text.contains("pod_uid=\""), "{text}");
    assert!(
        value(&text, "prober_probe_duration_seconds_count", &web) >= Some(4.0),
        "{text}"
    );
    assert!(value(&text, "evenkeel_probe_run", &failed) >= Some(3.0), "{text}");
    assert!(
        value(&text, "evenkeel_probe_lag_seconds_count", &[]) >= Some(4.0),
        "{text}"
    );
    for (name, labels, wanted) in [
        ("evenkeel_probe_errors_total", &web[..], 0.0),
        ("evenkeel_probe_state", &web, 1.0),
        ("evenkeel_probe_attempts_waiting", &[], 0.0),
        ("evenkeel_probe_workers", &[], 1.0),
        ("evenkeel_build_info", &["component=\"probe\""], 1.0),
    ] {
        assert_eq!(value(&text, name, labels), Some(wanted), "{name}: {text}");
    }
    assert!(
        value(&text, "evenkeel_probe_attempts_in_flight", &[]).is_some(),
        "{text}"
    );

    server.answer(200);
    until(address, "/readyz", "ready again", |status, _| status == 200);
    let text = get(address, "/metrics").1;
    assert_eq!(value(&text, "evenkeel_probe_state", &web), Some(0.0), "{text}");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 0);
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody listens after the end"
    );
}

#[test]
fn an_address_that_is_taken_is_refused_before_anything_is_probed() {
    let world = World::new();
    let file = world.pod("readinessProbe: {tcpSocket: {port: 1}}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [
        taken.local_addr().unwrap().to_string(),
        "192.0.2.1:8080".to_owned(),
    ] {
        let (code, out, text) = ended(&["run", "-f", &file, "--admin", &address]);
        assert_eq!((code, out.as_str()), (2, ""), "{text}");
        for word in ["--admin", &address, "give a free address of this machine"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
