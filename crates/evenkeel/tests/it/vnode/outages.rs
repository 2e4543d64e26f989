//! Outages of a virtual node's process, of its link, and of the API server: a node controller marks the node
//! Unknown, and the node is Ready again soon after.

use super::world::{Vnode, World, is_ready};
use evenkeel_testkit::Link;
use std::path::Path;
use std::time::{Duration, Instant};

/// A kubelet renews every 10 s. With so little more each outage that meets a renewal is marked.
const GRACE: &str = "12s";
/// Within this time the node is Ready again, and stays so.
const READY: Duration = Duration::from_secs(15);
/// So long it is looked at after the outage.
const LOOK: Duration = Duration::from_secs(25);
const OUTAGES: [u64; 4] = [5, 11, 20, 60];

#[derive(Clone, Copy, Debug)]
enum What {
    /// It is killed, and another one is started.
    Process,
    /// It stands still, and goes on.
    Pause,
    /// Packets are dropped between the process and the API server.
    Link,
    /// Nobody reaches the API server.
    Server,
}

fn serve(world: &World, link: &Link, identity: &str) -> Vnode {
    let kubeconfig = link.kubeconfig().to_str().expect("a path of ours");
    let line = ["--nodes", "1", "--kubeconfig", kubeconfig];
    world.serve(identity, "simulated", &line)
}

fn controller(world: &World, kubeconfig: &Path) -> Vnode {
    let kubeconfig = kubeconfig.to_str().expect("a path of ours");
    let line = [
        "node-lifecycle",
        "--kubeconfig",
        kubeconfig,
        "--node-monitor-grace-period",
        GRACE,
        "--node-monitor-period",
        "1s",
        "--admin",
        "127.0.0.1:0",
    ];
    world.process(&[], "node-lifecycle", &line)
}

/// For how long the node was not Ready after the outage, at the most.
async fn after(what: What, seconds: u64) -> Duration {
    let world = World::start().await;
    let (own, others) = (
        world.served().link("own").await,
        world.served().link("others").await,
    );
    let _controller = controller(&world, others.kubeconfig());
    let mut vnode = Some(serve(&world, &own, "first"));
    world.nodes_are_ready(1).await;

    let outage = Duration::from_secs(seconds);
    let process = vnode.as_ref().expect("it runs");
    match what {
        What::Process => vnode.take().expect("it runs").kill(),
        What::Pause => process.signal(nix::sys::signal::Signal::SIGSTOP),
        What::Link => own.cut(),
        What::Server => [&own, &others].into_iter().for_each(Link::refuse),
    }
    tokio::time::sleep(outage).await;
    match what {
        What::Process => vnode = Some(serve(&world, &own, "second")),
        What::Pause => vnode
            .as_ref()
            .expect("it runs")
            .signal(nix::sys::signal::Signal::SIGCONT),
        What::Link => own.mend(),
        What::Server => [&own, &others].into_iter().for_each(Link::mend),
    }
    let began = Instant::now();
    let mut last = Duration::ZERO;
    while began.elapsed() < LOOK {
        let nodes = world.nodes().await;
        if !nodes.values().all(is_ready) {
            last = began.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(vnode);
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_ready_within_15_s_after_an_outage() {
    let kinds = [What::Process, What::Pause, What::Link, What::Server];
    let all = kinds
        .into_iter()
        .flat_map(|what| OUTAGES.map(|seconds| (what, seconds)));
    let runs = all.map(async |(what, seconds)| (what, seconds, after(what, seconds).await));
    let results = futures::future::join_all(runs).await;
    for (what, seconds, late) in &results {
        println!(
            "{what:?}, {seconds} s: Ready for good {:.1} s after it",
            late.as_secs_f64()
        );
    }
    let late: Vec<_> = results.iter().filter(|(.., late)| *late > READY).collect();
    assert!(late.is_empty(), "later than {READY:?}: {late:?}");
}
