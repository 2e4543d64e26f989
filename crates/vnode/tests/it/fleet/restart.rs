//! Fleets that end and begin again.

use super::fake::Trick;
use super::*;
use evenkeel_vnode::Options;
use k8s_openapi::api::core::v1::Pod;

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_adopts_everything_and_changes_nothing() {
    let nodes = ["virtual-1", "virtual-2", "virtual-3"];
    let bench = Bench::new(&nodes).await;
    let names: Vec<String> = (0..12).map(|number| format!("web-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        bench.pod(name, nodes[number % 3], json!({})).await;
    }
    let mut before = Vec::new();
    for name in &names {
        before.push(bench.ready::<Pod>(name).await);
    }
    bench.end().await;
    assert_eq!(bench.world.pods().len(), 12);
    let changes = bench.world.changes_by(1);
    assert!(
        changes
            .iter()
            .all(|(call, _)| !matches!(*call, "stop" | "delete"))
    );
    assert_eq!(bench.world.owners().len(), 0, "every node was given back");

    for (number, trick) in [Trick::Later, Trick::Hang, Trick::Panic, Trick::Nonsense]
        .into_iter()
        .enumerate()
    {
        let subject = format!("default/web-{number}");
        bench.world.trick("status", &subject, &[trick]);
    }
    let tricked = |name: &str| matches!(name, "web-0" | "web-1" | "web-2" | "web-3");
    let next = Fake::new(&bench.world, 2);
    let next = Bench::again(bench.api.clone(), bench.world.clone(), next, &nodes);
    for name in &names {
        let subject = format!("default/{name}");
        until("it is asked for", async || {
            next.world.asked_by(2, &subject) > usize::from(tricked(name))
        })
        .await;
    }
    // A pod that came meanwhile is served after all others are known.
    next.pod("new", "virtual-1", json!({})).await;
    next.ready::<Pod>("new").await;
    for (name, before) in names.iter().zip(before) {
        let now = next.get::<Pod>(name).await;
        assert_eq!(now.status, before.status, "{name}");
        assert_eq!(now.metadata.uid, before.metadata.uid);
    }
    next.end().await;
    let changes = next.world.changes_by(2);
    let changes: Vec<_> = changes.iter().filter(|(call, _)| *call != "release").collect();
    assert_eq!(
        changes,
        [
            &("create", "default/new".to_owned()),
            &("start", "default/new/app".to_owned())
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_deleted_while_nobody_served_its_node_ends() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    bench.end().await;
    bench.delete::<Pod>("web").await;
    let next = Bench::again(
        bench.api.clone(),
        bench.world.clone(),
        bench.fake.clone(),
        &["virtual-1"],
    );
    next.gone::<Pod>("web").await;
    assert_eq!(next.world.count("stop", "default/web"), 1);
    next.end().await;
}

// On one thread, so that it is certain what could be under way at a time.
#[tokio::test]
async fn what_runs_is_asked_for_so_much_at_a_time_and_no_more() {
    let bench = Bench::new(&["virtual-1", "virtual-2"]).await;
    let names: Vec<String> = (0..24).map(|number| format!("web-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        bench
            .pod(name, ["virtual-1", "virtual-2"][number % 2], json!({}))
            .await;
    }
    for name in &names {
        bench.ready::<Pod>(name).await;
    }
    bench.end().await;

    let fake = Fake::new(&bench.world, 2);
    let options = Options {
        looks: 3,
        ..options(&fake)
    };
    bench.world.watch("status");
    let next = Bench::with(
        bench.api.clone(),
        bench.world.clone(),
        fake,
        options,
        &["virtual-1", "virtual-2"],
    );
    for name in &names {
        let subject = format!("default/{name}");
        until("it is asked for", async || next.world.asked_by(2, &subject) > 0).await;
    }
    assert_eq!(next.world.most("status"), 3);
    next.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_over_and_kept_by_a_finalizer_is_not_begun_again_by_the_next_list() {
    let bench = Bench::new(&["virtual-1"]).await;
    let kept = json!({"metadata": {"finalizers": ["example.com/keeps-it"]}});
    bench.pod("web", "virtual-1", kept).await;
    bench.ready::<Pod>("web").await;
    bench.delete::<Pod>("web").await;
    let over = bench
        .until("web", "it is over", |pod: &Pod| {
            let meta = &pod.metadata;
            phase(pod) == "Succeeded" && meta.deletion_grace_period_seconds == Some(0)
        })
        .await;
    assert_eq!(bench.world.count("delete", "default/web"), 1);
    // A second node takes another watch, whose list shows all pods once more.
    bench.fleet.add("virtual-2");
    bench.pod("elsewhere", "virtual-2", json!({})).await;
    bench.ready::<Pod>("elsewhere").await;
    bench.pod("after", "virtual-1", json!({})).await;
    bench.ready::<Pod>("after").await;
    let now = bench.get::<Pod>("web").await;
    assert_eq!(now.status, over.status);
    let free = json!({"metadata": {"finalizers": null}});
    bench.merge::<Pod>("web", free).await;
    bench.gone::<Pod>("web").await;
    for (call, subject) in [
        ("create", "default/web"),
        ("start", "default/web/app"),
        ("stop", "default/web"),
        ("delete", "default/web"),
    ] {
        assert_eq!(bench.world.count(call, subject), 1, "{call}");
    }
    bench.end().await;
}
