//! `evenkeel vnode --provider koupleless` with a real base: Java, arklet, jars.

mod healing;
mod kubectl;
mod landscape;

use super::world::{Vnode, World, identity, is_ready};
use evenkeel_testkit::koupleless::{self, Built, JavaBase, MqttSetup, Setup};
use evenkeel_testkit::mqtt::{Mosquitto, MosquittoSetup};
use evenkeel_testkit::objects::{condition, has_taint, restarts};
use evenkeel_testkit::{Cluster, free_port, skipped, until_within};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::ops::Deref;
use std::time::Duration;

/// For what takes a base, a controller and a node's Lease their time.
const LONG: Duration = Duration::from_secs(120);

const NODE: &str = "vnode.base-1.dev";

/// The real base, or why there is none here.
fn built(test: &str) -> Option<Built> {
    match koupleless::build() {
        Ok(built) => Some(built),
        Err(why) => {
            skipped(test, &why.to_string());
            None
        }
    }
}

/// Its words are the cluster's, with more patience.
struct Scene {
    world: World,
    cluster: Cluster,
    port: u16,
}

impl Deref for Scene {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Scene {
    async fn start() -> Self {
        let world = World::start().await;
        world.apply_file("koupleless.yaml").await;
        let cluster = world.within(LONG);
        Self {
            world,
            cluster,
            port: free_port().expect("a port is free"),
        }
    }

    /// The process, with exactly the rights of the manifest.
    async fn serve(&self, identity: &str, more: &[&str]) -> Vnode {
        let account = self.world.account("evenkeel-system", "evenkeel-koupleless").await;
        let account = account.display().to_string();
        let heartbeat = format!("127.0.0.1:{}", self.port);
        let mut line = vec!["--kubeconfig", &account, "--heartbeat", &heartbeat];
        line.extend(more);
        self.world.serve(identity, "koupleless", &line)
    }

    async fn base(&self, built: &Built, more: Setup) -> JavaBase {
        let setup = Setup {
            heartbeat: Some(format!("http://127.0.0.1:{}", self.port)),
            ..more
        };
        built.start(setup).await
    }

    /// A pod of modules: name, version, URL.
    async fn pod(&self, name: &str, modules: &[(&str, &str, String)]) {
        self.pod_on(NODE, name, modules).await;
    }

    async fn pod_on(&self, node: &str, name: &str, modules: &[(&str, &str, String)]) {
        let containers: Vec<Value> = modules
            .iter()
            .map(|(module, version, url)| {
                json!({"name": module, "image": url, "env": [{"name": "BIZ_VERSION", "value": version}]})
            })
            .collect();
        let pod = json!({
            "metadata": {"name": name, "labels": {"virtual-kubelet.koupleless.io/component": "module"}},
            "spec": {"nodeName": node, "containers": containers, "tolerations": landscape::tolerations(),
                "readinessGates": [{"conditionType": "module.koupleless.io/ready"}]},
        });
        self.create::<Pod>(pod).await;
    }

