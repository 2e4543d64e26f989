//! Writes by which somebody would speak for another node, or for the controller, and who must not succeed.

use crate::cluster::{Objects as _, api_of};
use crate::{Cluster, until};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::Path;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The agent in a pod of that node.
    Pod(&'static str),
    /// An agent that runs as a unit of that host.
    Unit(&'static str),
    /// An agent whose token says of no node.
    Nowhere,
    /// An account of somebody else.
    Stranger,
    /// Evenkeel's controller.
    Controller,
}

/// What is written.
#[derive(Clone, Debug)]
pub enum Write {
    /// A new object.
    Create(Value),
    /// A merge patch of the object.
    Merge(Value),
    /// A merge patch of its status.
    MergeStatus(Value),
    /// Its deletion.
    Delete(Value),
}

/// A write that must be refused.
#[derive(Clone, Debug)]
pub struct Attack {
    /// What the attacker is after.
    pub name: &'static str,
    /// The attacker.
    pub who: Who,
    /// What it tries.
    pub write: Write,
    /// The policy that refuses it.
    pub policy: &'static str,
}

const STATUS: &str = "evenkeel-agentstatus";
const REPORT: &str = "evenkeel-zonereport";
const CONTROLLER: &str = "evenkeel-controller";
const LEASES: &str = "evenkeel-leases";
const NAMESPACE: &str = "evenkeel-system";

fn ours(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "evenkeel.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn agent_status(name: &str, key: &str) -> Value {
    let spec = json!({"address": "10.0.0.1:7959", "nodeUid": "u", "publicKey": key, "version": "1"});
    ours("AgentStatus", name, spec)
}

fn report(name: &str, reporter: &str) -> Value {
    ours("ZoneReport", name, json!({"zone": "shore", "reporter": reporter}))
}

fn lease(name: &str, holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 30},
    })
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    if let Some(slot) = object.pointer_mut(path) {
        *slot = value;
        return object;
    }
    let (parent, member) = path.rsplit_once('/').expect("a path begins with a slash");
    object.pointer_mut(parent).expect("its parent is there")[member] = value;
    object
}

/// What stands there before each attack: nodes `a` and `b` of zone `shore`.
fn world() -> Vec<Value> {
    let issued = json!({"createdAt": "2026-01-01T00:00:00.000Z", "value": "AAAA"});
    vec![
        agent_status("a", "key"),
        report("shore.0.a", "a"),
        ours("ZoneHealth", "shore", json!({"zone": "shore"})),
        ours(
            "ZoneChallenge",
            "shore",
            json!({"zone": "shore", "current": issued}),
        ),
        ours(
            "NodeIncident",
            "a-1",
            json!({"nodeName": "a", "nodeUid": "u", "zone": "shore"}),
        ),
        lease("evenkeel-zone-shore", "a_0123456789abcdef"),
        lease("evenkeel-controller", "controller_1"),
        lease("evenkeel-controller-replica-x", "controller_1"),
    ]
}

/// What attacks and duties create.
fn extras() -> Vec<Value> {
    let incident = json!({"nodeName": "b", "nodeUid": "u", "zone": "shore"});
    let reports = ["shore.0.b", "shore.1.0.b", "shore.7.b", "b"].map(|name| report(name, "b"));
    let leases = ["mine", "evenkeel-zone-shore.1"].map(|name| lease(name, ""));
    let others = [agent_status("c", "mine"), ours("NodeIncident", "b-1", incident)];
    reports.into_iter().chain(leases).chain(others).collect()
}

