//! Two replicas: nodes of one that dies or sleeps are served by the other, and never by both.

use super::world::{World, port};
use evenkeel_testkit::until;
use nix::sys::signal::Signal;
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
    world.nodes_are_ready(NODES).await;
    world.pod_on_each("pod", NODES).await;
    world.all_ready().await;
    let before = world.identities().await;

    // A second replica gets its share without a pod noticing.
    let b = world.vnode("b", NODES, &["--kubelet-port", B]);
    until("both serve some nodes", async || {
        let ports = ports(&world).await;
        by(A, &ports).len() >= 3 && by(B, &ports).len() >= 3
    })
    .await;

    let killed = Instant::now();
    a.kill();
    until("the other serves all", async || {
        by(B, &ports(&world).await).len() == NODES
    })
    .await;
    eprintln!(
        "nodes of a killed replica were served again after {:.1} s",
        killed.elapsed().as_secs_f64()
    );
    world.pod_on_each("proof", NODES).await;
    world.all_ready().await;

    // One that sleeps through its time finds its nodes taken when it wakes, and leaves them alone.
    let c = world.vnode("c", NODES, &["--kubelet-port", A]);
    until("both serve some nodes", async || {
        let ports = ports(&world).await;
        by(A, &ports).len() >= 3 && by(B, &ports).len() >= 3
    })
    .await;
    b.signal(Signal::SIGSTOP);
    until("the other serves all", async || {
        by(A, &ports(&world).await).len() == NODES
    })
    .await;
    c.stop();
    b.signal(Signal::SIGCONT);
    until("who woke serves all again", async || {
        by(B, &ports(&world).await).len() == NODES
    })
    .await;
    world.is_unchanged(&before).await;
}
