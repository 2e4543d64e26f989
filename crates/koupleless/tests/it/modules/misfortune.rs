//! What may go wrong with bases and modules, and whom it affects.

use super::world::{World, condition, condition_of_node, is_starting, phase, restarts, waits};
use evenkeel_api::names::koupleless::{INSTALLED, MODULES, READY};
use evenkeel_koupleless::core::claims::Sharing;
use evenkeel_koupleless::core::profile::V2_DESIGN;
use evenkeel_koupleless::provider::Life;
use evenkeel_testkit::arklet::{Base, BizState, Jar, Setup, Start, Thrown};
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

fn failing(version: &str) -> Jar {
    let thrown = Thrown::new("java.lang.IllegalStateException", "boom from bad");
    Jar::new("bad", version).start(Start::Fails(thrown))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_install_is_seen_with_its_cause_and_tried_again() {
    let world = World::new().await;
    let url = world.jar(failing("1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("bad", "1", &url)]).await;
    let pod = world
        .until("p", "waits with the cause", |pod: &Pod| {
            waits(pod, "bad").is_some_and(|(reason, message)| {
                reason == "InstallFailed" && message.contains("boom from bad")
            })
        })
        .await;
    assert_eq!((phase(&pod), condition(&pod, INSTALLED)), ("Pending", "False"));
    world.event("p", "Failed", "boom from bad").await;
    until("it is tried again", async || base.requests("installBiz") > 1).await;
    // The jar is mended.
    world.jars.put(&url, Jar::new("bad", "1"));
    world.ready::<Pod>("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_design_article_a_failed_install_fails_the_pod_where_that_is_wanted() {
    let world = World::failing(V2_DESIGN).await;
    let url = world.jar(failing("1"));
    let (_base, node) = world.base("a").await;
    world.pod("p", &node, &[("bad", "1", &url)]).await;
    let pod = world
        .until("p", "has failed", |pod: &Pod| phase(pod) == "Failed")
        .await;
    assert_eq!(condition(&pod, INSTALLED), "False");
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("InstallFailed"));
    assert!(status.message.unwrap().contains("boom from bad"));
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_design_article_too_a_failed_install_waits_where_nothing_else_is_wanted() {
    let world = World::with(V2_DESIGN).await;
    let url = world.jar(failing("1"));
    let (_base, node) = world.base("a").await;
    world.pod("p", &node, &[("bad", "1", &url)]).await;
    let pod = world.pod_waits("p", "bad", "InstallFailed").await;
    assert_eq!(phase(&pod), "Pending");
    world.jars.put(&url, Jar::new("bad", "1"));
    world.ready::<Pod>("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_module_that_a_base_keeps_is_removed_before_the_next_try() {
    let world = World::new().await;
    let url = world.jar(failing("1"));
    let jars = world.jars.clone();
    let (base, node) = world
        .base_with("a", move |setup| {
            setup.flags.auto_uninstall_when_failed = false;
            setup.jars = jars;
        })
        .await;
    world.pod("p", &node, &[("bad", "1", &url)]).await;
    world.pod_waits("p", "bad", "InstallFailed").await;
    assert_eq!(base.state("bad", "1"), Some(BizState::Broken));
    world.jars.put(&url, Jar::new("bad", "1"));
    world.ready::<Pod>("p").await;
    assert!(base.requests("uninstallBiz") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_pods_with_one_module_the_second_waits_where_modules_are_exclusive() {
    let world = World::set(|settings, _| settings.sharing = Sharing::Exclusive).await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world.pod("first", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("first").await;
    world.pod("second", &node, &[("biz1", "1", &url)]).await;
    world.pod("third", &node, &[("biz1", "1", &url)]).await;
    for waiting in ["second", "third"] {
        let pod = world.pod_waits(waiting, "biz1", "ModuleClaimed").await;
        assert_eq!(phase(&pod), "Pending");
        let (_, message) = waits(&pod, "biz1").unwrap();
        assert!(message.contains("belongs to pod default/first"), "{message}");
    }
    // The end of one that waits is nothing to the first.
    world.delete::<Pod>("third").await;
    world.gone::<Pod>("third").await;
    assert_eq!(base.state("biz1", "1"), Some(BizState::Activated));
    assert_eq!(
        (base.requests("installBiz"), base.requests("uninstallBiz")),
        (1, 0)
    );
    // Once the module is free the second has it.
    world.delete::<Pod>("first").await;
    world.gone::<Pod>("first").await;
    world.ready::<Pod>("second").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jar_that_is_another_module_is_refused_and_does_not_stay() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz2", "0.0.1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("zzz", "7", &url)]).await;
    world
        .event(
            "p",
            "Failed",
            "the jar's manifest says biz2:0.0.1, the container zzz:7",
        )
        .await;
    until("the stray is gone", async || base.modules().is_empty()).await;
}

/// Which of both came out of the wrong jar nobody can tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_somebody_installs_beside_a_wrong_jar_stays() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz2", "0.0.1").start(Start::Held));
    let by_hand = world.jar(Jar::new("byhand", "1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("zzz", "7", &url)]).await;
    is_starting(&base, "biz2", "0.0.1").await;
    base.install_by_hand(&by_hand).await;
    base.release(&url);
    world.event("p", "Failed", "the jar's manifest says").await;
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
    for (name, version) in [("byhand", "1"), ("biz2", "0.0.1")] {
        assert_eq!(base.state(name, version), Some(BizState::Activated), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_was_restarted_gets_its_modules_again() {
    let world = World::new().await;
    let (base, _, _) = world.running().await;
    base.restart().await;
    let pod = world
        .until("p", "runs again", |pod: &Pod| {
            restarts(pod, "biz1") == 1 && condition(pod, READY) == "True"
        })
        .await;
    let last = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].last_state;
    let ended = last.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(ended.reason.as_deref(), Some("ModuleLost"));
    assert_eq!(base.state("biz1", "1"), Some(BizState::Activated));
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_that_nobody_here_installed_are_never_removed() {
    let world = World::new().await;
    let hand = world.jar(Jar::new("hand", "1"));
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    base.install_by_hand(&hand).await;
    let pod = world.pod("p", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("p").await;
    // Its object goes without a word while nobody serves the node.
    let mut world = world;
    world.end().await;
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    let name = pod.metadata.name.as_deref().unwrap();
    world.api::<Pod>().delete(name, &now).await.unwrap();
    world.begin().await;
    until("what was left over is removed", async || {
        base.state("biz1", "1").is_none()
    })
    .await;
    assert_eq!(base.state("hand", "1"), Some(BizState::Activated));
    until("the journal is empty", async || {
        let node = world.get::<Node>(&node).await;
        node.metadata.annotations.unwrap()[MODULES] == "{}"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_hangs_delays_no_other() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (hung, first) = world.base("a").await;
    let (well, second) = world.base("b").await;
    hung.hang();
    let asked = hung.requests("installBiz") + hung.requests("queryAllBiz");
    world.pod("stuck", &first, &[("biz1", "1", &url)]).await;
    // What the pod has there, or to install it: whichever comes first is not answered.
    until("it is asked", async || {
        hung.requests("installBiz") + hung.requests("queryAllBiz") > asked
    })
    .await;
    world.pod("p", &second, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("p").await;
    assert_eq!(well.requests("installBiz"), 1);
    let stuck = world.until("stuck", "is there", |_: &Pod| true).await;
    assert_ne!(condition(&stuck, "Ready"), "True");
    hung.serve();
    world.ready::<Pod>("stuck").await;
}

/// Addresses of pods are given to others soon.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_has_anothers_address_is_left_alone() {
    let world = World::new().await;
    let (base, node, url) = world.running().await;
    base.kill().await;
    let other = Base::start(Setup {
        port: base.address().port(),
        jars: world.jars.clone(),
        ..Setup::default()
    });
    other.install_by_hand(&url).await;
    let by_hand = other.requests("installBiz");
    // At once: that the first one answered a moment ago counts for nothing when something is removed.
    world.delete::<Pod>("p").await;
    let text = format!("was answered by another base, {}", other.identity().id);
    world.event("p", "FailedKillPod", &text).await;
    world.pod("q", &node, &[("biz2", "1", &url)]).await;
    world.event("q", "Failed", &text).await;
    world
        .until(&node, "is Unknown", |node: &Node| {
            condition_of_node(node) == "Unknown"
        })
        .await;
    assert_eq!(other.requests("installBiz"), by_hand);
    assert_eq!(other.requests("uninstallBiz"), 0);
    assert_eq!(other.state("biz1", "1"), Some(BizState::Activated));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_cannot_stop_is_told_of_and_its_pod_stays() {
    let world = World::new().await;
    let thrown = Thrown::new("java.lang.IllegalStateException", "not now");
    let url = world.jar(Jar::new("biz1", "1").stop_fails(thrown));
    let jars = world.jars.clone();
    let (base, node) = world
        .base_with("a", move |setup| {
            setup.flags.remove_when_stop_failed = false;
            setup.jars = jars;
        })
        .await;
    world.pod("p", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("p").await;
    world.delete::<Pod>("p").await;
    world
        .event("p", "FailedKillPod", "module biz1:1 could not be removed")
        .await;
    assert_eq!(base.state("biz1", "1"), Some(BizState::Broken));
}

/// The base of pod `p` is judged lost, and the pod ends. The base comes back, and what the pod had is free.
async fn ends_on_a_lost_base(world: &World, base: &Base, node: &str, url: &str) {
    let refuses = "its port refuses connections".to_owned();
    world.known.is(node, Life::Lost(refuses));
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
    base.restart().await;
    world.known.is(node, Life::Alive);
    world.pod("next", node, &[("biz1", "1", url)]).await;
    world.ready::<Pod>("next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_base_that_is_gone_end_at_once() {
    let world = World::new().await;
    let (base, node, url) = world.running().await;
    base.kill().await;
    until("its port refuses", async || world.known.refusals(&node) > 0).await;
    let silent = world.until::<Node>(&node, "is there", |_| true).await;
    assert_eq!(
        condition_of_node(&silent),
        "True",
        "a refused connection alone decides nothing here"
    );
    world
        .known
        .is(&node, Life::Silent("nothing heard for 25 s".to_owned()));
    world
        .until(&node, "is Unknown", |node: &Node| {
            condition_of_node(node) == "Unknown"
        })
        .await;
    let pod = world.ready::<Pod>("p").await;
    assert_eq!(restarts(&pod, "biz1"), 0, "a silent base moves nothing");
    ends_on_a_lost_base(&world, &base, &node, &url).await;
    assert_eq!(base.requests("uninstallBiz"), 0);
}

/// The process that knew them is gone, too.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_base_that_is_gone_end_in_the_next_process() {
    let mut world = World::new().await;
    let (base, node, url) = world.running().await;
    world.end().await;
    base.kill().await;
    world.begin().await;
    until("its port refuses", async || world.known.refusals(&node) > 0).await;
    ends_on_a_lost_base(&world, &base, &node, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_without_times_in_its_ids_restarts_modules_all_the_same() {
    let world = World::with(V2_DESIGN).await;
    let (base, _, _) = world.running().await;
    base.restart().await;
    let pod = world
        .until("p", "runs again", |pod: &Pod| {
            restarts(pod, "biz1") == 1 && condition(pod, READY) == "True"
        })
        .await;
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(
        status.container_id.as_deref(),
        Some("arklet://127.0.0.1:biz1:1:1")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_conditions_and_labels_of_a_node_stay() {
    let world = World::new().await;
    let (base, node) = world.base("a").await;
    let nodes = world.api::<Node>();
    let theirs = json!({"metadata": {"labels": {"theirs": "x"}},
        "status": {"conditions": [{"type": "Theirs", "status": "True"}]}});
    nodes
        .patch(&node, &PatchParams::default(), &Patch::Strategic(&theirs))
        .await
        .unwrap();
    nodes
        .patch_status(&node, &PatchParams::default(), &Patch::Strategic(&theirs))
        .await
        .unwrap();
    base.metaspace(32 << 20, 128 << 20);
    let node = world
        .until(&node, "tells its metaspace", |node: &Node| {
            let capacity = node.status.as_ref().unwrap().capacity.as_ref().unwrap();
            capacity.get("memory").is_some_and(|memory| memory.0 == "128Mi")
        })
        .await;
    assert_eq!(node.metadata.labels.unwrap()["theirs"], "x");
    let conditions = node.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|condition| condition.type_ == "Theirs"));
}
