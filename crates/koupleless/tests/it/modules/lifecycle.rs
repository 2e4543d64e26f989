//! What is expected of a module's life.

use super::world::{World, condition, phase, restarts, waits};
use evenkeel_api::names::koupleless::{INSTALLED, MODULES, READY};
use evenkeel_testkit::arklet::{BizState, Jar};
use evenkeel_testkit::{SOON, eventually, until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_installed_ready_and_removed_with_its_pod() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "0.0.1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("biz1", "0.0.1", &url)]).await;
    let pod = world.ready::<Pod>("p").await;
    assert_eq!(
        (condition(&pod, INSTALLED), condition(&pod, READY)),
        ("True", "True")
    );
    let status = pod.status.as_ref().unwrap();
    assert_eq!(status.pod_ip.as_deref(), Some("127.0.0.1"), "the base's address");
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let id = container.container_id.as_deref().unwrap();
    assert!(id.starts_with("arklet://127.0.0.1:biz1:0.0.1:"), "{id}");
    assert_eq!(base.state("biz1", "0.0.1"), Some(BizState::Activated));
    assert_eq!(base.requests("installBiz"), 1);
    let uid = pod.metadata.uid.as_deref().unwrap();
    let journal = world.until::<Node>(&node, "names the module", |node| {
        let annotations = node.metadata.annotations.as_ref().unwrap();
        annotations[MODULES] == format!(r#"{{"biz1:0.0.1":"default/p/{uid}"}}"#)
    });
    journal.await;
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
    assert_eq!(base.modules(), []);
    assert_eq!(base.requests("uninstallBiz"), 1);
    world
        .until(&node, "names no module", |node: &Node| {
            node.metadata.annotations.as_ref().unwrap()[MODULES] == "{}"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_three_modules_is_one_pod() {
    let world = World::new().await;
    let urls = ["m1", "m2", "m3"].map(|name| world.jar(Jar::new(name, "1")));
    let (base, node) = world.base("a").await;
    let modules = [
        ("m1", "1", &*urls[0]),
        ("m2", "1", &*urls[1]),
        ("m3", "1", &*urls[2]),
    ];
    world.pod("group", &node, &modules).await;
    world.ready::<Pod>("group").await;
    assert_eq!(base.modules().len(), 3);
    world.delete::<Pod>("group").await;
    world.gone::<Pod>("group").await;
    assert_eq!(base.modules(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_and_comes_again_installs_and_removes_nothing() {
    let mut world = World::new().await;
    let url = world.jar(Jar::new("biz1", "0.0.1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("biz1", "0.0.1", &url)]).await;
    let before = world.ready::<Pod>("p").await;
    world.end().await;
    base.forget();
    world.begin().await;
    eventually("the new process has looked at the base", SOON, async || {
        (base.requests("queryAllBiz") > 3).then_some(())
    })
    .await;
    let after = world.ready::<Pod>("p").await;
    assert_eq!(
        (base.requests("installBiz"), base.requests("uninstallBiz")),
        (0, 0)
    );
    assert_eq!(restarts(&after, "biz1"), 0);
    let id = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0]
            .container_id
            .clone()
    };
    assert_eq!(id(&before), id(&after));
    // What it took over it also removes.
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
    assert_eq!(base.modules(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_takes_over_and_the_old_one_is_not_ready() {
    let world = World::new().await;
    let old = world.jar(Jar::new("biz1", "1"));
    let new = world.jar(Jar::new("biz1", "2"));
    let (base, node) = world.base("a").await;
    world.pod("old", &node, &[("biz1", "1", &old)]).await;
    world.ready::<Pod>("old").await;
    world.pod("new", &node, &[("biz1", "2", &new)]).await;
    world.ready::<Pod>("new").await;
    assert_eq!(base.requests("switchBiz"), 1);
    assert_eq!(base.state("biz1", "1"), Some(BizState::Deactivated));
    let old = world
        .until("old", "is not ready", |pod: &Pod| {
            condition(pod, READY) == "False"
        })
        .await;
    assert_eq!(restarts(&old, "biz1"), 0, "it runs on");
    world.delete::<Pod>("old").await;
    world.gone::<Pod>("old").await;
    assert_eq!(base.state("biz1", "2"), Some(BizState::Activated));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_image_replaces_the_module() {
    let world = World::new().await;
    let (base, _, _) = world.running().await;
    let again = "file:///opt/biz/again.jar";
    world.jars.put(again, Jar::new("biz1", "1"));
    let patch = Patch::Strategic(json!({"spec": {"containers": [{"name": "biz1", "image": again}]}}));
    world
        .pods()
        .patch("p", &PatchParams::default(), &patch)
        .await
        .unwrap();
    world
        .until("p", "is installed from the new URL", |pod: &Pod| {
            condition(pod, READY) == "True" && restarts(pod, "biz1") == 1
        })
        .await;
    let modules = base.modules();
    assert_eq!(modules.len(), 1);
    assert_eq!(modules[0].url, again);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_tells_its_capacity() {
    let world = World::new().await;
    let (base, node) = world.base("a").await;
    base.metaspace(64 << 20, 256 << 20);
    let told = world
        .until(&node, "tells its metaspace", |node: &Node| {
            let capacity = node.status.as_ref().unwrap().capacity.as_ref().unwrap();
            capacity.get("memory").is_some_and(|memory| memory.0 == "256Mi")
        })
        .await;
    let status = told.status.unwrap();
    assert_eq!(status.capacity.as_ref().unwrap()["pods"].0, "65535");
    assert!(status.allocatable.unwrap()["memory"].0.ends_with('i'));
    // What it cannot measure now it keeps.
    base.partial_health(true);
    let asked = base.requests("health");
    until("it is asked again", async || base.requests("health") > asked + 2).await;
    let kept = world.until::<Node>(&node, "is there", |_| true).await;
    assert_eq!(kept.status.unwrap().capacity.unwrap()["memory"].0, "256Mi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_no_module_waits_and_says_which_field_is_wrong() {
    let world = World::new().await;
    let (base, node) = world.base("a").await;
    let url = world.jar(Jar::new("biz1", "1"));
    world.pod("p", &node, &[("biz1", " ", &url)]).await;
    let pod = world.pod_waits("p", "biz1", "InvalidModule").await;
    assert_eq!(phase(&pod), "Pending");
    let (_, message) = waits(&pod, "biz1").unwrap();
    assert!(message.contains("spec.containers[0].env"), "{message}");
    assert_eq!(base.requests("installBiz"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_no_base_opens_is_tried_and_its_pod_is_mended_by_another() {
    let world = World::new().await;
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("biz1", "1", "nginx:1.27")]).await;
    world
        .event("p", "Failed", "the image \"nginx:1.27\" is no URL: write http://")
        .await;
    let pod = world.until("p", "is there", |_: &Pod| true).await;
    assert_eq!(phase(&pod), "Pending");
    assert_ne!(base.requests("installBiz"), 0);
    let url = world.jar(Jar::new("biz1", "1"));
    let patch = Patch::Strategic(json!({"spec": {"containers": [{"name": "biz1", "image": url}]}}));
    let pods = world.api::<Pod>();
    pods.patch("p", &PatchParams::default(), &patch).await.unwrap();
    world.ready::<Pod>("p").await;
}
