//! A process that is ended at any moment takes everything up again: no pod is deleted, no container restarted.

use super::world::{SOON, Vnode, World, identity};
use evenkeel_testkit::eventually;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
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

/// How many certificates were asked for.
async fn requests(world: &World) -> usize {
    let requests: kube::Api<CertificateSigningRequest> = kube::Api::all(world.client.clone());
    let found = requests.list(&Default::default()).await;
    found.expect("they can be listed").items.len()
}

/// Approves the first request, as an administrator does: who asked for it may not.
async fn approve(world: &World) {
    let requests: kube::Api<CertificateSigningRequest> = kube::Api::all(world.client.clone());
    let name = eventually("a certificate is asked for", SOON, || async {
        let found = requests.list(&Default::default()).await.ok()?;
        found.items.first()?.metadata.name.clone()
    })
    .await;
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Test", "message": "asked for by a test"},
    ]}});
    let approval = kube::api::Patch::Merge(approval);
    let approved = requests
        .patch_approval(&name, &Default::default(), &approval)
        .await;
    approved.expect("an administrator may");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_keeps_the_certificate_for_the_next_process() {
    let world = World::start().await;
    let directory = world.api.home.path().join("state");
    let line = ["--state-dir", directory.to_str().expect("a text")];
    let vnode = world.vnode("kept", 1, &line);
    world.ready(1).await;
    vnode.says("the serving certificate is kept").await;
    vnode.stop();
    let vnode = world.vnode("kept", 1, &line);
    vnode.says("serving with the certificate that is kept").await;
    world.ready(1).await;
    assert_eq!(requests(&world).await, 1, "one approval is enough");
    use std::os::unix::fs::PermissionsExt as _;
    let file = directory.join("vnode-simulated.pem");
    for (path, mode) in [(&directory, 0o700), (&file, 0o600)] {
        let found = std::fs::metadata(path).expect("it is there").permissions();
        assert_eq!(found.mode() & 0o777, mode, "{}", path.display());
    }
}

/// It is killed while nobody else may take its slots for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_state_directory_a_killed_process_has_its_nodes_back_at_once() {
    let world = World::start().await;
    let directory = world.api.home.path().join("state");
    let line = [
        "--state-dir",
        directory.to_str().expect("a text"),
        "--leader-elect-lease-duration=1h",
        "--leader-elect-renew-deadline=30m",
        "--slots=1",
    ];
    let leases: kube::Api<Lease> = kube::Api::namespaced(world.client.clone(), "kube-node-lease");
    let held = async |life: i32| {
        eventually(&format!("the slot is held in life {life}"), SOON, || async {
            let lease = leases.get_opt("evenkeel-vnode-simulated-0").await.ok()??;
            let spec = lease.spec?;
            let ours = spec.holder_identity.as_deref() == Some("fixed");
            (ours && spec.lease_transitions == Some(life)).then_some(())
        })
        .await;
    };
    for life in 0..3 {
        let vnode = world.vnode("fixed", 1, &line);
        held(life).await;
        world.ready(1).await;
        vnode.kill();
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
    let secret = ["--certificate-secret", "evenkeel-system/evenkeel-vnode-serving"];
    let line = [&["--kubeconfig", path], &secret[..]].concat();
    let vnode = world.vnode("restricted", NODES, &line);
    world.ready(NODES).await;
    proves_itself(&world, "restricted").await;
    approve(&world).await;
    vnode.says("the serving certificate is kept").await;
    vnode.kill();
    let vnode = world.vnode("restricted", NODES, &line);
    proves_itself(&world, "restarted").await;
    vnode.says("serving with the certificate that is kept").await;
    assert_eq!(requests(&world).await, 1, "one approval is enough");
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

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_writes_on_a_node_is_put_right() {
    let world = World::start().await;
    let _vnode = settled(&world).await;
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(world.client.clone());
    let how = kube::api::PatchParams::default();
    let unknown = json!({"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
    ]}});
    let patch = kube::api::Patch::Strategic(unknown);
    nodes
        .patch_status("vnode-0", &how, &patch)
        .await
        .expect("the node is there");
    world.ready(NODES).await;
    let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": "other", "mine": "stays"}}});
    let patch = kube::api::Patch::Strategic(label);
    nodes
        .patch("vnode-0", &how, &patch)
        .await
        .expect("the node is there");
    eventually("the label is put right", SOON, async || {
        let labels = world.nodes().await["vnode-0"].metadata.labels.clone()?;
        (labels["kubernetes.io/hostname"] == "vnode-0" && labels["mine"] == "stays").then_some(())
    })
    .await;
}
