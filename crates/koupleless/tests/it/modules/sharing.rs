//! Pods that share a module, as those of one Deployment do on one base.

use super::defects::force_delete;
use super::world::{World, condition, is_starting, phase, restarts, waits};
use evenkeel_api::names::koupleless::{MODULES, READY};
use evenkeel_testkit::arklet::{BizState, Jar, Start};
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;

const PODS: [&str; 3] = ["one", "two", "three"];

async fn owners(world: &World, node: &str) -> Vec<String> {
    let node = world.until::<Node>(node, "is there", |_| true).await;
    let journal = &node.metadata.annotations.unwrap()[MODULES];
    let journal: Value = serde_json::from_str(journal).unwrap();
    let text = |owner: &Value| owner.as_str().unwrap().rsplit_once('/').unwrap().0.to_owned();
    match &journal["biz1:1"] {
        Value::Null => Vec::new(),
        Value::Array(owners) => owners.iter().map(text).collect(),
        owner => vec![text(owner)],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_installed_for_the_first_pod_and_removed_for_the_last() {
    let mut world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    for pod in PODS {
        world.pod(pod, &node, &[("biz1", "1", &url)]).await;
    }
    for pod in PODS {
        world.ready::<Pod>(pod).await;
    }
    assert_eq!(base.requests("installBiz"), 1);
    let mut all = owners(&world, &node).await;
    all.sort();
    assert_eq!(all, ["default/one", "default/three", "default/two"]);

    world.delete::<Pod>("one").await;
    world.gone::<Pod>("one").await;
    // The next process knows who has it, and who had it is not known to it.
    world.end().await;
    world.delete::<Pod>("two").await;
    world.begin().await;
    world.gone::<Pod>("two").await;
    assert_eq!(base.state("biz1", "1"), Some(BizState::Activated));
    assert_eq!(base.requests("uninstallBiz"), 0);
    assert_eq!(owners(&world, &node).await, ["default/three"]);
    let left = world.ready::<Pod>("three").await;
    assert_eq!(restarts(&left, "biz1"), 0);

    world.delete::<Pod>("three").await;
    world.gone::<Pod>("three").await;
    assert_eq!(base.state("biz1", "1"), None);
    assert_eq!(
        (base.requests("installBiz"), base.requests("uninstallBiz")),
        (1, 1)
    );
    until("nobody has it", async || owners(&world, &node).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_was_restarted_gets_a_shared_module_once() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    for pod in PODS {
        world.pod(pod, &node, &[("biz1", "1", &url)]).await;
    }
    for pod in PODS {
        world.ready::<Pod>(pod).await;
    }
    base.restart().await;
    for pod in PODS {
        world
            .until(pod, "runs again", |pod: &Pod| {
                restarts(pod, "biz1") == 1 && condition(pod, READY) == "True"
            })
            .await;
    }
    assert_eq!(base.requests("installBiz"), 2);
}

/// What another pod has is not taken from it when a container of this one is started anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_later_finds_the_module_and_disturbs_nobody() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let newer = world.jar(Jar::new("biz1", "2"));
    let (base, node) = world.base("a").await;
    world.pod("old", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("old").await;
    world.pod("new", &node, &[("biz1", "2", &newer)]).await;
    world.ready::<Pod>("new").await;
    let serves = |version: &str| base.state("biz1", version) == Some(BizState::Activated);
    assert!(serves("2") && !serves("1"), "the new version has taken over");
    world.pod("late", &node, &[("biz1", "1", &url)]).await;
    world
        .until("late", "waits for nothing, and does not serve", |pod: &Pod| {
            let status = pod.status.as_ref();
            let phase = status.and_then(|status| status.phase.as_deref());
            phase == Some("Running") && condition(pod, READY) == "False"
        })
        .await;
    assert!(serves("2") && !serves("1"), "it stays so");
    assert_eq!(base.requests("installBiz"), 2);
}

/// A module is told apart by name and version alone: who names another jar would run the code of the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_another_jar_of_a_version_waits_until_the_first_has_left() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let again = "file:///opt/biz/again.jar";
    world.jars.put(again, Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world.pod("first", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("first").await;
    world.pod("second", &node, &[("biz1", "1", again)]).await;
    let second = world.pod_waits("second", "biz1", "ModuleClaimed").await;
    assert_eq!(phase(&second), "Pending");
    let (_, message) = waits(&second, "biz1").unwrap();
    let all = [&*url, again, "for pod default/first", "a version of its own"];
    assert!(all.iter().all(|part| message.contains(part)), "{message}");
    world.delete::<Pod>("first").await;
    world.ready::<Pod>("second").await;
    assert_eq!(&*base.modules()[0].url, again);
}

/// The first pod went while nobody was there, and the new process meets the second one first.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_another_jar_does_not_run_what_an_earlier_process_installed() {
    let mut world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let again = "file:///opt/biz/again.jar";
    world.jars.put(again, Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world.pod("first", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("first").await;
    world.end().await;
    force_delete(&world, "first").await;
    world.pod("second", &node, &[("biz1", "1", again)]).await;
    world.begin().await;
    world.ready::<Pod>("second").await;
    assert_eq!(&*base.modules()[0].url, again);
}

/// The second pod came while the first one's install was under way, and waits for its turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waited_for_the_install_of_another_jar_is_not_ready_with_it() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1").start(Start::Held));
    let again = "file:///opt/biz/again.jar";
    world.jars.put(again, Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world.pod("first", &node, &[("biz1", "1", &url)]).await;
    is_starting(&base, "biz1", "1").await;
    let second = world.pod("second", &node, &[("biz1", "1", again)]).await;
    let uid = second.metadata.uid.unwrap();
    let claimed = |node: &Node| {
        let annotations = node.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.get(MODULES).is_some_and(|journal| journal.contains(&uid)))
    };
    world.until(&node, "has the second pod's claim", claimed).await;
    base.release(&url);
    world.pod_waits("second", "biz1", "ModuleClaimed").await;
    world.ready::<Pod>("first").await;
    world.delete::<Pod>("first").await;
    world.ready::<Pod>("second").await;
    assert_eq!(&*base.modules()[0].url, again);
}
