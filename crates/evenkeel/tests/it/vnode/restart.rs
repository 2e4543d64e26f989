//! A process that is ended at any moment takes everything up again: no pod is deleted, no container restarted.

use super::world::{SOON, Vnode, World, identity};
use evenkeel_testkit::eventually;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NODES: usize = 5;
const PODS: usize = 20;

async fn identities(world: &World) -> BTreeMap<String, Value> {
    world
        .pods()
        .await
        .iter()
        .map(|(name, pod)| (name.clone(), identity(pod)))
        .collect()
}

/// Every node runs a new pod: whoever serves the nodes has taken them up.
async fn proves_itself(world: &World, round: &str) {
    for node in 0..NODES {
        world
            .pod(&format!("proof-{round}-{node}"), node, json!({}), json!({}))
            .await;
    }
    world.all_ready().await;
}

async fn settled(world: &World) -> Vnode {
    let vnode = world.vnode("one", NODES, &[]);
    world.ready(NODES).await;
    for index in 0..PODS {
        world
            .pod(&format!("pod-{index}"), index % NODES, json!({}), json!({}))
            .await;
    }
    world.all_ready().await;
    vnode
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_or_stopped_and_started_again_everything_is_as_it_was() {
    let world = World::start().await;
    let vnode = settled(&world).await;
    let before = identities(&world).await;
    vnode.kill();
    let vnode = world.vnode("two", NODES, &[]);
    proves_itself(&world, "killed").await;
    vnode.stop();
    let _vnode = world.vnode("three", NODES, &[]);
    proves_itself(&world, "stopped").await;
    let after = identities(&world).await;
    for (name, identity) in &before {
        assert_eq!(after.get(name), Some(identity), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_starts_pods_it_starts_none_twice() {
    let world = World::start().await;
    let mut first_seen: BTreeMap<String, Value> = BTreeMap::new();
    for round in 0..4_u64 {
        let vnode = world.vnode(&format!("round-{round}"), NODES, &["--leader-elect=false"]);
        if round == 0 {
            world.ready(NODES).await;
        }
        for index in 0..PODS {
            world
                .pod(
                    &format!("pod-{round}-{index}"),
                    index % NODES,
                    json!({}),
                    json!({}),
                )
                .await;
        }
        // In the midst of it: some run, some do not.
        let enough = (PODS as u64 * round + 5) as usize;
        eventually("some pods run", SOON, || async {
            let pods = identities(&world).await;
            (pods.values().filter(|pod| runs(pod)).count() >= enough).then_some(())
        })
        .await;
        vnode.kill();
        for (name, identity) in identities(&world).await.into_iter().filter(|(_, pod)| runs(pod)) {
            let first = first_seen.entry(name.clone()).or_insert_with(|| identity.clone());
            assert_eq!(*first, identity, "{name} in round {round}");
        }
    }
    let _vnode = world.vnode("last", NODES, &["--leader-elect=false"]);
    world.all_ready().await;
    let after = identities(&world).await;
    assert_eq!(after.len(), 4 * PODS);
    for (name, identity) in &first_seen {
        assert_eq!(after.get(name), Some(identity), "{name}");
    }
    assert!(
        after.values().all(|pod| pod["containers"][0][1] == 0),
        "{after:?}"
    );
}

fn runs(identity: &Value) -> bool {
    identity["containers"][0][2]["running"].is_object()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_somebody_deletes_comes_back_with_its_pods() {
    let world = World::start().await;
    let _vnode = settled(&world).await;
    let before = identities(&world).await;
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(world.client.clone());
    let uid =
        |nodes: &BTreeMap<String, k8s_openapi::api::core::v1::Node>| nodes["vnode-0"].metadata.uid.clone();
    let old = uid(&world.nodes().await);
    nodes
        .delete("vnode-0", &Default::default())
        .await
        .expect("it is there");
    eventually("the node is registered anew", Duration::from_secs(60), || async {
        let nodes = world.nodes().await;
        nodes
            .contains_key("vnode-0")
            .then(|| uid(&nodes))
            .filter(|uid| *uid != old)
    })
    .await;
    world.ready(NODES).await;
    proves_itself(&world, "deleted").await;
    let after = identities(&world).await;
    for (name, identity) in &before {
        assert_eq!(after.get(name), Some(identity), "{name}");
    }
}

/// The rights in `deploy/vnode.yaml` are enough for everything that a fleet does, its certificate and its clients included.
#[tokio::test(flavor = "multi_thread")]
async fn the_published_rights_are_enough() {
    let world = World::start().await;
    world
        .apply(include_str!("../../../../../deploy/vnode.yaml"))
        .await;
    let kubeconfig = world.account("evenkeel-system", "evenkeel-vnode").await;
    let path = kubeconfig.to_str().expect("a text");
    let vnode = world.vnode("restricted", NODES, &["--kubeconfig", path]);
    world.ready(NODES).await;
    proves_itself(&world, "restricted").await;
    let requests: kube::Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> =
        kube::Api::all(world.client.clone());
    eventually("a certificate is asked for", SOON, || async {
        let found = requests.list(&Default::default()).await.ok()?;
        (!found.items.is_empty()).then_some(())
    })
    .await;
    world
        .pods_api()
        .delete("proof-restricted-0", &Default::default())
        .await
        .expect("it is there");
    eventually("the pod is gone", SOON, || async {
        (!world.pods().await.contains_key("proof-restricted-0")).then_some(())
    })
    .await;
    let log = std::fs::read_to_string(&vnode.log).expect("it logs");
    for word in ["forbidden", "Forbidden", "cannot see"] {
        assert!(!log.contains(word), "{log}");
    }
}
