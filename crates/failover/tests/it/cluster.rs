//! A cluster of three nodes in one zone, and the controllers that a test starts in it.

use super::zone::{Outside, key, roster_key, roster_keys, roster_of};
use evenkeel_api::crd::{
    AgentStatus, AgentStatusSpec, FailoverPolicy, FailoverPolicySpec, NodeIncident, NodeIncidentStatus,
    ZoneHealth, ZoneReport,
};
use evenkeel_api::names;
use evenkeel_api::policy::ModePolicy;
use evenkeel_election::flags::Candidacy;
use evenkeel_failover::shell::{ControllerError, RosterSigning, Settings, serve};
use evenkeel_failover::webhook::{WebhookAddress, WebhookOptions};
use evenkeel_failover_rules::world::Config;
use evenkeel_judge::{Profile, Timing};
use evenkeel_net::admin::Admin;
pub(crate) use evenkeel_testkit::objects::{has_taint, is_leaving, is_ready, pod_condition as condition};
use evenkeel_testkit::{
    Fault, Interception, RecordedRequest, RequestFilter, SOON, TestServer, cluster, eventually, until,
};
use evenkeel_zone::roster::report_object_name;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, ServiceAccount};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
const ACCOUNT: &str = "system:serviceaccount:evenkeel-system:evenkeel-controller";

/// Its words are those of the namespace `shop`, for an administrator.
pub(crate) struct Cluster {
    api: TestServer,
    home: TempDir,
    own: cluster::Cluster,
    pub(crate) outside: Outside,
    stop: CancellationToken,
    _ends: DropGuard,
}

impl Deref for Cluster {
    type Target = cluster::Cluster;

    fn deref(&self) -> &Self::Target {
        &self.own
    }
}

/// How a replica is started. Where nothing else is said, the times of Leases are scaled, because they are
/// renewed every 250 ms.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) identity: &'static str,
    pub(crate) profile: Profile,
    pub(crate) mode: ModePolicy,
    /// Whether it stands for election; else it leads.
    pub(crate) elect: bool,
    /// IP address on which it serves the webhook.
    pub(crate) webhook: Option<&'static str>,
    pub(crate) timing: Timing,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            identity: "a",
            profile: Profile::Edge,
            mode: ModePolicy::Act,
            elect: false,
            webhook: None,
            timing: Timing {
                stale_after: 5_000,
                confirm_after: 1_000,
                ..Timing::default()
            },
        }
    }
}

impl Setup {
    /// One that serves the webhook.
    pub(crate) fn with_webhook() -> Self {
        Self {
            webhook: Some("127.0.0.1"),
            ..Self::default()
        }
    }

