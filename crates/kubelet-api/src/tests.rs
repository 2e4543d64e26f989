//! The paths, without authorization.

use super::fake::{Fake, Mood};
use crate::LogOptions;
use rstest::rstest;
use serde_json::Value;

#[rstest]
// Health: any method.
#[case("GET", "/healthz", 200, "ok")]
#[case("POST", "/healthz", 200, "ok")]
#[case("GET", "/healthz/ping", 200, "ok")]
#[case("GET", "/healthz/log", 200, "ok")]
#[case("GET", "/healthz/syncloop", 200, "ok")]
#[case("GET", "/healthz/etcd", 404, "404 page not found\n")]
#[case(
    "GET",
    "/healthz?verbose",
    200,
    "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"
)]
#[case(
    "GET",
    "/healthz?verbose&exclude=log&exclude=x",
    200,
    "[+]ping ok\n[+]log excluded: ok\n[+]syncloop ok\nwarn: some health checks cannot be excluded: no matches for \
     \"x\"\nhealthz check passed\n"
)]
// Methods: HEAD counts as one of its own, as with go-restful.
#[case("HEAD", "/pods", 405, "405: Method Not Allowed")]
#[case("POST", "/pods", 405, "405: Method Not Allowed")]
#[case("PUT", "/stats/summary", 405, "405: Method Not Allowed")]
#[case("GET", "/run/default/web/c", 405, "405: Method Not Allowed")]
#[case("POST", "/containerLogs/default/web/c", 405, "405: Method Not Allowed")]
#[case("DELETE", "/exec/default/web/c", 405, "405: Method Not Allowed")]
// Logs.
#[case("GET", "/containerLogs/default/web/c", 200, "one\ntwo\n")]
#[case("GET", "/containerLogs/default/web/c?limitBytes=5", 200, "one\nt")]
#[case(
    "GET",
    "/containerLogs/default/web/c?follow=1&limitBytes=8",
    200,
    "one\ntwo\n"
)]
#[case(
    "GET",
    "/containerLogs/default/web/c?tailLines=x",
    400,
    r#"{"message": "Unable to decode query."}"#
)]
#[case(
    "GET",
    "/containerLogs/default/web/c?tailLines=-1",
    422,
    r#"{"message": "Invalid request."}"#
)]
#[case("GET", "/containerLogs/default/none/c", 404, "pod \"none\" does not exist")]
#[case("GET", "/containerLogs/other/web/c", 404, "pod \"web\" does not exist")]
#[case(
    "GET",
    "/containerLogs/default/web/none",
    404,
    "container \"none\" not found in pod \"web\""
)]
#[case(
    "GET",
    "/containerLogs/default/web/new",
    400,
    "container \"new\" in pod \"web\" is waiting to start: ContainerCreating"
)]
#[case(
    "GET",
    "/containerLogs/default/web/new?previous=true",
    400,
    "previous terminated container \"new\" in pod \"web\" not found"
)]
// Commands.
#[case("POST", "/run/default/web/c?cmd=echo%20a", 200, "echo+a and errors")]
#[case("POST", "/run/default/web/u/c?cmd=ls", 200, "ls and errors")]
#[case(
    "POST",
    "/run/default/web/c?cmd=false",
    500,
    "command 'false' exited with 1:  and errors"
)]
#[case("POST", "/run/default/none/c?cmd=ls", 404, "pod does not exist")]
#[case("GET", "/exec/default/none/c?command=ls&output=1", 404, "pod does not exist")]
#[case(
    "POST",
    "/exec/default/web/none?command=ls&output=1",
    500,
    "container not found (\"none\")"
)]
#[case(
    "POST",
    "/exec/default/web/old/c?command=ls&output=1",
    500,
    "container not found (\"c\")"
)]
#[case("POST", "/exec/default/web/c?output=1", 400, "the query names no command")]
#[case("GET", "/attach/default/none/c?output=1", 404, "pod does not exist")]
#[case(
    "GET",
    "/attach/default/web/old/c?output=1",
    500,
    "container not found (\"c\")"
)]
#[case("POST", "/portForward/default/none", 404, "pod does not exist")]
#[case("POST", "/portForward/default/web/old", 404, "pod not found")]
// What there is not.
#[case("GET", "/nothing", 404, "404 page not found\n")]
#[case("GET", "/%70ods", 404, "404 page not found\n")]
#[case("GET", "/stats/../pods", 404, "404 page not found\n")]
#[case(
    "GET",
    "/metrics/cadvisor",
    404,
    "virtual nodes have no cAdvisor: see /metrics/resource and /stats/summary\n"
)]
#[case(
    "POST",
    "/checkpoint/default/web/c",
    404,
    "virtual nodes cannot checkpoint containers\n"
)]
#[case(
    "GET",
    "/debug/pprof/heap",
    404,
    "virtual nodes have no profiling or debug flags\n"
)]
#[case("GET", "/configz", 404, "virtual nodes have no kubelet configuration\n")]
#[tokio::test]
async fn a_path_answers_as_the_kubelets_does(
    #[case] method: &str,
    #[case] path: &str,
    #[case] status: u16,
    #[case] body: &str,
) {
    let (got, mut text) = Fake::new(Mood::Good).answer(method, path).await;
    if method == "HEAD" && text.is_empty() {
        body.clone_into(&mut text);
    }
    assert_eq!((got, text.as_str()), (status, body), "{method} {path}");
}