/// All attacks.
pub fn attacks() -> Vec<Attack> {
    let list = [
        (
            "another node's key",
            Who::Pod("b"),
            Write::Merge(agent_status("a", "mine")),
            STATUS,
        ),
        (
            "another node's key, by a unit of the host",
            Who::Unit("b"),
            Write::Merge(agent_status("a", "mine")),
            STATUS,
        ),
        (
            "a key for a node without an agent",
            Who::Pod("b"),
            Write::Create(agent_status("c", "mine")),
            STATUS,
        ),
        (
            "a key by a token of no node",
            Who::Nowhere,
            Write::Merge(agent_status("a", "mine")),
            STATUS,
        ),
        (
            "a key by another account",
            Who::Stranger,
            Write::Merge(agent_status("a", "mine")),
            STATUS,
        ),
        (
            "the UID of another node",
            Who::Pod("a"),
            Write::Merge(agent_status("a", "mine")),
            STATUS,
        ),
        (
            "an owner whose absence deletes another node's key",
            Who::Unit("b"),
            Write::Merge(with(
                agent_status("a", "key"),
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}]),
            )),
            STATUS,
        ),
        (
            "the end of another node's key",
            Who::Unit("b"),
            Write::Delete(agent_status("a", "key")),
            STATUS,
        ),
        (
            "a finalizer that keeps a key from being deleted",
            Who::Unit("a"),
            Write::Merge(with(
                agent_status("a", "key"),
                "/metadata/finalizers",
                json!(["example.com/never"]),
            )),
            STATUS,
        ),
        (
            "another reporter's report",
            Who::Pod("b"),
            Write::Merge(with(report("shore.0.a", "a"), "/spec/sequence", json!(9))),
            REPORT,
        ),
        (
            "a report in another reporter's name",
            Who::Pod("b"),
            Write::Create(report("shore.0.b", "a")),
            REPORT,
        ),
        (
            "a report of a node whose name ends likewise",
            Who::Pod("b"),
            Write::Create(report("shore.1.0.b", "b")),
            REPORT,
        ),
        (
            "the end of another reporter's report",
            Who::Pod("b"),
            Write::Delete(report("shore.0.a", "a")),
            REPORT,
        ),
        (
            "a report without a cell",
            Who::Pod("b"),
            Write::Create(report("b", "b")),
            REPORT,
        ),
        (
            "a report by another account",
            Who::Stranger,
            Write::Create(report("shore.0.b", "b")),
            REPORT,
        ),
        (
            "a report that cannot be deleted",
            Who::Pod("b"),
            Write::Create(with(
                report("shore.0.b", "b"),
                "/metadata/finalizers",
                json!(["example.com/never"]),
            )),
            REPORT,
        ),
        (
            "a roster",
            Who::Unit("b"),
            Write::Merge(ours("ZoneHealth", "shore", json!({"zone": "mine"}))),
            CONTROLLER,
        ),
        (
            "a roster by another account",
            Who::Stranger,
            Write::Merge(ours("ZoneHealth", "shore", json!({"zone": "mine"}))),
            CONTROLLER,
        ),
        (
            "the end of a roster",
            Who::Unit("b"),
            Write::Delete(ours("ZoneHealth", "shore", json!({}))),
            CONTROLLER,
        ),
        (
            "a challenge",
            Who::Stranger,
            Write::Merge(ours("ZoneChallenge", "shore", json!({"wanted": ["u"]}))),
            CONTROLLER,
        ),
        (
            "an incident",
            Who::Stranger,
            Write::Create(ours(
                "NodeIncident",
                "b-1",
                json!({"nodeName": "b", "nodeUid": "u", "zone": "shore"}),
            )),
            CONTROLLER,
        ),
        (
            "the state of an incident",
            Who::Stranger,
            Write::MergeStatus(with(
                ours("NodeIncident", "a-1", json!({})),
                "/status",
                json!({"closedAt": "2026-01-01T00:00:00Z"}),
            )),
            CONTROLLER,
        ),
        (
            "the cell of a node",
            Who::Unit("b"),
            Write::MergeStatus(with(
                agent_status("a", "key"),
                "/status",
                json!({"cell": "other"}),
            )),
            CONTROLLER,
        ),
        (
            "the controller's Lease",
            Who::Pod("b"),
            Write::Merge(lease("evenkeel-controller", "b_1")),
            LEASES,
        ),
        (
            "the controller's Lease by another account",
            Who::Stranger,
            Write::Merge(lease("evenkeel-controller", "me")),
            LEASES,
        ),
        (
            "the Lease of a replica",
            Who::Stranger,
            Write::Merge(lease("evenkeel-controller-replica-x", "me")),
            LEASES,
        ),
        (
            "a Lease of no cell",
            Who::Pod("b"),
            Write::Create(lease("mine", "b_1")),
            LEASES,
        ),
        (
            "a cell's Lease for another node",
            Who::Pod("b"),
            Write::Merge(lease("evenkeel-zone-shore", "a_1")),
            LEASES,
        ),
        (
            "a cell's Lease for a node whose name begins likewise",
            Who::Pod("b"),
            Write::Merge(lease("evenkeel-zone-shore", "b2_1")),
            LEASES,
        ),
        (
            "the end of another node's Lease",
            Who::Pod("b"),
            Write::Merge(lease("evenkeel-zone-shore", "")),
            LEASES,
        ),
        (
            "a cell's Lease by a token of no node",
            Who::Nowhere,
            Write::Merge(lease("evenkeel-zone-shore", "_1")),
            LEASES,
        ),
        (
            "a cell's Lease for years",
            Who::Pod("b"),
            Write::Merge(with(
                lease("evenkeel-zone-shore", "b_1"),
                "/spec/leaseDurationSeconds",
                json!(100_000_000),
            )),
            LEASES,
        ),
        (
            "the deletion of a cell's Lease",
            Who::Pod("a"),
            Write::Delete(lease("evenkeel-zone-shore", "")),
            LEASES,
        ),
    ];
    let one = |(name, who, write, policy)| Attack {
        name,
        who,
        write,
        policy,
    };
    list.into_iter().map(one).collect()
}

