//! The kinds that are watched.

use evenkeel_api::crd::{AgentStatus, FailoverPolicy, NodeIncident, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_api::watch::{Delta, Progress};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};

/// One change, as a watch delivered it.
#[derive(Clone, Debug)]
pub enum Seen {
    Node(Delta<Node>),
    /// A kubelet's Lease.
    NodeLease(Delta<Lease>),
    /// A pod that is bound to a node.
    Pod(Delta<Pod>),
    Claim(Delta<PersistentVolumeClaim>),
    /// A cell's roster.
    Zone(Delta<ZoneHealth>),
    /// What is asked of a cell.
    Challenge(Delta<ZoneChallenge>),
    /// What a reporter of a cell found.
    Report(Delta<ZoneReport>),
    /// A Lease of Evenkeel's own namespace.
    OwnLease(Delta<Lease>),
    /// What an agent says of itself.
    Agent(Delta<AgentStatus>),
    Policy(Delta<FailoverPolicy>),
    /// The record of a failure.
    Incident(Delta<NodeIncident>),
    /// Evenkeel's own namespace, whose annotation pauses everything.
    Home(Delta<Namespace>),
}

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Node,
    NodeLease,
    Pod,
    Claim,
    Zone,
    Challenge,
    Report,
    OwnLease,
    Agent,
    Policy,
    Incident,
    Home,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Node,
        Self::NodeLease,
        Self::Pod,
        Self::Claim,
        Self::Zone,
        Self::Challenge,
        Self::Report,
        Self::OwnLease,
        Self::Agent,
        Self::Policy,
        Self::Incident,
        Self::Home,
    ];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::NodeLease => "node Lease",
            Self::Pod => "Pod",
            Self::Claim => "PersistentVolumeClaim",
            Self::Zone => "ZoneHealth",
            Self::Challenge => "ZoneChallenge",
            Self::Report => "ZoneReport",
            Self::OwnLease => "Lease in Evenkeel's namespace",
            Self::Agent => "AgentStatus",
            Self::Policy => "FailoverPolicy",
            Self::Incident => "NodeIncident",
            Self::Home => "Evenkeel's Namespace",
        }
    }
}

impl Seen {
    pub fn kind(&self) -> Kind {
        self.parts().0
    }

    /// The kind, and what the change says of its watch.
    pub fn parts(&self) -> (Kind, Progress<'_>) {
        match self {
            Self::Node(delta) => (Kind::Node, delta.progress()),
            Self::NodeLease(delta) => (Kind::NodeLease, delta.progress()),
            Self::Pod(delta) => (Kind::Pod, delta.progress()),
            Self::Claim(delta) => (Kind::Claim, delta.progress()),
            Self::Zone(delta) => (Kind::Zone, delta.progress()),
            Self::Challenge(delta) => (Kind::Challenge, delta.progress()),
            Self::Report(delta) => (Kind::Report, delta.progress()),
            Self::OwnLease(delta) => (Kind::OwnLease, delta.progress()),
            Self::Agent(delta) => (Kind::Agent, delta.progress()),
            Self::Policy(delta) => (Kind::Policy, delta.progress()),
            Self::Incident(delta) => (Kind::Incident, delta.progress()),
            Self::Home(delta) => (Kind::Home, delta.progress()),
        }
    }
}
