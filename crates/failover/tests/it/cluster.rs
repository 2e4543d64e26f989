//! A cluster of three nodes in one zone: their kubelets renew Leases, their agents have keys, a reporter reports.

use evenkeel_api::crd::{
    AgentStatus, AgentStatusSpec, FailoverPolicy, FailoverPolicySpec, NodeIncident, ZoneHealth,
};
use evenkeel_api::names;
use evenkeel_api::zone::{NodeVerdict, VerdictKind, ZoneHealthStatus};
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_election::flags::Candidacy;
use evenkeel_failover::controller::{Settings, control};
use evenkeel_failover::core::evidence::Timing;
use evenkeel_failover::core::plan::Config;
use evenkeel_failover::core::policy::Profile;
use evenkeel_net::admin::Admin;
use evenkeel_net::pki::ServerNames;
use evenkeel_testkit::eventually;
use evenkeel_zone::keys::SigningKey;
use evenkeel_zone::roster::{MemberId, Roster};
use evenkeel_zone::verdict::{Health, Link};
use evenkeel_zone::wire::{self, Answer, Ballot, Body, Facts, Header, Message, Nonce};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
pub(crate) const SOON: Duration = Duration::from_secs(20);
const ACCOUNT: &str = "system:serviceaccount:evenkeel-system:evenkeel-controller";

/// What the world outside does from now on; the background tasks look at it.
#[derive(Default)]
struct Script {
    silent: BTreeSet<String>,
    verdicts: BTreeMap<String, Said>,
}

/// What a majority says of a node.
#[derive(Clone, Copy)]
pub(crate) enum Said {
    Dead,
    CutOff,
}

pub(crate) struct Cluster {
    server: ApiServer,
    pub(crate) client: Client,
    script: Arc<Mutex<Script>>,
    stop: CancellationToken,
    controller: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some((stop, _)) = &self.controller {
            stop.cancel();
        }
    }
}

impl Cluster {
    /// Nodes, agents, background tasks, RBAC; no controller yet.
    pub(crate) async fn start() -> Self {
        evenkeel_net::init_crypto();
        let options = Options {
            namespaces: vec![names::NAMESPACE.to_owned()],
            ..Options::default()
        };
        let server = ApiServer::new(options).unwrap();
        let client = server.client();
        let cluster = Self {
            server,
            client,
            script: Arc::default(),
            stop: CancellationToken::new(),
            controller: None,
        };
        cluster.install().await;
        for name in NODES {
            cluster.join(name).await;
        }
        tokio::spawn(kubelets(
            cluster.client.clone(),
            Arc::clone(&cluster.script),
            cluster.stop.clone(),
        ));
        tokio::spawn(reporter(
            cluster.client.clone(),
            Arc::clone(&cluster.script),
            cluster.stop.clone(),
        ));
        cluster
    }

