//! Healings against an API server: taints, pods, disruption budgets, and the budget that replicas share.

use evenkeel_api::names::koupleless::healing::{CONFIG_MAP, ENTRIES, TAINT};
use evenkeel_api::names::koupleless::{COMPONENT_LABEL, MODULE};
use evenkeel_election::{FencingToken, Gate};
use evenkeel_koupleless::core::PodRef;
use evenkeel_koupleless::core::heal::{Note, Reading, Scene, Settings};
use evenkeel_koupleless::heal::{Healer, Healing, Modules, Observer, Options};
use evenkeel_testkit::objects::{is_leaving, taints};
use evenkeel_testkit::{Cluster as Words, until};
use evenkeel_vnode::ownership::{self, Term};
use futures::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

const NAMESPACE: &str = "default";

#[derive(Default)]
struct Cluster(Words);

/// One replica that heals.
struct Replica {
    healer: Healer,
    notes: Arc<Notes>,
    _ends: DropGuard,
}

#[derive(Default)]
struct Notes(Mutex<Vec<(String, Scene)>>);

impl Observer for Notes {
    fn notify(&self, node: &str, note: &Note) {
        self.0.lock().unwrap().push((node.to_owned(), note.scene));
    }
}

impl Notes {
    fn of(&self, node: &str) -> Vec<Scene> {
        let notes = self.0.lock().unwrap();
        notes
            .iter()
            .filter(|(of, _)| of == node)
            .map(|(_, scene)| *scene)
            .collect()
    }
}

/// Counts how often it was asked to uninstall.
#[derive(Default)]
struct Installed {
    asked: AtomicUsize,
}

impl Modules for Installed {
    fn uninstall(&self) -> BoxFuture<'static, Result<usize, String>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        async { Ok(0) }.boxed()
    }
}

impl Cluster {
    fn replica(&self, holder: &str) -> Replica {
        let stop = CancellationToken::new();
        let notes = Arc::new(Notes::default());
        let short = Duration::from_millis(50);
        let options = Options {
            settings: Settings {
                inspect: short,
                settle: short,
                back_off: (short, short),
                ..Settings::default()
            },
            limit: Default::default(),
            namespace: NAMESPACE.to_owned(),
            holder: holder.to_owned(),
            observer: Some(notes.clone()),
        };
        Replica {
            healer: Healer::new(self.0.client.clone(), options, stop.clone()),
            notes,
            _ends: stop.drop_guard(),
        }
    }

    async fn node(&self, name: &str) {
        let node = json!({
            "metadata": {"name": name, "labels": {"virtual-kubelet.koupleless.io/component": "vnode"}},
            "spec": {"taints": [{"key": "schedule.koupleless.io/virtual-node", "value": "True", "effect": "NoExecute"}]},
        });
        self.0.create::<Node>(node).await;
    }

    async fn pod(&self, name: &str, node: &str, labels: Value, tolerations: Value) -> PodRef {
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "base", "image": "base"}]},
        });
        let pod: Pod = self.0.create(pod).await;
        // A budget guards what runs and is ready.
        self.0.pod_runs(name).await;
        PodRef {
            namespace: NAMESPACE.into(),
            name: name.into(),
            uid: pod.metadata.uid.unwrap().into(),
            container: "base".into(),
        }
    }

    async fn taints(&self, node: &str) -> Vec<String> {
        let node = self.0.get(node).await;
        taints(&node).into_iter().map(|(key, _)| key.to_owned()).collect()
    }

    async fn is_tainted(&self, node: &str) -> bool {
        self.taints(node).await.iter().any(|key| key == TAINT.0)
    }

    async fn becomes(&self, node: &str, tainted: bool) {
        until(&format!("the taint of {node} to be {tainted}"), async || {
            self.is_tainted(node).await == tainted
        })
        .await;
    }

    /// Who has a permit in the budget.
    async fn permits(&self) -> Vec<String> {
        let Some(map) = self.0.find::<ConfigMap>(CONFIG_MAP).await else {
            return Vec::new();
        };
        let entries: Value = serde_json::from_str(&map.data.unwrap()[ENTRIES]).unwrap();
        entries.as_object().unwrap().keys().cloned().collect()
    }

    async fn permits_become(&self, permits: &[&str]) {
        until(&format!("permits to be {permits:?}"), async || {
            self.permits().await == permits
        })
        .await;
    }

    /// What the cluster's own controller does where a taint is set.
    async fn evict_for_taint(&self, pod: &str) {
        let params = DeleteParams::default().grace_period(0);
        self.0.api::<Pod>().delete(pod, &params).await.unwrap();
    }

    /// Sets how many disruptions a budget allows, which in a cluster its controller does.
    async fn allow(&self, budget: &str, disruptions: i32) {
        let status = json!({
            "observedGeneration": 1, "disruptionsAllowed": disruptions,
            "currentHealthy": 1, "desiredHealthy": 1 - disruptions, "expectedPods": 1,
        });
        self.0.merge_status::<PodDisruptionBudget>(budget, status).await;
    }
}

