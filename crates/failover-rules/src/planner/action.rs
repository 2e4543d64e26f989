//! What the planner wants done. Each action is idempotent and names its object by UID; the shell adds the
//! preconditions. An action that failed is simply part of the next plan again.

use super::incident::Incident;
use crate::world::facts::{PodRef, TaintRef};
use evenkeel_api::crd::FailoverPolicyStatus;
use evenkeel_api::zone::RosterSpec;
use evenkeel_zone::Millis;

/// A node by name and UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRef {
    pub name: String,
    pub uid: String,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put a taint on a node and note it in the annotation of added taints.
    Taint {
        node: NodeRef,
        /// Which taint; `timeAdded` is set by the shell.
        taint: TaintRef,
        /// A step towards something irreversible: first make sure by a quorum read of Lease and Node that the
        /// node gave no sign of life since.
        proof: Option<StillDead>,
    },
    /// Put a taint on a node that the stock controller would put there, and takes off itself.
    TaintForStock {
        node: NodeRef,
        /// resourceVersion that the decision rests on.
        version: String,
        taint: TaintRef,
    },
    /// Take taints off a node.
    Untaint {
        node: NodeRef,
        /// Which; those that are not there are no error.
        taints: Vec<TaintRef>,
    },
    /// Write `Ready=Unknown` with our reason on a node, heartbeat untouched, never over a newer True
    /// (KEP-6371). The node must still be silent by a quorum read: the stock controllers answer this mark
    /// with NoExecute.
    MarkNodeUnknown {
        node: NodeRef,
        /// resourceVersion that the decision rests on.
        version: String,
        message: String,
    },
    /// Write `Ready=False` on a pod, so that it leaves the endpoints of its Services.
    MarkPodNotReady {
        pod: PodRef,
        /// resourceVersion that the decision rests on.
        version: String,
        /// Reason of the condition; empty where the stock controller's own mark is made up for.
        reason: String,
        message: String,
    },
    /// Give a pod back the `Ready=True` that the stock controller or we took although only its node's link is
    /// down.
    RestorePodReady {
        pod: PodRef,
        /// resourceVersion that the decision rests on.
        version: String,
        message: String,
    },
    /// Condition DisruptionTarget, then DELETE with the UID as precondition and the pod's own grace period.
    Evict {
        pod: PodRef,
        node: NodeRef,
        /// The node must still be silent.
        proof: StillDead,
        /// When the node was found dead.
        dead_since: Millis,
        message: String,
    },
    /// The same from a node that is kept, as long as nothing of the pod has changed.
    EvictFromKept {
        pod: PodRef,
        node: NodeRef,
        /// resourceVersion that the decision rests on.
        version: String,
        message: String,
    },
    /// Mirror the verdict to the SuperEdge annotation.
    MirrorVerdict {
        node: NodeRef,
        /// `true`: its neighbours vouch for it.
        healthy: bool,
    },
    /// Write an incident as it shall stand; create it where it is missing.
    SaveIncident(Box<Incident>),
    /// Delete an incident that is long over.
    DeleteIncident {
        name: String,
        /// UID of the object.
        uid: String,
    },
    /// Publish a cell's roster; create its ZoneHealth where it is missing.
    PublishCell {
        zone: String,
        /// Number of the cell in its zone.
        cell: u32,
        roster: RosterSpec,
    },
    /// Write what is asked of a cell; create its ZoneChallenge where it is missing.
    Challenge {
        zone: String,
        /// Number of the cell in its zone.
        cell: u32,
        /// The challenge that stands in the object; `None` where there is no object.
        replaces: Option<String>,
        /// Whether to draw a new challenge. The time is taken before it is written.
        draw: bool,
        /// UIDs of the members about which rounds are wanted.
        wanted: Vec<String>,
    },
    /// Delete the ZoneHealth and the ZoneChallenge of a cell that has no member any more.
    DeleteCell {
        /// Name of the object.
        object: String,
        /// UID of the object.
        uid: String,
    },
    /// Tell an agent which cell it belongs to.
    TellCell {
        /// Name of the agent's node.
        node: String,
        /// Name of the cell's ZoneHealth; empty for the first cell of the zone.
        object: String,
    },
    /// Say in a policy's status what it selects and where it is overruled.
    SavePolicyStatus {
        /// Name of the FailoverPolicy.
        policy: String,
        status: FailoverPolicyStatus,
    },
    Event(Notice),
}

