//! An API server that is served over TLS, and processes of virtual nodes that come and go.

use crate::support::evenkeel;
use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::{Options, ServedApi, eventually};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// For what does not hang on a timer.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// The cluster.
pub(super) struct World {
    pub(super) api: ServedApi,
    pub(super) client: Client,
    pub(super) kubeconfig: PathBuf,
}

impl World {
    pub(super) async fn start() -> Self {
        let api = ServedApi::with(Options {
            approve_kubelet_serving: true,
            ..Options::default()
        })
        .await;
        let kubeconfig = api.direct("admin");
        let args = ClientArgs {
            kubeconfig: Some(kubeconfig.clone()),
            ..ClientArgs::default()
        };
        let client = args.client("test").await.expect("the kubeconfig is good");
        Self {
            api,
            client,
            kubeconfig,
        }
    }

    /// Creates all objects of a manifest.
    pub(super) async fn apply(&self, manifest: &str) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).expect("the manifest is YAML");
        for document in documents {
            let object: DynamicObject = serde_json::from_value(document).expect("an object");
            let kind = object.types.clone().expect("it has a kind");
            let kind = GroupVersionKind::try_from(&kind).expect("a version");
            let resource = ApiResource::from_gvk(&kind);
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            api.create(&PostParams::default(), &object)
                .await
                .expect("the object is valid");
        }
    }

    /// A kubeconfig with a token of a ServiceAccount.
    pub(super) async fn account(&self, namespace: &str, name: &str) -> PathBuf {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let request = serde_json::from_value(json!({"spec": {"audiences": []}})).expect("a request");
        let issued = api
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        let token = issued
            .expect("the account exists")
            .status
            .expect("it is issued")
            .token;
        let text = std::fs::read_to_string(&self.kubeconfig).expect("it was written");
        let mut config: Value = serde_saphyr::from_str(&text).expect("it is YAML");
        config["users"][0]["user"] = json!({"token": token});
        let path = self.api.home.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).expect("the directory is writable");
        path
    }

    /// A process of so many virtual nodes, called `vnode-0` and so on.
    pub(super) fn vnode(&self, identity: &str, nodes: usize, more: &[&str]) -> Vnode {
        let nodes = nodes.to_string();
        let mut line = vec!["--simulated-start-delay", "10ms", "--nodes", &nodes];
        line.extend(more);
        self.serve(identity, "simulated", &line)
    }

    /// A process of virtual nodes by a provider.
    pub(super) fn serve(&self, identity: &str, provider: &str, more: &[&str]) -> Vnode {
        self.serve_in(&[], identity, provider, more)
    }

    /// The same with environment variables.
    pub(super) fn serve_in(
        &self,
        environment: &[(&str, &str)],
        identity: &str,
        provider: &str,
        more: &[&str],
    ) -> Vnode {
        let mut line = vec!["vnode", "--provider", provider, "--admin", "127.0.0.1:0"];
        line.extend(["--address", "127.0.0.1", "--identity", identity]);
        line.extend(more);
        self.process(environment, identity, &line)
    }

    /// A process of the program under test, with an administrator's rights unless it is told otherwise.
    pub(super) fn process(&self, environment: &[(&str, &str)], name: &str, line: &[&str]) -> Vnode {
        let log = self.api.home.path().join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("the directory is writable");
        let child = evenkeel()
            .args(line)
            .env("EVENKEEL_KUBECONFIG", &self.kubeconfig)
            .envs(environment.iter().copied())
            .stdout(output.try_clone().expect("the handle can be copied"))
            .stderr(output)
            .spawn()
            .expect("the process starts");
        Vnode { child, log }
    }

    /// Waits until so many nodes are Ready.
    pub(super) async fn ready(&self, nodes: usize) {
        eventually("the nodes are Ready", SOON, || async {
            (self.nodes().await.values().filter(|node| is_ready(node)).count() == nodes).then_some(())
        })
        .await;
    }

    pub(super) async fn nodes(&self) -> BTreeMap<String, Node> {
        let api: Api<Node> = Api::all(self.client.clone());
        let list = api
            .list(&ListParams::default())
            .await
            .expect("the API server answers");
        let named = |node: Node| (node.metadata.name.clone().unwrap_or_default(), node);
        list.items.into_iter().map(named).collect()
    }

    /// Creates a pod, bound to a node.
    pub(super) async fn pod(&self, name: &str, node: usize, metadata: Value, spec: Value) {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": format!("vnode-{node}"), "containers": [{"name": "app", "image": "app:1"}]},
        });
        json_patch_merge(&mut pod["metadata"], metadata);
        json_patch_merge(&mut pod["spec"], spec);
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods_api()
            .create(&PostParams::default(), &pod)
            .await
            .expect("the pod is valid");
    }

    pub(super) fn pods_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(super) async fn pods(&self) -> BTreeMap<String, Pod> {
        let list = self
            .pods_api()
            .list(&ListParams::default())
            .await
            .expect("the API server answers");
        let named = |pod: Pod| (pod.metadata.name.clone().unwrap_or_default(), pod);
        list.items.into_iter().map(named).collect()
    }

    /// Waits until all pods are Ready.
    pub(super) async fn all_ready(&self) {
        eventually("all pods are ready", SOON, || async {
            let pods = self.pods().await;
            pods.values().all(pod_is_ready).then_some(())
        })
        .await;
    }
}

fn json_patch_merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

/// What must not change when whoever runs a pod is replaced: UID, container IDs, start times, restarts.
pub(super) fn identity(pod: &Pod) -> Value {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.clone());
    let containers: Vec<Value> = statuses
        .unwrap_or_default()
        .iter()
        .map(|status| json!([status.container_id, status.restart_count, status.state]))
        .collect();
    json!({"uid": pod.metadata.uid, "containers": containers, "deleted": pod.metadata.deletion_timestamp})
}

pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(super) fn pod_is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Port of a node's kubelet API: tells which process serves the node.
pub(super) fn port(node: &Node) -> Option<i32> {
    node.status
        .as_ref()?
        .daemon_endpoints
        .as_ref()?
        .kubelet_endpoint
        .as_ref()
        .map(|endpoint| endpoint.port)
}

/// A process of virtual nodes; killed when it is dropped.
pub(super) struct Vnode {
    child: Child,
    pub(super) log: PathBuf,
}

impl Vnode {
    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).expect("the process is ours");
    }

    /// Waits until its log has these words.
    pub(super) async fn says(&self, words: &str) {
        eventually(words, SOON, || async {
            let log = std::fs::read_to_string(&self.log).ok()?;
            log.contains(words).then_some(())
        })
        .await;
    }

    /// Ends it without a word.
    pub(super) fn kill(mut self) {
        self.end();
    }

    /// Ends it as an operator does, and waits.
    pub(super) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().expect("it is our child");
        assert!(
            status.success(),
            "{status}: {}",
            std::fs::read_to_string(&self.log).unwrap_or_default()
        );
    }

    fn end(&mut self) {
        // It may have ended by itself; then there is nothing to be killed.
        let _ = self.child.kill();
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Vnode {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}
