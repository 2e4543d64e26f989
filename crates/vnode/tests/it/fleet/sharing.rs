//! Several replicas that share nodes.

use super::*;
use evenkeel_election::Config;
use evenkeel_vnode::ownership::Sharing;
use std::collections::BTreeSet;

const NODES: [&str; 8] = ["a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "a-7"];

fn replica(api: &ApiServer, world: &Arc<World>, number: u32) -> Bench {
    let fake = Fake::new(world, number);
    let mut options = options(&fake);
    options.sharing = Sharing::Slots {
        slots: 4,
        namespace: "default".to_owned(),
        name: "fleet".to_owned(),
        election: Config {
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(250),
            ..Config::new(&format!("replica-{number}"))
        },
    };
    Bench::with(api.clone(), world.clone(), fake, options, &NODES)
}

/// Waits until so many nodes are served, by these replicas.
async fn served_by(world: &World, replicas: &[u32]) {
    eventually("the nodes are shared", DEADLINE, async || {
        let owners = world.owners();
        let by: BTreeSet<u32> = owners.values().copied().collect();
        let all = owners.len() == NODES.len() && by.iter().eq(replicas);
        all.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_ever_served_by_two_and_pods_do_not_notice_who_serves_them() {
    let (api, world) = (api_server(), Arc::new(World::default()));
    let one = replica(&api, &world, 1);
    for node in NODES {
        one.node_is_ready(node).await;
        one.pod(&format!("on-{node}"), node, json!({})).await;
    }
    for node in NODES {
        one.is_ready(&format!("on-{node}")).await;
    }
    served_by(&world, &[1]).await;

    let two = replica(&api, &world, 2);
    served_by(&world, &[1, 2]).await;
    one.end().await;
    served_by(&world, &[2]).await;
    // What comes now is served by the other.
    two.pod("late", "a-3", json!({})).await;
    two.is_ready("late").await;
    two.end().await;

    assert_eq!(world.trespasses(), Vec::<String>::new());
    for number in [1, 2] {
        let ended = world.changes_by(number);
        assert!(
            ended.iter().all(|(call, _)| !matches!(*call, "stop" | "delete")),
            "{ended:?}"
        );
    }
    let starts = world
        .changes_by(2)
        .into_iter()
        .filter(|(call, _)| *call == "start");
    assert_eq!(starts.count(), 1);
}
