//! A cluster of three nodes in one zone, and the controllers that a test starts in it.

use super::traffic::Traffic;
use super::zone::{Outside, key};
use evenkeel_api::crd::{
    AgentStatus, AgentStatusSpec, FailoverPolicy, FailoverPolicySpec, NodeIncident, NodeIncidentStatus,
    ZoneHealth,
};
use evenkeel_api::names;
use evenkeel_api::policy::ModePolicy;
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_election::flags::Candidacy;
use evenkeel_failover::shell::{ControllerError, Settings, serve};
use evenkeel_failover::webhook::{CONFIGURATION, WebhookAddress, WebhookOptions};
use evenkeel_failover_rules::world::Config;
use evenkeel_judge::{Profile, Timing};
use evenkeel_net::admin::Admin;
use evenkeel_net::pki::ServerNames;
use evenkeel_testkit::eventually;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodCondition};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, CustomResourceExt, ResourceExt as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// What takes no waiting of the rules takes no longer than this, on a busy machine too.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// A death is confirmed 12 s after the first round at the earliest.
pub(crate) const CONFIRMED: Duration = Duration::from_secs(60);
const ACCOUNT: &str = "system:serviceaccount:evenkeel-system:evenkeel-controller";
const RBAC: &str = include_str!("../../../../deploy/rbac.yaml");

pub(crate) struct Cluster {
    server: ApiServer,
    /// As an administrator.
    pub(crate) client: Client,
    pub(crate) outside: Outside,
    stop: CancellationToken,
    _ends: DropGuard,
}

/// How a replica is started.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) identity: &'static str,
    pub(crate) profile: Profile,
    pub(crate) mode: ModePolicy,
    /// Whether it stands for election; else it leads.
    pub(crate) elect: bool,
    /// IP address on which it serves the webhook.
    pub(crate) webhook: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            identity: "a",
            profile: Profile::Edge,
            mode: ModePolicy::Act,
            elect: false,
            webhook: None,
        }
    }
}

/// Whether a pod was ever seen not ready, and so out of the endpoints of its Services.
pub(crate) struct Readiness {
    pod: &'static str,
    lost: Arc<AtomicBool>,
}

impl Readiness {
    pub(crate) fn never_lost(&self) {
        assert!(
            !self.lost.load(Ordering::SeqCst),
            "{} was not ready for a while",
            self.pod
        );
    }
}

/// A replica of the controller. It is told to stop when this goes.
pub(crate) struct Replica {
    pub(crate) traffic: Traffic,
    task: JoinHandle<Result<(), ControllerError>>,
    stop: CancellationToken,
    _ends: DropGuard,
}

impl Replica {
    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Its machine loses power: nothing is settled, given back or told.
    pub(crate) async fn kill(self) {
        self.traffic.cut();
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err(), "killed before it could end: {ended:?}");
    }
}

