//! What the objects of a cluster say about its nodes, as plain data. Pure: objects and a time in, a report
//! out.
//!
//! Nothing is decided here. What is told is what the leading controller has published in the NodeIncidents; a
//! node without an open incident is Healthy as far as the leader says.

use evenkeel_api::crd::{FailoverPolicy, NodeIncident, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_failover_rules::world::LEADER_SEEN_MS;
use evenkeel_judge::NodeState;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

/// A leader whose Lease was not renewed for this long counts as not working. Followers use the same time.
pub const LEADER_SILENT_SECONDS: i64 = LEADER_SEEN_MS.cast_signed() / 1000;
/// A zone whose Lease was not renewed for this long is silent, unless its reports go on.
pub const ZONE_SILENT_SECONDS: i64 = 30;
/// What a report lists is shown for this long: reporters repeat rounds about listed members every 10 s at
/// most.
pub const REPORT_SILENT_SECONDS: i64 = 60;
/// Closed incidents that are shown beside the open ones.
pub const RECENT: usize = 20;

/// What was read.
#[derive(Clone, Debug)]
pub struct Found {
    /// When, by the clock of the machine that asks.
    pub now: Timestamp,
    /// Evenkeel's namespace.
    pub namespace: String,
    pub nodes: Vec<Node>,
    pub incidents: Vec<NodeIncident>,
    pub zones: Vec<ZoneHealth>,
    pub challenges: Vec<ZoneChallenge>,
    pub reports: Vec<ZoneReport>,
    pub policies: Vec<FailoverPolicy>,
    /// The Leases of that namespace.
    pub leases: Vec<Lease>,
    /// Value of the annotation that pauses Evenkeel.
    pub pause: Option<String>,
    /// What could not be read, and what to do about it.
    pub troubles: Vec<String>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Every node, one line each.
    Nodes,
    /// One node, with everything that is known of it.
    Node(String),
    /// The zones, or one of them.
    Zones(Option<String>),
    /// Open and recent incidents, or all of one node.
    Incidents(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// When it was taken, by the clock of the machine that asked.
    pub taken_at: Timestamp,
    /// Namespace that Evenkeel is installed in.
    pub namespace: String,
    /// Every node that was asked for is Healthy, a controller works, and everything could be read.
    pub healthy: bool,
    /// Why Evenkeel is paused, if it is.
    pub pause: Option<String>,
    pub controller: Controller,
    /// What was asked for.
    #[serde(flatten)]
    pub subject: Subject,
    /// What could not be read or does not hold together, and what to do about it.
    pub troubles: Vec<String>,
}

/// The controller as its Leases show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    /// The replica that leads.
    pub leader: Leader,
    /// Replicas whose own Leases were renewed lately, by this machine's clock.
    pub working_replicas: Vec<String>,
}

/// The replica that leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Leader {
    /// It renews its Lease.
    Works(Term),
    /// It holds the Lease, and has not renewed it for [`LEADER_SILENT_SECONDS`].
    Silent(Term),
    /// Nobody holds the Lease.
    None,
}

/// A term of leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    /// Name of the replica in the election.
    pub name: String,
    /// When the term began, by the leader's clock.
    pub since: Option<Timestamp>,
    /// When the Lease was renewed last, by the leader's clock.
    pub renewed_at: Option<Timestamp>,
}

impl Leader {
    pub(super) fn term(&self) -> Option<&Term> {
        match self {
            Self::Works(term) | Self::Silent(term) => Some(term),
            Self::None => None,
        }
    }

    /// Whether somebody decides now.
    pub fn works(&self) -> bool {
        matches!(self, Self::Works(_))
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    Nodes(Vec<NodeLine>),
    Node(Box<Story>),
    Zones(Vec<ZoneLine>),
    /// Incidents: the open ones first.
    Incidents(Vec<IncidentLine>),
    /// There is no such thing.
    Unknown(Unknown),
}

/// Something that was asked for and does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unknown {
    /// `node` or `zone`.
    pub kind: &'static str,
    /// The name that was given.
    pub name: String,
    /// Names that are like it.
    pub closest: Vec<String>,
}