impl Replica {
    fn base(&self, cluster: &Cluster, node: &str, pod: Option<&PodRef>) -> (Healing, Arc<Installed>) {
        self.base_during(cluster, node, pod, Term::default())
    }

    fn base_during(
        &self,
        cluster: &Cluster,
        node: &str,
        pod: Option<&PodRef>,
        term: Term,
    ) -> (Healing, Arc<Installed>) {
        let installed = Arc::new(Installed::default());
        let bases = Some(cluster.0.client.clone());
        let healing = self.healer.base(node, bases, installed.clone(), term);
        healing.base(false, pod.cloned());
        (healing, installed)
    }

    async fn tells(&self, node: &str, scene: Scene) {
        until(&format!("{scene:?} of {node}"), async || {
            self.notes.of(node).contains(&scene)
        })
        .await;
    }
}

/// Three readings of a full metaspace.
fn fills(healing: &Healing) {
    reads(healing, 90);
}

fn reads(healing: &Healing, percent: u64) {
    for _ in 0..3 {
        healing.health(Some(Reading {
            used: Some(percent),
            committed: Some(percent),
            max: Some(100),
            uptime: None,
        }));
    }
}

#[tokio::test]
async fn an_overloaded_base_is_drained_and_replaced_when_its_disruption_budget_allows() {
    let cluster = Cluster::default();
    cluster.node("vnode.a").await;
    let everything = json!([{"operator": "Exists"}]);
    cluster
        .pod("daemon", "vnode.a", json!({COMPONENT_LABEL: MODULE}), everything)
        .await;
    cluster
        .pod("module", "vnode.a", json!({COMPONENT_LABEL: MODULE}), json!([]))
        .await;
    let base = cluster
        .pod("base", "worker", json!({"app": "base"}), json!([]))
        .await;

    let budget = json!({"metadata": {"name": "base"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "base"}}}});
    cluster.0.create::<PodDisruptionBudget>(budget).await;
    cluster.allow("base", 0).await;

    let replica = cluster.replica("x");
    let (healing, installed) = replica.base(&cluster, "vnode.a", Some(&base));
    fills(&healing);
    cluster.becomes("vnode.a", true).await;
    assert_eq!(cluster.permits().await, ["vnode.a"]);
    replica.tells("vnode.a", Scene::Begun).await;
    assert_eq!(installed.asked.load(Ordering::SeqCst), 0, "a pod is still there");
    cluster.evict_for_taint("module").await;
    replica.tells("vnode.a", Scene::Uninstalled).await;
    assert_eq!(installed.asked.load(Ordering::SeqCst), 1);
    fills(&healing);
    // Refused, and the pod is untouched.
    replica.tells("vnode.a", Scene::Held).await;
    assert!(!is_leaving(&cluster.0.get("base").await));
    cluster.allow("base", 1).await;
    replica.tells("vnode.a", Scene::Replacing).await;
    assert!(cluster.0.find("base").await.as_ref().is_none_or(is_leaving));
    assert!(cluster.is_tainted("vnode.a").await);
    healing.base(
        false,
        Some(PodRef {
            uid: "another".into(),
            ..base
        }),
    );
    cluster.becomes("vnode.a", false).await;
    cluster.permits_become(&[]).await;
    let others = cluster.taints("vnode.a").await;
    assert!(
        others.contains(&"schedule.koupleless.io/virtual-node".to_owned()),
        "{others:?}"
    );
    let told = replica.notes.of("vnode.a");
    assert_eq!(told.last(), Some(&Scene::Ended), "{told:?}");

    for reason in ["MetaspaceOverload", "HealingBegun", "HealingEnded"] {
        cluster.0.event("vnode.a", reason, "").await;
    }
}

#[tokio::test]
async fn a_base_whose_pod_was_replaced_meanwhile_is_not_evicted_again() {
    let cluster = Cluster::default();
    cluster.node("vnode.a").await;
    let base = cluster.pod("base", "worker", json!({}), json!([])).await;
    let replica = cluster.replica("x");
    let old = PodRef {
        uid: "of-before".into(),
        ..base.clone()
    };
    let (healing, installed) = replica.base(&cluster, "vnode.a", Some(&old));
    fills(&healing);
    until("the uninstall", async || {
        installed.asked.load(Ordering::SeqCst) > 0
    })
    .await;
    fills(&healing);
    // The base is silent about its new pod for a while; once it is known the taint goes.
    replica.tells("vnode.a", Scene::Uninstalled).await;
    healing.base(false, Some(base));
    cluster.becomes("vnode.a", false).await;
    assert!(!is_leaving(&cluster.0.get("base").await));
}

#[tokio::test]
async fn replicas_share_one_budget() {
    let cluster = Cluster::default();
    cluster.node("vnode.a").await;
    cluster.node("vnode.b").await;
    let (one, other) = (cluster.replica("x"), cluster.replica("y"));
    let (first, _) = one.base(&cluster, "vnode.a", None);
    fills(&first);
    cluster.becomes("vnode.a", true).await;
    let (second, _) = other.base(&cluster, "vnode.b", None);
    fills(&second);
    other.tells("vnode.b", Scene::Held).await;
    assert!(!cluster.is_tainted("vnode.b").await);
    reads(&first, 50);
    cluster.becomes("vnode.a", false).await;
    cluster.becomes("vnode.b", true).await;
    cluster.permits_become(&["vnode.b"]).await;
}

