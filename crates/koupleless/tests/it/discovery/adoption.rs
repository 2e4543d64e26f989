//! What earlier processes left, and several replicas.

use super::*;
use evenkeel_koupleless::core::registry::Life;
use evenkeel_koupleless::core::{Connection, Endpoint};
use evenkeel_koupleless::discovery::nodes;
use evenkeel_testkit::cluster::Objects as _;
use serde_json::json;

fn base(identity: &str) -> Base {
    Base {
        identity: Identity::new(identity).unwrap(),
        name: Some("web".to_owned()),
        version: Some("2".to_owned()),
        cluster: None,
        host_name: None,
        endpoint: Endpoint {
            address: "192.0.2.2".parse().unwrap(),
            by: Connection::Http(1300),
        },
        pod: None,
    }
}

async fn leave(client: &Client, name: &str, annotations: serde_json::Value, env: &str) {
    let node = json!({
        "metadata": {
            "name": name,
            "annotations": annotations,
            "labels": {
                "virtual-kubelet.koupleless.io/component": "vnode",
                "virtual-kubelet.koupleless.io/env": env,
                "base.koupleless.io/tunnel-port": "1239",
            },
        },
    });
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(node).unwrap();
    nodes.add(&node).await;
}

/// Seconds where others have ten.
fn fast() -> Settings {
    Settings {
        silent: Duration::from_secs(2),
        gone: Duration::from_secs(4),
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_earlier_processes_are_adopted_and_judged_from_then_on() {
    let (_api, client) = api().await;
    let (key, value) = nodes::annotation(&base("shop"));
    leave(&client, "some-node", json!({key: value}), "dev").await;
    leave(&client, "vnode.192.0.2.3.dev", json!({}), "dev").await;
    leave(&client, "vnode.192.0.2.4.prod", json!({}), "prod").await;
    let setup = Setup {
        settings: fast(),
        serves: true,
        ..Setup::default()
    };
    let mut replica = Replica::start(&client, setup);
    for _ in 0..2 {
        assert_eq!(replica.next().await.change, Change::Online);
    }
    assert_eq!(replica.fleet.wanted(), ["some-node", "vnode.192.0.2.3.dev"]);
    assert_eq!(*replica.base("shop").unwrap(), base("shop"));
    assert_eq!(replica.base("192.0.2.3").unwrap().port(), Some(1239));
    assert_eq!(replica.discovery.life("some-node"), Some(Life::Alive));
    // Neither ever speaks.
    let mut changes = Vec::new();
    for _ in 0..6 {
        changes.push(replica.next_change().await);
    }
    let count = |wanted: fn(&Change) -> bool| changes.iter().filter(|change| wanted(change)).count();
    assert_eq!(count(|change| *change == Change::Silent), 2);
    assert_eq!(count(|change| matches!(change, Change::Lost(_))), 2);
    assert_eq!(count(|change| matches!(change, Change::Gone(_))), 2);
    let mut removed = replica.fleet.removed();
    removed.sort();
    assert_eq!(
        removed,
        [
            ("some-node".to_owned(), true),
            ("vnode.192.0.2.3.dev".to_owned(), true)
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_heard_of_by_one_replica_is_served_by_another() {
    let (_api, client) = api().await;
    let hearer = Replica::open(&client, Settings::default(), false).await;
    let mut server = Replica::start(
        &client,
        Setup {
            serves: true,
            ..Setup::default()
        },
    );
    hearer.beat(&heartbeat("a", 1238)).await;
    let event = server.next().await;
    assert_eq!((&*event.node, event.change), ("vnode.a.dev", Change::Online));
    assert_eq!(server.base("a"), hearer.base("a"));

    hearer.beat(&heartbeat("a", 1240)).await;
    eventually("the new port is known", DEADLINE, async || {
        (server.base("a")?.port() == Some(1240)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_our_own_bases_is_recorded_in_their_nodes() {
    let (_api, client) = api().await;
    let (key, value) = nodes::annotation(&base("a"));
    leave(&client, "vnode.a.dev", json!({key: value}), "dev").await;
    // What it says is written down later than it is said, and must not be forgotten before.
    let settings = Settings {
        gone: Duration::from_secs(600),
        ..fast()
    };
    let mut replica = Replica::open(&client, settings, true).await;
    assert_eq!(replica.next().await.change, Change::Online);
    // It speaks from elsewhere once it has been silent.
    assert_eq!(replica.next_change().await, Change::Silent);
    assert_eq!(replica.beat(&heartbeat("a", 1238)).await.0, 200);
    assert_eq!(replica.next_change().await, Change::Back);
    node(&client, "vnode.a.dev", |node| {
        let recorded = nodes::record(node, "dev", false).unwrap();
        recorded.endpoint.address.is_loopback() && recorded.port() == Some(1238)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_others_have_removed_is_forgotten() {
    let (_api, client) = api().await;
    leave(&client, "vnode.192.0.2.3.dev", json!({}), "dev").await;
    let mut replica = Replica::start(&client, Setup::default());
    assert_eq!(replica.next().await.change, Change::Online);
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.remove("vnode.192.0.2.3.dev").await;
    assert_eq!(replica.next().await.change, Change::Left);
    assert_eq!(
        replica.fleet.removed(),
        [("vnode.192.0.2.3.dev".to_owned(), false)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_subscribes_late_is_told_what_is_known() {
    let (_api, client) = api().await;
    let mut replica = Replica::open(&client, Settings::default(), true).await;
    replica.beat(&heartbeat("a", 1238)).await;
    replica.next().await;
    let mut late = replica.discovery.subscribe();
    let event = late.recv().await.unwrap();
    assert_eq!((&*event.node, event.change), ("vnode.a.dev", Change::Online));
}
