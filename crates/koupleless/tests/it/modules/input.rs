//! Bad input: what it does to its own module and base, and that it does nothing to their neighbours.

use super::world::{World, condition, is_starting, waits};
use evenkeel_testkit::arklet::{BizState, Download, Jar, Start};
use evenkeel_testkit::log::Log;
use evenkeel_testkit::mqtt::Broker;
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_jar_that_is_not_there_is_told_with_its_url_base_and_module() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (_base, node) = world.base("a").await;
    let missing = "http://jars.example.com/gone-1.jar";
    world.pod("p", &node, &[("gone", "1", missing)]).await;
    world.pod("well", &node, &[("biz1", "1", &url)]).await;
    for text in ["module gone:1 could not be installed on base a", missing] {
        world.event("p", "Failed", text).await;
    }
    world.ready::<Pod>("well").await;
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jars_that_never_end_keep_no_neighbour_waiting() {
    // Their own deadline is later than any test's.
    let world = World::set(|settings, _| settings.permit = Duration::from_millis(100)).await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    // As many as a base is given operations at a time.
    for name in ["n1", "n2", "n3", "n4"] {
        let endless = world.jar(Jar::new(name, "1").download(Download::Hangs));
        world.pod(name, &node, &[(name, "1", &endless)]).await;
    }
    until("all of them are asked for", async || {
        base.requests("installBiz") >= 4
    })
    .await;
    world.pod("well", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("well").await;
    world.delete::<Pod>("well").await;
    world.gone::<Pod>("well").await;
}

/// The base does not let go of such a module, and its pod stays for that, so that nothing is left of it that
/// nobody knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_jar_never_ends_stays_until_its_base_lets_go() {
    let world = World::new().await;
    let endless = world.jar(Jar::new("n1", "1").download(Download::Hangs));
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("n1", "1", &endless)]).await;
    until("it is asked for", async || base.requests("installBiz") > 0).await;
    world.delete::<Pod>("p").await;
    world
        .event(
            "p",
            "ProviderDeleteFailed",
            "module n1:1 could not be removed from base a",
        )
        .await;
    world.pod("well", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("well").await;
    base.restart().await;
    world.gone::<Pod>("p").await;
    world.ready::<Pod>("well").await;
    assert_eq!(base.requests("installBiz"), 3, "none for the pod that goes");
}

#[tokio::test]
async fn what_never_comes_up_is_left_at_the_deadline_and_told_of() {
    let log = Log::capture();
    let world = World::set(|settings, http| {
        settings.install = Duration::from_secs(2);
        http.install = Duration::from_secs(1);
    })
    .await;
    let endless = world.jar(Jar::new("endless", "1").download(Download::Hangs));
    let stuck = world.jar(Jar::new("stuck", "1").start(Start::Hangs));
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("endless", "1", &endless)]).await;
    world.pod("q", &node, &[("stuck", "1", &stuck)]).await;
    world.pod("well", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("well").await;
    for (pod, module) in [("p", "endless:1"), ("q", "stuck:1")] {
        let text = format!("module {module} did not come to be on base a");
        world.event(pod, "Failed", &text).await;
        let module = format!("module={module}");
        let told = log.with(&["WARN", "base=a", &module, "did not come to be"]);
        assert!(!told.is_empty(), "{:#?}", log.warnings());
    }
    assert_eq!(base.state("biz1", "1"), Some(BizState::Activated));
}

#[tokio::test]
async fn answers_that_are_none_are_told_with_base_and_module_and_harm_no_other_base() {
    let log = Log::capture();
    let world = World::set(|_, http| http.answer = 64 << 10).await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (bad, first) = world.base("a").await;
    let (well, second) = world.base("b").await;
    world.pod("known", &first, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("known").await;
    world.delete::<Pod>("known").await;
    world.gone::<Pod>("known").await;
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    let answers = [
        ("nothing", String::new()),
        ("empty", ok.to_owned()),
        ("zeros", "\0\0".to_owned()),
        ("list", format!("{ok}[]")),
        ("object", format!("{ok}{{}}")),
        ("half", format!("{ok}{{\"code\":\"SUCC")),
        ("page", format!("{ok}<html>hello</html>")),
        ("deep", format!("{ok}{}", "[".repeat(20_000))),
        ("long", format!("{ok}{{\"code\":\"{}", "x".repeat(100_000))),
        ("status", "HTTP/1.1 502 Bad Gateway\r\n\r\n".to_owned()),
    ];
    for (name, answer) in answers {
        bad.garble(answer);
        world.pod(name, &first, &[("biz1", "1", &url)]).await;
        let told = world
            .until(name, "waits with a reason", |pod: &Pod| {
                waits(pod, "biz1").is_some_and(|(reason, _)| reason.starts_with("Base"))
            })
            .await;
        let (_, message) = waits(&told, "biz1").unwrap();
        assert!(
            message.contains("module biz1:1") && message.contains("base a"),
            "{name}: {message}"
        );
        world.event(name, "Failed", message).await;
        let pod = format!("pod=default/{name}");
        let logged = log.with(&["WARN", &pod, "base=a", "module=biz1:1"]);
        assert!(!logged.is_empty(), "{name}: {:#?}", log.warnings());
        // Meanwhile the neighbour takes modules.
        let beside = format!("{name}-beside");
        world.pod(&beside, &second, &[("biz1", "1", &url)]).await;
        world.ready::<Pod>(&beside).await;
        world.delete::<Pod>(&beside).await;
        world.gone::<Pod>(&beside).await;
        assert_ne!(condition(&told, "Ready"), "True");
        bad.serve();
        world.ready::<Pod>(name).await;
        world.delete::<Pod>(name).await;
        world.gone::<Pod>(name).await;
    }
    assert_eq!(well.modules(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_restarts_during_an_install_costs_no_second_one() {
    let broker = Broker::start();
    let world = World::over(broker.address()).await;
    let slow = world.jar(Jar::new("slow", "1").start(Start::Held));
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base_over(broker.address(), "a").await;
    let (_neighbour, second) = world.base("b").await;
    world.pod("p", &node, &[("slow", "1", &slow)]).await;
    is_starting(&base, "slow", "1").await;
    broker.stop().await;
    world.pod("well", &second, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("well").await;
    broker.restart().await;
    base.release(&slow);
    world.ready::<Pod>("p").await;
    assert_eq!(base.requests("installBiz"), 1);
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
    assert_eq!(base.modules(), []);
}
