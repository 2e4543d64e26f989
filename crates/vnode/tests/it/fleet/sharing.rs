//! Several replicas that share nodes.

use super::*;
use evenkeel_election::Config;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_vnode::ownership::Sharing;
use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

const NODES: [&str; 8] = ["a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "a-7"];

fn replica(api: &ApiServer, world: &Arc<World>, number: u32) -> Bench {
    let fake = Fake::new(world, number);
    let mut options = options(&fake);
    options.sharing = Sharing::Slots {
        terms: None,
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
    until("the nodes are shared", async || {
        let owners = world.owners();
        let by: BTreeSet<u32> = owners.values().copied().collect();
        owners.len() == NODES.len() && by.iter().eq(replicas)
    })
    .await;
}

/// What became of an object: how often it was deleted, and whether it came again after that.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fate {
    deleted: usize,
    came_again: bool,
}

/// What has become of the objects of a kind, by name, from a resourceVersion until the one called `last`
/// came.
async fn fates<K>(objects: &Api<K>, from: &str, last: &str) -> BTreeMap<String, Fate>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut events = pin!(objects.watch(&WatchParams::default(), from).await.unwrap());
    let mut fates: BTreeMap<String, Fate> = BTreeMap::new();
    let reading = async {
        while let Some(event) = events.try_next().await.unwrap() {
            match event {
                WatchEvent::Added(object) if object.name_any() == last => return,
                WatchEvent::Added(object) => {
                    let fate = fates.entry(object.name_any()).or_default();
                    fate.came_again |= fate.deleted > 0;
                }
                WatchEvent::Deleted(object) => fates.entry(object.name_any()).or_default().deleted += 1,
                _ => {}
            }
        }
        panic!("the watch ended early")
    };
    evenkeel_testkit::ends("the last one comes", reading).await;
    fates
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_nodes_objects_go_once_and_for_ever_while_its_slot_changes_hands() {
    let (api, world) = (api_server(), Arc::new(World::default()));
    let (one, two) = (replica(&api, &world, 1), replica(&api, &world, 2));
    served_by(&world, &[1, 2]).await;
    for node in NODES {
        one.ready::<Node>(node).await;
    }
    let leases: Api<Lease> = Api::namespaced(api.client(), "kube-node-lease");
    until("all Leases are there", async || {
        let found = leases.list(&ListParams::default()).await.unwrap().items;
        found.len() == NODES.len()
    })
    .await;
    let from = leases
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    // Half of them are removed, and the replica that serves some of these ends in the midst of it.
    let (removed, kept) = NODES.split_at(4);
    for node in removed {
        two.fleet.remove(node, true);
        one.fleet.remove(node, true);
    }
    one.fleet.shutdown();
    one.end().await;
    until("the kept nodes are served", async || {
        let owners = world.owners();
        owners.len() == kept.len() && owners.values().all(|owner| *owner == 2)
    })
    .await;
    until("the removed nodes are gone", async || {
        let nodes = two.nodes().list(&ListParams::default()).await.unwrap().items;
        let leases = leases.list(&ListParams::default()).await.unwrap().items;
        let names = nodes.iter().map(Node::name_any);
        let names: BTreeSet<String> = names.chain(leases.iter().map(Lease::name_any)).collect();
        names.iter().eq(kept)
    })
    .await;
    // The last owner has looked after them all.
    let pod = two.pod("late", kept[0], json!({})).await;
    two.ready::<Pod>(&pod.name).await;
    two.end().await;
    let meta = ObjectMeta {
        name: Some("last".to_owned()),
        ..ObjectMeta::default()
    };
    let node = Node {
        metadata: meta.clone(),
        ..Node::default()
    };
    two.nodes().add(&node).await;
    let lease = Lease {
        metadata: meta,
        ..Lease::default()
    };
    leases.add(&lease).await;
    let nodes = fates(&two.nodes(), &from, "last").await;
    let leases = fates(&leases, &from, "last").await;
    let once = Fate {
        deleted: 1,
        came_again: false,
    };
    for node in removed {
        assert_eq!(
            (nodes.get(*node), leases.get(*node)),
            (Some(&once), Some(&once)),
            "{node}"
        );
    }
    for node in kept {
        let deleted = [&nodes, &leases].map(|fates| fates.get(*node).map_or(0, |fate| fate.deleted));
        assert_eq!(deleted, [0, 0], "{node}");
    }
    assert_eq!(world.trespasses(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_ever_served_by_two_and_pods_do_not_notice_who_serves_them() {
    let (api, world) = (api_server(), Arc::new(World::default()));
    let one = replica(&api, &world, 1);
    for node in NODES {
        one.ready::<Node>(node).await;
        one.pod(&format!("on-{node}"), node, json!({})).await;
    }
    for node in NODES {
        one.ready::<Pod>(&format!("on-{node}")).await;
    }
    served_by(&world, &[1]).await;

    let two = replica(&api, &world, 2);
    served_by(&world, &[1, 2]).await;
    one.end().await;
    served_by(&world, &[2]).await;
    // What comes now is served by the other.
    two.pod("late", "a-3", json!({})).await;
    two.ready::<Pod>("late").await;
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
