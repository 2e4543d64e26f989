use super::fixture::{pod, provider, start, with};
use crate::{NodeSettings, Settings};
use evenkeel_vnode::provider::{FaultKind, Provider};
use rstest::rstest;
use std::time::Duration;
use tokio::time::{Instant, advance, sleep};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_container_takes_its_start_delay() {
    let settings = Settings {
        start_delay: Duration::from_millis(800),
        ..Settings::default()
    };
    let (provider, _) = with(settings);
    let began = Instant::now();
    let pods = [pod("a", &[]), pod("b", &[("start-delay", "3s")])];
    start(&provider, &pods[0], "web").await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(800));
    start(&provider, &pods[1], "web").await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(3_800));
}

#[rstest]
#[case(&[("crash-after", "5s")], "web", 5, 1, "Error")]
#[case(&[("exit-after", "5s")], "web", 5, 0, "Completed")]
#[case(&[("exit-after.web", "7s"), ("exit-code", "3")], "web", 7, 3, "Error")]
#[case(&[], "init", 1, 0, "Completed")]
#[tokio::test(start_paused = true)]
async fn a_container_that_ends_by_itself_is_reported_once(
    #[case] annotations: &[(&str, &str)],
    #[case] container: &str,
    #[case] seconds: u32,
    #[case] code: i32,
    #[case] reason: &str,
) {
    let (provider, framework) = provider();
    start(&provider, &pod("a", annotations), container).await.unwrap();
    sleep(SECOND * (seconds - 1) + SECOND / 20).await;
    assert_eq!(framework.ends(), []);
    sleep(SECOND * 20).await;
    assert_eq!(
        framework.ends(),
        [(container.to_owned(), code, reason.to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_without_annotations_runs_for_ever_and_needs_no_timer() {
    let (provider, framework) = provider();
    start(&provider, &pod("a", &[]), "web").await.unwrap();
    assert_eq!(provider.0.timers.len(), 0);
    sleep(SECOND * 1_000_000).await;
    assert_eq!(framework.ends(), []);
}

#[tokio::test(start_paused = true)]
async fn a_container_takes_its_stop_delay() {
    let (provider, _) = with(Settings {
        stop_delay: Duration::from_millis(500),
        ..Settings::default()
    });
    for (name, annotations, takes) in [("a", &[][..], 500), ("b", &[("stop-delay", "0")][..], 0)] {
        let pod = pod(name, annotations);
        let started = start(&provider, &pod, "web").await.unwrap();
        let began = Instant::now();
        let exit = provider.stop(&pod.id, &started.id, SECOND).await.unwrap();
        assert_eq!((exit.code, began.elapsed().as_millis()), (0, takes), "{name}");
    }
}

#[rstest]
#[case(&[], 30, 0, 0)]
#[case(&[("stop-delay", "5s")], 30, 5, 0)]
#[case(&[("stop-delay", "5s"), ("stop-code", "143")], 30, 5, 143)]
#[case(&[("stop-delay", "60s")], 30, 30, 137)]
#[case(&[("stop-delay", "5s")], 0, 0, 137)]
#[case(&[("exit-after", "3s"), ("stop-delay", "5s"), ("exit-code", "9")], 30, 3, 9)]
#[tokio::test(start_paused = true)]
async fn term_is_heeded_in_time_or_the_container_is_killed(
    #[case] annotations: &[(&str, &str)],
    #[case] grace: u32,
    #[case] takes: u64,
    #[case] code: i32,
) {
    let (provider, _) = provider();
    let pod = pod("a", annotations);
    let started = start(&provider, &pod, "web").await.unwrap();
    let began = Instant::now();
    let exit = provider.stop(&pod.id, &started.id, SECOND * grace).await.unwrap();
    assert_eq!((exit.code, began.elapsed().as_secs()), (code, takes));
    let again = provider.stop(&pod.id, &started.id, SECOND * grace).await.unwrap();
    assert_eq!(again, exit);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_period_overtakes_a_longer_one() {
    let (provider, _) = provider();
    let pod = pod("a", &[("stop-delay", "1h")]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let long = provider.stop(&pod.id, &started.id, SECOND * 600);
    let began = Instant::now();
    let (long, short) = tokio::join!(long, provider.stop(&pod.id, &started.id, SECOND));
    assert_eq!(long, short);
    assert_eq!(began.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn starts_fail_so_often_and_with_these_words() {
    let (provider, _) = provider();
    let pod = pod("a", &[("pull-error", "1: no such tag"), ("start-error", "1")]);
    let fault = start(&provider, &pod, "web").await.unwrap_err();
    assert_eq!(
        (fault.kind, fault.reason.as_str()),
        (FaultKind::Later, "ErrImagePull")
    );
    assert!(fault.message.contains("nginx:1") && fault.message.contains("no such tag"));
    let fault = start(&provider, &pod, "web").await.unwrap_err();
    assert_eq!(fault.reason, "RunContainerError");
    start(&provider, &pod, "web").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_answer_got_lost_is_not_done_twice() {
    let (provider, _) = provider();
    let pod = pod("a", &[]);
    let first = start(&provider, &pod, "web").await.unwrap();
    advance(SECOND).await;
    assert_eq!(start(&provider, &pod, "web").await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn a_changed_annotation_changes_what_runs() {
    let (provider, framework) = provider();
    let before = pod("a", &[("crash-after", "1h")]);
    start(&provider, &before, "web").await.unwrap();
    provider
        .update(&pod("a", &[("crash-after", "9s")]))
        .await
        .unwrap();
    sleep(SECOND * 10).await;
    assert_eq!(framework.ends().len(), 1);
    let fault = provider
        .update(&pod("a", &[("crash-after", "soon")]))
        .await
        .unwrap_err();
    assert_eq!(
        (fault.kind, fault.reason.as_str()),
        (FaultKind::Invalid, "InvalidSimulation")
    );
}

#[tokio::test(start_paused = true)]
async fn addresses_are_the_nodes_own_and_come_back() {
    let (provider, _) = provider();
    let address = |sandbox: evenkeel_vnode::provider::Sandbox| sandbox.addresses[0].to_string();
    let first = pod("a", &[]);
    assert_eq!(address(provider.create(&first).await.unwrap()), "10.64.7.2");
    assert_eq!(address(provider.create(&first).await.unwrap()), "10.64.7.2");
    assert_eq!(
        address(provider.create(&pod("b", &[("serve", "true")])).await.unwrap()),
        "127.64.7.3"
    );
    provider.delete(&first.id).await.unwrap();
    provider.delete(&first.id).await.unwrap();
    assert_eq!(provider.list("node-7").await.unwrap().len(), 1);
    for index in 0..251 {
        provider.create(&pod(&format!("c{index}"), &[])).await.unwrap();
    }
    provider.create(&pod("d", &[])).await.unwrap();
    let fault = provider.create(&pod("e", &[])).await.unwrap_err();
    assert!(fault.message.contains("10.64.7.0/24"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_node_fails_and_recovers_on_demand() {
    let (provider, framework) = provider();
    assert!(provider.ping("node-7").await.is_ok());
    provider.fail_node("node-7", Some("on fire".to_owned()));
    assert_eq!(provider.ping("node-7").await.unwrap_err().message, "on fire");
    provider.fail_node("node-7", None);
    assert!(provider.ping("node-7").await.is_ok());
    assert_eq!(framework.reports.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_loses_power_loses_its_containers_and_boots_anew() {
    let (provider, framework) = provider();
    let pod = pod("a", &[]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let boot = provider.node("node-7").boot_id;
    provider.power_off("node-7");
    assert_ne!(provider.node("node-7").boot_id, boot);
    assert_eq!(
        framework.ends(),
        [("web".to_owned(), 137, "ContainerStatusUnknown".to_owned())]
    );
    let fault = provider.stop(&pod.id, &started.id, SECOND).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotFound);
    let again = start(&provider, &pod, "web").await.unwrap();
    assert_ne!(again.id, started.id);
}

#[tokio::test(start_paused = true)]
async fn a_node_may_be_given_range_and_boot() {
    let own = NodeSettings {
        range: Some("10.99.0.0/29".parse().unwrap()),
        boot: Some("b1".to_owned()),
    };
    let (provider, _) = with(Settings {
        nodes: [("node-7".to_owned(), own)].into(),
        ..Settings::default()
    });
    let template = provider.node("node-7");
    assert_eq!(
        (template.pod_cidr.as_str(), template.boot_id.as_str()),
        ("10.99.0.0/29", "b1")
    );
    let started = start(&provider, &pod("a", &[]), "web").await.unwrap();
    assert!(started.id.0.starts_with("simulated://b1/"), "{}", started.id);
}

#[tokio::test(start_paused = true)]
async fn figures_follow_annotations_and_requests() {
    let (provider, _) = provider();
    start(
        &provider,
        &pod("a", &[("cpu", "250m"), ("memory", "64Mi")]),
        "web",
    )
    .await
    .unwrap();
    start(&provider, &pod("b", &[]), "web").await.unwrap();
    advance(SECOND * 10).await;
    let stats = provider.stats("node-7").await.unwrap();
    let of = |name: &str| {
        stats
            .pods
            .iter()
            .find(|pod| &*pod.id.name == name)
            .unwrap()
            .containers[0]
            .clone()
    };
    assert_eq!(of("a").cpu_nanocores, 250_000_000);
    assert_eq!(of("a").cpu_nanoseconds, 2_500_000_000);
    assert_eq!(of("a").memory_working_set, 64 << 20);
    assert!(of("b").cpu_nanocores > 0);
    assert_eq!(provider.stats("node-7").await.unwrap(), stats);
}
