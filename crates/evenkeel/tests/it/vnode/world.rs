//! An API server that is served over TLS, and processes of virtual nodes that come and go.

use crate::support::evenkeel;
use evenkeel_net::client::ClientArgs;
pub(super) use evenkeel_testkit::objects::is_ready;
use evenkeel_testkit::real::Kubernetes;
use evenkeel_testkit::{Cluster, Options, ServedApi, until};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::PostParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;

/// Who serves the cluster.
enum Server {
    Ours(ServedApi),
    Kubernetes(Kubernetes),
}

/// The cluster.
pub(crate) struct World {
    server: Server,
    cluster: Cluster,
    pub(crate) kubeconfig: PathBuf,
}

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl World {
    pub(super) async fn start() -> Self {
        let api = ServedApi::with(Options {
            approve_kubelet_serving: true,
            ..Options::default()
        })
        .await;
        let kubeconfig = api.direct("admin");
        let cluster = api.cluster("admin").await;
        Self {
            server: Server::Ours(api),
            cluster,
            kubeconfig,
        }
    }

    /// The same on Kubernetes' own control plane, where nobody approves serving certificates.
    pub(crate) async fn on(kubernetes: Kubernetes) -> Self {
        evenkeel_net::init_crypto();
        let kubeconfig = kubernetes.kubeconfig();
        let args = ClientArgs {
            kubeconfig: Some(kubeconfig.clone()),
            ..ClientArgs::default()
        };
        let client = args.client("admin").await.expect("the kubeconfig is good");
        Self {
            server: Server::Kubernetes(kubernetes),
            cluster: Cluster::by(client),
            kubeconfig,
        }
    }

    /// A place for files.
    pub(crate) fn home(&self) -> &Path {
        match &self.server {
            Server::Ours(api) => api.home.path(),
            Server::Kubernetes(kubernetes) => kubernetes.home.path(),
        }
    }

    /// Kubernetes' own control plane, which this world must have.
    pub(crate) fn kubernetes(&self) -> &Kubernetes {
        match &self.server {
            Server::Kubernetes(kubernetes) => kubernetes,
            Server::Ours(_) => panic!("this world is on our own API server"),
        }
    }

    /// Our own API server, which this world must have.
    pub(super) fn served(&self) -> &ServedApi {
        match &self.server {
            Server::Ours(api) => api,
            Server::Kubernetes(_) => panic!("this world is on Kubernetes' own control plane"),
        }
    }

    /// A kubeconfig with a token of a ServiceAccount.
    pub(super) async fn account(&self, namespace: &str, name: &str) -> PathBuf {
        let api = self.namespaced(namespace).api::<ServiceAccount>();
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
        let path = self.home().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).expect("the directory is writable");
        path
    }

    /// A process of so many virtual nodes, called `vnode-0` and so on.
    pub(crate) fn vnode(&self, identity: &str, nodes: usize, more: &[&str]) -> Vnode {
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
        let log = self.home().join(format!("{name}.log"));
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
    pub(crate) async fn nodes_are_ready(&self, nodes: usize) {
        until("the nodes are Ready", async || {
            self.nodes().await.values().filter(|node| is_ready(*node)).count() == nodes
        })
        .await;
    }

    pub(super) async fn nodes(&self) -> BTreeMap<String, Node> {
        let named = |node: Node| (node.metadata.name.clone().unwrap_or_default(), node);
        self.list().await.into_iter().map(named).collect()
    }

    /// Creates a pod, bound to a node.
    pub(crate) async fn pod(&self, name: &str, node: usize, metadata: Value, spec: Value) {
        let more = json!({"metadata": metadata, "spec": spec});
        self.cluster.pod(name, &format!("vnode-{node}"), more).await;
    }

    /// Creates a pod on each of the first nodes, called `PREFIX-0` and so on.
    pub(super) async fn pod_on_each(&self, prefix: &str, nodes: usize) {
        for node in 0..nodes {
            self.pod(&format!("{prefix}-{node}"), node, json!({}), json!({}))
                .await;
        }
    }

    pub(super) async fn pods(&self) -> BTreeMap<String, Pod> {
        let named = |pod: Pod| (pod.metadata.name.clone().unwrap_or_default(), pod);
        self.list().await.into_iter().map(named).collect()
    }

    /// What must not change of all pods when whoever runs them is replaced.
    pub(super) async fn identities(&self) -> BTreeMap<String, Value> {
        let pods = self.pods().await;
        pods.iter()
            .map(|(name, pod)| (name.clone(), identity(pod)))
            .collect()
    }

    /// The pods of before are the same, and so are their containers.
    pub(super) async fn is_unchanged(&self, before: &BTreeMap<String, Value>) {
        let after = self.identities().await;
        for (name, identity) in before {
            assert_eq!(after.get(name), Some(identity), "{name}");
        }
    }

    /// Waits until all pods are Ready.
    pub(crate) async fn all_ready(&self) {
        until("all pods are ready", async || {
            let pods = self.pods().await;
            pods.values().all(is_ready)
        })
        .await;
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
pub(crate) struct Vnode {
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
        until(words, async || {
            std::fs::read_to_string(&self.log).is_ok_and(|log| log.contains(words))
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