#[rstest]
#[case(Mood::Failing, "the base does not answer")]
#[case(Mood::Hanging, "no answer within 5s")]
#[case(Mood::Panicking, "the provider panicked")]
#[tokio::test(start_paused = true)]
async fn a_bad_provider_is_an_answer(#[case] mood: Mood, #[case] expected: &str) {
    let fake = Fake::new(mood);
    for path in ["/runningpods/", "/stats/summary", "/containerLogs/default/web/c"] {
        let (status, body) = fake.answer("GET", path).await;
        assert_eq!(status, 500, "{path}: {body}");
        assert!(body.contains(expected), "{path}: {body}");
    }
    let (status, body) = fake.answer("GET", "/metrics/resource").await;
    assert_eq!(status, 200);
    assert!(body.contains("\nresource_scrape_error 1\n"), "{body}");
    assert!(!body.contains("node_cpu_usage"), "{body}");
}

#[tokio::test]
async fn a_node_that_is_not_well_says_so_and_why_only_where_asked() {
    let fake = Fake::ill("the base does not answer");
    let expected = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
    assert_eq!(fake.answer("GET", "/healthz").await, (500, expected.to_owned()));
    let expected = "internal server error: the base does not answer\n";
    assert_eq!(
        fake.answer("GET", "/healthz/syncloop").await,
        (500, expected.to_owned())
    );
    assert_eq!(fake.answer("GET", "/healthz?exclude=syncloop").await.0, 200);
}

#[tokio::test]
async fn options_and_instance_reach_the_provider() {
    let fake = Fake::new(Mood::Good);
    let query = "previous=1&timestamps=1&tailLines=3&limitBytes=4&sinceTime=2026-01-01T00:00:00Z";
    fake.answer("GET", &format!("/containerLogs/default/web/c?{query}"))
        .await;
    let asked = fake.asked.lock().unwrap().clone();
    let expected = LogOptions {
        timestamps: true,
        tail: Some(3),
        since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        limit: Some(4),
        ..LogOptions::default()
    };
    assert_eq!(asked.len(), 1);
    assert_eq!((&*asked[0].0.0, &asked[0].1), ("fake://c0", &expected));
}