    /// The same, of several.
    pub(crate) fn elected(identity: &'static str) -> Self {
        Self {
            identity,
            elect: true,
            ..Self::with_webhook()
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
    /// The group that its user has and no other one.
    group: String,
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
}

impl Cluster {
    /// Nodes, agents, the world outside, RBAC; no controller yet.
    pub(crate) async fn start() -> Self {
        let cluster = Self::without_nodes().await;
        for name in NODES {
            cluster.join(name).await;
        }
        cluster.outside.start(&cluster.own, &cluster.stop);
        cluster
    }

    /// The same without nodes, agents and a world outside.
    pub(crate) async fn without_nodes() -> Self {
        evenkeel_net::init_crypto();
        let api = TestServer::start().await.unwrap();
        let stop = CancellationToken::new();
        let cluster = Self {
            own: cluster::Cluster::of(api.server()).namespaced("shop"),
            api,
            home: tempfile::tempdir().unwrap(),
            outside: Outside::default(),
            _ends: stop.clone().drop_guard(),
            stop,
        };
        cluster.install().await;
        cluster
            .create::<Namespace>(json!({"metadata": {"name": "shop"}}))
            .await;
        cluster
            .create::<ServiceAccount>(json!({"metadata": {"name": "default"}}))
            .await;
        cluster
    }

    /// A machine registers: Node, Lease, and what its agent says of itself. It has no addresses: nothing here
    /// needs one.
    async fn join(&self, name: &str) {
        let node = self.node(name).await;
        self.post_status(name).await;
        let spec = AgentStatusSpec {
            node_uid: node.uid().unwrap(),
            public_key: key(name).public().to_base64(),
            address: format!("127.77.0.{}:7959", name[1..].parse::<u8>().unwrap()),
            version: "0.1.0".to_owned(),
            ..Default::default()
        };
        self.add(&AgentStatus::new(name, spec)).await;
    }

    /// The kubelet writes its status: a heartbeat.
    pub(crate) async fn post_status(&self, name: &str) {
        let now = Timestamp::now().to_string();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        self.merge_status::<Node>(name, json!({"conditions": [ready]}))
            .await;
    }

    /// A kubelet renews its Lease, once.
    pub(crate) async fn renewed(&self, node: &str) {
        self.namespaced(names::NODE_LEASE_NAMESPACE)
            .renew(node, node)
            .await;
    }

    /// Starts a replica as the controller's ServiceAccount, and waits until the API server knows of its
    /// webhook, if it has one.
    pub(crate) async fn replica(&self, setup: Setup) -> Replica {
        let settings = Settings {
            config: Config {
                timing: setup.timing,
                profile: setup.profile,
                default_zone: Some(names::DEFAULT_ZONE.to_owned()),
                default_toleration_seconds: 300,
                namespace: names::NAMESPACE.to_owned(),
                identity: setup.identity.to_owned(),
                life: evenkeel_election::unique_identity(),
                mode: setup.mode,
            },
            candidacy: setup.elect.then(|| Candidacy {
                namespace: names::NAMESPACE.to_owned(),
                name: names::CONTROLLER_LEASE.to_owned(),
                config: evenkeel_election::Config::new(setup.identity),
            }),
            rosters: RosterSigning {
                key: Some(Arc::new(roster_key())),
                trusted: roster_keys(),
            },
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
        // All replicas are one user; a group tells them apart.
        let group = evenkeel_election::unique_identity();
        let groups = ["system:serviceaccounts", "system:authenticated", &group];
        let client = self.api.client_as(ACCOUNT, &groups);
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
            group,
            task,
            _ends: stop.clone().drop_guard(),
            stop,
        }
    }

    async fn webhook_is(&self, url: &str) {
        self.until(
            names::WEBHOOK_CONFIGURATION,
            "is registered",
            |known: &MutatingWebhookConfiguration| serde_json::to_string(known).unwrap().contains(url),
        )
        .await;
    }

    /// A replica that leads, once its zone has a roster and reports.
    pub(crate) async fn controlled(&self, setup: Setup) -> Replica {
        let replica = self.replica(setup).await;
        self.reports().await;
        replica
    }

    /// The machine of a replica loses power: nothing is settled, given back or told.
    pub(crate) async fn kill(&self, replica: Replica) {
        let of_it = RequestFilter::any().user_group(&replica.group);
        self.api.intercept(of_it, Fault::hold()).keep();
        replica.task.abort();
        let ended = replica.task.await;
        assert!(ended.is_err(), "killed before it could end: {ended:?}");
    }

    /// What the controllers have asked so far.
    pub(crate) fn asked(&self) -> Vec<RecordedRequest> {
        let mut asked = self.api.requests();
        asked.retain(|request| request.user == ACCOUNT);
        asked
    }

    /// Holds the next write of the pod's status by the controllers; returns when it is under way.
    pub(crate) async fn held_write(&self, pod: &str) -> Interception {
        let held = self.fault_writes("pods/status", pod, Fault::hold());
        let under_way = tokio::time::timeout(SOON, held.wait_for_hits(1)).await;
        under_way.expect("the controllers write the pod's status");
        held
    }

    /// The controllers' watches of this resource show no change of that object. They go on showing the
    /// others, so that they count as proven live: a cache between them and etcd that lags behind.
    pub(crate) fn withhold(&self, resource: &str, name: &str) -> Interception {
        let changes = RequestFilter::any().user(ACCOUNT).resource(resource).name(name);
        self.api.intercept(changes, Fault::hide_events())
    }

    /// Requests and watches of this resource by this replica show nothing.
    pub(crate) fn hold_of(&self, replica: &Replica, resource: &str) -> Interception {
        let of_it = RequestFilter::any().user_group(&replica.group);
        self.api.intercept(of_it.resource(resource), Fault::hold())
    }

    /// The controllers' writes of this resource and object meet a fault.
    pub(crate) fn fault_writes(&self, resource: &str, name: &str, fault: Fault) -> Interception {
        let writes = RequestFilter::any().user(ACCOUNT).resource(resource).name(name);
        self.api.intercept(writes, fault)
    }

    /// A client that may do everything, under this name.
    pub(crate) fn client_of(&self, user: &str) -> Client {
        self.server().client_as(user, &["system:masters"])
    }

    /// A kubeconfig of an administrator.
    pub(crate) async fn kubeconfig(&self) -> PathBuf {
        let file = self.home.path().join("kubeconfig");
        std::fs::write(&file, self.api.kubeconfig().await.unwrap()).unwrap();
        file
    }

    /// Evenkeel's own namespace.
    pub(crate) fn home(&self) -> cluster::Cluster {
        self.namespaced(names::NAMESPACE)
    }

    /// Who leads; empty if nobody does.
    pub(crate) async fn leader(&self) -> String {
        self.home().holder(names::CONTROLLER_LEASE).await
    }

    pub(crate) async fn eventually_led_by(&self, identity: &str) {
        until("the leader is elected", async || self.leader().await == identity).await;
    }

    /// Names of the Leases by which replicas show that they work.
    pub(crate) async fn replicas(&self) -> Vec<String> {
        let leases = self.home().list::<Lease>().await;
        let names = leases.iter().map(kube::ResourceExt::name_any);
        names
            .filter_map(|name| {
                name.strip_prefix(names::REPLICA_LEASE_PREFIX)
                    .map(ToOwned::to_owned)
            })
            .collect()
    }

    /// Pauses Evenkeel, or lets it go on.
    pub(crate) async fn pause(&self, why: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {names::annotations::PAUSE: why}}});
        self.merge::<Namespace>(names::NAMESPACE, patch).await;
    }

    /// Notes from now on whether a pod is ever seen not ready.
    pub(crate) async fn watch_readiness(&self, pod: &'static str) -> Readiness {
        let pods = self.api::<Pod>();
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

    /// A pod that runs and is ready; `owner` is the kind of its controller, if it has one.
    pub(crate) async fn pod(&self, node: &str, name: &str, owner: Option<&str>, toleration: Option<i64>) {
        self.bound_pod(node, name, owner, toleration).await;
        self.pod_runs(name).await;
    }

    /// The same as its kubelet finds it.
    pub(crate) async fn bound_pod(
        &self,
        node: &str,
        name: &str,
        owner: Option<&str>,
        toleration: Option<i64>,
    ) {
        let owners = owner.map(|kind| {
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}])
        });
        let tolerations = toleration.map(|seconds| {
            json!([{
                "key": names::taints::UNREACHABLE, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }])
        });
        let pod = json!({
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]},
        });
        self.create::<Pod>(pod).await;
    }

    pub(crate) async fn policy(&self, name: &str, change: impl FnOnce(&mut FailoverPolicySpec)) {
        let mut spec = FailoverPolicySpec::default();
        change(&mut spec);
        self.add(&FailoverPolicy::new(name, spec)).await;
    }

    /// Waits until the roster holds all nodes and the zone reports.
    pub(crate) async fn reports(&self) {
        self.until(names::DEFAULT_ZONE, "has all nodes", |zone: &ZoneHealth| {
            roster_of(zone).is_some_and(|roster| roster.members.len() == NODES.len())
        })
        .await;
        let report = report_object_name(names::DEFAULT_ZONE, 0, "n1");
        self.until(&report, "is written again", |report: &ZoneReport| {
            report.spec.report.sequence > 1
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
        let leases = self.namespaced(names::NODE_LEASE_NAMESPACE);
        leases
            .until(node, "is stale", |lease: &Lease| {
                let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
                renewed.is_some_and(|renewed| {
                    Timestamp::now().duration_since(renewed.0) >= jiff::SignedDuration::from_millis(5_500)
                })
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
        eventually(what, SOON, || async {
            let incident = self.incident(node).await?;
            look(incident.status.as_ref()?)
        })
        .await
    }

    pub(crate) async fn incident(&self, node: &str) -> Option<NodeIncident> {
        let mut of_node: Vec<_> = self
            .list::<NodeIncident>()
            .await
            .into_iter()
            .filter(|found| found.spec.node_name == node)
            .collect();
        assert!(of_node.len() <= 1, "one failure, one incident: {of_node:?}");
        of_node.pop().filter(|found| found.status.is_some())
    }

    /// All Events with this reason.
    pub(crate) async fn told(&self, reason: &str) -> Vec<Event> {
        let api: Api<Event> = Api::all(self.client.clone());
        let mut events = api.list(&ListParams::default()).await.unwrap().items;
        events.retain(|event| event.reason.as_deref() == Some(reason));
        events
    }
}

/// Whether a node carries the taint that evicts.
pub(crate) fn no_execute(node: &Node) -> bool {
    has_taint(node, names::taints::UNREACHABLE, "NoExecute")
}
