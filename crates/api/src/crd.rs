//! The custom resources of `evenkeel.io/v1alpha1`.
//!
//! | kind | written by | read by |
//! |---|---|---|
//! | [`ZoneHealth`] | the controller alone: the roster of a cell | agents, controller, webhook |
//! | [`ZoneReport`] | one reporter of a cell each: the rounds of votes that it held | controller, webhook |
//! | [`AgentStatus`] | `spec` by the agent of that node, `status` (its cell) by the controller | controller (to make rosters), agents, people |
//! | [`FailoverPolicy`] | people | controller |
//! | [`NodeIncident`] | the controller | people, the controller after a restart |
//!
//! All are cluster-scoped. Signed evidence is carried as opaque base64 text: the bytes that were signed, with
//! their signature, exactly as they crossed the wire, so that every reader checks them itself
//! (`evenkeel-zone`).
//!
//! The settings of a [`FailoverPolicy`] stand in [`crate::policy`], because the decision about a node needs
//! them and does without a Kubernetes client.

pub use crate::policy::{
    EndpointsPolicy, FailoverPolicy, FailoverPolicySpec, FencingPolicy, IsolatedPolicy, ModePolicy,
};
use crate::zone::{
    IssuedChallenge, KubeletEndpoint, Report, RosterAcknowledgement, RosterSpec, SignedRoster,
    known_or_default,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One cell, which is a whole zone or a part of one, and its roster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(not(feature = "schema"), kube(schema = "disabled"))]
#[kube(
    group = "evenkeel.io",
    version = "v1alpha1",
    kind = "ZoneHealth",
    doc = "One cell, which is a zone or a part of one, and its roster",
    plural = "zonehealth",
    singular = "zonehealth",
    shortname = "zh",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Zone","type":"string","jsonPath":".spec.zone"}"#,
    printcolumn = r#"{"name":"Cell","type":"integer","jsonPath":".spec.cell"}"#,
    printcolumn = r#"{"name":"Roster","type":"integer","jsonPath":".spec.signedRoster.version"}"#,
    printcolumn = r#"{"name":"Members","type":"integer","jsonPath":".spec.signedRoster.members"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ZoneHealthSpec {
    /// Value of the zone label; the object's name is derived from it and from the cell's number.
    pub zone: String,
    /// Number of the cell in its zone. A zone of up to 64 members has one cell, number 0; a larger one is
    /// divided.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub cell: u32,
    /// The nodes of the cell, each of which runs an agent. Missing for the moment between the making of the
    /// object and the first roster, which names the object's UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_roster: Option<SignedRoster>,
    /// The roster as former versions wrote it. It is read where there is no other one, and removed with the
    /// next write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<RosterSpec>,
}

impl ZoneHealthSpec {
    /// The roster as it was published, also by a former version; nothing where there is none yet.
    pub fn published(&self) -> Option<Cow<'_, SignedRoster>> {
        let of_former_version = |roster: &RosterSpec| {
            Cow::Owned(SignedRoster {
                version: roster.version,
                text: roster.to_text(),
                ..SignedRoster::default()
            })
        };
        let present = self.signed_roster.as_ref().map(Cow::Borrowed);
        present.or_else(|| self.roster.as_ref().map(of_former_version))
    }

    /// What the published roster says, signed or not; nothing where there is none, or none that can be read.
    pub fn read_roster(&self) -> Option<RosterSpec> {
        RosterSpec::from_text(&self.published()?.text).ok()
    }
}

/// What the controller asks of a cell: votes that are younger than a random number, and rounds about certain
/// members. The object has the name of the cell's ZoneHealth. Apart from it, because it changes often and a
/// roster is large.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(not(feature = "schema"), kube(schema = "disabled"))]
#[kube(
    group = "evenkeel.io",
    version = "v1alpha1",
    kind = "ZoneChallenge",
    doc = "What the controller asks of a cell: votes younger than a random number, and rounds about certain members",
    plural = "zonechallenges",
    singular = "zonechallenge",
    shortname = "zc",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Zone","type":"string","jsonPath":".spec.zone"}"#,
    printcolumn = r#"{"name":"Cell","type":"integer","jsonPath":".spec.cell"}"#,
    printcolumn = r#"{"name":"Replaced","type":"date","jsonPath":".spec.current.createdAt"}"#,
    printcolumn = r#"{"name":"Wanted","type":"string","jsonPath":".spec.wanted"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ZoneChallengeSpec {
    /// Value of the zone label.
    pub zone: String,
    /// Number of the cell in its zone.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub cell: u32,
    /// What ballots sign now.
    pub current: IssuedChallenge,
    /// What they signed before. Readers accept it as well, because it takes a moment until every reporter
    /// knows the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<IssuedChallenge>,
    /// UIDs of members about which the controller needs rounds, because they have an open incident or a
    /// latch: reporters hold rounds about them even when they look healthy, so that a node that returned is
    /// acquitted by signed votes and never by silence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<String>,
}

