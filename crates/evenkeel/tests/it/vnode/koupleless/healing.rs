//! Bases that run out of metaspace, and bases that are killed, with their modules' pods in a cluster.

use super::landscape::{Landscape, base_of, node_name, uid};
use super::{activated, built, modules, ready};
use evenkeel_testkit::objects::has_taint;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use std::time::Instant;

const OVERLOAD: &str = "schedule.koupleless.io/metaspace-overload";

fn is_overloaded(node: &Node) -> bool {
    has_taint(node, OVERLOAD, "NoExecute")
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
    let base_pod = land.scene.until::<Pod>(&full, "is there", |_| true).await;

    // A module that leaks comes to the same base, by name: nobody would bring it back.
    let node = node_name(&full);
    land.scene
        .pod_on(&node, "fat", &[("fat", "1.0.0", land.jar("fat"))])
        .await;
    land.scene.ready::<Pod>("fat").await;
    land.scene.event(&node, "", "at 85 % or more").await;
    land.scene.node_of(&full, "has the taint", is_overloaded).await;
    let moved = land.replica("good", &uid(&pod)).await;
    let other = base_of(&moved);
    assert_ne!(other, full, "a pod that does not tolerate the taint is elsewhere");
    land.scene.event(&node, "", "no pod is left").await;
    land.scene.event(&node, "", "none of our modules is left").await;
    assert_eq!(modules(&land.bases[&full]).await, []);
    land.scene.gone::<Pod>("fat").await;

    // What has leaked does not come back: the base's pod is evicted, and its controller makes a new one.
    land.scene
        .until(&full, "is being deleted", |pod: &Pod| {
            pod.metadata.deletion_timestamp.is_some() || pod.metadata.uid != base_pod.metadata.uid
        })
        .await;
    let node_now = land.scene.node_of(&full, "is there", |_| true).await;
    assert!(is_overloaded(&node_now), "tainted until the base is a new one");
    land.run(&full, &uid(&base_pod)).await;
    land.scene.event(&node, "", "the base is a new one").await;
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
            "",
            "the base is gone: it is silent",
        )
        .await;
}

/// Nobody holds a place in the budget of healings.
async fn places_are_given_back(land: &Landscape) {
    let maps = land.scene.namespaced("evenkeel-system");
    let empty = |map: &ConfigMap| {
        map.data
            .as_ref()
            .is_some_and(|data| data.get("entries").is_some_and(|all| all == "{}"))
    };
    maps.until("koupleless-healing", "holds no place", empty).await;
}
