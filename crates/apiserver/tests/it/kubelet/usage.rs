//! What kubelets measure.

use super::{World, out};
use evenkeel_testkit::{kubectl, skipped};
use serde_json::{Value, json};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

fn stats(name: &str, nanocores: u64, bytes: u64) -> Value {
    json!({"name": name, "cpu": {"time": "2026-01-01T00:00:00Z", "usageNanoCores": nanocores},
        "memory": {"time": "2026-01-01T00:00:00Z", "workingSetBytes": bytes}})
}

/// A node that answers with two pods, of which one is of an earlier time, and a node that does not answer.
async fn measured() -> World {
    let world = World::new().await;
    world.node("silent", 1).await;
    world.pod("p", "n1", &["a", "b"]).await;
    world.pod("again", "n1", &["a"]).await;
    world.pod("elsewhere", "silent", &["a"]).await;
    let pod: Value = serde_json::from_str(
        &world
            .get("/api/v1/namespaces/default/pods/p")
            .await
            .expect("as the test made it"),
    )
    .expect("as the test made it");
    let mut node = stats("", 500_000_000, 1 << 30);
    node["nodeName"] = json!("n1");
    let summary = json!({"node": node, "pods": [
        {"podRef": {"name": "p", "namespace": "default", "uid": pod["metadata"]["uid"]},
            "containers": [stats("a", 100_000_000, 10 << 20), stats("b", 20_000_000, 5 << 20)]},
        {"podRef": {"name": "again", "namespace": "default", "uid": "of-an-earlier-time"},
            "containers": [stats("a", 1, 1)]},
    ]});
    *world.kubelet.seen.summary.lock().expect("as the test made it") = summary.to_string();
    world
}

async fn get(world: &World, path: &str) -> Value {
    serde_json::from_str(
        &world
            .get(&format!("{METRICS}{path}"))
            .await
            .expect("as the test made it"),
    )
    .expect("as the test made it")
}

#[tokio::test]
async fn usage_is_what_the_kubelets_that_answer_say() {
    let world = measured().await;
    let nodes = get(&world, "/nodes").await;
    assert_eq!(
        (&nodes["kind"], nodes["items"].as_array().unwrap().len()),
        (&json!("NodeMetricsList"), 1)
    );
    let node = get(&world, "/nodes/n1").await;
    assert_eq!(node["usage"], json!({"cpu": "500m", "memory": "1Gi"}));
    assert_eq!(
        (&node["timestamp"], &node["window"]),
        (&json!("2026-01-01T00:00:00Z"), &json!("10s"))
    );
    let missing = world.get(&format!("{METRICS}/nodes/silent")).await;
    assert_eq!(
        missing,
        Err((404, "nodes.metrics.k8s.io \"silent\" not found".to_owned()))
    );

    let pods = get(&world, "/pods").await;
    assert_eq!(
        pods["items"].as_array().unwrap().len(),
        1,
        "one pod is of an earlier time: {pods}"
    );
    let pod = get(&world, "/namespaces/default/pods/p").await;
    assert_eq!(
        pod["containers"][1],
        json!({"name": "b", "usage": {"cpu": "20m", "memory": "5Mi"}})
    );
    assert_eq!(
        get(&world, "/namespaces/default/pods?labelSelector=app%3Dp").await["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        get(&world, "/namespaces/default/pods?labelSelector=app%3Dx").await["items"],
        json!([])
    );
}

#[tokio::test]
async fn many_requests_at_a_time_ask_a_kubelet_once() {
    let world = measured().await;
    let paths: Vec<&str> = ["/nodes", "/nodes/n1", "/pods", "/namespaces/default/pods/p"].repeat(5);
    let asked = paths.iter().map(|path| get(&world, path));
    futures::future::join_all(asked).await;
    let summaries = world.kubelet.requests();
    assert_eq!(summaries, ["GET /stats/summary"], "one for all {}", paths.len());
}

#[tokio::test]
async fn a_summary_that_is_too_large_is_left_out() {
    let world = measured().await;
    let mut summary: Value =
        serde_json::from_str(&world.kubelet.seen.summary.lock().unwrap()).expect("as the test made it");
    summary["more"] = json!("x".repeat(8 * 1024 * 1024));
    *world.kubelet.seen.summary.lock().unwrap() = summary.to_string();
    assert_eq!(get(&world, "/nodes").await["items"], json!([]));
}

#[tokio::test]
async fn without_kubelets_there_is_an_empty_list() {
    let server = evenkeel_testkit::api_server();
    let request = http::Request::get(format!("{METRICS}/nodes"))
        .body(Vec::new())
        .unwrap();
    let list: Value = server.client().request(request).await.unwrap();
    assert_eq!(
        list,
        json!({"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": []})
    );
}

#[tokio::test]
async fn kubectl_shows_usage() {
    let Some(kubectl) = kubectl() else {
        skipped("kubectl_shows_usage", "kubectl is not installed");
        return;
    };
    let world = measured().await;
    let words = async |arguments: &[&str]| -> Vec<String> {
        let text = out(&world.run(&kubectl, arguments).await);
        text.split_whitespace().map(str::to_owned).collect()
    };
    let top = words(&["top", "nodes", "--no-headers"]).await;
    assert_eq!(top[..5], ["n1", "500m", "12%", "1024Mi", "12%"]);
    assert_eq!(
        words(&["top", "pods", "--no-headers"]).await,
        ["p", "120m", "15Mi"]
    );
    assert_eq!(
        words(&["top", "pods", "--containers", "--no-headers"]).await,
        ["p", "a", "100m", "10Mi", "p", "b", "20m", "5Mi"]
    );
    let table = words(&["get", "pods.metrics.k8s.io"]).await;
    assert_eq!(
        table,
        ["NAME", "CPU", "MEMORY", "WINDOW", "p", "120m", "15Mi", "10s"]
    );
}
