//! Runs that write their events to an API server.

use super::world::{Running, Server, World, ended, pod};
use evenkeel_testkit::{Cluster, ServedApi, eventually, kubectl, skipped};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Creates the pod of this manifest; the file as a user would get it from the API server.
async fn created(api: &ServedApi, world: &World, text: &str) -> String {
    let pod: Pod = serde_saphyr::from_str(text).expect("a manifest");
    let made = Cluster::of(&api.server).add(&pod).await;
    assert!(made.uid().is_some());
    let mut made = serde_json::to_value(&made).expect("a pod can be written");
    (made["apiVersion"], made["kind"]) = ("v1".into(), "Pod".into());
    world.file("created.json", &made.to_string())
}

async fn events(api: &ServedApi) -> Vec<Event> {
    Cluster::of(&api.server).list().await
}

/// Waits for an event with these words in its message, and a count of at least so many.
async fn written(api: &ServedApi, words: &str, count: i32) -> Event {
    eventually(words, LONG, || async {
        events(api).await.into_iter().find(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            message.contains(words) && event.count >= Some(count)
        })
    })
    .await
}

fn args<'a>(file: &'a str, kubeconfig: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let kubeconfig = kubeconfig.to_str().expect("temporary names are UTF-8");
    let mut args = vec!["run", "-f", file, "--events", "--kubeconfig", kubeconfig];
    args.extend(more);
    args
}

fn probe(kind: &str, port: u16, threshold: u32) -> String {
    format!("{kind}: {{httpGet: {{port: {port}, path: /}}, periodSeconds: 1, failureThreshold: {threshold}}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_run_are_written_about_the_pod_and_counted() {
    let (api, world, server) = (ServedApi::start().await, World::new(), Server::start(500));
    let file = created(&api, &world, &pod(&probe("readinessProbe", server.port, 1))).await;
    let kubeconfig = api.direct("probe");
    let mut run = Running::start(&args(&file, &kubeconfig, &[]));
    let event = written(&api, "HTTP probe failed with statuscode: 500", 3).await;
    let about = &event.involved_object;
    let manifest: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(about.uid.as_deref(), manifest["metadata"]["uid"].as_str());
    assert_eq!(
        (
            about.kind.as_deref(),
            about.name.as_deref(),
            about.field_path.as_deref()
        ),
        (Some("Pod"), Some("web"), Some("spec.containers{web}"))
    );
    assert_eq!(
        (event.type_.as_deref(), event.reason.as_deref()),
        (Some("Warning"), Some("Unhealthy"))
    );
    assert_eq!(
        event.message.as_deref(),
        Some("Readiness probe failed: HTTP probe failed with statuscode: 500")
    );
    assert!(event.first_timestamp < event.last_timestamp, "{event:?}");
    assert_eq!(events(&api).await.len(), 1, "one event, counted");

    let Some(kubectl) = kubectl() else {
        run.signal(Signal::SIGTERM);
        run.code();
        return skipped("kubectl describe shows the events of a run", "no kubectl on PATH");
    };
    let described = Command::new(kubectl)
        .args(["describe", "pod", "web"])
        .env("KUBECONFIG", &kubeconfig)
        .env("HOME", world.home.path())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&described.stdout).into_owned();
    let line = shown
        .lines()
        .find(|line| line.contains("Unhealthy"))
        .unwrap_or_default();
    for word in [
        "Warning",
        "(x",
        "over",
        "evenkeel-probe",
        "Readiness probe failed",
    ] {
        assert!(line.contains(word), "{word}: {shown}");
    }
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_event_of_a_run_is_not_lost() {
    let (api, world, server) = (ServedApi::start().await, World::new(), Server::start(500));
    let text = pod(&probe("livenessProbe", server.port, 1));
    let never = text.replace("spec:", "spec:\n  restartPolicy: Never");
    let file = created(&api, &world, &never).await;
    // The run ends with the event.
    let (code, out, text) = ended(&args(&file, &api.direct("probe"), &[]));
    assert_eq!((code, text.as_str()), (1, ""), "{out}");
    let found = events(&api).await;
    let reasons: Vec<_> = found.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert!(
        reasons.contains(&"Killing") && reasons.contains(&"Unhealthy"),
        "{reasons:?}\n{out}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_without_its_api_server_and_ends_in_time() {
    let (api, world, server) = (ServedApi::start().await, World::new(), Server::start(200));
    let file = created(&api, &world, &pod(&probe("readinessProbe", server.port, 1))).await;
    let link = api.link("probe").await;
    let mut run = Running::start(&args(&file, link.kubeconfig(), &["--log", "error"]));
    let at = run.sees(0, &[": the pod is Ready"]);
    link.cut();
    server.answer(500);
    let at = run.sees(at, &[": the pod is not Ready"]);
    link.holds().await;
    server.answer(200);
    let at = run.sees(at, &[": the pod is Ready"]);
    assert!(events(&api).await.is_empty(), "the link is cut");
    link.mend();
    written(&api, "statuscode: 500", 1).await;

    link.cut();
    server.answer(503);
    run.sees(at, &[": the pod is not Ready"]);
    link.holds().await;
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 1, "whether or not the last event could be written");
    run.sees(0, &["stopped by a signal"]);

    // One that is not there from the beginning is told.
    drop((link, api));
    let (code, out, text) = ended(&args(&file, &world.home.path().join("none"), &[]));
    assert_eq!((code, out.as_str()), (2, ""), "{text}");
    assert!(text.contains("--events") && text.contains("none"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_refused_for_a_pod_that_the_api_server_does_not_have() {
    let (api, world) = (ServedApi::start().await, World::new());
    let text = pod("readinessProbe: {tcpSocket: {port: 1}}");
    let file = created(&api, &world, &text).await;
    let kubeconfig = api.direct("probe");
    let made = std::fs::read_to_string(&file).unwrap();
    let uid = serde_json::from_str::<Value>(&made).unwrap()["metadata"]["uid"].clone();
    let other = made.replace(uid.as_str().unwrap(), "6f0d2b1c-0000-4000-8000-000000000000");
    let absent = made.replace(
        "\"name\":\"web\",\"namespace\"",
        "\"name\":\"shop\",\"namespace\"",
    );
    assert_ne!(absent, made);
    for (name, text, word) in [
        ("other.json", other, "another pod by the name default/web"),
        ("absent.json", absent, "no pod by the name default/shop"),
    ] {
        let file = world.file(name, &text);
        let (code, out, said) = ended(&args(&file, &kubeconfig, &[]));
        assert_eq!((code, out.as_str()), (2, ""), "{said}");
        assert!(said.contains("--events") && said.contains(word), "{said}");
    }
    let gone = api.direct("gone");
    let text = std::fs::read_to_string(&gone).unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let at = text.find("https://127.0.0.1:").unwrap() + "https://".len();
    let end = at
        + text[at..]
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
            .unwrap();
    std::fs::write(&gone, format!("{}{nobody}{}", &text[..at], &text[end..])).unwrap();
    let (code, out, said) = ended(&args(&file, &gone, &[]));
    assert_eq!((code, out.as_str()), (1, ""), "{said}");
    assert!(said.contains("--events") && said.contains("refused"), "{said}");
}