impl Cluster {
    /// Nodes, agents, the world outside, RBAC; no controller yet.
    pub(crate) async fn start() -> Self {
        evenkeel_net::init_crypto();
        let server = ApiServer::new(Options::default()).unwrap();
        let stop = CancellationToken::new();
        let cluster = Self {
            client: server.client(),
            server,
            outside: Outside::default(),
            _ends: stop.clone().drop_guard(),
            stop,
        };
        for crd in [
            ZoneHealth::crd(),
            AgentStatus::crd(),
            FailoverPolicy::crd(),
            NodeIncident::crd(),
        ] {
            cluster.create(serde_json::to_value(crd).unwrap()).await;
        }
        let documents: Vec<Value> = serde_saphyr::from_multiple(RBAC).unwrap();
        for object in documents {
            cluster.create(object).await;
        }
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        cluster.create(shop).await;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "shop"}});
        cluster.create(account).await;
        for name in NODES {
            cluster.join(name).await;
        }
        cluster.outside.start(&cluster.client, &cluster.stop);
        cluster
    }

    /// Creates an object of any kind.
    pub(crate) async fn create(&self, object: Value) {
        let object: DynamicObject = read(object);
        let gvk = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let (resource, capabilities) = pinned_kind(&self.client, &gvk).await.unwrap();
        let namespace = object.namespace();
        let api: Api<DynamicObject> = match (capabilities.scope, namespace.as_deref()) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
            _ => Api::all_with(self.client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// A machine registers: Node, Lease, and what its agent says of itself. It has no addresses: nothing here
    /// needs one.
    async fn join(&self, name: &str) {
        let nodes = self.nodes();
        let node: Node = read(json!({"metadata": {"name": name}}));
        let node = nodes.create(&PostParams::default(), &node).await.unwrap();
        self.post_status(name).await;
        let spec = AgentStatusSpec {
            node_uid: node.uid().unwrap(),
            public_key: key(name).public().to_base64(),
            address: format!("127.77.0.{}:7946", name[1..].parse::<u8>().unwrap()),
            version: "0.1.0".to_owned(),
            ..Default::default()
        };
        let agents: Api<AgentStatus> = Api::all(self.client.clone());
        agents
            .create(&PostParams::default(), &AgentStatus::new(name, spec))
            .await
            .unwrap();
    }

    /// The kubelet writes its status: a heartbeat.
    pub(crate) async fn post_status(&self, name: &str) {
        let now = Timestamp::now().to_string();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
        self.nodes()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Starts a replica as the controller's ServiceAccount, and waits until the API server knows of its
    /// webhook, if it has one. A Lease is renewed every 250 ms here, so that the times of Leases are scaled.
    pub(crate) async fn replica(&self, setup: Setup) -> Replica {
        let settings = Settings {
            config: Config {
                timing: Timing {
                    stale_after: 5_000,
                    confirm_after: 1_000,
                    ..Timing::default()
                },
                profile: setup.profile,
                default_zone: Some(names::DEFAULT_ZONE.to_owned()),
                default_toleration_seconds: 300,
                identity: setup.identity.to_owned(),
                mode: setup.mode,
            },
            candidacy: setup.elect.then(|| Candidacy {
                namespace: names::NAMESPACE.to_owned(),
                name: names::CONTROLLER_LEASE.to_owned(),
                config: evenkeel_election::Config::new(setup.identity),
            }),
        };
        let (options, url) = match setup.webhook {
            Some(ip) => {
                let listener = TcpListener::bind((ip, 0)).await.unwrap();
                let url = format!("https://{}", listener.local_addr().unwrap());
                let address: WebhookAddress = url.parse().unwrap();
                (Some(WebhookOptions { listener, address }), Some(url))
            }
            None => (None, None),
        };
        let traffic = Traffic::default();
        let groups = ["system:serviceaccounts", "system:authenticated"];
        let client = traffic.of(self.server.client_as(ACCOUNT, &groups));
        let stop = CancellationToken::new();
        let admin = Admin::new("controller");
        let shutdown = stop.clone();
        let task =
            tokio::spawn(
                async move { serve(client.clone(), client, settings, options, &admin, shutdown).await },
            );
        if let Some(url) = url {
            self.webhook_is(&url).await;
        }
        Replica {
            traffic,
            task,
            _ends: stop.clone().drop_guard(),
            stop,
        }
    }

    async fn webhook_is(&self, url: &str) {
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        eventually("the webhook is registered", SOON, || async {
            let known = configurations.get_opt(CONFIGURATION).await.unwrap()?;
            serde_json::to_string(&known).unwrap().contains(url).then_some(())
        })
        .await;
    }

    /// A replica that leads, once its zone has a roster and reports.
    pub(crate) async fn controlled(&self, setup: Setup) -> Replica {
        let replica = self.replica(setup).await;
        self.ready().await;
        replica
    }

    /// A client that may do everything, under this name.
    pub(crate) fn client_of(&self, user: &str) -> Client {
        self.server.client_as(user, &["system:masters"])
    }

    /// Serves the API over TLS; a kubeconfig of an administrator.
    pub(crate) async fn serve(&self) -> tempfile::NamedTempFile {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (server, stop) = (self.server.clone(), self.stop.clone());
        tokio::spawn(async move {
            server
                .serve(listener, &ServerNames::default(), stop)
                .await
                .unwrap();
        });
        let text = self
            .server
            .kubeconfig(&url, "admin", &["system:masters"])
            .unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// Leases of Evenkeel's own namespace.
    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), names::NAMESPACE)
    }

    /// Who leads; empty if nobody does.
    pub(crate) async fn leader(&self) -> String {
        let lease = self.leases().get_opt(names::CONTROLLER_LEASE).await.unwrap();
        let spec = lease.and_then(|lease| lease.spec);
        spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }

    pub(crate) async fn eventually_led_by(&self, identity: &str) {
        eventually("the leader is elected", SOON, || async {
            (self.leader().await == identity).then_some(())
        })
        .await;
    }

    /// Names of the Leases by which replicas show that they work.
    pub(crate) async fn replicas(&self) -> Vec<String> {
        let list = self.leases().list(&ListParams::default()).await.unwrap();
        let names = list.items.iter().map(kube::ResourceExt::name_any);
        names
            .filter_map(|name| {
                name.strip_prefix(names::REPLICA_LEASE_PREFIX)
                    .map(ToOwned::to_owned)
            })
            .collect()
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "shop")
    }

    /// Pauses Evenkeel, or lets it go on.
    pub(crate) async fn pause(&self, why: Option<&str>) {
        let homes: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {names::annotations::PAUSE: why}}}));
        homes
            .patch(names::NAMESPACE, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Notes from now on whether a pod is ever seen not ready.
    pub(crate) async fn watch_readiness(&self, pod: &'static str) -> Readiness {
        let pods = self.pods();
        let lost: Arc<AtomicBool> = Arc::default();
        let noted = Arc::clone(&lost);
        let version = pods
            .list(&ListParams::default())
            .await
            .unwrap()
            .metadata
            .resource_version;
        let params = WatchParams::default().fields(&format!("metadata.name={pod}"));
        let mut events = pods.watch(&params, &version.unwrap()).await.unwrap().boxed();
        let watching = self.stop.clone().run_until_cancelled_owned(async move {
            while let Some(event) = events.next().await {
                if matches!(event.unwrap(), WatchEvent::Modified(pod) if !is_ready(&pod)) {
                    noted.store(true, Ordering::SeqCst);
                }
            }
        });
        tokio::spawn(watching);
        Readiness { pod, lost }
    }

    pub(crate) fn policies(&self) -> Api<FailoverPolicy> {
        Api::all(self.client.clone())
    }

    /// A pod that runs and is ready; `owner` is the kind of its controller, if it has one.
    pub(crate) async fn pod(&self, node: &str, name: &str, owner: Option<&str>, toleration: Option<i64>) {
        let owners = owner.map(|kind| {
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}])
        });
        let tolerations = toleration.map(|seconds| {
            json!([{
                "key": names::taints::UNREACHABLE, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }])
        });
        let pod: Pod = read(json!({
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]},
        }));
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let now = Timestamp::now().to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let status = json!({
            "phase": "Running",
            "conditions": [condition("Initialized"), condition("ContainersReady"), condition("Ready")],
        });
        let patch = Patch::Merge(json!({"status": status}));
        self.pods()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub(crate) async fn policy(&self, name: &str, change: impl FnOnce(&mut FailoverPolicySpec)) {
        let mut spec = FailoverPolicySpec::default();
        change(&mut spec);
        self.policies()
            .create(&PostParams::default(), &FailoverPolicy::new(name, spec))
            .await
            .unwrap();
    }

    /// Waits until the roster holds all nodes and the zone reports.
    pub(crate) async fn ready(&self) {
        let api: Api<ZoneHealth> = Api::all(self.client.clone());
        eventually("a roster of all nodes and a report", SOON, || async {
            let zone = api.get_opt(names::DEFAULT_ZONE).await.unwrap()?;
            let reported = zone.status.is_some_and(|status| status.sequence > 1);
            (zone.spec.roster.members.len() == NODES.len() && reported).then_some(())
        })
        .await;
    }

    /// Cuts a node's link, and waits until the controllers have decided that it is Disconnected.
    pub(crate) async fn cut(&self, node: &str) {
        self.outside.cut(node);
        self.eventually_state(node, "Disconnected").await;
    }

    /// Waits until a silent node's Lease is stale by the times that hold here.
    pub(crate) async fn eventually_stale(&self, node: &str) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NODE_LEASE_NAMESPACE);
        eventually("the Lease is stale", SOON, || async {
            let renewed = leases.get(node).await.unwrap().spec?.renew_time?.0;
            let age = Timestamp::now().duration_since(renewed);
            (age >= jiff::SignedDuration::from_millis(5_500)).then_some(())
        })
        .await;
    }

    pub(crate) async fn eventually_state(&self, node: &str, state: &str) {
        self.eventually_incident(&format!("{node} is {state}"), node, |status| {
            (status.decision.state == state).then_some(())
        })
        .await;
    }

    pub(crate) async fn eventually_incident<T>(
        &self,
        what: &str,
        node: &str,
        look: impl Fn(&NodeIncidentStatus) -> Option<T>,
    ) -> T {
        eventually(what, CONFIRMED, || async {
            let incident = self.incident(node).await?;
            look(incident.status.as_ref()?)
        })
        .await
    }

    pub(crate) async fn incident(&self, node: &str) -> Option<NodeIncident> {
        let api: Api<NodeIncident> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default()).await.unwrap();
        let mut of_node: Vec<_> = list
            .items
            .into_iter()
            .filter(|found| found.spec.node_name == node)
            .collect();
        assert!(of_node.len() <= 1, "one failure, one incident: {of_node:?}");
        of_node.pop().filter(|found| found.status.is_some())
    }

    pub(crate) async fn events(&self, reason: &str) -> Vec<Event> {
        let api: Api<Event> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default()).await.unwrap();
        list.items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .collect()
    }

    pub(crate) async fn eventually_pod<T>(
        &self,
        what: &str,
        name: &str,
        look: impl Fn(&Pod) -> Option<T>,
    ) -> T {
        eventually(what, CONFIRMED, || async {
            look(&self.pods().get(name).await.unwrap())
        })
        .await
    }

    pub(crate) async fn eventually_node<T>(
        &self,
        what: &str,
        name: &str,
        look: impl Fn(&Node) -> Option<T>,
    ) -> T {
        eventually(what, CONFIRMED, || async {
            look(&self.nodes().get(name).await.unwrap())
        })
        .await
    }
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Whether a node carries a taint.
pub(crate) fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints
        .into_iter()
        .flatten()
        .any(|taint| taint.key == key && taint.effect == effect)
}

/// Whether a node carries the taint that evicts.
pub(crate) fn no_execute(node: &Node) -> bool {
    has_taint(node, names::taints::UNREACHABLE, "NoExecute")
}

pub(crate) fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
