//! An API server with TLS, simulated nodes with their kubelet APIs, and a fleet between them.

use evenkeel_api::names::simulated::PREFIX;
use evenkeel_kubelet_api::auth::Rules;
use evenkeel_kubelet_api::kubelet::{Certificate, Clients, KubeletApi};
use evenkeel_kubelet_api::listeners;
use evenkeel_kubelet_api::tls::signed;
use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::{Options as ApiOptions, ServedApi, eventually};
use evenkeel_vnode::provider::{ContainerId, ExecIo, PodId};
use evenkeel_vnode::{Fleet, Options, Provider};
use evenkeel_vnode_simulated::{Settings, Simulated};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) const DEADLINE: Duration = Duration::from_secs(60);

pub(super) struct Cluster {
    api: ServedApi,
    pub(super) client: Client,
    pub(super) provider: Simulated,
    pub(super) fleet: Fleet,
    registry: Registry,
    _ends: DropGuard,
}

impl Cluster {
    /// A cluster whose nodes are ready. Numbers at the ends of the names decide about the pods' addresses: each test has its
    /// own.
    pub(super) async fn new(nodes: &[&str]) -> Self {
        Self::with(nodes, |options| {
            let pods = Arc::make_mut(&mut options.pods);
            pods.back_off = Duration::from_millis(100);
            pods.back_off_max = Duration::from_millis(400);
        })
        .await
    }

    /// The same with options.
    pub(super) async fn with(nodes: &[&str], change: impl FnOnce(&mut Options)) -> Self {
        Self::serving(nodes, Rules::default(), change).await
    }

    /// The same, and who may ask the nodes.
    pub(super) async fn serving(nodes: &[&str], rules: Rules, change: impl FnOnce(&mut Options)) -> Self {
        let mut served = ApiOptions {
            approve_kubelet_serving: true,
            ..ApiOptions::default()
        };
        served.kubelet.proxy_to_any_address = true;
        let api = ServedApi::with(served).await;
        let client = async |name: &str| {
            let args = ClientArgs {
                kubeconfig: Some(api.direct(name)),
                ..ClientArgs::default()
            };
            args.client(name).await.unwrap()
        };
        let (own, client) = (client("fleet").await, client("test").await);
        let stop = CancellationToken::new();
        let address: IpAddr = "127.0.0.1".parse().unwrap();
        let provider = Simulated::new(Settings::default());
        let mut options = Options::new("e2e", &provider, vec![address]);
        change(&mut options);
        let signed = signed::Settings {
            poll: Duration::from_millis(20),
            ..signed::Settings::new("vnode-0")
        };
        let kubelet = KubeletApi {
            listeners: listeners::Settings {
                address,
                first_port: 0,
            },
            certificate: Certificate::Signed(signed, [address].into()),
            clients: Clients::Published,
            rules,
        };
        options.kubelet = Some(Arc::new(kubelet.prepare().await.unwrap().begin(&own, &stop)));
        let fleet = Fleet::start(own, Arc::new(provider.clone()), options, stop.clone());
        let mut registry = Registry::default();
        fleet.register(&mut registry);
        let cluster = Self {
            api,
            client,
            provider,
            fleet,
            registry,
            _ends: stop.drop_guard(),
        };
        for node in nodes {
            cluster.fleet.add(node);
        }
        for node in nodes {
            cluster.node_is_ready(node).await;
        }
        cluster
    }

    pub(super) async fn end(&self) {
        self.fleet.shutdown();
        let stopped = tokio::time::timeout(DEADLINE, self.fleet.stopped()).await;
        assert!(stopped.is_ok(), "the fleet does not end");
    }

    async fn node_is_ready(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually("the node is Ready", DEADLINE, async || {
            let status = nodes.get_opt(name).await.unwrap()?.status?;
            let mut conditions = status.conditions?.into_iter();
            conditions
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
                .then_some(())
        })
        .await;
    }

    /// Pods by way of a client that can upgrade requests: it does not speak HTTP/2.
    pub(super) async fn streaming_pods(&self) -> Api<Pod> {
        let kubeconfig = Kubeconfig::read_from(self.api.direct("streams")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Api::namespaced(Client::try_from(config.unwrap()).unwrap(), "default")
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A pod of one container `app`, which anything may be merged into.
    pub(super) async fn pod(&self, name: &str, node: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "automountServiceAccountToken": false,
                "containers": [{"name": "app", "image": "registry.example.com/app:1"}]},
        });
        json_patch::merge(&mut pod, &more);
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    pub(super) async fn until(&self, what: &str, name: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        eventually(&format!("pod {name}: {what}"), DEADLINE, async || {
            let pod = self.pods().get_opt(name).await.unwrap()?;
            holds(&pod).then_some(pod)
        })
        .await
    }

    pub(super) async fn is_ready(&self, name: &str) -> Pod {
        self.until("is Ready", name, is_ready).await
    }

    pub(super) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes a pod, and waits until it is gone; what was seen of it last.
    pub(super) async fn last_seen(&self, pod: &Pod, how: &DeleteParams) -> Pod {
        let (pods, name) = (self.pods(), pod.name_any());
        let watch = WatchParams::default().fields(&format!("metadata.name={name}"));
        let version = pod.resource_version().unwrap();
        let mut events = pods.watch(&watch, &version).await.unwrap().boxed();
        pods.delete(&name, how).await.unwrap();
        let last = async {
            loop {
                if let Some(WatchEvent::Deleted(pod)) = events.try_next().await.unwrap() {
                    return pod;
                }
            }
        };
        let last = tokio::time::timeout(DEADLINE, last).await;
        last.unwrap_or_else(|_| panic!("pod {name} is not gone within {DEADLINE:?}"))
    }