#[tokio::test]
async fn pods_are_listed_as_the_api_server_lists_them() {
    let fake = Fake::new(Mood::Good);
    for path in ["/pods", "/pods/"] {
        let response = fake.response("GET", path).await;
        assert_eq!(response.headers()["content-type"], "application/json");
        let list: Value = serde_json::from_str(&fake.answer("GET", path).await.1).unwrap();
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&"PodList".into(), &"v1".into())
        );
        assert_eq!(list["items"][0]["metadata"]["name"], "web");
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
    }
    let list: Value = serde_json::from_str(&fake.answer("GET", "/runningpods/").await.1).unwrap();
    let running = list["items"][0]["spec"]["containers"].as_array().unwrap();
    assert_eq!((running.len(), &running[0]["name"]), (1, &"c".into()));
    assert_eq!(list["items"][1]["metadata"]["name"], "stray");
}

#[tokio::test]
async fn statistics_have_the_names_of_the_summary_api() {
    let fake = Fake::new(Mood::Good);
    for (method, path) in [
        ("GET", "/stats/summary"),
        ("POST", "/stats/summary/"),
        ("GET", "/stats/summary?only_cpu_and_memory=true"),
    ] {
        let summary: Value = serde_json::from_str(&fake.answer(method, path).await.1).unwrap();
        let time = "2026-01-01T00:01:00Z";
        let container = |name: &str, nanoseconds: u64| {
            serde_json::json!({
                "name": name, "startTime": "2026-01-01T00:00:01Z",
                "cpu": {"time": time, "usageNanoCores": 7, "usageCoreNanoSeconds": nanoseconds},
                "memory": {"time": time, "workingSetBytes": 1000},
            })
        };
        let expected = serde_json::json!({
            "node": {
                "nodeName": "n", "startTime": "2026-01-01T00:00:00Z",
                "cpu": {"time": time, "usageNanoCores": 20, "usageCoreNanoSeconds": 9_500_000_000_u64},
                "memory": {"time": time, "workingSetBytes": 3000, "availableBytes": 7000},
            },
            "pods": [{
                "podRef": {"name": "web", "namespace": "default", "uid": "u"},
                "startTime": "2026-01-01T00:00:01Z",
                "containers": [container("c", 1_000_000_000), container("new", 250_000_000)],
                "cpu": {"time": time, "usageNanoCores": 14, "usageCoreNanoSeconds": 1_250_000_000},
                "memory": {"time": time, "workingSetBytes": 2000},
            }],
        });
        assert_eq!(summary, expected, "{method} {path}");
    }
}

#[tokio::test]
async fn resource_metrics_are_those_of_the_kubelet() {
    let fake = Fake::new(Mood::Good);
    let response = fake.response("GET", "/metrics/resource").await;
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = fake.answer("GET", "/metrics/resource/").await.1;
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        r#"container_cpu_usage_seconds_total{namespace="default",pod="web",container="c"} 1 1767225660250"#,
        r#"container_cpu_usage_seconds_total{namespace="default",pod="web",container="new"} 0.25 1767225660250"#,
        r#"container_memory_working_set_bytes{namespace="default",pod="web",container="c"} 1000 1767225660250"#,
        r#"container_memory_working_set_bytes{namespace="default",pod="web",container="new"} 1000 1767225660250"#,
        r#"container_start_time_seconds{namespace="default",pod="web",container="c"} 1767225601.5"#,
        r#"container_start_time_seconds{namespace="default",pod="web",container="new"} 1767225601.5"#,
        "node_cpu_usage_seconds_total 9.5 1767225660250",
        "node_memory_working_set_bytes 3000 1767225660250",
        r#"pod_cpu_usage_seconds_total{namespace="default",pod="web"} 1.25 1767225660250"#,
        r#"pod_memory_working_set_bytes{namespace="default",pod="web"} 2000 1767225660250"#,
        "resource_scrape_error 0",
        "scrape_error 0",
    ];
    assert_eq!(samples, expected);
    assert!(
        text.contains("# TYPE container_cpu_usage_seconds_total counter\n"),
        "{text}"
    );
}

mod auth;
mod listeners;
mod peer;
mod proxied;
mod secrets;
mod tls;
