//! What a diagnosis is made from.

use crate::error::InstallError;
use crate::objects::{Options, value_of};
use crate::rollout::Sight;
use jiff::Timestamp;
use serde_json::Value;

/// Kinds of which the objects are to be as this version applies them, and the check that says it.
pub(crate) const PARTS: [(&str, &str, &str); 7] = [
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "crds"),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "policies",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "policies",
    ),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "rights"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "rights"),
    ("rbac.authorization.k8s.io/v1", "Role", "rights"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rights"),
];

/// What has to be allowed where the API server does not reach the webhook.
pub(crate) const REACHED_SO: &str = "the API server's hosts reach the controllers' pods at TCP port 9443 (network policies, firewalls, the pod network of the control plane)";

/// Whether the API server reaches the webhook's Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nobody could try.
    #[default]
    Unknown,
    /// The webhook answered it.
    Answers,
    /// It did not, for this reason.
    Fails(String),
}

/// Everything that was read. What could not be read is empty, and [`Facts::saw`] says so.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// By this machine's clock.
    pub(crate) now: Timestamp,
    /// By the API server's.
    pub(crate) server_time: Option<Timestamp>,
    pub(crate) version_note: Option<String>,
    pub(crate) version_refused: Option<String>,
    /// What is installed; `None`: nothing.
    pub(crate) options: Option<Options>,
    /// Flags of these options that no workload says.
    pub(crate) unread: Vec<&'static str>,
    /// Why it cannot be said which installation there is, and what to do.
    pub(crate) unclear: Option<(String, String)>,
    /// Why an installation would be refused.
    pub(crate) refused: Option<String>,
    /// Evenkeel's namespace.
    pub(crate) namespace: Value,
    pub(crate) nodes: Vec<Value>,
    /// Pods of the whole cluster.
    pub(crate) pods: Vec<Value>,
    pub(crate) agents: Vec<Value>,
    /// The ZoneHealth of each cell.
    pub(crate) cells: Vec<Value>,
    /// Leases of Evenkeel's namespace.
    pub(crate) leases: Vec<Value>,
    /// Leases of nodes.
    pub(crate) node_leases: Vec<Value>,
    /// Objects of the kinds in [`PARTS`], each with its kind.
    pub(crate) parts: Vec<Value>,
    pub(crate) webhook: Option<Value>,
    pub(crate) reach: Reach,
    /// How often the API server has gone on without the webhook.
    pub(crate) fail_open: Option<u64>,
    /// There is an account kube-system/node-controller.
    pub(crate) has_node_controller_account: bool,
    /// Evenkeel's workloads and their pods.
    pub(crate) sight: Sight,
    /// Kinds that could not be read, and why.
    pub(crate) troubles: Vec<(String, InstallError)>,
}

impl Facts {
    /// Whether all objects of these kinds could be read. An empty list of one that could not says nothing.
    pub(crate) fn saw(&self, kinds: &[&str]) -> bool {
        !self
            .troubles
            .iter()
            .any(|(kind, _)| kinds.contains(&kind.as_str()))
    }

    /// A setting of the controller, from its flags or its environment.
    pub(crate) fn controller_setting(&self, flag: &str, variable: &str) -> Option<String> {
        let container = self
            .sight
            .deployment
            .pointer("/spec/template/spec/containers/0")?;
        let args = container["args"].as_array().into_iter().flatten();
        let mut given = args.filter_map(|arg| value_of(arg, flag));
        let variables = container["env"].as_array().into_iter().flatten();
        let mut set = variables
            .filter(|entry| entry["name"] == variable)
            .filter_map(|entry| entry["value"].as_str());
        given.next().or_else(|| set.next()).map(str::to_owned)
    }
}
