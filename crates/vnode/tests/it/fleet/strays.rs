//! Pods that only the provider knows.

use super::fake::Trick;
use super::*;
use k8s_openapi::api::core::v1::Pod;

fn stray(name: &str, node: &str) -> PodId {
    PodId {
        uid: format!("uid-of-{name}").into(),
        namespace: "default".into(),
        name: name.into(),
        node: node.into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_api_server_does_not_know_is_removed_after_two_looks() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    // One of the same name is another, and stays.
    bench.world.plant(stray("web", "virtual-1"));
    bench.world.plant(stray("left-over", "virtual-1"));
    let looks = bench.world.count("list", "virtual-1");
    until("they are gone", async || bench.world.pods() == ["default/web"]).await;
    assert!(bench.world.count("list", "virtual-1") >= looks + 2);
    assert_eq!(bench.world.count("delete", "default/left-over"), 1);
    assert!(is_ready(&bench.get::<Pod>("web").await));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_fail_remove_nothing() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench
        .world
        .trick("list", "virtual-1", &[Trick::Later, Trick::Panic, Trick::Later]);
    bench.world.plant(stray("left-over", "virtual-1"));
    let looks = bench.world.count("list", "virtual-1");
    until("three looks", async || {
        bench.world.count("list", "virtual-1") >= looks + 3
    })
    .await;
    assert_eq!(bench.world.pods(), ["default/left-over"]);
    until("it is gone", async || bench.world.pods().is_empty()).await;
    bench.end().await;
}
