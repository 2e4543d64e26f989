//! Bases that run out of metaspace, and bases that are killed, with their modules' pods in a cluster.

use super::landscape::{Landscape, base_of, node_name, uid};
use super::{LONG, activated, built, modules, ready};
use evenkeel_testkit::eventually;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use std::time::Instant;

const OVERLOAD: &str = "schedule.koupleless.io/metaspace-overload";

fn is_overloaded(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == OVERLOAD)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_base_is_healed_of_a_leak_and_takes_over_from_one_that_is_killed() {
    let test = "a_real_base_is_healed_of_a_leak_and_takes_over_from_one_that_is_killed";
    let Some(built) = built(test) else { return };
    // The thresholds are the usual ones, the times are short.
    let flags = ["--heal", "--heal-readings", "2", "--heal-settle", "10s"];
    let mut land = Landscape::start(built, 2, &flags).await;
    land.deployment("good").await;
    let pod = land.replica("good", "").await;
    let full = base_of(&pod);
    let base_pod = land.scene.until(&full, "is there", |_| true).await;

    // A module that leaks comes to the same base, by name: nobody would bring it back.
    let node = node_name(&full);
    land.scene
        .pod_on(&node, "fat", &[("fat", "1.0.0", land.jar("fat"))])
        .await;
    land.scene.until("fat", "is Ready", super::pod_is_ready).await;
    land.scene.event(&node, "at 85 % or more").await;
    land.scene.node_of(&full, "has the taint", is_overloaded).await;
    let moved = land.replica("good", &uid(&pod)).await;
    let other = base_of(&moved);
    assert_ne!(other, full, "a pod that does not tolerate the taint is elsewhere");
    land.scene.event(&node, "no pod is left").await;
    land.scene.event(&node, "none of our modules is left").await;
    assert_eq!(modules(&land.bases[&full]).await, []);
    eventually("the leaking module's pod is gone", LONG, async || {
        let found = land.scene.world.pods_api().get_opt("fat").await;
        found.expect("the API server answers").is_none().then_some(())
    })
    .await;

    // What has leaked does not come back: the base's pod is evicted, and its controller makes a new one.
    land.scene
        .until(&full, "is being deleted", |pod| {
            pod.metadata.deletion_timestamp.is_some() || pod.metadata.uid != base_pod.metadata.uid
        })
        .await;
    let node_now = land.scene.node_of(&full, "is there", |_| true).await;
    assert!(is_overloaded(&node_now), "tainted until the base is a new one");
    land.run(&full, &uid(&base_pod)).await;
    land.scene.event(&node, "the base is a new one").await;
    land.scene
        .node_of(&full, "is Ready without the taint", |node| {
            !is_overloaded(node) && super::is_ready(node)
        })
        .await;
    places_are_given_back(&land).await;

    // The other base is killed: first its state is not known, then its pods go, and come to the healed one.
    let killed = Instant::now();
    land.kill(&other).await;
    land.scene
        .node_of(&other, "is Unknown", |node| ready(node) == "Unknown")
        .await;
    let unknown_after = killed.elapsed();
    let again = land.replica("good", &uid(&moved)).await;
    eprintln!(
        "after the kill of a base: Ready=Unknown {:.1} s, its pod Ready on another base {:.1} s",
        unknown_after.as_secs_f64(),
        killed.elapsed().as_secs_f64()
    );
    assert_eq!(base_of(&again), full);
    assert_eq!(modules(&land.bases[&full]).await, [activated("good:1.0.0")]);
    land.scene
        .event(
            moved.metadata.name.as_deref().unwrap_or_default(),
            "the base is gone: it is silent",
        )
        .await;
}

/// Nobody holds a place in the budget of healings.
async fn places_are_given_back(land: &Landscape) {
    let maps: Api<ConfigMap> = Api::namespaced(land.scene.world.client.clone(), "evenkeel-system");
    eventually("no base is being healed", LONG, async || {
        let map = maps.get("koupleless-healing").await.expect("there was a healing");
        let entries = map.data.unwrap_or_default().get("entries").cloned();
        (entries.as_deref() == Some("{}")).then_some(())
    })
    .await;
}
