//! An embedded API server with three nodes, a zone that reports, and the webhook with no more rights than it needs.

use crate::zone::Zone;
use evenkeel_admission::{WebhookOptions, webhook};
use evenkeel_api::crd::{FailoverPolicy, ZoneHealth, ZoneHealthSpec};
use evenkeel_api::names;
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_net::admin::Admin;
use evenkeel_testkit::eventually;
use evenkeel_zone::roster::zone_object_name;
use evenkeel_zone::verdict::{Health, Link};
use evenkeel_zone::wire::Facts;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const NODE_CONTROLLER: &str = "system:serviceaccount:kube-system:node-controller";
pub(crate) const SLICE_CONTROLLER: &str = "system:serviceaccount:kube-system:endpointslice-controller";
const OURS: &str = "system:serviceaccount:evenkeel-system:evenkeel-controller";
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The cloud link is down, everything else is well.
pub(crate) const CUT: Facts = Facts {
    cloud: Link::Down,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) admin: Client,
    pub(crate) zone: Zone,
}

/// A replica of the webhook; it ends with this.
pub(crate) struct Replica {
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), evenkeel_admission::WebhookError>>,
    _ends: DropGuard,
}

/// What the webhook part of the controller may do, and nothing else: in the cluster, and by namespace.
fn rights() -> (Value, [(&'static str, Value); 2]) {
    let leases =
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]});
    let cluster = json!([
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
        {"apiGroups": ["evenkeel.io"], "resources": ["zonehealth", "failoverpolicies"], "verbs": ["list", "watch"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["mutatingwebhookconfigurations"],
         "verbs": ["get", "create", "patch"]},
    ]);
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "update"]});
    let kubelets = json!([leases]);
    (
        cluster,
        [
            (names::NODE_LEASE_NAMESPACE, kubelets),
            (names::NAMESPACE, json!([leases, secrets])),
        ],
    )
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        evenkeel_net::init_crypto();
        let options = Options {
            namespaces: vec![names::NAMESPACE.to_owned()],
            ..Options::default()
        };
        let server = ApiServer::new(options).unwrap();
        let admin = server.client();
        for crd in [ZoneHealth::crd(), FailoverPolicy::crd()] {
            let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        eventually("custom resources are served", PATIENCE, || async {
            let zones: Api<ZoneHealth> = Api::all(admin.clone());
            let policies: Api<FailoverPolicy> = Api::all(admin.clone());
            let served = zones.list(&Default::default()).await.is_ok()
                && policies.list(&Default::default()).await.is_ok();
            served.then_some(())
        })
        .await;
        let name = json!({"name": "webhook"});
        let reference =
            |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "webhook"});
        let subjects = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": OURS}]);
        let binding =
            |kind: &str| json!({"metadata": name, "roleRef": reference(kind), "subjects": subjects});
        let (cluster, namespaced) = rights();
        create::<ClusterRole>(&admin, "", json!({"metadata": name, "rules": cluster})).await;
        create::<ClusterRoleBinding>(&admin, "", binding("ClusterRole")).await;
        for (namespace, rules) in namespaced {
            create::<Role>(&admin, namespace, json!({"metadata": name, "rules": rules})).await;
            create::<RoleBinding>(&admin, namespace, binding("Role")).await;
        }

        let mut nodes = Vec::new();
        for name in ["shore-1", "shore-2", "shore-3"] {
            let node: Node = create(&admin, "", json!({"metadata": {"name": name}})).await;
            nodes.push((name.to_owned(), node.metadata.uid.unwrap()));
        }
        let zone = Zone::new(nodes);
        let spec = ZoneHealthSpec {
            zone: "default".to_owned(),
            roster: zone.roster(),
            ..ZoneHealthSpec::default()
        };
        let object = ZoneHealth::new(&zone_object_name("default"), spec);
        let zones: Api<ZoneHealth> = Api::all(admin.clone());
        zones.create(&PostParams::default(), &object).await.unwrap();
        Self { server, admin, zone }
    }

    /// Starts a replica and waits until the API server knows of it.
    pub(crate) async fn webhook(&self) -> Replica {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        self.webhook_at(listener, address).await
    }

    pub(crate) async fn webhook_at(
        &self,
        listener: TcpListener,
        address: evenkeel_admission::WebhookAddress,
    ) -> Replica {
        let stop = CancellationToken::new();
        let client = self.server.client_as(OURS, &["system:authenticated"]);
        let url = address.to_string();
        let options = WebhookOptions { listener, address };
        let task = tokio::spawn(webhook::run(client, options, Admin::new("test"), stop.clone()));
        let configurations: Api<k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration> =
            Api::all(self.admin.clone());
        eventually("the webhook is registered", PATIENCE, || async {
            let existing = configurations
                .get_opt(evenkeel_admission::CONFIGURATION)
                .await
                .unwrap()?;
            serde_json::to_string(&existing)
                .unwrap()
                .contains(&url)
                .then_some(())
        })
        .await;
        Replica {
            _ends: stop.clone().drop_guard(),
            stop,
            task,
        }
    }

    /// Publishes what the zone has to say.
    pub(crate) async fn publish(&self, status: &evenkeel_api::zone::ZoneHealthStatus) {
        let zones: Api<ZoneHealth> = Api::all(self.admin.clone());
        let patch = json!({ "status": status });
        zones
            .patch_status(
                &zone_object_name("default"),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await
            .unwrap();
    }

    /// The zone vouches for `shore-2`, cut off from the cloud; returns when the webhook believes it.
    pub(crate) async fn cut_shore_2(&mut self) {
        let probe = self.pod("probe", "shore-2").await;
        // Evidence counts once the zone is seen to advance, so it goes on reporting.
        let reports: Vec<_> = (0..500).map(|_| self.zone.vouches("shore-2", CUT)).collect();
        let reports = std::cell::RefCell::new(reports.into_iter());
        eventually("the webhook believes the zone", PATIENCE, || async {
            let report = reports.borrow_mut().next().unwrap();
            self.publish(&report).await;
            (ready(&self.mark(&probe, true).await) == "True").then_some(())
        })
        .await;
    }

    /// Nobody is in trouble any more; returns when the webhook believes it.
    pub(crate) async fn heal(&mut self) {
        let probe = self.pod("heal-probe", "shore-2").await;
        let status = self.zone.plain();
        self.publish(&status).await;
        eventually("the webhook sees that the node is healed", PATIENCE, || async {
            (ready(&self.mark(&probe, true).await) == "False").then_some(())
        })
        .await;
    }

    /// A running, ready pod on a node.
    pub(crate) async fn pod(&self, name: &str, node: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        create::<Pod>(&self.admin, "default", pod).await;
        let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.9", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}});
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), "default");
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap()
    }

    /// As the stock node controller: Ready=False. Returns the pod as it is then.
    pub(crate) async fn mark(&self, pod: &Pod, dry_run: bool) -> Pod {
        let patch = json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T00:00:00Z"},
        ]}});
        let params = PatchParams {
            dry_run,
            ..PatchParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.stock(NODE_CONTROLLER), "default");
        let name = pod.metadata.name.as_deref().unwrap();
        pods.patch_status(name, &params, &Patch::Strategic(patch))
            .await
            .unwrap()
    }

    /// A client that is a stock controller to the webhook and may do everything.
    pub(crate) fn stock(&self, user: &str) -> Client {
        self.server.client_as(user, &["system:masters"])
    }
}

/// Status of the Ready condition of a pod.
pub(crate) fn ready(pod: &Pod) -> String {
    let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap()
        .status
        .clone()
}

/// Creates an object in a namespace, or in none.
pub(crate) async fn create<K>(client: &Client, namespace: &str, object: Value) -> K
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    let path = K::url_path(&(), Some(namespace).filter(|namespace| !namespace.is_empty()));
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&object).unwrap())
        .unwrap();
    client.request(request).await.unwrap()
}
