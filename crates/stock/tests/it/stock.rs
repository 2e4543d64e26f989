//! The stand-in for the stock controllers against the embedded API server, with shortened timers.

use clap::Parser;
use evenkeel_net::admin::Admin;
use evenkeel_stock::{NodeLifecycleArgs, process};
use evenkeel_testkit::objects::{condition, is_leaving, taints};
use evenkeel_testkit::{Cluster, Options, ends, until};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

const STAND_IN: &str = "stand-in";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: NodeLifecycleArgs,
}

struct Stock {
    cluster: Cluster,
    silent: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
    control: JoinHandle<()>,
    _ends: DropGuard,
}

/// What the stand-in may do, and nothing else.
fn rights() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]},
    ])
}

impl Stock {
    /// Nodes that renew their Leases, and the stand-in with a grace of 2 s and tolerations of 1 s.
    async fn start(nodes: &[&str]) -> Self {
        let cluster = Cluster::with(Options {
            default_unreachable_toleration_seconds: 1,
            ..Options::default()
        });
        cluster.grant(STAND_IN, rights()).await;
        for name in nodes {
            register(&cluster, name).await;
        }
        let stop = CancellationToken::new();
        let silent = Arc::new(Mutex::new(BTreeSet::new()));
        let names: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
        tokio::spawn(kubelets(
            cluster.clone(),
            names,
            Arc::clone(&silent),
            stop.clone(),
        ));
        let args = [
            "node-lifecycle",
            "--node-monitor-period",
            "100ms",
            "--node-monitor-grace-period",
            "2s",
            "--node-startup-grace-period",
            "2s",
            "--node-eviction-rate",
            "10",
        ];
        let args = Command::try_parse_from(args).unwrap().args;
        let (as_stand_in, until) = (
            cluster.server().client_as(STAND_IN, &["system:authenticated"]),
            stop.clone(),
        );
        let control = tokio::spawn(async move {
            process::control(as_stand_in, &args, &Admin::new("test"), until).await;
        });
        Self {
            cluster,
            silent,
            _ends: stop.clone().drop_guard(),
            stop,
            control,
        }
    }

    fn silence(&self, node: &str) {
        self.silent.lock().unwrap().insert(node.to_owned());
    }

    async fn node(&self, name: &str) -> Node {
        self.cluster.get(name).await
    }

    /// A running, ready pod on a node, with tolerations of its own.
    async fn pod(&self, name: &str, node: &str, tolerations: Value) {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]},
        });
        self.cluster.create::<Pod>(pod).await;
        self.cluster.pod_runs(name).await;
    }

    /// `reason object` of every Event.
    async fn events(&self) -> BTreeSet<String> {
        let events: Api<Event> = Api::all(self.cluster.client.clone());
        let list = events.list(&ListParams::default()).await.unwrap();
        let name = |event: &Event| event.involved_object.name.clone().unwrap_or_default();
        list.items
            .iter()
            .map(|event| format!("{} {}", event.reason.clone().unwrap_or_default(), name(event)))
            .collect()
    }
}

async fn register(cluster: &Cluster, name: &str) {
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}});
    cluster.create::<Node>(node).await;
    report(cluster, name).await;
    cluster.namespaced("kube-node-lease").renew(name, name).await;
}

/// A kubelet posts its status.
async fn report(cluster: &Cluster, name: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure"];
    let mut conditions: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"type": kind, "status": "False", "lastHeartbeatTime": now}))
        .collect();
    conditions
        .push(json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}));
    cluster
        .merge_status::<Node>(name, json!({"conditions": conditions}))
        .await;
}

/// Kubelets renew their Leases every 200 ms while they are not silent.
async fn kubelets(
    cluster: Cluster,
    nodes: Vec<String>,
    silent: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
) {
    let leases = cluster.namespaced("kube-node-lease");
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    while !stop.is_cancelled() {
        ticks.tick().await;
        for node in &nodes {
            if !silent.lock().unwrap().contains(node) {
                leases.renew(node, node).await;
            }
        }
    }
}

/// Effects of the `unreachable` taints of a node.
fn unreachable(node: &Node) -> BTreeSet<&str> {
    let of_key = |(key, effect)| (key == UNREACHABLE).then_some(effect);
    taints(node).into_iter().filter_map(of_key).collect()
}