/// What must still hold at the moment of an irreversible write: no sign of life since the planner looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillDead {
    /// When the node's last sign of life was seen.
    pub known_since: Option<Millis>,
}

/// An Event about a node or a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub about: About,
    /// When it happened: the Event may be written later.
    pub at: Millis,
    /// Warning rather than Normal.
    pub warning: bool,
    /// Reason, one of [`evenkeel_api::names::events`].
    pub reason: String,
    pub message: String,
    /// Name of the incident and of the entry into the state: the same notice twice is one Event.
    pub incident: String,
}

/// The object of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Node(NodeRef),
    Pod(PodRef),
}

impl Action {
    /// Order of execution: actions that bring service back come first, records for people last.
    pub fn rank(&self) -> u8 {
        match self {
            Self::MarkPodNotReady { .. } | Self::RestorePodReady { .. } | Self::Untaint { .. } => 0,
            Self::MarkNodeUnknown { .. } => 1,
            Self::Taint { .. } | Self::TaintForStock { .. } | Self::Challenge { .. } => 2,
            Self::Evict { .. } | Self::EvictFromKept { .. } => 3,
            Self::PublishCell { .. } | Self::SaveIncident(_) => 4,
            Self::DeleteCell { .. }
            | Self::TellCell { .. }
            | Self::MirrorVerdict { .. }
            | Self::SavePolicyStatus { .. }
            | Self::DeleteIncident { .. }
            | Self::Event(_) => 5,
        }
    }

    /// Identity of what is acted upon: one action per key is under way at a time.
    pub fn key(&self) -> String {
        match self {
            Self::Taint { node, taint, .. } | Self::TaintForStock { node, taint, .. } => {
                format!("taint {} {}:{}", node.uid, taint.key, taint.effect)
            }
            Self::Untaint { node, .. } => format!("untaint {}", node.uid),
            Self::MarkNodeUnknown { node, .. } => format!("unknown {}", node.uid),
            Self::MarkPodNotReady { pod, .. } | Self::RestorePodReady { pod, .. } => {
                format!("ready {}", pod.uid)
            }
            Self::Evict { pod, .. } | Self::EvictFromKept { pod, .. } => format!("evict {}", pod.uid),
            Self::MirrorVerdict { node, .. } => format!("mirror {}", node.uid),
            Self::SaveIncident(incident) => format!("incident {}", incident.name),
            Self::DeleteIncident { uid, .. } => format!("delete incident {uid}"),
            Self::PublishCell { zone, cell, .. } => format!("cell {cell} of zone {zone}"),
            Self::Challenge { zone, cell, .. } => format!("challenge of cell {cell} of zone {zone}"),
            Self::DeleteCell { object, .. } => format!("delete cell {object}"),
            Self::TellCell { node, .. } => format!("cell of {node}"),
            Self::SavePolicyStatus { policy, .. } => format!("policy {policy}"),
            Self::Event(notice) => match &notice.about {
                About::Node(node) => format!("event {} {} {}", notice.incident, node.uid, notice.reason),
                About::Pod(pod) => format!("event {} {} {}", notice.incident, pod.uid, notice.reason),
            },
        }
    }
}

/// Something measured, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// From the last sign of life seen to Dead.
    Detection(u64),
    /// From Dead to the last pod of the node out of endpoints.
    EndpointsOut(u64),
    /// So many pods of a living node were marked not ready by the stock controller: writes that passed while
    /// no replica's webhook could correct them.
    MarksPassed(usize),
}

/// What comes of a look at the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// To be done, most urgent first.
    pub actions: Vec<Action>,
    /// Measured on the way.
    pub measures: Vec<Measure>,
    /// What is wrong with objects that people or agents wrote, with what to do; the same as long as it lasts.
    pub complaints: Vec<String>,
    /// Nodes with an agent for which no cell of their zone has room: Kubernetes alone cares for them.
    pub without_cell: usize,
    /// Members whose kubelet peers cannot check, so that no vote finds them dead.
    pub unchecked: usize,
    /// Members whose agents cannot make the checks that they are told to make.
    pub unable_to_check: usize,
}
