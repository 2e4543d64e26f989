//! Pods from their creation to their end (virtual-kubelet's set of lifecycle tests, and what it leaves out).

use super::*;
use evenkeel_kubelet_api::Wanted;
use evenkeel_vnode::provider::FaultKind;
use k8s_openapi::api::core::v1::{Node, Pod};
use prometheus_client::registry::Registry;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_created_started_reported_and_removed_as_soon_as_it_has_ended() {
    let bench = Bench::new(&["virtual-1"]).await;
    let id = bench.pod("web", "virtual-1", json!({})).await;
    let pod = bench.ready::<Pod>("web").await;
    let status = pod.status.as_ref().unwrap();
    assert_eq!(phase(&pod), "Running");
    assert_eq!(status.host_ip.as_deref(), Some("10.1.2.3"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.77.0.1"));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.container_id.as_deref(), Some("fake://1"));
    assert_eq!(bench.world.pods(), ["default/web"]);

    let begun = std::time::Instant::now();
    bench.delete::<Pod>("web").await;
    bench.gone::<Pod>("web").await;
    // The grace period is 30 s; the container ended at once.
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(bench.world.count("stop", "default/web"), 1);
    until("the provider is empty", async || bench.world.pods().is_empty()).await;
    assert_eq!(bench.world.count("create", &id.to_string()), 1);
    assert_eq!(bench.world.count("start", "default/web/app"), 1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_falls_behind_begins_anew_and_misses_no_pod() {
    // Of each kind the server remembers a single event.
    let api = evenkeel_testkit::api_server_with(evenkeel_testkit::Options {
        watch_history: 1,
        ..evenkeel_testkit::Options::default()
    });
    let world = Arc::new(World::default());
    let bench = Bench::again(api, world.clone(), Fake::new(&world, 1), &["virtual-1"]);
    bench.ready::<Node>("virtual-1").await;
    let names: Vec<String> = (0..60).map(|number| format!("web-{number}")).collect();
    let created = names.iter().map(|name| bench.pod(name, "virtual-1", json!({})));
    futures::future::join_all(created).await;
    for name in &names {
        bench.ready::<Pod>(name).await;
        assert_eq!(bench.world.count("start", &format!("default/{name}/app")), 1);
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_that_name_that_comes_after_it_is_another() {
    let bench = Bench::new(&["virtual-1"]).await;
    for round in 1..=3 {
        bench.pod("web", "virtual-1", json!({})).await;
        bench.ready::<Pod>("web").await;
        assert_eq!(bench.world.count("create", "default/web"), round);
        bench.delete::<Pod>("web").await;
        bench.gone::<Pod>("web").await;
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_by_force_ends_at_the_provider() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    let now = DeleteParams::default().grace_period(0);
    bench.pods().delete("web", &now).await.unwrap();
    until("the provider is empty", async || bench.world.pods().is_empty()).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_is_started_again_or_not_as_the_policy_says() {
    let bench = Bench::new(&["virtual-1"]).await;
    let always = bench.pod("always", "virtual-1", json!({})).await;
    let never = bench
        .pod("never", "virtual-1", json!({"spec": {"restartPolicy": "Never"}}))
        .await;
    bench.ready::<Pod>("always").await;
    bench.ready::<Pod>("never").await;
    bench.fake.exit(&always.uid, "app", 1);
    bench.fake.exit(&never.uid, "app", 0);
    bench
        .until("always", "it runs again", |pod: &Pod| {
            restarts(pod) == 1 && is_ready(pod)
        })
        .await;
    bench
        .until("never", "it is over", |pod: &Pod| phase(pod) == "Succeeded")
        .await;
    assert_eq!(bench.world.count("start", "default/never/app"), 1);
    bench.event("always", "Started", "").await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_refused_waits_with_the_reason_and_the_provider_hears_nothing_of_it() {
    let bench = Bench::new(&["virtual-1"]).await;
    let refused = json!({"metadata": {"annotations": {"refuse": "not here"}}});
    bench.pod("web", "virtual-1", refused).await;
    let pod = bench.pod_waits("web", "app", "Refused").await;
    assert_eq!(phase(&pod), "Pending");
    bench.event("web", "ProviderCreateFailed", "").await;
    // Nor after a restart, with the status that it has by then.
    bench.end().await;
    let fake = Fake::new(&bench.world, 1);
    let bench = Bench::again(bench.api, bench.world, fake, &["virtual-1"]);
    let still = json!({"metadata": {"annotations": {"refuse": "still not here"}}});
    let patch = still;
    bench.merge::<Pod>("web", patch).await;
    let said = |pod: &Pod| {
        let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
        status.state.as_ref()?.waiting.as_ref()?.message.clone()
    };
    bench
        .until("web", "it waits", |pod: &Pod| {
            said(pod).as_deref() == Some("still not here")
        })
        .await;
    assert_eq!(bench.world.count("create", "default/web"), 0);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_shown_as_they_are_and_containers_are_found() {
    let bench = Bench::new(&["virtual-1"]).await;
    let backend = bench.fleet.backend();
    let id = bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    bench.fake.exit(&id.uid, "app", 3);
    bench
        .until("web", "it runs again", |pod: &Pod| {
            restarts(pod) == 1 && is_ready(pod)
        })
        .await;
    let shown = backend.pods("virtual-1").await;
    assert_eq!((shown.len(), restarts(&shown[0])), (1, 1));
    let types = shown[0]
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    assert_eq!(types.filter(|condition| condition.type_ == "Ready").count(), 1);
    let wanted = |previous, uid: Option<&str>| Wanted {
        node: "virtual-1".into(),
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        uid: uid.map(ToOwned::to_owned),
        container: "app".to_owned(),
        previous,
    };
    let (_, newest) = backend.container(&wanted(false, Some(&id.uid))).await.unwrap();
    let (_, former) = backend.container(&wanted(true, None)).await.unwrap();
    assert_eq!((&*newest.0, &*former.0), ("fake://2", "fake://1"));
    let other = backend
        .container(&wanted(false, Some("another")))
        .await
        .unwrap_err();
    assert_eq!(other.kind, FaultKind::NotFound);
    assert_eq!(backend.ill("virtual-1"), None);
    assert!(backend.ill("virtual-2").unwrap().contains("not served here"));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_tell_of_nodes_pods_writes_and_calls() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    let mut registry = Registry::default();
    bench.fleet.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "evenkeel_vnode_nodes 1\n",
        "evenkeel_vnode_nodes_ready 1\n",
        "evenkeel_vnode_pods{phase=\"Running\"} 1\n",
        "evenkeel_vnode_provider_calls_total{call=\"create\",result=\"Ok\"} 1\n",
        "evenkeel_vnode_provider_calls_total{call=\"start\",result=\"Ok\"} 1\n",
        "evenkeel_vnode_status_writes_total{result=\"Written\"} ",
        "evenkeel_vnode_status_write_latency_seconds_count ",
        "evenkeel_vnode_api_requests_total{method=\"PATCH\",code=\"200\"} ",
    ] {
        assert!(text.contains(line), "{line:?} is missing in\n{text}");
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_that_change_are_told_to_the_provider() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    let labels = json!({"metadata": {"labels": {"tier": "gold"}}});
    bench.merge::<Pod>("web", labels).await;
    until("the provider is told", async || {
        bench.world.count("update", "default/web") == 1
    })
    .await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_made_in_the_containers_and_decide_about_them() {
    let bench = Bench::new(&["virtual-1"]).await;
    let probe = |word: &str| json!({"exec": {"command": [word]}, "periodSeconds": 1, "failureThreshold": 1});
    let with = |readiness: Value, liveness: Value| json!({"spec": {"containers": [{"name": "app", "image": "i", "readinessProbe": readiness, "livenessProbe": liveness}]}});
    bench
        .pod("well", "virtual-1", with(probe("true"), probe("true")))
        .await;
    bench
        .pod("ill", "virtual-1", with(probe("false"), probe("false")))
        .await;
    bench.ready::<Pod>("well").await;
    let ill = bench
        .until("ill", "it is started again", |pod: &Pod| restarts(pod) > 0)
        .await;
    assert!(!is_ready(&ill));
    let event = bench.event("ill", "Unhealthy", "").await;
    assert_eq!(
        event.source.and_then(|source| source.host).as_deref(),
        Some("virtual-1")
    );
    assert_eq!(
        event.involved_object.field_path.as_deref(),
        Some("spec.containers{app}")
    );
    assert_eq!(restarts(&bench.get::<Pod>("well").await), 0);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_pods_of_nodes_that_are_served_are_touched_and_nodes_may_come_and_go() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("other", "virtual-2", json!({})).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    assert_eq!(bench.world.count("status", "default/other"), 0);
    // Its pod was there before it.
    bench.fleet.add("virtual-2");
    bench.ready::<Pod>("other").await;
    bench.fleet.remove("virtual-1", true);
    bench.gone::<Node>("virtual-1").await;
    assert_eq!(bench.world.count("release", "virtual-1"), 1);
    assert_eq!(bench.world.count("stop", "default/web"), 0);
    assert_eq!(bench.world.pods().len(), 2);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_somebody_deletes_comes_back() {
    let bench = Bench::new(&["virtual-1"]).await;
    let before = bench.ready::<Node>("virtual-1").await;
    bench.delete::<Node>("virtual-1").await;
    let after = bench.ready::<Node>("virtual-1").await;
    assert_ne!(after.metadata.uid, before.metadata.uid);
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    bench.end().await;
}