#[tokio::test]
async fn nothing_is_done_for_a_node_that_another_replica_may_serve() {
    let cluster = Cluster::default();
    cluster.node("vnode.a").await;
    cluster.node("vnode.b").await;
    let replica = cluster.replica("x");
    let gate = Gate::new();
    let term = ownership::term(CancellationToken::new(), Some(gate.clone()));
    let (fenced, _) = replica.base_during(&cluster, "vnode.a", None, term);
    fills(&fenced);
    replica.tells("vnode.a", Scene::Held).await;
    let (served, _) = replica.base(&cluster, "vnode.b", None);
    fills(&served);
    // Had the other taken a permit in the budget, there would be none for this one.
    cluster.becomes("vnode.b", true).await;
    assert_eq!(cluster.permits().await, ["vnode.b"]);
    reads(&served, 50);
    cluster.becomes("vnode.b", false).await;
    let token = FencingToken {
        lease_uid: "uid".to_owned(),
        transitions: 1,
    };
    gate.open(token, Duration::MAX);
    cluster.becomes("vnode.a", true).await;
}

#[tokio::test]
async fn however_many_replicas_ask_at_once_only_one_base_is_tainted() {
    let cluster = Cluster::default();
    let nodes = ["vnode.a", "vnode.b", "vnode.c", "vnode.d", "vnode.e"];
    for node in nodes {
        cluster.node(node).await;
    }
    let replicas: Vec<Replica> = nodes.iter().map(|node| cluster.replica(node)).collect();
    let bases: Vec<_> = replicas
        .iter()
        .zip(nodes)
        .map(|(replica, node)| replica.base(&cluster, node, None).0)
        .collect();
    bases.iter().for_each(fills);
    // The one that was first, for want of a pod that could be evicted, keeps its permit.
    let told = |scene: Scene| {
        let of = |(replica, node): &(&Replica, &str)| replica.notes.of(node).contains(&scene);
        replicas.iter().zip(nodes).filter(of).count()
    };
    until("all but one to be held", async || {
        told(Scene::Held) == 4 && told(Scene::Begun) == 1
    })
    .await;
    let mut tainted = 0;
    for node in nodes {
        tainted += usize::from(cluster.is_tainted(node).await);
    }
    assert_eq!((tainted, cluster.permits().await.len()), (1, 1));
}

#[tokio::test]
async fn a_node_that_is_gone_leaves_its_place_to_others() {
    let cluster = Cluster::default();
    cluster.node("vnode.a").await;
    cluster.node("vnode.b").await;
    let replica = cluster.replica("x");
    let (first, _) = replica.base(&cluster, "vnode.a", None);
    fills(&first);
    cluster.becomes("vnode.a", true).await;
    cluster.0.delete::<Node>("vnode.a").await;
    first.gone();
    cluster.permits_become(&[]).await;
    let (second, _) = replica.base(&cluster, "vnode.b", None);
    fills(&second);
    cluster.becomes("vnode.b", true).await;
}

#[tokio::test]
async fn another_replica_goes_on_where_the_first_one_stopped() {
    let cluster = Cluster::default();
    cluster.node("vnode.a").await;
    cluster
        .pod("module", "vnode.a", json!({COMPONENT_LABEL: MODULE}), json!([]))
        .await;
    let first = cluster.replica("x");
    let (healing, _) = first.base(&cluster, "vnode.a", None);
    fills(&healing);
    cluster.becomes("vnode.a", true).await;
    drop((healing, first));
    cluster.evict_for_taint("module").await;

    let second = cluster.replica("y");
    let (healing, installed) = second.base(&cluster, "vnode.a", None);
    fills(&healing);
    second.tells("vnode.a", Scene::Uninstalled).await;
    assert_eq!(installed.asked.load(Ordering::SeqCst), 1);
    assert_eq!(cluster.permits().await, ["vnode.a"]);
    reads(&healing, 50);
    cluster.becomes("vnode.a", false).await;
    cluster.permits_become(&[]).await;
}

#[tokio::test]
async fn a_budget_that_cannot_be_read_heals_nobody() {
    let cluster = Cluster::default();
    cluster.node("vnode.a").await;
    let map = json!({"metadata": {"name": CONFIG_MAP}, "data": {ENTRIES: "all of them"}});
    cluster.0.create::<ConfigMap>(map).await;
    let replica = cluster.replica("x");
    let (healing, _) = replica.base(&cluster, "vnode.a", None);
    fills(&healing);
    replica.tells("vnode.a", Scene::Held).await;
    assert!(!cluster.is_tainted("vnode.a").await);
    cluster.0.delete::<ConfigMap>(CONFIG_MAP).await;
    cluster.becomes("vnode.a", true).await;
}
