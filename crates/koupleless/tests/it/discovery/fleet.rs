//! With virtual nodes behind it.

use super::*;
use evenkeel_koupleless::discovery::heartbeat::Auth;
use evenkeel_vnode::{Fleet as VirtualNodes, Options};
use evenkeel_vnode_simulated::{Settings as Simulation, Simulated};
use k8s_openapi::api::coordination::v1::Lease;

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_speaks_has_a_node_with_a_lease_and_one_that_does_not_has_none() {
    let (_api, client) = api().await;
    let provider = Arc::new(Simulated::new(Simulation::default()));
    let options = Options::new("test", &*provider, vec!["127.0.0.1".parse().unwrap()]);
    let stop = CancellationToken::new();
    let nodes = VirtualNodes::start(client.clone(), provider, options, stop.clone());
    let settings = Settings {
        silent: Duration::from_secs(3),
        gone: Duration::from_secs(6),
        ..Settings::default()
    };
    let sources = Sources {
        heartbeats: Some(listener(Auth::default()).await),
        ..Sources::default()
    };
    let setup = Setup {
        settings,
        serves: true,
        sources,
    };
    let replica = Replica::before(&client, Arc::new(nodes.clone()), Arc::default(), setup);
    assert_eq!(replica.beat(&heartbeat("a", 1238)).await.0, 200);
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let beating = async {
        loop {
            replica.beat(&heartbeat("a", 1238)).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let there = async {
        node(&client, "vnode.a.dev", ready).await;
        eventually("it has a Lease", DEADLINE, async || {
            leases.get_opt("vnode.a.dev").await.unwrap()
        })
        .await;
    };
    tokio::select! {
        () = there => {}
        () = beating => {}
    }
    let all: Api<Node> = Api::all(client.clone());
    until("Node and Lease are gone", async || {
        let node = all.get_opt("vnode.a.dev").await.unwrap();
        let lease = leases.get_opt("vnode.a.dev").await.unwrap();
        node.is_none() && lease.is_none()
    })
    .await;
    assert_eq!(nodes.served(), 0);
    nodes.shutdown();
    let stopped = tokio::time::timeout(DEADLINE, nodes.stopped()).await;
    assert!(stopped.is_ok(), "the fleet does not end");
}

/// With the times that are the default: what is awaited here does not hang on a silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_says_that_it_ends_has_no_node_soon_and_has_one_when_it_is_back() {
    let (_api, client) = api().await;
    let provider = Arc::new(Simulated::new(Simulation::default()));
    let options = Options::new("test", &*provider, vec!["127.0.0.1".parse().unwrap()]);
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let nodes = VirtualNodes::start(client.clone(), provider, options, stop);
    let sources = Sources {
        heartbeats: Some(listener(Auth::default()).await),
        ..Sources::default()
    };
    let setup = Setup {
        serves: true,
        sources,
        ..Setup::default()
    };
    let replica = Replica::before(&client, Arc::new(nodes), Arc::default(), setup);
    let all: Api<Node> = Api::all(client.clone());
    for _ in 0..2 {
        assert_eq!(replica.beat(&heartbeat("a", 1238)).await.0, 200);
        node(&client, "vnode.a.dev", |_| true).await;
        until("the node is ours", async || {
            replica.discovery.judges("vnode.a.dev")
        })
        .await;
        let ends = heartbeat("a", 1238).replace("activated", "deactivated");
        assert_eq!(replica.beat(&ends).await.0, 200);
        replica.discovery.pods("vnode.a.dev", 0);
        until("the node is gone", async || {
            all.get_opt("vnode.a.dev").await.unwrap().is_none()
        })
        .await;
    }
}
