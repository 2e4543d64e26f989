//! From Kubernetes objects to facts.

use super::facts::{
    Access, Drawn, IncidentFacts, NodeFacts, Owner, PodFacts, PodRef, PolicyFacts, Status, TaintRef,
};
use evenkeel_api::crd::{FailoverPolicy, NodeIncident, ZoneChallengeSpec};
use evenkeel_api::names::conditions::{REASON_CONFIRMED_DEAD, REASON_STOCK_UNKNOWN};
use evenkeel_api::names::{annotations, taints};
use evenkeel_api::zone::{IssuedChallenge, Report};
use evenkeel_judge::evidence::Life;
use evenkeel_judge::policy::Policy;
use evenkeel_zone::Millis;
use evenkeel_zone::roster::RosterRef;
use evenkeel_zone::verdict::Issued;
use evenkeel_zone::wire::{Challenge, ConfirmRequest, Renewal, from_evidence};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Node, NodeCondition, PersistentVolumeClaim, Pod, PodCondition, PodSpec, PodStatus, Taint, Toleration,
};

/// Conditions by which a node says that it is taken out of service on purpose (KEP NodeLifecycleConditions).
const MAINTENANCE_CONDITIONS: [&str; 3] = [
    "DrainInProgress",
    "MaintenanceInProgress",
    "GracefulNodeShutdownInProgress",
];
/// Annotation of pods that mirror a file on the node.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

fn status(text: &str) -> Status {
    match text {
        "True" => Status::True,
        "False" => Status::False,
        _ => Status::Unknown,
    }
}

/// A node's condition of that type.
pub fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

/// The latest roster under which rounds of a report were held; nothing where there are none that can be read.
pub(super) fn newest_roster(report: &Report) -> Option<RosterRef> {
    let rounds = report.rounds.iter();
    let requests = rounds.filter_map(|round| ConfirmRequest::read(&from_evidence(&round.request).ok()?).ok());
    requests
        .map(|request| request.roster)
        .max_by_key(|roster| roster.version)
}

/// Facts of a node but for its signs of life, which need the time of receipt.
pub fn node(node: &Node) -> NodeFacts {
    let meta = &node.metadata;
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name));
    let cordoned = node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or(false);
    let maintenance = MAINTENANCE_CONDITIONS
        .iter()
        .find(|kind| condition(node, kind).is_some_and(|condition| condition.status == "True"))
        .map(|kind| format!("condition {kind}"))
        .or_else(|| cordoned.then(|| "cordoned".to_owned()));
    NodeFacts {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        version: meta.resource_version.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
        ready: condition(node, "Ready").map_or(Status::Missing, |ready| status(&ready.status)),
        taints: node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default(),
        added: added(node, annotation(annotations::ADDED_TAINTS)),
        maintenance,
        mirrored: annotation(annotations::SUPEREDGE_NODE_HEALTH).and_then(|text| text.parse().ok()),
        says_not_ready: None,
        marked_by_us: marked(node, REASON_CONFIRMED_DEAD),
        marked_time: condition(node, "Ready")
            .filter(|_| stock_marked(node))
            .and_then(|ready| ready.last_transition_time.as_ref())
            .map(|time| time.0),
        life: Life::default(),
    }
}

/// The taints that are ours: those that the annotation names, and those with a key of ours, also where
/// somebody has removed the annotation.
fn added(node: &Node, annotation: Option<&String>) -> Vec<TaintRef> {
    let named = annotation
        .map(|text| TaintRef::parse_list(text))
        .unwrap_or_default();
    let mut added: Vec<TaintRef> = named.into_iter().filter(TaintRef::is_ours).collect();
    let standing = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let own_key = |taint: &&Taint| taints::OWN.contains(&taint.key.as_str());
    for taint in standing.filter(own_key) {
        let taint = TaintRef::new(&taint.key, &taint.effect);
        if !added.contains(&taint) {
            added.push(taint);
        }
    }
    added
}

/// The kubelet's own heartbeat in the node's status; a mark of somebody else leaves it untouched.
pub fn heartbeat(node: &Node) -> Option<Timestamp> {
    condition(node, "Ready")?
        .last_heartbeat_time
        .as_ref()
        .map(|time| time.0)
}