/// What one reporter of a cell found: the members that are not plainly healthy, with the evidence. Each
/// reporter has an object of its own, so that nobody overwrites what another one says; readers merge them
/// (hazards 40 and 57).
///
/// Written when it changes, and every few seconds while a member is kept alive by fresh rounds. A report that
/// omits a member says nothing about it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(not(feature = "schema"), kube(schema = "disabled"))]
#[kube(
    group = "evenkeel.io",
    version = "v1alpha1",
    kind = "ZoneReport",
    doc = "What one reporter of a cell found: the members that are not plainly healthy, with signed evidence",
    plural = "zonereports",
    singular = "zonereport",
    shortname = "zr",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Zone","type":"string","jsonPath":".spec.zone"}"#,
    printcolumn = r#"{"name":"Reporter","type":"string","jsonPath":".spec.reporter"}"#,
    printcolumn = r#"{"name":"Members","type":"integer","jsonPath":".spec.members"}"#,
    printcolumn = r#"{"name":"Listed","type":"string","jsonPath":".spec.summary"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ZoneReportSpec {
    /// Value of the zone label.
    #[cfg_attr(feature = "schema", schemars(length(max = 63)))]
    pub zone: String,
    /// Number of the cell in its zone.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub cell: u32,
    /// Name of the reporter's node; the object's name is made of zone, cell and this.
    #[cfg_attr(feature = "schema", schemars(length(max = 253)))]
    pub reporter: String,
    /// What it found.
    #[serde(flatten)]
    pub report: Report,
}

/// What one agent says of itself: how peers reach and recognise it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(not(feature = "schema"), kube(schema = "disabled"))]
#[kube(
    group = "evenkeel.io",
    version = "v1alpha1",
    kind = "AgentStatus",
    doc = "What one agent says of itself: how peers reach and recognise it",
    plural = "agentstatuses",
    singular = "agentstatus",
    status = "AgentStatusStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Address","type":"string","jsonPath":".spec.address"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".spec.version"}"#,
    printcolumn = r#"{"name":"Fencing","type":"string","jsonPath":".spec.fencing.method"}"#,
    printcolumn = r#"{"name":"Checks","type":"string","jsonPath":".spec.checkProblem","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatusSpec {
    /// UID of the Node the agent runs on.
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub node_uid: String,
    /// Ed25519 public key, base64 of 32 bytes.
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub public_key: String,
    /// The key that takes its place once the members of the cell know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub next_public_key: Option<String>,
    /// Signature of the next key, base64, over the UID of the Node and the present key: nobody announces a
    /// key that it does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub next_key_proof: Option<String>,
    /// Where peers reach the agent, `IP:PORT`, UDP.
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub address: String,
    /// The node's kubelet as the agent sees it from inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletEndpoint>,
    /// Version of the agent.
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub version: String,
    /// What a fence proof for this node can rest on.
    #[serde(default)]
    pub fencing: FencingOffer,
    /// What the agent lacks for checks that it is told to make before a vote, and how it gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub check_problem: Option<String>,
    /// Grows with every write by which a listed agent proves that its node reaches the API server.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub link_proofs: i64,
    /// The roster that this agent has in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<RosterAcknowledgement>,
}

/// What the controller tells an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentStatusStatus {
    /// Name of the ZoneHealth of the agent's cell. Empty: the first cell of its zone, which is the only one
    /// of a zone of up to 64 members.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cell: String,
}

/// An agent that registers does not know how many proofs there were: what it leaves out stays as it is.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The fencing an agent has armed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FencingOffer {
    /// Method name.
    #[serde(deserialize_with = "known_or_default")]
    pub method: FencingMethod,
    /// Seconds after which an unlicensed node is certainly off; absent without a method that proves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_seconds: Option<i64>,
}

/// How a node can be proven to be off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FencingMethod {
    /// Nothing is armed: stateful pods of this node never move by themselves.
    #[default]
    None,
    /// Armed watchdog behind the liveness lease.
    LivenessLease,
    /// An operator's command.
    Exec,
    /// An operator's endpoint.
    Webhook,
    /// The provider says that the machine is gone.
    NodeGone,
    /// The agent itself said, signed, that it has fenced.
    #[serde(rename = "self")]
    SelfFenced,
    /// An operator vouched for it.
    Operator,
}

/// What the controller made of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FailoverPolicyStatus {
    /// Generation this speaks of.
    #[serde(default)]
    pub observed_generation: i64,
    /// Nodes selected at the last look.
    #[serde(default)]
    pub matched_nodes: i32,
    /// Other policies that select the same nodes and by which of their values this one is overruled.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// Values of this policy that are refused, what is used in their place, and why. The schema refuses them
    /// too; an object that was stored before may still hold one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// One failure of one node: its timeline, evidence and decisions; also the controller's memory across
