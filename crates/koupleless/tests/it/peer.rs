//! Peer Deployments and baselines against an API server.

use evenkeel_election::Config;
use evenkeel_koupleless::baseline::{AnswerError, Baseline, Deployments, Publisher, answer};
use evenkeel_koupleless::core::baseline::BaselineEntry;
use evenkeel_koupleless::core::profile::KOUPLELESS;
use evenkeel_koupleless::core::{Base, Connection, Endpoint, Identity};
use evenkeel_koupleless::peer::{self, Options};
use evenkeel_testkit::{Cluster as Words, until};
use futures::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

struct Cluster(Words);

impl Cluster {
    async fn new() -> Self {
        let words = Words::new();
        let namespace = json!({"metadata": {"name": "evenkeel"}});
        words.create::<Namespace>(namespace).await;
        Self(words)
    }

    fn keep_peers(&self, identity: &str, grace: Duration) -> DropGuard {
        let stop = CancellationToken::new();
        let options = Options {
            env: "dev".to_owned(),
            grace,
            namespace: "evenkeel".to_owned(),
            election: Config::new(identity),
        };
        tokio::spawn(peer::run(
            self.0.client.clone(),
            self.0.client.clone(),
            options,
            stop.clone(),
        ));
        stop.drop_guard()
    }

    async fn node(&self, name: &str, env: &str) {
        let node = json!({"metadata": {"name": name, "labels": {
            "virtual-kubelet.koupleless.io/component": "vnode",
            "virtual-kubelet.koupleless.io/env": env,
            "base.koupleless.io/cluster-name": "c",
        }}});
        self.0.create::<Node>(node).await;
        self.0.node_becomes(name, "True").await;
    }

    async fn deployment(&self, name: &str, labels: Value, replicas: i32) {
        let mut all = json!({
            "virtual-kubelet.koupleless.io/component": "module-deployment",
            "virtual-kubelet.koupleless.io/env": "dev",
            "virtual-kubelet.koupleless.io/strategy": "peer",
            "base.koupleless.io/cluster-name": "c",
        });
        for (key, value) in labels.as_object().unwrap() {
            all[key] = value.clone();
        }
        let container = json!({
            "name": name, "image": format!("http://jars/{name}.jar"),
            "env": [{"name": "BIZ_VERSION", "value": "1"}],
        });
        let deployment = json!({
            "metadata": {"name": name, "labels": all},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}},
        });
        self.0.create::<Deployment>(deployment).await;
    }

    async fn pod(&self, name: &str, app: &str, node: &str) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": node, "containers": [{"name": "m", "image": "http://jars/m.jar"}]},
        });
        self.0.create::<Pod>(pod).await;
    }

    async fn replicas_become(&self, name: &str, replicas: i32) {
        let what = format!("has {replicas} replicas");
        let so = |deployment: &Deployment| {
            deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(replicas)
        };
        self.0.until(name, &what, so).await;
    }

    async fn cost(&self, pod: &str) -> Option<String> {
        let pod: Pod = self.0.get(pod).await;
        pod.annotations()
            .get("controller.kubernetes.io/pod-deletion-cost")
            .cloned()
    }
}

#[tokio::test]
async fn replicas_follow_bases_and_the_pods_of_lost_bases_go_first() {
    let cluster = Cluster::new().await;
    for node in ["a", "b", "d"] {
        cluster.node(node, "dev").await;
    }
    cluster.node("e", "prod").await;
    cluster.deployment("m", json!({}), 1).await;
    let opted_out = json!({"virtual-kubelet.koupleless.io/replicas-control": "true"});
    cluster.deployment("own", opted_out, 7).await;
    cluster
        .deployment("other", json!({"virtual-kubelet.koupleless.io/env": "prod"}), 7)
        .await;
    cluster.pod("m-a", "m", "a").await;
    cluster.pod("m-b", "m", "b").await;
    let _keeper = cluster.keep_peers("x", Duration::ZERO);
    cluster.replicas_become("m", 3).await;
    cluster.0.node_becomes("b", "Unknown").await;
    cluster.replicas_become("m", 2).await;
    // Set before the replicas were.
    assert_eq!(cluster.cost("m-b").await.as_deref(), Some("-2147483647"));
    assert_eq!(cluster.cost("m-a").await, None);
    cluster.0.node_becomes("b", "True").await;
    cluster.replicas_become("m", 3).await;
    assert_eq!(cluster.cost("m-b").await, None);
    for name in ["own", "other"] {
        let deployment = cluster.0.get::<Deployment>(name).await;
        assert_eq!(deployment.spec.unwrap().replicas, Some(7));
    }
}

