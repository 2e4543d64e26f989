//! Fleets that end and begin again.

use super::fake::Trick;
use super::*;

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
        before.push(bench.is_ready(name).await);
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
        eventually("it is asked for", DEADLINE, async || {
            (next.world.asked_by(2, &subject) > usize::from(tricked(name))).then_some(())
        })
        .await;
    }
    // A pod that came meanwhile is served after all others are known.
    next.pod("new", "virtual-1", json!({})).await;
    next.is_ready("new").await;
    for (name, before) in names.iter().zip(before) {
        let now = next.pods().get(name).await.unwrap();
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
    bench.is_ready("web").await;
    bench.end().await;
    bench.delete("web").await;
    let next = Bench::again(
        bench.api.clone(),
        bench.world.clone(),
        bench.fake.clone(),
        &["virtual-1"],
    );
    next.is_gone("web").await;
    assert_eq!(next.world.count("stop", "default/web"), 1);
    next.end().await;
}