/// Writes that must succeed: what each may write as its own.
pub fn duties() -> Vec<(&'static str, Who, Write)> {
    vec![
        (
            "its own report",
            Who::Pod("b"),
            Write::Create(report("shore.0.b", "b")),
        ),
        (
            "its report about a cell that it carries",
            Who::Pod("b"),
            Write::Create(report("shore.7.b", "b")),
        ),
        (
            "its own key, by a unit of the host",
            Who::Unit("a"),
            Write::Merge(agent_status("a", "new")),
        ),
        (
            "the first Lease of a cell",
            Who::Pod("b"),
            Write::Create(lease("evenkeel-zone-shore.1", "b_1")),
        ),
        (
            "the Lease of its cell after another one",
            Who::Pod("b"),
            Write::Merge(lease("evenkeel-zone-shore", "b_1")),
        ),
        (
            "the end of its Lease",
            Who::Pod("a"),
            Write::Merge(lease("evenkeel-zone-shore", "")),
        ),
        (
            "a roster",
            Who::Controller,
            Write::Merge(ours("ZoneHealth", "shore", json!({"zone": "shore2"}))),
        ),
        (
            "a challenge",
            Who::Controller,
            Write::Merge(ours("ZoneChallenge", "shore", json!({"wanted": ["u"]}))),
        ),
        (
            "its Lease",
            Who::Controller,
            Write::Merge(lease("evenkeel-controller", "controller_2")),
        ),
        (
            "the end of a replica's Lease",
            Who::Controller,
            Write::Delete(lease("evenkeel-controller-replica-x", "")),
        ),
        (
            "the cell of a node",
            Who::Controller,
            Write::MergeStatus(with(
                agent_status("a", "key"),
                "/status",
                json!({"cell": "shore"}),
            )),
        ),
        (
            "a label on a roster",
            Who::Stranger,
            Write::Merge(with(
                ours("ZoneHealth", "shore", json!({})),
                "/metadata/labels",
                json!({"a": "b"}),
            )),
        ),
        (
            "the deletion of a report",
            Who::Stranger,
            Write::Delete(report("shore.0.a", "a")),
        ),
        (
            "a Lease of its own",
            Who::Stranger,
            Write::Create(lease("mine", "me")),
        ),
    ]
}

/// A cluster with Evenkeel's installation under attack.
pub struct Attacked {
    admin: Cluster,
    config: Config,
}