    async fn install(&self) {
        let create = PostParams::default();
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in [
            ZoneHealth::crd(),
            AgentStatus::crd(),
            FailoverPolicy::crd(),
            NodeIncident::crd(),
        ] {
            crds.create(&create, &crd).await.unwrap();
        }
        let rules: Value = serde_json::from_str(include_str!("rbac.json")).unwrap();
        let subjects =
            json!([{"kind": "ServiceAccount", "name": "evenkeel-controller", "namespace": names::NAMESPACE}]);
        let name = json!({"name": "evenkeel-controller"});
        let role: ClusterRole = read(json!({"metadata": name, "rules": rules["cluster"]}));
        Api::<ClusterRole>::all(self.client.clone())
            .create(&create, &role)
            .await
            .unwrap();
        let reference = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "evenkeel-controller"});
        let binding: ClusterRoleBinding =
            read(json!({"metadata": name, "roleRef": reference("ClusterRole"), "subjects": subjects}));
        Api::<ClusterRoleBinding>::all(self.client.clone())
            .create(&create, &binding)
            .await
            .unwrap();
        for (namespace, rules) in rules["namespaced"].as_object().unwrap() {
            let role: Role = read(json!({"metadata": name, "rules": rules}));
            Api::<Role>::namespaced(self.client.clone(), namespace)
                .create(&create, &role)
                .await
                .unwrap();
            let binding: RoleBinding =
                read(json!({"metadata": name, "roleRef": reference("Role"), "subjects": subjects}));
            Api::<RoleBinding>::namespaced(self.client.clone(), namespace)
                .create(&create, &binding)
                .await
                .unwrap();
        }
        let shop: Namespace = read(json!({"metadata": {"name": "shop"}}));
        Api::<Namespace>::all(self.client.clone())
            .create(&create, &shop)
            .await
            .unwrap();
        let account: ServiceAccount = read(json!({"metadata": {"name": "default"}}));
        Api::<ServiceAccount>::namespaced(self.client.clone(), "shop")
            .create(&create, &account)
            .await
            .unwrap();
    }

    /// A machine registers: Node, Lease, and what its agent says of itself.
    async fn join(&self, name: &str) {
        let nodes = self.nodes();
        let node: Node = read(json!({"metadata": {"name": name}}));
        let node = nodes.create(&PostParams::default(), &node).await.unwrap();
        let now = Timestamp::now().to_string();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
        nodes
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
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

    /// Starts the controller as its ServiceAccount; a Lease is renewed every 200 ms here, so times are scaled.
    pub(crate) fn control(&mut self, evict_after_policy: Profile, elect: bool) {
        let settings = Settings {
            config: Config {
                timing: Timing {
                    stale_after: 2_000,
                    confirm_after: 1_000,
                    ..Timing::default()
                },
                profile: evict_after_policy,
                default_zone: Some(names::DEFAULT_ZONE.to_owned()),
                default_toleration_seconds: 300,
            },
            candidacy: elect.then(|| Candidacy {
                namespace: names::NAMESPACE.to_owned(),
                name: names::CONTROLLER_LEASE.to_owned(),
                config: evenkeel_election::Config::new(&evenkeel_election::unique_identity()),
            }),
        };
        let client = self
            .server
            .client_as(ACCOUNT, &["system:serviceaccounts", "system:authenticated"]);
        let stop = CancellationToken::new();
        let admin = Admin::new("controller");
        let shutdown = stop.clone();
        let task = tokio::spawn(async move {
            control(client.clone(), client, settings, &admin, shutdown)
                .await
                .unwrap();
        });
        self.controller = Some((stop, task));
    }

    /// Serves the API over TLS; a kubeconfig of an administrator.
    pub(crate) async fn serve(&self) -> tempfile::NamedTempFile {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
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

    pub(crate) async fn controller_lease_is_free(&self) -> bool {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        let lease = leases.get(names::CONTROLLER_LEASE).await.unwrap();
        lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default()
            .is_empty()
    }

    /// Stops the controller and waits for its end.
    pub(crate) async fn stop_controller(&mut self) {
        let (stop, task) = self.controller.take().expect("a controller runs");
        stop.cancel();
        task.await.unwrap();
    }

    pub(crate) fn silence(&self, node: &str) {
        self.script.lock().unwrap().silent.insert(node.to_owned());
    }

    pub(crate) fn revive(&self, node: &str) {
        let mut script = self.script.lock().unwrap();
        script.silent.remove(node);
        script.verdicts.remove(node);
    }

    pub(crate) fn say(&self, node: &str, said: Said) {
        self.script.lock().unwrap().verdicts.insert(node.to_owned(), said);
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "shop")
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

    pub(crate) async fn policy(&self, change: impl FnOnce(&mut FailoverPolicySpec)) {
        let mut spec = FailoverPolicySpec::default();
        change(&mut spec);
        let api: Api<FailoverPolicy> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &FailoverPolicy::new("p", spec))
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
        eventually(what, SOON, || async {
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
        eventually(what, SOON, || async {
            look(&self.nodes().get(name).await.unwrap())
        })
        .await
    }
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The key of a node's agent.
fn key(node: &str) -> SigningKey {
    SigningKey::from_seed(&[node.as_bytes()[1]; 32]).unwrap()
}

/// Renews the Leases of the nodes that are not silent, every 200 ms.
async fn kubelets(client: Client, script: Arc<Mutex<Script>>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let silent = script.lock().unwrap().silent.clone();
        for name in NODES.iter().filter(|name| !silent.contains(**name)) {
            if let Err(error) = renew(&client, name).await {
                assert!(stop.is_cancelled(), "{error}");
            }
        }
    }
}

async fn renew(client: &Client, node: &str) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), names::NODE_LEASE_NAMESPACE);
    let renew_time = Some(MicroTime(Timestamp::now()));
    let patch = Patch::Merge(json!({"spec": {"renewTime": renew_time}}));
    if leases.get_opt(node).await?.is_some() {
        return leases
            .patch(node, &PatchParams::default(), &patch)
            .await
            .map(drop);
    }
    let metadata = ObjectMeta {
        name: Some(node.to_owned()),
        ..Default::default()
    };
    let spec = Some(LeaseSpec {
        renew_time,
        ..Default::default()
    });
    leases
        .create(&PostParams::default(), &Lease { metadata, spec })
        .await
        .map(drop)
}

