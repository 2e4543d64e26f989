//! The cluster as the watches have shown it: plain values.

use evenkeel_api::crd::{AgentStatusSpec, FailoverPolicyStatus, NodeIncidentSpec, NodeIncidentStatus};
use evenkeel_api::names::{conditions, taints};
use evenkeel_api::zone::RosterSpec;
use evenkeel_judge::evidence::Life;
use evenkeel_judge::policy::Policy;
use evenkeel_stock_rules::tolerations::NO_EXECUTE;
use evenkeel_zone::Millis;
use evenkeel_zone::roster::RosterRef;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// A condition's status, or that there is no such condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    /// Its writer does not know.
    Unknown,
    /// The object does not carry the condition.
    #[default]
    Missing,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    /// UID: a machine that is registered again is another node.
    pub uid: String,
    /// resourceVersion of the object these facts were read from.
    pub version: String,
    pub labels: BTreeMap<String, String>,
    /// Status of its Ready condition.
    pub ready: Status,
    /// Whether the kubelet's own last statement was Ready=False, if this replica saw it. Pods that are marked
    /// then are marked rightly.
    pub says_not_ready: Option<bool>,
    /// Our own `Ready=Unknown` stands on it, from a death that was confirmed.
    pub marked_by_us: bool,
    /// When the stock controller's mark says that it was put on, while it stands.
    pub marked_time: Option<Timestamp>,
    pub taints: Vec<Taint>,
    /// `key:effect` of the taints that we added, by the node's annotation.
    pub added: Vec<TaintRef>,
    /// Why nothing is fenced on it: a maintenance condition, or a cordon.
    pub maintenance: Option<String>,
    /// The verdict as it is mirrored in the SuperEdge annotation.
    pub mirrored: Option<bool>,
    /// Signs of life.
    pub life: Life,
}

impl NodeFacts {
    /// The taint of that key and effect.
    pub fn taint(&self, key: &str, effect: &str) -> Option<&Taint> {
        self.taints
            .iter()
            .find(|taint| taint.key == key && taint.effect == effect)
    }
}

/// A taint by what identifies it on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaintRef {
    pub key: String,
    pub effect: String,
}

impl TaintRef {
    /// From its parts.
    pub fn new(key: &str, effect: &str) -> Self {
        Self {
            key: key.to_owned(),
            effect: effect.to_owned(),
        }
    }

    /// The taint by which pods of an unreachable node are evicted.
    pub fn evicting() -> Self {
        Self::new(taints::UNREACHABLE, NO_EXECUTE)
    }

    /// Reads the annotation: comma-separated `key:effect`; what is not of that form is left out.
    pub fn parse_list(text: &str) -> Vec<Self> {
        text.split(',')
            .filter_map(|one| one.trim().rsplit_once(':'))
            .filter(|(key, effect)| !key.is_empty() && !effect.is_empty())
            .map(|(key, effect)| Self::new(key, effect))
            .collect()
    }

    /// As it stands on a node that got it at that time.
    pub fn to_taint(&self, added: Option<Time>) -> Taint {
        Taint {
            key: self.key.clone(),
            effect: self.effect.clone(),
            value: None,
            time_added: added,
        }
    }

    /// Whether it is one that Evenkeel puts on nodes.
    pub fn is_ours(&self) -> bool {
        taints::ADDED.contains(&(self.key.as_str(), self.effect.as_str()))
    }