impl Attacked {
    /// `kubeconfig` is an administrator's. Gives the attackers every right, so that policies alone stop them.
    pub async fn new(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("it is a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.expect("the kubeconfig is good");
        let admin = Cluster::by(Client::try_from(config.clone()).expect("the configuration is good"));
        // A kind is served a moment after it was made.
        for object in world() {
            let (api, _) = api_of(&admin.client, object);
            until("the kinds are served", async || {
                api.list(&ListParams::default()).await.is_ok()
            })
            .await;
        }
        for name in ["a", "b"] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            admin.create_any(node).await;
        }
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stranger", "namespace": "default"}});
        admin.create_any(account).await;
        let rules = json!([
            {"apiGroups": ["evenkeel.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        ]);
        admin
            .create::<ClusterRole>(json!({"metadata": {"name": "too-much"}, "rules": rules}))
            .await;
        let subject =
            |group: &str| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group});
        admin
            .create::<ClusterRoleBinding>(json!({
                "metadata": {"name": "too-much"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "too-much"},
                "subjects": [subject("system:serviceaccounts"), subject("system:nodes")],
            }))
            .await;
        Self { admin, config }
    }

    /// Puts everything back as it was.
    pub async fn restore(&self) {
        for object in world().into_iter().chain(extras()) {
            let (api, object) = api_of(&self.admin.client, object);
            let name = object.metadata.name.clone().unwrap_or_default();
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let freed = api.patch(&name, &PatchParams::default(), &free).await.map(|_| ());
            let deleted = api.delete(&name, &DeleteParams::default()).await.map(|_| ());
            for done in [freed, deleted] {
                match done {
                    Err(kube::Error::Api(status)) if status.code != 404 => unreachable!("{name}: {status}"),
                    _ => {}
                }
            }
        }
        for object in world() {
            let (api, object) = api_of(&self.admin.client, object);
            api.add(&object).await;
        }
    }

    /// Does a write, and says why it was refused.
    pub async fn attempt(&self, who: Who, write: &Write) -> Result<(), String> {
        let client = self.client(who).await;
        let (Write::Create(object)
        | Write::Merge(object)
        | Write::MergeStatus(object)
        | Write::Delete(object)) = write;
        let (api, object) = api_of(&client, object.clone());
        let name = object.metadata.name.clone().unwrap_or_default();
        let parameters = PatchParams::default();
        let done = match write {
            Write::Create(_) => api.create(&PostParams::default(), &object).await.map(|_| ()),
            Write::Merge(patch) => api
                .patch(&name, &parameters, &Patch::Merge(patch))
                .await
                .map(|_| ()),
            Write::MergeStatus(patch) => {
                let patch = Patch::Merge(json!({"status": patch["status"]}));
                api.patch_status(&name, &parameters, &patch).await.map(|_| ())
            }
            Write::Delete(_) => api.delete(&name, &DeleteParams::default()).await.map(|_| ()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
            Err(error) => unreachable!("no answer: {error}"),
        }
    }

    /// Attacks, with the policy and without it.
    pub async fn is_stopped_by_its_policy_alone(&self, attack: &Attack) {
        let refusal = format!(
            "ValidatingAdmissionPolicy '{0}' with binding '{0}' denied request",
            attack.policy
        );
        // A server takes a moment until it has heard of a policy.
        until(&format!("{} is refused", attack.name), async || {
            self.restore().await;
            let done = self.attempt(attack.who, &attack.write).await;
            done.is_err_and(|why| why.starts_with("403 ") && why.contains(&refusal))
        })
        .await;
        let bindings = self.admin.api::<Binding>();
        let binding = bindings.get(attack.policy).await.expect("it is installed");
        bindings.remove(attack.policy).await;
        until(
            &format!("{} succeeds without {}", attack.name, attack.policy),
            async || {
                self.restore().await;
                self.attempt(attack.who, &attack.write).await.is_ok()
            },
        )
        .await;
        let again = json!({"metadata": {"name": attack.policy}, "spec": binding.spec});
        self.admin.create::<Binding>(again).await;
    }

    /// A client with the credentials of such a one.
    pub async fn client(&self, who: Who) -> Client {
        let mut config = self.config.clone();
        let account = |namespace, name, node| self.token(namespace, name, node);
        let token = match who {
            Who::Unit(node) => {
                config.auth_info.impersonate = Some(format!("system:node:{node}"));
                config.auth_info.impersonate_groups =
                    Some(vec!["system:nodes".to_owned(), "system:authenticated".to_owned()]);
                return Client::try_from(config).expect("the configuration is good");
            }
            Who::Pod(node) => account(NAMESPACE, "evenkeel-agent", Some(node)).await,
            Who::Nowhere => account(NAMESPACE, "evenkeel-agent", None).await,
            Who::Stranger => account("default", "stranger", None).await,
            Who::Controller => account(NAMESPACE, "evenkeel-controller", None).await,
        };
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.into()),
            ..kube::config::AuthInfo::default()
        };
        Client::try_from(config).expect("the configuration is good")
    }

    async fn token(&self, namespace: &str, account: &str, node: Option<&str>) -> String {
        let bound = match node {
            None => None,
            Some(name) => {
                let node: Node = self.admin.get(name).await;
                Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Node".to_owned()),
                    name: Some(name.to_owned()),
                    uid: node.metadata.uid,
                })
            }
        };
        let request = TokenRequest {
            spec: TokenRequestSpec {
                bound_object_ref: bound,
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = self.admin.namespaced(namespace).api();
        let made = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await;
        let status = made.expect("the account is there").status;
        status.expect("the server gives a token").token
    }
}

type Binding = k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