#[tokio::test]
async fn a_silent_node_is_marked_tainted_and_emptied_as_in_kubernetes() {
    let stock = Stock::start(&["a", "b"]).await;
    stock.pod("web", "b", json!([])).await;
    let tolerant = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    stock.pod("daemon", "b", tolerant).await;
    stock.pod("elsewhere", "a", json!([])).await;
    until("both nodes are registered", async || {
        let events = stock.events().await;
        ["RegisteredNode a", "RegisteredNode b"]
            .iter()
            .all(|event| events.contains(*event))
    })
    .await;
    let labelled = |node: &Node| {
        node.labels()
            .get("beta.kubernetes.io/os")
            .is_some_and(|os| os == "linux")
    };
    stock.cluster.until("b", "has the beta label", labelled).await;

    stock.silence("b");
    let unknown = |node: &Node| condition(node, "Ready").0 == "Unknown";
    let node = stock.cluster.until("b", "is Unknown", unknown).await;
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, kind), ("Unknown", "NodeStatusUnknown"), "{kind}");
    }
    until("all pods of b are not ready, the tolerant one too", async || {
        let (web, daemon) = (
            stock.cluster.find::<Pod>("web").await,
            stock.cluster.get("daemon").await,
        );
        // The evicted one may be gone already.
        let mut pods = web.into_iter().chain([daemon]);
        pods.all(|pod: Pod| condition(&pod, "Ready").0 == "False")
    })
    .await;
    let both = |node: &Node| unreachable(node) == BTreeSet::from(["NoSchedule", "NoExecute"]);
    stock.cluster.until("b", "carries both taints", both).await;
    until("web is deleted", async || {
        let Some(pod) = stock.cluster.find::<Pod>("web").await else {
            return true;
        };
        if is_leaving(&pod) {
            let target = condition(&pod, "DisruptionTarget");
            assert_eq!(target, ("True", "DeletionByTaintManager"));
        }
        is_leaving(&pod)
    })
    .await;
    assert!(!is_leaving(&stock.cluster.get("daemon").await));
    assert_eq!(
        condition(&stock.cluster.get::<Pod>("elsewhere").await, "Ready").0,
        "True"
    );
    assert!(unreachable(&stock.node("a").await).is_empty());
    let events = stock.events().await;
    for event in [
        "NodeNotReady b",
        "NodeNotReady daemon",
        "TaintManagerEviction web",
    ] {
        assert!(events.contains(event), "{event} is not among {events:?}");
    }

    stock.silent.lock().unwrap().clear();
    report(&stock.cluster, "b").await;
    stock
        .cluster
        .until("b", "is clean again", |node| unreachable(node).is_empty())
        .await;
}

#[tokio::test]
async fn when_every_node_is_silent_nobody_is_tainted_for_eviction() {
    let stock = Stock::start(&["a", "b"]).await;
    stock.pod("web", "b", json!([])).await;
    // Seen healthy first: what counts is the transition.
    until("both nodes are registered", async || {
        let events = stock.events().await;
        events.contains("RegisteredNode a") && events.contains("RegisteredNode b")
    })
    .await;
    stock.silence("a");
    stock.silence("b");
    for name in ["a", "b"] {
        let closed =
            |node: &Node| condition(node, "Ready").0 == "Unknown" && unreachable(node).contains("NoSchedule");
        stock
            .cluster
            .until(name, "is Unknown and takes no new pods", closed)
            .await;
    }
    until("neither is tainted NoExecute", async || {
        let (a, b) = (stock.node("a").await, stock.node("b").await);
        !unreachable(&a).contains("NoExecute") && !unreachable(&b).contains("NoExecute")
    })
    .await;
    // A third that is healthy ends the full disruption, and taints come.
    register(&stock.cluster, "c").await;
    until("a and b are tainted", async || {
        report(&stock.cluster, "c").await;
        let (a, b) = (stock.node("a").await, stock.node("b").await);
        unreachable(&a).contains("NoExecute") && unreachable(&b).contains("NoExecute")
    })
    .await;
}

#[tokio::test]
async fn it_stops_when_it_is_told_to() {
    let stock = Stock::start(&["a"]).await;
    until("the node is registered", async || {
        stock.events().await.contains("RegisteredNode a")
    })
    .await;
    stock.stop.cancel();
    ends("the stand-in", stock.control).await.unwrap();
}

#[tokio::test]
async fn what_cannot_work_ends_at_once_and_says_what_to_change() {
    let run = |flags: &'static [&'static str]| async move {
        let flags = ["node-lifecycle"].iter().chain(flags);
        let args = Command::try_parse_from(flags).unwrap().args;
        tokio::spawn(process::run(args, CancellationToken::new()))
            .await
            .unwrap()
            .unwrap_err()
    };
    let usage = run(&["--node-eviction-rate", "inf"]).await;
    assert!(
        usage.is_config() && usage.to_string().contains("--node-eviction-rate"),
        "{usage}"
    );
    let missing = run(&["--kubeconfig", "/nonexistent/kubeconfig"]).await;
    assert!(
        missing.is_config() && missing.to_string().contains("/nonexistent/kubeconfig"),
        "{missing}"
    );
}