/// restarts.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(not(feature = "schema"), kube(schema = "disabled"))]
#[kube(
    group = "evenkeel.io",
    version = "v1alpha1",
    kind = "NodeIncident",
    doc = "One failure of one node: its timeline, evidence and decisions",
    plural = "nodeincidents",
    shortname = "ninc",
    status = "NodeIncidentStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.nodeName"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Fence","type":"string","jsonPath":".status.fence.missing","priority":1}"#,
    printcolumn = r#"{"name":"Closed","type":"date","jsonPath":".status.closedAt"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodeIncidentSpec {
    /// Node name.
    pub node_name: String,
    /// Node UID.
    pub node_uid: String,
    /// Zone of the node.
    pub zone: String,
}

/// State and history of an incident.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeIncidentStatus {
    /// State of the node (`Disconnected`, `Dead`, …).
    #[serde(default)]
    pub state: String,
    /// When the incident ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Time>,
    /// When the present state began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Time>,
    /// When NoExecute was put on the node: eviction deadlines count from here, also after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tainted_at: Option<Time>,
    /// Whether the node died in a storm: its pods with the default tolerations stay for as long as with stock
    /// Kubernetes.
    #[serde(default)]
    pub in_storm: bool,
    /// Whether Evenkeel has acted in this incident, and not only observed: what was kept on the node is
    /// settled when Evenkeel stands down.
    #[serde(default)]
    pub acted: bool,
    /// Whether the kubelet itself had said Ready=False before it fell silent: its pods are not ready, and are
    /// evicted, as with stock Kubernetes.
    #[serde(default)]
    pub said_not_ready: bool,
    /// The leader's present decision with its evidence.
    #[serde(default)]
    pub decision: DecisionRecord,
    /// What must not be forgotten when a controller restarts, and what every replica starts from.
    #[serde(default)]
    pub latch: LatchRecord,
    /// What is known about fencing.
    #[serde(default)]
    pub fence: FenceRecord,
    /// Oldest first; the oldest rows are dropped above 64.
    #[serde(default)]
    pub timeline: Vec<IncidentRow>,
}

/// What the leader decided about the node, and from what. Written when it changes; that the leader still
/// looks at the node is shown by its Lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// The state with its phase: `Disconnected`, `Dead, announced`.
    #[serde(default)]
    pub state: String,
    /// Why, as one sentence.
    #[serde(default)]
    pub reason: String,
    /// What is known of the Lease, of the neighbours' verdict and of the zone, one line each.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// What would change the decision, one line each.
    #[serde(default)]
    pub changes: Vec<String>,
    /// When it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Time>,
    /// The replica that decided, by its name in the election.
    #[serde(default)]
    pub by: String,
    /// `true` where the controller only records what it would do (mode `observe`, or a pause).
    #[serde(default)]
    pub observed_only: bool,
}

/// Decisions that only evidence takes back. They are written before they are acted upon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LatchRecord {
    /// When the leader received the first round of votes that found the node dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_dead_round_at: Option<Time>,
    /// When the leader last saw a sign of life of the dead node: its pods are kept from stock eviction until
    /// the grace period of stock Kubernetes after it, unless the death is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sign_of_life_at: Option<Time>,
    /// The renewal of its Lease after which the node was found dead: the Lease's resourceVersion, 0 without a
    /// Lease; empty where nobody has recorded it. A later one is a sign of life.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_renewal: String,
    /// When a later round confirmed the death.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed_at: Option<Time>,
    /// Since when the node has been Isolated: its Lease was renewed, or its agent wrote, after a round that
    /// found it dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated_since: Option<Time>,
    /// Why the eviction of this death waits for the pace of stock Kubernetes; empty where it does not.
    #[serde(default)]
    pub stock_pace: String,
}

/// Fencing as far as it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FenceRecord {
    /// What is missing for a proof, and what an operator can do about it; empty with a proof.
    #[serde(default)]
    pub missing: String,
    /// The proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<FenceProof>,
}

/// Proof that a machine is off; single use, verified again before each write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FenceProof {
    /// UID of the Node.
    pub node_uid: String,
    /// Boot that it speaks of.
    pub boot_id: String,
    /// Name of the NodeIncident.
    pub incident: String,
    /// How.
    #[serde(deserialize_with = "known_or_default")]
    pub method: FencingMethod,
    /// When it was established.
    pub time: Time,
    /// Who established it.
    pub verifier: String,
    /// Not valid after this.
    pub expires: Time,
}

/// One line of an incident's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IncidentRow {
    /// When.
    pub time: Option<Time>,
    /// What, one of the names in [`crate::names::events`].
    pub event: String,
    /// For people, with the evidence.
    pub message: String,
}