/// Whether Evenkeel acts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It decides and acts.
    Act,
    /// It decides and records, by policy or by the controller's flag.
    Observe,
    /// It decides and records, because of the pause.
    Paused,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    /// Name of the Node.
    pub name: String,
    /// State with its phase, as the leader published it.
    pub state: String,
    /// When the state began.
    pub since: Option<Timestamp>,
    /// Why, as one sentence.
    pub reason: String,
    /// Whether anything is done about it.
    pub mode: Mode,
    pub zone: Option<String>,
    /// Its agent is in the roster of a zone: neighbours watch it.
    pub watched: bool,
    /// Status of the condition Ready.
    pub ready: String,
    /// Name of its open NodeIncident.
    pub incident: Option<String>,
    /// The replica that decided.
    pub decided_by: Option<String>,
    /// When it decided, by its own clock.
    pub decided_at: Option<Timestamp>,
    /// The decision is older than the term of the present leader, or by a replica that does not lead.
    pub older_than_leader: bool,
}

impl NodeLine {
    /// Whether the leader has nothing to say against it.
    pub fn is_healthy(&self) -> bool {
        self.state == NodeState::Healthy.label()
    }
}

/// Everything that is known of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Story {
    /// The present decision; `None`: the Node does not exist any more.
    pub present: Option<NodeLine>,
    /// Name that was asked for.
    pub name: String,
    /// What the decision rests on.
    pub evidence: Vec<String>,
    /// What would change it.
    pub changes: Vec<String>,
    /// What only evidence takes back.
    pub latch: Vec<String>,
    /// What is missing for a fence proof, and what an operator can do; empty where nothing waits for one.
    pub fence_missing: String,
    /// Taints that Evenkeel put on the node and will remove.
    pub added_taints: String,
    /// The settings that hold.
    pub settings: Vec<Setting>,
    /// Values of policies that nothing acts upon, or that a more cautious policy overrules.
    pub not_in_effect: Vec<String>,
    /// History of the open incident, else of the last one; oldest first.
    pub timeline: Vec<Row>,
    /// Incidents of this node that are over, newest first.
    pub earlier: Vec<IncidentLine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// Field of a FailoverPolicy.
    pub name: &'static str,
    /// The value that holds.
    pub value: String,
    /// Whose it is.
    pub from: String,
}

/// A line of an incident's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub time: Option<Timestamp>,
    /// What, as a name.
    pub event: String,
    /// What, for people.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneLine {
    /// Value of the zone label.
    pub zone: String,
    /// Number of the cell: a zone of more than 64 members has several.
    pub cell: u32,
    /// Name of its ZoneHealth.
    pub object: String,
    /// Names of the members.
    pub members: Vec<String>,
    /// Names of the members that have no vote yet, because they have not met the others.
    pub learners: Vec<String>,
    /// Most of the former voters know the roster; until then verdicts need their majority, too.
    pub settled: bool,
    /// Nodes of the zone that no agent watches.
    pub without_agent: Vec<String>,
    /// Version of the roster.
    pub roster_version: i64,
    /// The members that have reports.
    pub reporters: Vec<String>,
    /// Members that are not plainly healthy, as the newest report that lists them says.
    pub listed: Vec<Listed>,
    /// Members about which the controller wants rounds of votes.
    pub wanted: Vec<String>,
    /// Who holds the Lease of the zone.
    pub holder: String,
    /// When the Lease was renewed last, by the holder's clock.
    pub renewed_at: Option<Timestamp>,
    /// That is longer ago than a zone may be silent, by this machine's clock.
    pub silent: bool,
}

/// A member that is not plainly healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    pub name: String,
    /// `Dead`, `Alive` or `None`.
    pub verdict: String,
    /// Why, in the reporter's words.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IncidentLine {
    /// Name of the object.
    pub name: String,
    /// Name of the node.
    pub node: String,
    /// Its zone; empty for none.
    pub zone: String,
    /// The last state.
    pub state: String,
    pub reason: String,
    /// When the incident was opened.
    pub opened_at: Option<Timestamp>,
    /// When it ended; `None`: it is open.
    pub closed_at: Option<Timestamp>,
    /// The replica that decided last.
    pub decided_by: String,
}

impl Report {
    /// Exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match (&self.subject, self.healthy) {
            (Subject::Unknown(_), _) => 2,
            (_, true) => 0,
            (_, false) => 1,
        }
    }
}