/// Whether the stock controller's mark stands on the node.
pub fn stock_marked(node: &Node) -> bool {
    marked(node, REASON_STOCK_UNKNOWN)
}

fn marked(node: &Node, reason: &str) -> bool {
    condition(node, "Ready")
        .is_some_and(|ready| ready.status == "Unknown" && ready.reason.as_deref() == Some(reason))
}

/// A Lease's `renewTime`.
pub fn renew_time(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// What a round has to name: the Lease's resourceVersion.
pub fn renewal(lease: &Lease) -> Option<Renewal> {
    let version = lease.metadata.resource_version.as_deref()?;
    version.parse().ok().map(Renewal)
}

/// The current challenge, and what ballots may sign: it and the one before. `life` is the name of this
/// process: of its own challenges it knows when they were drawn.
pub fn challenges(spec: &ZoneChallengeSpec, life: &str) -> (Drawn, Vec<Issued>) {
    let drawn = |issued: &IssuedChallenge| {
        let at = issued.created_at.parse::<Timestamp>().ok()?;
        let at = u64::try_from(at.as_millisecond()).ok()?;
        (issued.created_by == life).then_some(Millis(at))
    };
    let current = Drawn {
        value: spec.current.value.clone(),
        drawn: drawn(&spec.current),
        ..Drawn::default()
    };
    let issued = std::iter::once(&spec.current).chain(&spec.previous);
    let issued = issued.filter_map(|issued| {
        let challenge = Challenge::from_base64(&issued.value).filter(|it| *it != Challenge::NONE)?;
        let drawn = drawn(issued);
        Some(Issued { challenge, drawn })
    });
    (current, issued.collect())
}

/// Those that speak of the taint by which pods are evicted, in no more memory than they need: most pods have
/// another one, of admission.
fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut tolerations = spec.tolerations.clone().unwrap_or_default();
    tolerations.retain(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        key.is_empty() || key == taints::UNREACHABLE
    });
    tolerations.shrink_to_fit();
    tolerations
}

/// Node and facts of a pod; `None` for one that is bound to no node.
pub fn pod(pod: &Pod) -> Option<(String, PodFacts)> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.clone().filter(|node| !node.is_empty())?;
    let default = PodStatus::default();
    let state = pod.status.as_ref().unwrap_or(&default);
    let ready = state
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let facts = PodFacts {
        pod: PodRef {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        },
        version: meta.resource_version.clone().unwrap_or_default(),
        owner: owner(pod),
        priority: spec.priority.unwrap_or_default(),
        tolerations: tolerations(spec),
        claims: claims(spec),
        has_inline_disk: has_inline_disk(spec),
        ready: ready.map_or(Status::Missing, |ready| status(&ready.status)),
        ready_reason: ready.and_then(|ready| ready.reason.clone()).unwrap_or_default(),
        ready_time: ready
            .and_then(|ready| ready.last_transition_time.as_ref())
            .map(|time| time.0),
        became_ready: None,
        ready_seen: None,
        ready_by_itself: ready_by_itself(spec, state),
        acknowledged: acknowledged(state),
        seen: Millis::default(),
        finished: matches!(state.phase.as_deref(), Some("Succeeded" | "Failed")),
        terminating: meta.deletion_timestamp.is_some(),
    };
    Some((node, facts))
}

/// A kubelet writes the start time and the Ready condition with the first status of a pod; others that run
/// pods may leave out the one or the other. A scheduler writes neither.
fn acknowledged(state: &PodStatus) -> bool {
    let waits = matches!(state.phase.as_deref(), None | Some("" | "Pending"));
    let says = |condition: &PodCondition| condition.type_ == "Ready";
    !waits || state.start_time.is_some() || state.conditions.iter().flatten().any(says)
}