    /// Writes the annotation.
    pub fn format_list(list: &[Self]) -> String {
        list.iter()
            .map(|one| format!("{}:{}", one.key, one.effect))
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// A pod by what identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    /// UID: what is decided about a pod never touches its namesake.
    pub uid: String,
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What keeps a pod where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Nothing: a controller replaces it anywhere.
    #[default]
    Other,
    /// Nobody replaces it: once deleted it is lost, and a machine that comes back starts it again.
    Nobody,
    /// A DaemonSet: one per node, never evicted.
    DaemonSet,
    /// A StatefulSet: at most one pod per identity (safety property S2).
    StatefulSet,
    /// A file on the node: the object is only a mirror, never evicted.
    Static,
}

/// A pod that is bound to a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    pub pod: PodRef,
    /// resourceVersion of the object these facts were read from.
    pub version: String,
    /// What owns it.
    pub owner: Owner,
    /// Priority; higher is evicted first, so that it is back first.
    pub priority: i32,
    /// Those that speak of `unreachable`.
    pub tolerations: Vec<Toleration>,
    /// PersistentVolumeClaims it mounts, by name.
    pub claims: Vec<String>,
    /// The pod itself names a disk for a single writer.
    pub has_inline_disk: bool,
    /// Status of its Ready condition.
    pub ready: Status,
    /// Reason of its Ready condition.
    pub ready_reason: String,
    /// When the Ready condition says that its status changed.
    pub ready_time: Option<Timestamp>,
    /// When the pod was seen to become ready under our eyes.
    pub became_ready: Option<Millis>,
    /// Since when it has been seen ready, by the present value of `ready_time`.
    pub ready_seen: Option<Millis>,
    /// Its containers and all its readiness gates say ready: a Ready=False on top is not its own.
    pub ready_by_itself: bool,
    /// Its kubelet has said anything about it. Until then it does not run, as far as anybody knows.
    pub acknowledged: bool,
    /// When it was first seen on its node.
    pub seen: Millis,
    /// Succeeded or Failed.
    pub finished: bool,
    /// It has a deletion timestamp.
    pub terminating: bool,
}

impl PodFacts {
    /// Whether somebody marked it not ready on top of ready containers and readiness gates, for no reason
    /// that is given. The stock node controller gives none, and keeps the one that stands there: with ours of
    /// a pod that was given back we never say Ready=False. Who gives another one has a reason.
    pub fn is_marked_by_stock(&self) -> bool {
        self.is_marked() && ["", conditions::REASON_GIVEN_BACK].contains(&self.ready_reason.as_str())
    }

    /// Whether somebody marked it not ready on top of ready containers and readiness gates.
    pub fn is_marked(&self) -> bool {
        self.ready == Status::False && self.ready_by_itself && !self.finished && !self.terminating
    }
}

/// How a claim may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// ReadWriteOnce or ReadWriteOncePod: two writers would destroy data.
    SingleWriter,
    /// Only ReadWriteMany or ReadOnlyMany.
    Shared,
}

/// What the object of a cell shows as its roster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// The last roster that counted, signed with the controllers' present key if they have one.
    #[default]
    Roster,
    /// Nothing yet, or something else: the next roster is written at once.
    Other,
    /// Something that does not count, and no roster is known that did: agents may have one of any version, so
    /// that the object is made anew.
    Foreign,
}

/// A cell's ZoneHealth object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellFacts {
    /// UID of the object.
    pub uid: String,
    /// The zone that the cell is a part of.
    pub zone: String,
    /// Its number in the zone.
    pub number: u32,
    /// The last roster that counted; without a version if none is known.
    pub roster: RosterSpec,
    pub shown: Shown,
}

/// What is asked of a cell, as published.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChallengeFacts {
    pub current: Drawn,
    /// UIDs of the members about which rounds are wanted.
    pub wanted: Vec<String>,
}

/// A challenge as it was published.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawn {
    /// As the object has it.
    pub value: String,
    /// When this process drew it; `None` if another one did.
    pub drawn: Option<Millis>,
    /// When it was first seen here.
    pub seen: Millis,
}

/// A policy with what its status says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyFacts {
    pub policy: Policy,
    /// Status as it stands.
    pub status: FailoverPolicyStatus,
}

/// An incident as it stands in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IncidentFacts {
    /// UID of the object.
    pub uid: String,
    pub spec: NodeIncidentSpec,
    /// As it was last written.
    pub status: NodeIncidentStatus,
    /// When it was first seen so. No time in it can be later, whatever this replica's clock says.
    pub received: Millis,
}

