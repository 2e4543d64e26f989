//! Two replicas: nodes of one that dies or sleeps are served by the other, and never by both.

use super::world::{SOON, World, identity, port};
use evenkeel_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const NODES: usize = 12;

/// Ports of the nodes' kubelet APIs; those of a process all lie in its own range.
async fn ports(world: &World) -> BTreeMap<String, i32> {
    let nodes = world.nodes().await;
    nodes
        .iter()
        .filter_map(|(name, node)| Some((name.clone(), port(node)?)))
        .collect()
}

const A: &str = "21000";
const B: &str = "22000";

fn by(range: &str, ports: &BTreeMap<String, i32>) -> BTreeSet<String> {
    let from: i32 = range.parse().expect("a number");
    let within = |port: i32| (from..from + 1000).contains(&port);
    ports
        .iter()
        .filter(|(_, port)| within(**port))
        .map(|(name, _)| name.clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_replica_that_dies_are_served_by_the_other() {
    let world = World::start().await;
    let a = world.vnode("a", NODES, &["--kubelet-port", A]);
    world.ready(NODES).await;
    for node in 0..NODES {
        world
            .pod(&format!("pod-{node}"), node, json!({}), json!({}))
            .await;
    }
    world.all_ready().await;
    let before: BTreeMap<_, _> = world
        .pods()
        .await
        .iter()
        .map(|(name, pod)| (name.clone(), identity(pod)))
        .collect();

    // A second replica gets its share without a pod noticing.
    let b = world.vnode("b", NODES, &["--kubelet-port", B]);
    eventually("both serve some nodes", SOON, || async {
        let ports = ports(&world).await;
        (by(A, &ports).len() >= 3 && by(B, &ports).len() >= 3).then_some(())
    })
    .await;

    let killed = Instant::now();
    a.kill();
    eventually("the other serves all", SOON, || async {
        (by(B, &ports(&world).await).len() == NODES).then_some(())
    })
    .await;
    eprintln!(
        "nodes of a killed replica were served again after {:.1} s",
        killed.elapsed().as_secs_f64()
    );
    for node in 0..NODES {
        world
            .pod(&format!("proof-{node}"), node, json!({}), json!({}))
            .await;
    }
    world.all_ready().await;

    // One that sleeps through its time finds its nodes taken when it wakes, and leaves them alone.
    let c = world.vnode("c", NODES, &["--kubelet-port", A]);
    eventually("both serve some nodes", SOON, || async {
        let ports = ports(&world).await;
        (by(A, &ports).len() >= 3 && by(B, &ports).len() >= 3).then_some(())
    })
    .await;
    b.signal(Signal::SIGSTOP);
    eventually("the other serves all", SOON, || async {
        (by(A, &ports(&world).await).len() == NODES).then_some(())
    })
    .await;
    c.stop();
    b.signal(Signal::SIGCONT);
    eventually("who woke serves all again", SOON, || async {
        (by(B, &ports(&world).await).len() == NODES).then_some(())
    })
    .await;
    let after: BTreeMap<_, _> = world
        .pods()
        .await
        .iter()
        .map(|(name, pod)| (name.clone(), identity(pod)))
        .collect();
    for (name, identity) in &before {
        assert_eq!(after.get(name), Some(identity), "{name}");
    }
}