fn owner(pod: &Pod) -> Owner {
    if pod
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|all| all.contains_key(MIRROR_ANNOTATION))
    {
        return Owner::Static;
    }
    let controller = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true));
    // A look-alike in another API group (a StatefulSet with other rules) promises the same identity.
    match controller.map(|owner| owner.kind.as_str()) {
        Some("DaemonSet") => Owner::DaemonSet,
        Some("StatefulSet") => Owner::StatefulSet,
        Some("Node") => Owner::Static,
        Some(_) => Owner::Other,
        None => Owner::Nobody,
    }
}

/// Claims that outlive the pod; an ephemeral one is made anew for its successor.
fn claims(spec: &PodSpec) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter_map(|volume| volume.persistent_volume_claim.as_ref())
        .map(|claim| claim.claim_name.clone())
        .collect()
}

/// Whether the pod itself names a disk for a single writer, without a claim. One that it only reads may be
/// mounted twice.
fn has_inline_disk(spec: &PodSpec) -> bool {
    let writes = |read_only: Option<bool>| read_only != Some(true);
    spec.volumes.iter().flatten().any(|volume| {
        let disks = [
            volume.aws_elastic_block_store.as_ref().map(|disk| disk.read_only),
            volume.azure_disk.as_ref().map(|disk| disk.read_only),
            volume.cinder.as_ref().map(|disk| disk.read_only),
            volume.fc.as_ref().map(|disk| disk.read_only),
            volume.flex_volume.as_ref().map(|disk| disk.read_only),
            volume.gce_persistent_disk.as_ref().map(|disk| disk.read_only),
            volume.iscsi.as_ref().map(|disk| disk.read_only),
            volume.photon_persistent_disk.as_ref().map(|_| None),
            volume.portworx_volume.as_ref().map(|disk| disk.read_only),
            volume.rbd.as_ref().map(|disk| disk.read_only),
            volume.scale_io.as_ref().map(|disk| disk.read_only),
            volume.storageos.as_ref().map(|disk| disk.read_only),
            volume.vsphere_volume.as_ref().map(|_| None),
        ];
        disks.into_iter().flatten().any(writes)
    })
}

/// Whether containers and readiness gates say ready, so that a Ready=False on top is not the kubelet's.
fn ready_by_itself(spec: &PodSpec, state: &PodStatus) -> bool {
    let holds = |kind: &str| {
        state
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    };
    state.phase.as_deref() == Some("Running")
        && holds("ContainersReady")
        && spec
            .readiness_gates
            .iter()
            .flatten()
            .all(|gate| holds(&gate.condition_type))
}

/// How a claim may be mounted. Without any access mode: as if by one writer.
pub fn claim(claim: &PersistentVolumeClaim) -> Access {
    let modes = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let bound = claim
        .status
        .as_ref()
        .map(|status| modes(&status.access_modes))
        .unwrap_or_default();
    let asked = claim
        .spec
        .as_ref()
        .map(|spec| modes(&spec.access_modes))
        .unwrap_or_default();
    let known = if bound.is_empty() { asked } else { bound };
    let shared = |mode: &String| mode == "ReadWriteMany" || mode == "ReadOnlyMany";
    if !known.is_empty() && known.iter().all(shared) {
        Access::Shared
    } else {
        Access::SingleWriter
    }
}

/// Facts of a policy.
pub fn policy(policy: &FailoverPolicy) -> PolicyFacts {
    PolicyFacts {
        policy: Policy {
            name: policy.metadata.name.clone().unwrap_or_default(),
            generation: policy.metadata.generation.unwrap_or_default(),
            spec: policy.spec.clone(),
        },
        status: policy.status.clone().unwrap_or_default(),
    }
}

/// Facts of an incident. Times are as they would be written, in whole seconds: a fraction that somebody wrote
/// by hand could never be written back, and would be wanted written for ever.
pub fn incident(incident: &NodeIncident) -> IncidentFacts {
    let status = incident.status.clone().unwrap_or_default();
    let written = serde_json::to_value(&status).and_then(serde_json::from_value);
    IncidentFacts {
        uid: incident.metadata.uid.clone().unwrap_or_default(),
        spec: incident.spec.clone(),
        status: written.unwrap_or(status),
        ..IncidentFacts::default()
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
