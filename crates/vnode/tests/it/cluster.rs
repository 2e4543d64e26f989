//! An API server with TLS, simulated nodes with their kubelet APIs, and a fleet between them.

use evenkeel_api::names::simulated::PREFIX;
use evenkeel_kubelet_api::auth::Rules;
use evenkeel_kubelet_api::kubelet::{Certificate, Clients, KubeletApi};
use evenkeel_kubelet_api::listeners;
use evenkeel_kubelet_api::tls::signed;
use evenkeel_testkit::objects::container_status;
use evenkeel_testkit::{Cluster as Words, Options as ApiOptions, ServedApi, ends};
use evenkeel_vnode::provider::{ContainerId, ExecIo, PodId};
use evenkeel_vnode::{Fleet, Options, Provider};
use evenkeel_vnode_simulated::{Settings, Simulated};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) struct Cluster {
    api: ServedApi,
    words: Words,
    pub(super) provider: Simulated,
    pub(super) fleet: Fleet,
    registry: Registry,
    _ends: DropGuard,
}

impl Deref for Cluster {
    type Target = Words;

    fn deref(&self) -> &Words {
        &self.words
    }
}

impl Cluster {
    /// A cluster whose nodes are ready. Numbers at the ends of the names decide about the pods' addresses:
    /// each test has its own.
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
        let (own, words) = (api.client("fleet").await, api.cluster("test").await);
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
            words,
            provider,
            fleet,
            registry,
            _ends: stop.drop_guard(),
        };
        for node in nodes {
            cluster.fleet.add(node);
        }
        for node in nodes {
            cluster.ready::<Node>(node).await;
        }
        cluster
    }

    pub(super) async fn end(&self) {
        self.fleet.shutdown();
        ends("the fleet", self.fleet.stopped()).await;
    }

    /// Pods by way of a client that can upgrade requests: it does not speak HTTP/2.
    pub(super) async fn streaming_pods(&self) -> Api<Pod> {
        let kubeconfig = Kubeconfig::read_from(self.api.direct("streams")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Api::namespaced(Client::try_from(config.unwrap()).unwrap(), "default")
    }

    /// Deletes a pod, and waits until it is gone; what was seen of it last.
    pub(super) async fn last_seen(&self, pod: &Pod, how: &DeleteParams) -> Pod {
        let (pods, name) = (self.api::<Pod>(), pod.name_any());
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
        ends(&format!("the deletion of pod {name}"), last).await
    }

    /// What a node's kubelet answers to the API server.
    pub(super) async fn ask(&self, node: &str, path: &str) -> String {
        let path = format!("/api/v1/nodes/{node}/proxy/{path}");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request_text(request).await.unwrap()
    }

    /// What a node's kubelet answers to somebody without credentials, who asks it without the API server.
    pub(super) async fn ask_without_credentials(&self, node: &str, path: &str) -> Result<String, u16> {
        let status = self.get::<Node>(node).await.status.unwrap();
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
        let rules = json!([{"apiGroups": [""], "resources": resources, "verbs": ["get"]}]);
        self.grant("system:anonymous", rules).await;
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