    pub(super) async fn is_gone(&self, name: &str) {
        eventually(&format!("pod {name} is gone"), DEADLINE, async || {
            let pod = self.pods().get_opt(name).await.unwrap();
            pod.is_none().then_some(())
        })
        .await;
    }

    /// All events about a pod.
    pub(super) async fn events(&self, about: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let mut events = events.list(&Default::default()).await.unwrap().items;
        events.retain(|event| event.involved_object.name.as_deref() == Some(about));
        events
    }

    /// Waits for an event about a pod, whose message contains this.
    pub(super) async fn event(&self, about: &str, reason: &str, text: &str) -> Event {
        eventually(&format!("event {reason} of pod {about}"), DEADLINE, async || {
            self.events(about).await.into_iter().find(|event| {
                let message = event.message.as_deref().unwrap_or_default();
                event.reason.as_deref() == Some(reason) && message.contains(text)
            })
        })
        .await
    }

    /// What a node's kubelet answers to the API server.
    pub(super) async fn ask(&self, node: &str, path: &str) -> String {
        let path = format!("/api/v1/nodes/{node}/proxy/{path}");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request_text(request).await.unwrap()
    }

    /// What a node's kubelet answers to somebody without credentials, who asks it without the API server.
    pub(super) async fn ask_without_credentials(&self, node: &str, path: &str) -> Result<String, u16> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let status = nodes.get(node).await.unwrap().status.unwrap();
        let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).unwrap();
        let request = http::Request::get(format!("/{path}")).body(Vec::new()).unwrap();
        client.request_text(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other}"),
        })
    }

    /// Lets anonymous users read these subresources of nodes.
    pub(super) async fn grant_to_anonymous(&self, resources: &[&str]) {
        let post = PostParams::default();
        let role = json!({"metadata": {"name": "anonymous"},
            "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["get"]}]});
        let role = serde_json::from_value(role).unwrap();
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        roles.create(&post, &role).await.unwrap();
        let group = "rbac.authorization.k8s.io";
        let binding = json!({"metadata": {"name": "anonymous"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "anonymous"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "system:anonymous"}]});
        let binding = serde_json::from_value(binding).unwrap();
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        bindings.create(&post, &binding).await.unwrap();
    }

    /// How many probes of a pod's container have been made, of one kind and with one result.
    pub(super) fn probes(&self, pod: &Pod, container: &str, kind: &str, result: &str) -> u64 {
        let uid = pod.metadata.uid.as_deref().unwrap();
        let counts = self.all_probes(container, kind, result);
        counts.get(uid).copied().unwrap_or_default()
    }

    /// The same of all pods, by UID.
    pub(super) fn all_probes(&self, container: &str, kind: &str, result: &str) -> HashMap<String, u64> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let head = format!(
            "prober_probe_total{{probe_type=\"{kind}\",result=\"{result}\",container=\"{container}\","
        );
        let counts = text.lines().filter_map(|line| {
            let labels = line.strip_prefix(&head)?;
            let (uid, count) = labels.split_once("pod_uid=\"")?.1.split_once("\"} ")?;
            Some((uid.to_owned(), count.parse().unwrap()))
        });
        counts.collect()
    }

    /// Runs a command in a container without the API server; its code and what it printed.
    pub(super) async fn run(&self, pod: &Pod, container: &str, command: &[&str]) -> (i32, String) {
        let status = container_status(pod, container).unwrap();
        let id = ContainerId(status.container_id.as_deref().unwrap().into());
        let meta = &pod.metadata;
        let node = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
        let pod = PodId {
            uid: meta.uid.as_deref().unwrap().into(),
            namespace: meta.namespace.as_deref().unwrap().into(),
            name: meta.name.as_deref().unwrap().into(),
            node: node.into(),
        };
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let (far, mut near) = tokio::io::duplex(1 << 16);
        let io = ExecIo {
            stdin: None,
            stdout: Some(Box::new(far)),
            stderr: None,
            terminal: None,
        };
        let mut output = String::new();
        let reading = tokio::io::AsyncReadExt::read_to_string(&mut near, &mut output);
        let (code, read) = tokio::join!(self.provider.exec(&pod, &id, &command, io), reading);
        read.unwrap();
        (code.unwrap(), output)
    }
}

/// Annotations of the simulated provider, for one container.
pub(super) fn simulated(container: &str, values: &[(&str, &str)]) -> Value {
    let each = values
        .iter()
        .map(|(name, value)| (format!("{PREFIX}{name}.{container}"), json!(value)));
    Value::Object(each.collect::<Map<_, _>>())
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(super) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// A container's status, be it an init container's or a main one's.
pub(super) fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == name)
}

/// Why the first container waits.
pub(super) fn waits(pod: &Pod) -> Option<(&str, &str)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.first()?.state.as_ref()?.waiting.as_ref()?;
    Some((
        waiting.reason.as_deref().unwrap_or_default(),
        waiting.message.as_deref().unwrap_or_default(),
    ))
}