/// Reports what the script says every 300 ms, each time in a new round, signed by the other two.
async fn reporter(client: Client, script: Arc<Mutex<Script>>, stop: CancellationToken) {
    let zones: Api<ZoneHealth> = Api::all(client);
    let mut tick = tokio::time::interval(Duration::from_millis(300));
    let mut sequence = 0_u64;
    // A death is voted on once, what lives is attested again and again.
    let mut dead: BTreeMap<String, NodeVerdict> = BTreeMap::new();
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let zone = match zones.get_opt(names::DEFAULT_ZONE).await {
            Ok(zone) => zone,
            Err(error) => {
                assert!(stop.is_cancelled(), "{error}");
                return;
            }
        };
        let Some(zone) = zone else {
            continue;
        };
        let Ok(roster) = Roster::from_spec(&zone.spec.roster) else {
            continue;
        };
        sequence += 1;
        let said = script.lock().unwrap().verdicts.clone();
        dead.retain(|node, _| matches!(said.get(node), Some(Said::Dead)));
        let mut nodes = Vec::new();
        for (node, said) in said {
            nodes.push(match said {
                Said::Dead => dead
                    .entry(node.clone())
                    .or_insert_with(|| verdict(&roster, &node, said, sequence))
                    .clone(),
                Said::CutOff => verdict(&roster, &node, said, sequence),
            });
        }
        let status = ZoneHealthStatus {
            reporter: "n1".to_owned(),
            roster_version: zone.spec.roster.version,
            epoch: roster.reference().epoch.to_string(),
            sequence: i64::try_from(sequence).unwrap(),
            members: 3,
            nodes,
            ..Default::default()
        };
        let patch = Patch::Merge(json!({"status": status}));
        zones
            .patch_status(names::DEFAULT_ZONE, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

fn verdict(roster: &Roster, node: &str, said: Said, sequence: u64) -> NodeVerdict {
    let member = |name: &str| {
        roster
            .members()
            .iter()
            .find(|member| member.name == name)
            .unwrap()
    };
    let uid = member(node).uid.clone();
    let mut round = [0; 16];
    round[..8].copy_from_slice(&sequence.to_be_bytes());
    let (kind, answer, contact_age, age) = match said {
        Said::Dead => (VerdictKind::Dead, Answer::No, u32::MAX, 20),
        Said::CutOff => (VerdictKind::Alive, Answer::Yes, 0, 0),
    };
    let sign = |voter: &&str| {
        let ballot = Ballot {
            round: Nonce(round),
            suspect: MemberId::of(&uid),
            roster: roster.reference(),
            answer,
            contact_age,
            facts: Facts {
                cloud: Link::Down,
                kubelet: Health::Ok,
                runtime: Health::Ok,
            },
            ..Ballot::default()
        };
        let header = Header {
            from: member(voter).id,
            sequence,
            ..Header::default()
        };
        let message = Message {
            header,
            body: Body::Ballot(ballot),
        };
        wire::to_evidence(&wire::seal(&message, &key(voter)))
    };
    NodeVerdict {
        name: node.to_owned(),
        uid: uid.clone(),
        verdict: kind,
        round_age_ms: Some(age),
        evidence: NODES.iter().filter(|voter| **voter != node).map(sign).collect(),
        ..Default::default()
    }
}
