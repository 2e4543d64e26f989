//! The stand-in for the stock controllers against the embedded API server, with shortened timers.

use clap::Parser;
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_net::admin::Admin;
use evenkeel_stock::{NodeLifecycleArgs, process};
use evenkeel_testkit::eventually;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

const SOON: Duration = Duration::from_secs(20);
const STAND_IN: &str = "stand-in";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: NodeLifecycleArgs,
}

struct Stock {
    client: Client,
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
        evenkeel_net::init_crypto();
        let options = Options {
            default_unreachable_toleration_seconds: 1,
            ..Options::default()
        };
        let server = ApiServer::new(options).unwrap();
        let client = server.client();
        let role: ClusterRole = read(json!({"metadata": {"name": STAND_IN}, "rules": rights()}));
        Api::<ClusterRole>::all(client.clone())
            .create(&PostParams::default(), &role)
            .await
            .unwrap();
        let binding: ClusterRoleBinding = read(json!({
            "metadata": {"name": STAND_IN},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": STAND_IN},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": STAND_IN}],
        }));
        Api::<ClusterRoleBinding>::all(client.clone())
            .create(&PostParams::default(), &binding)
            .await
            .unwrap();
        for name in nodes {
            register(&client, name).await;
        }
        let stop = CancellationToken::new();
        let silent = Arc::new(Mutex::new(BTreeSet::new()));
        let names: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
        tokio::spawn(kubelets(client.clone(), names, Arc::clone(&silent), stop.clone()));
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
            server.client_as(STAND_IN, &["system:authenticated"]),
            stop.clone(),
        );
        let control = tokio::spawn(async move {
            process::control(as_stand_in, &args, &Admin::new("test"), until).await;
        });
        Self {
            client,
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
        Api::<Node>::all(self.client.clone()).get(name).await.unwrap()
    }

    /// A running, ready pod on a node, with tolerations of its own.
    async fn pod(&self, name: &str, node: &str, tolerations: Value) {
        let pods = self.pods();
        let pod: Pod = read(json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]},
        }));
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let status = json!({"status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"},
        ]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// `reason object` of every Event.
    async fn events(&self) -> BTreeSet<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let list = events.list(&ListParams::default()).await.unwrap();
        let name = |event: &Event| event.involved_object.name.clone().unwrap_or_default();
        list.items
            .iter()
            .map(|event| format!("{} {}", event.reason.clone().unwrap_or_default(), name(event)))
            .collect()
    }
}

async fn register(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = read(json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}}));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    report(client, name).await;
    let lease: Lease = read(json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}}));
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    leases.create(&PostParams::default(), &lease).await.unwrap();
}