#[tokio::test]
async fn replicas_come_and_go_with_bases_from_none_to_none() {
    let cluster = Cluster::new().await;
    cluster.deployment("m", json!({}), 5).await;
    let _keeper = cluster.keep_peers("x", Duration::ZERO);
    cluster.replicas_become("m", 0).await;
    cluster.node("a", "dev").await;
    cluster.replicas_become("m", 1).await;
    cluster.node("b", "dev").await;
    cluster.replicas_become("m", 2).await;
    for (gone, left) in [("a", 1), ("b", 0)] {
        cluster.0.delete::<Node>(gone).await;
        cluster.replicas_become("m", left).await;
    }
}

#[tokio::test]
async fn a_short_silence_changes_nothing_and_a_longer_one_does_without_any_event() {
    let cluster = Cluster::new().await;
    cluster.node("a", "dev").await;
    cluster.node("b", "dev").await;
    cluster.deployment("m", json!({}), 0).await;
    let _keeper = cluster.keep_peers("x", Duration::from_secs(3));
    cluster.replicas_become("m", 2).await;
    cluster.0.node_becomes("b", "Unknown").await;
    // One that comes meanwhile shows that the other still counts.
    cluster.node("d", "dev").await;
    cluster.replicas_become("m", 3).await;
    cluster.replicas_become("m", 2).await;
}

#[tokio::test]
async fn another_replica_goes_on_when_the_leader_ends() {
    let cluster = Cluster::new().await;
    cluster.node("a", "dev").await;
    cluster.deployment("m", json!({}), 0).await;
    let first = cluster.keep_peers("x", Duration::ZERO);
    cluster.replicas_become("m", 1).await;
    let _second = cluster.keep_peers("y", Duration::ZERO);
    drop(first);
    cluster.node("b", "dev").await;
    cluster.replicas_become("m", 2).await;
}

fn base(by: Connection) -> Base {
    Base {
        identity: Identity::new("192.0.2.2").unwrap(),
        name: None,
        version: None,
        cluster: Some("c".to_owned()),
        host_name: None,
        endpoint: Endpoint {
            address: "192.0.2.2".parse().unwrap(),
            by,
        },
        pod: None,
    }
}

/// Takes what is published, after as many failures.
#[derive(Default)]
struct Broker {
    fails: AtomicUsize,
    published: Mutex<Vec<(Identity, Vec<BaselineEntry>)>>,
}

impl Publisher for Broker {
    fn publish<'a>(
        &'a self,
        identity: &'a Identity,
        baseline: &'a [BaselineEntry],
    ) -> BoxFuture<'a, Result<(), String>> {
        let fails = self
            .fails
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fails.is_ok() {
            return async { Err("no broker".to_owned()) }.boxed();
        }
        self.published
            .lock()
            .unwrap()
            .push((identity.clone(), baseline.to_vec()));
        async { Ok(()) }.boxed()
    }
}

#[tokio::test]
async fn a_base_on_mqtt_is_told_of_its_clusters_modules() {
    let cluster = Cluster::new().await;
    cluster.deployment("m", json!({}), 0).await;
    cluster
        .deployment("elsewhere", json!({"base.koupleless.io/cluster-name": "d"}), 1)
        .await;
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let known = Deployments::watch(cluster.0.client.clone(), "dev", &KOUPLELESS, stop);
    let broker = Broker::default();
    broker.fails.store(1, Ordering::SeqCst);
    let told = answer(&*known, &broker, &base(Connection::Mqtt)).await.unwrap();
    assert_eq!(told, 1);
    let published = broker.published.lock().unwrap().clone();
    assert_eq!(
        serde_json::to_value(&published[0].1).unwrap(),
        json!([{"bizName": "m", "bizVersion": "1", "bizUrl": "http://jars/m.jar"}])
    );
    assert_eq!(
        answer(&*known, &broker, &base(Connection::Http(1238)))
            .await
            .unwrap(),
        0
    );
    cluster.0.delete::<Deployment>("m").await;
    until("the baseline to be empty", async || {
        known.of(Some("c")).is_empty()
    })
    .await;
}

struct Silent;

impl Baseline for Silent {
    fn of(&self, _cluster: Option<&str>) -> Vec<BaselineEntry> {
        Vec::new()
    }

    fn listed(&self) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_list_of_deployments_nothing_is_sent() {
    let broker = Broker::default();
    let answered = answer(&Silent, &broker, &base(Connection::Mqtt)).await;
    assert!(matches!(answered, Err(AnswerError::NotListed)), "{answered:?}");
}
