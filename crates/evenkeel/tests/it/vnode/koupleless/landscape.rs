//! Bases as pods: a StatefulSet of them on a simulated machine, in a cluster with its controllers.
//!
//! Real are the JVMs, the API server, the processes of virtual nodes and the rights of
//! `deploy/koupleless.yaml`. Scheduler and workload controllers are the lab's, taint eviction is that of
//! `evenkeel node-lifecycle`. Played by the test is the machine's kubelet: a JVM is started for each base
//! pod, with the pod's address and name, and ends with it; the readiness gate says what a readiness probe
//! would.

use super::super::world::{Vnode, is_ready};
use super::{LONG, Scene};
use evenkeel_lab::cluster::controllers;
use evenkeel_testkit::eventually;
use evenkeel_testkit::koupleless::{Built, JavaBase, Setup};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The simulated machine that base pods are on.
const MACHINE: &str = "machine";
/// Readiness gate of base pods.
const GATE: &str = "test.evenkeel.io/answers";

pub(super) struct Landscape {
    pub(super) scene: Scene,
    built: Built,
    /// JVMs by the names of their pods.
    pub(super) bases: BTreeMap<String, JavaBase>,
    _processes: Vec<Vnode>,
    _ends: DropGuard,
}

impl Landscape {
    /// So many bases with nodes that are Ready. `flags`: of the koupleless provider.
    pub(super) async fn start(built: Built, bases: usize, flags: &[&str]) -> Self {
        let scene = Scene::start().await;
        let stop = CancellationToken::new();
        let api = scene.world.served().server.clone();
        let admin = api.client();
        let ca = api.ca().certificate_pem().to_owned();
        // As an administrator: who may do what is not the matter here.
        let running = controllers::run(admin.clone(), move |_, _| admin.clone(), ca, stop.clone());
        tokio::spawn(running);
        let machine = [
            "--node-name",
            MACHINE,
            "--no-taint",
            "--simulated-start-delay",
            "10ms",
        ];
        let mut line = vec!["--base-pod-selector", "app=base"];
        line.extend(flags);
        let processes = vec![
            scene.world.process(&[], "node-lifecycle", &["node-lifecycle"]),
            scene.world.serve("machine", "simulated", &machine),
            scene.serve("koupleless", &line).await,
        ];
        let mut this = Self {
            scene,
            built,
            bases: BTreeMap::new(),
            _processes: processes,
            _ends: stop.drop_guard(),
        };
        this.stateful_set(bases).await;
        for index in 0..bases {
            this.run(&format!("base-{index}"), "").await;
        }
        for name in this.bases.keys() {
            this.scene.ready::<Node>(&node_name(name)).await;
        }
        this
    }

    async fn stateful_set(&self, bases: usize) {
        let set = json!({
            "metadata": {"name": "base"},
            "spec": {
                "replicas": bases, "serviceName": "base", "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "base"}},
                "template": {
                    "metadata": {"labels": {"app": "base"}, "annotations": {
                        // An address in 127/8, where the JVM listens, too.
                        "simulated.evenkeel.io/serve": "true",
                        // Time to see that it is being deleted, and to end the JVM.
                        "simulated.evenkeel.io/stop-delay": "2s",
                        "simulated.evenkeel.io/log":
                            "[biz=good] good {n} of {pod}\n\tat Good.main(Good.java)\n[biz=one] one {n} of {pod}",
                        "simulated.evenkeel.io/log-interval": "100ms",
                    }},
                    "spec": {
                        "containers": [{"name": "base", "image": "base:1"}, {"name": "proxy", "image": "proxy:1"}],
                        "readinessGates": [{"conditionType": GATE}],
                    },
                },
            },
        });
        self.scene.create::<StatefulSet>(set).await;
    }

    /// Starts the JVM of a base's pod, once there is another one than `former` (a UID); ends the one that
    /// runs before that.
    pub(super) async fn run(&mut self, name: &str, former: &str) {
        self.bases.remove(name);
        let pod = self
            .scene
            .until(name, "runs", |pod: &Pod| {
                pod.metadata.uid.as_deref() != Some(former) && address(pod).is_some()
            })
            .await;
        let setup = Setup {
            identity: name.to_owned(),
            ip: address(&pod).map(|ip| ip.parse().expect("an address")),
            host: Some(name.to_owned()),
            max_metaspace_mib: Some(64),
            // With what the JVM needs for itself: some 90 %.
            fat_mib: 40,
            ..Setup::default()
        };
        let base = self.scene.base(&self.built, setup).await;
        self.bases.insert(name.to_owned(), base);
        self.gate(name, "True").await;
        self.scene.ready::<Pod>(name).await;
    }

    /// Kills a base's JVM and nothing else.
    pub(super) async fn kill(&mut self, name: &str) {
        self.bases.get_mut(name).expect("it runs").kill();
        self.gate(name, "False").await;
    }

    async fn gate(&self, name: &str, status: &str) {
        let patch = json!({"status": {"conditions": [{"type": GATE, "status": status}]}});
        let pods = self.scene.pods();
        let patched = pods
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await;
        patched.expect("the pod is there");
    }

    pub(super) fn jar(&self, module: &str) -> String {
        self.built.jar(module, "1.0.0")
    }

    /// A Deployment of one pod with one module, for whichever base the scheduler takes.
    pub(super) async fn deployment(&self, module: &str) {
        let labels = json!({"app": module, "virtual-kubelet.koupleless.io/component": "module"});
        let deployment = json!({
            "metadata": {"name": module},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": module}},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "nodeSelector": {"virtual-kubelet.koupleless.io/component": "vnode"},
                    "tolerations": tolerations(),
                    "readinessGates": [{"conditionType": "module.koupleless.io/ready"}],
                    "containers": [{"name": module, "image": self.jar(module),
                        "env": [{"name": "BIZ_VERSION", "value": "1.0.0"}]}],
                }},
            },
        });
        self.scene.create::<Deployment>(deployment).await;
    }

    /// The pod of a Deployment that is Ready, another one than `former` (a UID).
    pub(super) async fn replica(&self, module: &str, former: &str) -> Pod {
        let labels = ListParams::default().labels(&format!("app={module}"));
        let what = format!("a pod of {module} that is not {former:?} is Ready");
        eventually(&what, LONG, async || {
            let pods = self.scene.pods().list(&labels).await;
            let pods = pods.expect("the API server answers").items;
            let wanted = |pod: &Pod| {
                pod.metadata.uid.as_deref() != Some(former)
                    && pod.metadata.deletion_timestamp.is_none()
                    && is_ready(pod)
            };
            pods.into_iter().find(wanted)
        })
        .await
    }
}

impl Scene {
    /// Waits for a base's node to be as it should.
    pub(super) async fn node_of(&self, base: &str, what: &str, holds: impl Fn(&Node) -> bool) -> Node {
        self.until(&node_name(base), what, holds).await
    }
}

pub(super) fn node_name(base: &str) -> String {
    format!("vnode.{base}.dev")
}

/// The base whose node a pod is on.
pub(super) fn base_of(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let name = node.and_then(|node| node.strip_prefix("vnode.")?.strip_suffix(".dev"));
    name.expect("it is on a base").to_owned()
}

pub(super) fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().expect("it was created")
}

/// What pods of modules tolerate: that a node is a base, not that it is short of metaspace.
pub(super) fn tolerations() -> Value {
    json!([
        {"key": "schedule.koupleless.io/virtual-node", "value": "True", "effect": "NoExecute"},
        {"key": "schedule.koupleless.io/node-env", "value": "dev", "effect": "NoExecute"},
    ])
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}
