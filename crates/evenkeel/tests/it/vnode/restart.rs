//! A process that is ended at any moment takes everything up again: no pod is deleted, no container
//! restarted.

use super::world::{Vnode, World};
use evenkeel_testkit::{SOON, eventually, until};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NODES: usize = 5;
const PODS: usize = 20;

/// Every node runs a new pod: whoever serves the nodes has taken them up.
async fn proves_itself(world: &World, round: &str) {
    world.pod_on_each(&format!("proof-{round}"), NODES).await;
    world.all_ready().await;
}

async fn settled(world: &World) -> Vnode {
    let vnode = world.vnode("one", NODES, &[]);
    world.nodes_are_ready(NODES).await;
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
    let before = world.identities().await;
    vnode.kill();
    let vnode = world.vnode("two", NODES, &[]);
    proves_itself(&world, "killed").await;
    vnode.stop();
    let _vnode = world.vnode("three", NODES, &[]);
    proves_itself(&world, "stopped").await;
    world.is_unchanged(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_starts_pods_it_starts_none_twice() {
    let world = World::start().await;
    let mut first_seen: BTreeMap<String, Value> = BTreeMap::new();
    for round in 0..4_u64 {
        let vnode = world.vnode(&format!("round-{round}"), NODES, &["--leader-elect=false"]);
        if round == 0 {
            world.nodes_are_ready(NODES).await;
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
        until("some pods run", async || {
            let pods = world.identities().await;
            pods.values().filter(|pod| runs(pod)).count() >= enough
        })
        .await;
        vnode.kill();
        for (name, identity) in world.identities().await.into_iter().filter(|(_, pod)| runs(pod)) {
            let first = first_seen.entry(name.clone()).or_insert_with(|| identity.clone());
            assert_eq!(*first, identity, "{name} in round {round}");
        }
    }
    let _vnode = world.vnode("last", NODES, &["--leader-elect=false"]);
    world.all_ready().await;
    let after = world.identities().await;
    assert_eq!(after.len(), 4 * PODS);
    world.is_unchanged(&first_seen).await;
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
    let before = world.identities().await;
    let old = world.get::<Node>("vnode-0").await.metadata.uid;
    world.delete::<Node>("vnode-0").await;
    let anew = |node: &Node| node.metadata.uid != old;
    world.until("vnode-0", "is registered anew", anew).await;
    world.nodes_are_ready(NODES).await;
    proves_itself(&world, "deleted").await;
    world.is_unchanged(&before).await;
}

/// How many certificates were asked for.
async fn requests(world: &World) -> usize {
    world.list::<CertificateSigningRequest>().await.len()
}

/// Approves the first request, as an administrator does: who asked for it may not.
async fn approve(world: &World) {
    let requests = world.api::<CertificateSigningRequest>();
    let name = eventually("a certificate is asked for", SOON, || async {
        let found = requests.list(&Default::default()).await.ok()?;
        found.items.first()?.metadata.name.clone()
    })
    .await;
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Test", "message": "asked for by a test"},
    ]}});
    let approval = Patch::Merge(approval);
    let approved = requests
        .patch_approval(&name, &Default::default(), &approval)
        .await;
    approved.expect("an administrator may");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_keeps_the_certificate_for_the_next_process() {
    let world = World::start().await;
    let directory = world.home().join("state");
    let line = ["--state-dir", directory.to_str().expect("a text")];
    let vnode = world.vnode("kept", 1, &line);
    world.nodes_are_ready(1).await;
    vnode.says("the serving certificate is kept").await;
    vnode.stop();
    let vnode = world.vnode("kept", 1, &line);
    vnode.says("serving with the certificate that is kept").await;
    world.nodes_are_ready(1).await;
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
    let directory = world.home().join("state");
    let line = [
        "--state-dir",
        directory.to_str().expect("a text"),
        "--leader-elect-lease-duration=1h",
        "--leader-elect-renew-deadline=30m",
        "--slots=1",
    ];
    let leases = world.namespaced("kube-node-lease");
    let held = async |life: i32| {
        let ours = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            spec.holder_identity.as_deref() == Some("fixed") && spec.lease_transitions == Some(life)
        };
        let what = format!("is held in life {life}");
        leases.until("evenkeel-vnode-simulated-0", &what, ours).await;
    };
    for life in 0..3 {
        let vnode = world.vnode("fixed", 1, &line);
        held(life).await;
        world.nodes_are_ready(1).await;
        vnode.kill();
    }
}

/// The rights in `deploy/vnode.yaml` are enough for everything that a fleet does, its certificate and its
/// clients included.
#[tokio::test(flavor = "multi_thread")]
async fn the_published_rights_are_enough() {
    let world = World::start().await;
    world.apply_file("vnode.yaml").await;
    let kubeconfig = world.account("evenkeel-system", "evenkeel-vnode").await;
    let path = kubeconfig.to_str().expect("a text");
    let secret = ["--certificate-secret", "evenkeel-system/evenkeel-vnode-serving"];
    let line = [&["--kubeconfig", path], &secret[..]].concat();
    let vnode = world.vnode("restricted", NODES, &line);
    world.nodes_are_ready(NODES).await;
    // The address of the API server alone is read for it, not the list of services.
    let spec = json!({"enableServiceLinks": false});
    world.pod("unlinked", 0, json!({}), spec).await;
    proves_itself(&world, "restricted").await;
    approve(&world).await;
    vnode.says("the serving certificate is kept").await;
    vnode.kill();
    let vnode = world.vnode("restricted", NODES, &line);
    proves_itself(&world, "restarted").await;
    vnode.says("serving with the certificate that is kept").await;
    assert_eq!(requests(&world).await, 1, "one approval is enough");
    world.delete::<Pod>("proof-restricted-0").await;
    world.gone::<Pod>("proof-restricted-0").await;
    let log = std::fs::read_to_string(&vnode.log).expect("it logs");
    for word in ["forbidden", "Forbidden", "cannot see"] {
        assert!(!log.contains(word), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_writes_on_a_node_is_put_right() {
    let world = World::start().await;
    let _vnode = settled(&world).await;
    let (nodes, how) = (world.api::<Node>(), PatchParams::default());
    let unknown = json!({"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
    ]}});
    let patch = Patch::Strategic(unknown);
    nodes
        .patch_status("vnode-0", &how, &patch)
        .await
        .expect("the node is there");
    world.nodes_are_ready(NODES).await;
    let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": "other", "mine": "stays"}}});
    let patch = Patch::Strategic(label);
    nodes
        .patch("vnode-0", &how, &patch)
        .await
        .expect("the node is there");
    let right = |node: &Node| {
        let labels = node.metadata.labels.as_ref();
        labels
            .is_some_and(|labels| labels["kubernetes.io/hostname"] == "vnode-0" && labels["mine"] == "stays")
    };
    world.until("vnode-0", "has its label again", right).await;
}