/// A kubelet posts its status.
async fn report(client: &Client, name: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure"];
    let mut conditions: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"type": kind, "status": "False", "lastHeartbeatTime": now}))
        .collect();
    conditions
        .push(json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Kubelets renew their Leases every 200 ms while they are not silent.
async fn kubelets(
    client: Client,
    nodes: Vec<String>,
    silent: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
) {
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    while !stop.is_cancelled() {
        ticks.tick().await;
        for node in &nodes {
            if silent.lock().unwrap().contains(node) {
                continue;
            }
            let renewed = json!({"spec": {"renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()}});
            leases
                .patch(node, &PatchParams::default(), &Patch::Merge(renewed))
                .await
                .unwrap();
        }
    }
}

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// Status and reason of a node's condition.
fn condition(node: &Node, kind: &str) -> (String, String) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == kind)
        .unwrap();
    (
        condition.status.clone(),
        condition.reason.clone().unwrap_or_default(),
    )
}

/// Effects of the `unreachable` taints of a node.
fn unreachable(node: &Node) -> BTreeSet<String> {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    taints
        .into_iter()
        .filter(|taint| taint.key == UNREACHABLE)
        .map(|taint| taint.effect)
        .collect()
}

fn pod_condition(pod: &Pod, kind: &str) -> Option<(String, Option<String>)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((condition.status.clone(), condition.reason.clone()))
}

#[tokio::test]
async fn a_silent_node_is_marked_tainted_and_emptied_as_in_kubernetes() {
    let stock = Stock::start(&["a", "b"]).await;
    stock.pod("web", "b", json!([])).await;
    stock
        .pod(
            "daemon",
            "b",
            json!([{"operator": "Exists", "effect": "NoExecute"}]),
        )
        .await;
    stock.pod("elsewhere", "a", json!([])).await;
    eventually("both nodes are registered", SOON, || async {
        let events = stock.events().await;
        ["RegisteredNode a", "RegisteredNode b"]
            .iter()
            .all(|event| events.contains(*event))
            .then_some(())
    })
    .await;
    eventually("the beta label follows", SOON, || async {
        (stock.node("b").await.labels().get("beta.kubernetes.io/os")? == "linux").then_some(())
    })
    .await;

    stock.silence("b");
    let node = eventually("b is Unknown", SOON, || async {
        let node = stock.node("b").await;
        (condition(&node, "Ready").0 == "Unknown").then_some(node)
    })
    .await;
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(
            condition(&node, kind),
            ("Unknown".to_owned(), "NodeStatusUnknown".to_owned()),
            "{kind}"
        );
    }
    eventually(
        "all pods of b are not ready, the tolerant one too",
        SOON,
        || async {
            for name in ["web", "daemon"] {
                // The evicted one may be gone already.
                let Some(pod) = stock.pods().get_opt(name).await.unwrap() else {
                    continue;
                };
                if pod_condition(&pod, "Ready")?.0 != "False" {
                    return None;
                }
            }
            Some(())
        },
    )
    .await;
    eventually("b carries both taints", SOON, || async {
        let taints = unreachable(&stock.node("b").await);
        (taints == BTreeSet::from(["NoSchedule".to_owned(), "NoExecute".to_owned()])).then_some(())
    })
    .await;
    eventually("web is deleted", SOON, || async {
        match stock.pods().get_opt("web").await.unwrap() {
            None => Some(()),
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => {
                let target = pod_condition(&pod, "DisruptionTarget").unwrap();
                assert_eq!(
                    target,
                    ("True".to_owned(), Some("DeletionByTaintManager".to_owned()))
                );
                Some(())
            }
            Some(_) => None,
        }
    })
    .await;
    let daemon = stock.pods().get("daemon").await.unwrap();
    assert_eq!(daemon.metadata.deletion_timestamp, None);
    let elsewhere = stock.pods().get("elsewhere").await.unwrap();
    assert_eq!(pod_condition(&elsewhere, "Ready").unwrap().0, "True");
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
    report(&stock.client, "b").await;
    eventually("b is clean again", SOON, || async {
        unreachable(&stock.node("b").await).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn when_every_node_is_silent_nobody_is_tainted_for_eviction() {
    let stock = Stock::start(&["a", "b"]).await;
    stock.pod("web", "b", json!([])).await;
    // Seen healthy first: what counts is the transition.
    eventually("both nodes are registered", SOON, || async {
        let events = stock.events().await;
        (events.contains("RegisteredNode a") && events.contains("RegisteredNode b")).then_some(())
    })
    .await;
    stock.silence("a");
    stock.silence("b");
    eventually("both are Unknown and take no new pods", SOON, || async {
        for name in ["a", "b"] {
            let node = stock.node(name).await;
            if condition(&node, "Ready").0 != "Unknown" || !unreachable(&node).contains("NoSchedule") {
                return None;
            }
        }
        Some(())
    })
    .await;
    eventually("neither is tainted NoExecute", SOON, || async {
        let (a, b) = (stock.node("a").await, stock.node("b").await);
        (!unreachable(&a).contains("NoExecute") && !unreachable(&b).contains("NoExecute")).then_some(())
    })
    .await;
    // A third that is healthy ends the full disruption, and taints come.
    register(&stock.client, "c").await;
    eventually("a and b are tainted", SOON, || async {
        report(&stock.client, "c").await;
        let (a, b) = (stock.node("a").await, stock.node("b").await);
        (unreachable(&a).contains("NoExecute") && unreachable(&b).contains("NoExecute")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn it_stops_when_it_is_told_to() {
    let stock = Stock::start(&["a"]).await;
    eventually("the node is registered", SOON, || async {
        stock.events().await.contains("RegisteredNode a").then_some(())
    })
    .await;
    stock.stop.cancel();
    tokio::time::timeout(SOON, stock.control).await.unwrap().unwrap();
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