impl IncidentFacts {
    /// Whether it is open, and says that the kubelet of the node of that UID had said Ready=False.
    pub fn recalls_not_ready(&self, node_uid: &str) -> bool {
        self.spec.node_uid == node_uid && self.status.closed_at.is_none() && self.status.said_not_ready
    }
}

/// Everything the planner sees.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// Pods by node name, then by UID.
    pub pods: BTreeMap<String, BTreeMap<String, PodFacts>>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(String, String), Access>,
    /// Cells by name of their ZoneHealth.
    pub cells: BTreeMap<String, CellFacts>,
    /// What is asked of cells, by object name.
    pub challenges: BTreeMap<String, ChallengeFacts>,
    /// By zone and number, the last roster of each cell that counted, also of one whose object is gone: the
    /// next one is made of it.
    pub last_rosters: BTreeMap<(String, u32), RosterSpec>,
    /// What is published, by name of the ZoneHealth.
    pub published: BTreeMap<String, RosterRef>,
    /// By name of the ZoneHealth and of the reporter's node: the roster of the newest round in its report.
    pub reported: BTreeMap<String, BTreeMap<String, RosterRef>>,
    /// What agents say of themselves, by node name.
    pub agents: BTreeMap<String, AgentStatusSpec>,
    /// What agents were told of their cells, by node name: names of ZoneHealth objects.
    pub told_cells: BTreeMap<String, String>,
    /// Policies by name.
    pub policies: BTreeMap<String, PolicyFacts>,
    /// Incidents by name.
    pub incidents: BTreeMap<String, IncidentFacts>,
    /// Why everything is paused: the annotation of Evenkeel's namespace.
    pub paused: Option<String>,
}

impl Cluster {
    /// The pods of a node, by UID.
    pub fn pods_of(&self, node: &str) -> impl Iterator<Item = &PodFacts> {
        self.pods.get(node).into_iter().flat_map(BTreeMap::values)
    }

    /// What the policies say, without what was last written of them into their status.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.values().map(|facts| &facts.policy)
    }

    /// Whether the pod must never run twice: a StatefulSet's, or one with a volume for a single writer. A
    /// claim that is not known counts as such.
    pub fn is_stateful(&self, pod: &PodFacts) -> bool {
        let single = |claim: &String| {
            let key = (pod.pod.namespace.clone(), claim.clone());
            self.claims
                .get(&key)
                .is_none_or(|access| *access == Access::SingleWriter)
        };
        pod.owner == Owner::StatefulSet || pod.has_inline_disk || pod.claims.iter().any(single)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_of_added_taints_reads_back() {
        let list = vec![
            TaintRef::new("node.kubernetes.io/unreachable", "NoExecute"),
            TaintRef::new("a", "NoSchedule"),
        ];
        let text = TaintRef::format_list(&list);
        assert_eq!(text, "node.kubernetes.io/unreachable:NoExecute,a:NoSchedule");
        assert_eq!(TaintRef::parse_list(&text), list);
    }

    #[test]
    fn a_garbled_annotation_names_no_taint() {
        assert_eq!(TaintRef::parse_list("garbage,:NoExecute,a:, "), []);
    }

    #[test]
    fn a_pod_is_stateful_by_owner_or_by_volume() {
        let mut world = Cluster::default();
        world
            .claims
            .insert(("ns".to_owned(), "once".to_owned()), Access::SingleWriter);
        world
            .claims
            .insert(("ns".to_owned(), "many".to_owned()), Access::Shared);
        let pod = |owner, claim: &[&str]| PodFacts {
            pod: PodRef {
                namespace: "ns".to_owned(),
                ..Default::default()
            },
            owner,
            claims: claim.iter().map(|claim| (*claim).to_owned()).collect(),
            ..Default::default()
        };
        assert!(world.is_stateful(&pod(Owner::StatefulSet, &[])));
        assert!(world.is_stateful(&pod(Owner::Other, &["many", "once"])));
        assert!(world.is_stateful(&pod(Owner::Other, &["never-seen"])));
        assert!(!world.is_stateful(&pod(Owner::Other, &["many"])));
        assert!(!world.is_stateful(&pod(Owner::Other, &[])));
    }
}