    async fn delete(&self, name: &str) {
        self.cluster.delete::<Pod>(name).await;
        self.gone::<Pod>(name).await;
    }
}

/// Status of a node's `Ready`.
fn ready(node: &Node) -> &str {
    condition(node, "Ready").0
}

/// Names and states of a base's modules.
async fn modules(base: &JavaBase) -> Vec<(String, String)> {
    let answer = base.post("queryAllBiz", &json!({})).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let modules = answer["data"].as_array().cloned().unwrap_or_default();
    let mut modules: Vec<_> = modules
        .iter()
        .map(|module| {
            let id = format!("{}:{}", text(&module["bizName"]), text(&module["bizVersion"]));
            (id, text(&module["bizState"]).to_ascii_lowercase())
        })
        .collect();
    modules.sort();
    modules
}

fn activated(id: &str) -> (String, String) {
    (id.to_owned(), "activated".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_base_runs_modules_as_pods() {
    let Some(built) = built("a_real_base_runs_modules_as_pods") else {
        return;
    };
    let scene = Scene::start().await;
    let first = scene.serve("first", &["--heartbeat-from-anywhere"]).await;
    let mut base = scene.base(&built, Setup::default()).await;
    let node = scene.ready::<Node>(NODE).await;
    let labels = node.metadata.labels.expect("it has labels");
    assert_eq!(labels["base.koupleless.io/cluster-name"], "default");

    // Install, and a group of three.
    scene
        .pod("good", &[("good", "1.0.0", built.jar("good", "1.0.0"))])
        .await;
    let group = ["one", "two", "three"].map(|name| (name, "1.0.0", built.jar(name, "1.0.0")));
    scene.pod("group", &group).await;
    scene.ready::<Pod>("good").await;
    scene.ready::<Pod>("group").await;
    assert_eq!(modules(&base).await.len(), 4);

    // A failing install, with its cause.
    scene
        .pod("failing", &[("failing", "1.0.0", built.jar("failing", "1.0.0"))])
        .await;
    let failing = scene.pod_waits("failing", "failing", "InstallFailed").await;
    assert!(!is_ready(&failing));
    scene.event("failing", "", "could not be installed").await;
    scene.delete("failing").await;

    // Another process takes over: nothing is installed again.
    let pods = scene.world.pods().await;
    first.kill();
    let second = scene.serve("second", &["--heartbeat-from-anywhere"]).await;
    let holder = |node: &Node| super::world::port(node);
    let before = holder(&scene.get::<Node>(NODE).await);
    scene
        .until(NODE, "is served by the other", |node: &Node| {
            holder(node) != before && is_ready(node)
        })
        .await;
    let leases = scene.namespaced("kube-node-lease");
    until_within("its Lease is held by the other", LONG, async || {
        leases.holder(NODE).await == "second"
    })
    .await;
    let after = scene.world.pods().await;
    for (name, pod) in &pods {
        assert_eq!(identity(pod), identity(&after[name]), "{name}");
    }

    // A second version takes over from the first.
    scene
        .pod("newer", &[("good", "2.0.0", built.jar("good", "2.0.0"))])
        .await;
    scene.ready::<Pod>("newer").await;
    scene
        .until("good", "is not ready", |pod: &Pod| !is_ready(pod))
        .await;
    scene.delete("good").await;
    assert!(modules(&base).await.contains(&activated("good:2.0.0")));

    // The base is restarted: its modules come again.
    base.restart().await;
    let again = scene
        .until("newer", "was installed again", |pod: &Pod| {
            is_ready(pod) && restarts(pod) == 1
        })
        .await;
    assert!(again.metadata.deletion_timestamp.is_none());
    assert!(modules(&base).await.contains(&activated("good:2.0.0")));

    // The base is killed: Unknown first, and then its pods go, so that they can come elsewhere.
    base.kill();
    scene
        .until(NODE, "is Unknown", |node: &Node| ready(node) == "Unknown")
        .await;
    until_within("the pods are gone", LONG, async || {
        scene.world.pods().await.is_empty()
    })
    .await;
    scene.gone::<Node>(NODE).await;
    second.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_base_is_reached_through_a_real_broker() {
    let test = "a_real_base_is_reached_through_a_real_broker";
    let Some(built) = built(test) else { return };
    let Some(broker) = Mosquitto::start(&MosquittoSetup::default()) else {
        return skipped(test, "no mosquitto on PATH");
    };
    let scene = Scene::start().await;
    let address = broker.address();
    let mqtt = address.to_string();
    let _process = scene
        .serve("mqtt", &["--no-heartbeat", "--mqtt-broker", &mqtt])
        .await;
    let setup = Setup {
        mqtt: Some(MqttSetup::open(address)),
        env: "dev".to_owned(),
        ..Setup::default()
    };
    let base = built.start(setup).await;
    scene.ready::<Node>(NODE).await;
    scene
        .pod("good", &[("good", "1.0.0", built.jar("good", "1.0.0"))])
        .await;
    scene.ready::<Pod>("good").await;
    assert_eq!(modules(&base).await, [activated("good:1.0.0")]);
    // A new jar for the same version: the old one goes, the new one comes.
    let jar = built.jar("good", "1.0.0");
    let again = scene.world.home().join("again.jar");
    std::fs::copy(jar.strip_prefix("file://").expect("a file's URL"), &again).expect("the jar can be copied");
    let image = format!("file://{}", again.display());
    let patch = json!({"spec": {"containers": [{"name": "good", "image": image}]}});
    let patched = scene
        .pods()
        .patch("good", &PatchParams::default(), &Patch::Strategic(patch))
        .await;
    patched.expect("an image may change");
    scene
        .until("good", "was installed again", |pod: &Pod| {
            is_ready(pod) && restarts(pod) == 1
        })
        .await;
    scene.delete("good").await;
    assert_eq!(modules(&base).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn healing_begins_with_the_rights_of_the_manifest() {
    let Some(built) = built("healing_begins_with_the_rights_of_the_manifest") else {
        return;
    };
    let scene = Scene::start().await;
    let process = scene
        .serve("healing", &["--heartbeat-from-anywhere", "--heal"])
        .await;
    let setup = Setup {
        max_metaspace_mib: Some(96),
        fat_mib: 72,
        ..Setup::default()
    };
    let _base = scene.base(&built, setup).await;
    scene.ready::<Node>(NODE).await;
    scene
        .pod("fat", &[("fat", "1.0.0", built.jar("fat", "1.0.0"))])
        .await;
    let tainted = |node: &Node| has_taint(node, "schedule.koupleless.io/metaspace-overload", "NoExecute");
    scene.until(NODE, "is tainted", tainted).await;
    // The place in the budget was taken before.
    let map: ConfigMap = scene
        .namespaced("evenkeel-system")
        .get("koupleless-healing")
        .await;
    let entries = map.data.unwrap_or_default();
    assert!(entries["entries"].contains(NODE), "{entries:?}");
    // What the cluster's taint eviction does; then what is left is uninstalled, and the base restarted by
    // somebody.
    scene.delete("fat").await;
    scene.event(NODE, "", "none of our modules is left").await;
    let log = std::fs::read_to_string(&process.log).expect("it was written");
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}
