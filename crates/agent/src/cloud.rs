//! The API server as one agent uses it: its own Node, its AgentStatus, the ZoneHealth of its cell.
//!
//! ZoneHealth is asked for, not watched: a watch that is half open looks like a quiet zone (hazard 20), and
//! the same request is the proof of contact that a node's link to the cloud is judged by. Reporters ask every
//! second, the others every five.

use crate::kubelet::OwnKubelet;
use crate::metrics::{Metrics, Result as Outcome};
use crate::zone::{Event, Learned};
use evenkeel_api::crd::{AgentStatus, AgentStatusSpec, FencingOffer, ZoneHealth, ZoneReport, ZoneReportSpec};
use evenkeel_api::names;
use evenkeel_api::zone::RosterSpec;
use evenkeel_zone::roster::report_object_name;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

const FIELD_MANAGER: &str = "evenkeel-agent";
/// A request without an answer after this time has none.
const REQUEST: Duration = Duration::from_secs(2);
const REPORTER_ASKS: Duration = Duration::from_secs(1);
const MEMBER_ASKS: Duration = Duration::from_secs(5);
/// Node and AgentStatus are compared with what they should be.
const REGISTER_AGAIN: Duration = Duration::from_secs(60);
const BACK_OFF: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloudError {
    #[error("{what}: no answer within {} s", REQUEST.as_secs())]
    Timeout { what: &'static str },
    #[error("{what}: {source}")]
    Request {
        what: &'static str,
        source: Box<kube::Error>,
    },
    #[error("ZoneHealth {name} cannot be understood: {source}")]
    Odd { name: String, source: serde_json::Error },
    #[error("Node {0} has no UID")]
    NoUid(String),
    #[error("Node {0} has no label {first} or {second}, and --zone-default is not given: it is in no zone", first = names::ZONE_LABELS[0], second = names::ZONE_LABELS[1])]
    NoZone(String),
}

impl CloudError {
    /// There is no such object.
    fn is_missing(&self) -> bool {
        matches!(self, Self::Request { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 404))
    }

    /// The API server answered, though not with what was wanted. A 5xx can be a gateway's word on a server
    /// that it cannot reach.
    fn is_contact(&self) -> bool {
        match self {
            Self::Request { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if status.code < 500)
            }
            Self::Timeout { .. } => false,
            Self::Odd { .. } | Self::NoUid(_) | Self::NoZone(_) => true,
        }
    }
}

/// Where this agent belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) node_uid: String,
    pub(crate) zone: String,
}

/// ZoneHealth as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) zone: String,
    /// Number of the cell in its zone.
    pub(crate) cell: u32,
    pub(crate) roster: RosterSpec,
    /// Node UIDs of the members about which the controller needs rounds.
    pub(crate) wanted: BTreeSet<String>,
}

impl Seen {
    /// Whether the roster lists the node of this UID.
    fn has_member(&self, node_uid: &str) -> bool {
        self.roster.members.iter().any(|member| member.uid == node_uid)
    }

    /// Whether this is an earlier state of the same object: by resourceVersion, which grows with every write.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let version = |seen: &Self| seen.resource_version.parse::<u64>();
        if self.uid != other.uid {
            return false;
        }
        match (version(self), version(other)) {
            (Ok(own), Ok(others)) => own < others,
            _ => self.roster.version < other.roster.version,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Cloud {
    client: Client,
    node: String,
    /// Why the node can be in no roster, as it was read last.
    kept_out: Arc<watch::Sender<Option<String>>>,
}

impl Cloud {
    pub(crate) fn new(client: Client, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
            kept_out: Arc::default(),
        }
    }

    /// Why the node can be in no roster; nothing while that is not known.
    pub(crate) fn kept_out(&self) -> watch::Receiver<Option<String>> {
        self.kept_out.subscribe()
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// UID and zone of the agent's Node. Only its metadata is read: the rest, with the list of a node's
    /// images, can be larger than everything else that an agent holds.
    pub(crate) async fn home(&self, zone_default: Option<&str>) -> Result<Home, CloudError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = bounded("reading the agent's Node", nodes.get_metadata(&self.node)).await?;
        self.report_kept_out(names::kept_out_of_rosters(node.labels()));
        let zone = names::zone_of(node.labels(), zone_default)
            .ok_or_else(|| CloudError::NoZone(self.node.clone()))?;
        let node_uid = node.uid().ok_or_else(|| CloudError::NoUid(self.node.clone()))?;
        Ok(Home { node_uid, zone })
    }

    /// Logs once that the node can be in no roster, and when it can again.
    fn report_kept_out(&self, kept_out: Option<String>) {
        let has_changed = self.kept_out.send_if_modified(|known| {
            let differs = *known != kept_out;
            known.clone_from(&kept_out);
            differs
        });
        match kept_out {
            _ if !has_changed => {}
            Some(why) => tracing::warn!(
                node = self.node,
                "the node can be in no roster, so that it watches nobody and nobody watches it: {why}. Take the label off, or run \
                 no agent here"
            ),
            None => tracing::info!(node = self.node, "the node can be in a roster again"),
        }
    }

    /// Makes the agent's own AgentStatus say this, and belong to its Node.
    pub(crate) async fn register(&self, spec: &AgentStatusSpec) -> Result<(), CloudError> {
        let statuses: Api<AgentStatus> = Api::all(self.client.clone());
        let metadata = json!({
            "name": self.node,
            "ownerReferences": [owner(&self.node, &spec.node_uid)],
        });
        let mut wanted = json!({ "metadata": metadata, "spec": spec });
        if spec.kubelet.is_none() {
            // A merge patch keeps what it does not name.
            wanted["spec"]["kubelet"] = serde_json::Value::Null;
        }
        let what = "writing AgentStatus";
        let patched = bounded(
            what,
            statuses.patch(&self.node, &patch_params(), &Patch::Merge(&wanted)),
        )
        .await;
        match patched {
            Err(error) if error.is_missing() => {
                let mut fresh = AgentStatus::new(&self.node, spec.clone());
                fresh.metadata.owner_references =
                    serde_json::from_value(wanted["metadata"]["ownerReferences"].take()).ok();
                bounded(what, statuses.create(&post_params(), &fresh))
                    .await
                    .map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Proves that this agent's node reaches the API server: no proxy and no cache answers a write. `count`
    /// is the number of proofs as far as it is known.
    pub(crate) async fn prove_link(&self, count: &mut Option<i64>) -> Result<(), CloudError> {
        let statuses = self.agents();
        let known = match *count {
            Some(known) => known,
            None => proofs(&bounded("reading AgentStatus", statuses.get(&self.node)).await?),
        };
        // A write without an answer may have been made: no number is written twice, or the object would not
        // change.
        let next = known.checked_add(1).unwrap_or(1);
        *count = Some(next);
        let merge = Patch::Merge(json!({ "spec": { "linkProofs": next } }));
        let params = patch_params();
        let written = statuses.patch(&self.node, &params, &merge);
        bounded("proving the link in AgentStatus", written)
            .await
            .map(drop)
    }

    /// The name of its cell's ZoneHealth, as the controller told this agent; empty for the first cell of the
    /// zone.
    async fn told_cell(&self) -> Result<String, CloudError> {
        let status = bounded("reading AgentStatus", self.agents().get_opt(&self.node)).await?;
        let cell = status
            .as_ref()
            .and_then(|status| status.data.pointer("/status/cell"));
        Ok(cell.and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// The ZoneHealth of a cell, `None` if there is none.
    pub(crate) async fn zone_health(&self, name: &str) -> Result<Option<Seen>, CloudError> {
        let found = bounded("reading ZoneHealth", self.zones().get_opt(name)).await?;
        found.map(read).transpose()
    }

    /// Writes this agent's own report, whatever stands there.
    pub(crate) async fn report(&self, spec: &ZoneReportSpec, node_uid: &str) -> Result<(), CloudError> {
        let reports: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<ZoneReport>(&()));
        let name = report_object_name(&spec.zone, spec.cell, &spec.reporter);
        let what = "writing ZoneReport";
        let merge = Patch::Merge(json!({ "spec": spec }));
        match bounded(what, reports.patch_metadata(&name, &patch_params(), &merge)).await {
            Err(error) if error.is_missing() => {}
            other => return other.map(drop),
        }
        let fresh = json!({
            "apiVersion": ZoneReport::api_version(&()),
            "kind": ZoneReport::kind(&()),
            "metadata": { "name": name, "ownerReferences": [owner(&self.node, node_uid)] },
            "spec": spec,
        });
        let fresh = serde_json::from_value(fresh).map_err(|source| CloudError::Odd {
            name: name.clone(),
            source,
        })?;
        bounded(what, reports.create(&post_params(), &fresh))
            .await
            .map(drop)
    }

    fn agents(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<AgentStatus>(&()))
    }

    /// As plain objects: one that this version cannot decode must not end the agent's sight of the others'
    /// writes.
    fn zones(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<ZoneHealth>(&()))
    }
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    }
}

fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PostParams::default()
    }
}

/// The Node as the owner of what its agent writes: with the Node it is gone.
fn owner(node: &str, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid })
}

/// How many proofs of its link an AgentStatus counts.
fn proofs(status: &DynamicObject) -> i64 {
    let count = status.data.pointer("/spec/linkProofs");
    count.and_then(Value::as_i64).unwrap_or_default()
}

async fn bounded<T>(
    what: &'static str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CloudError> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(CloudError::Request {
            what,
            source: Box::new(source),
        }),
        Err(_) => Err(CloudError::Timeout { what }),
    }
}

fn read(object: DynamicObject) -> Result<Seen, CloudError> {
    let name = object.name_any();
    let odd = |source| CloudError::Odd {
        name: name.clone(),
        source,
    };
    let roster = object.data.pointer("/spec/roster").cloned().unwrap_or_default();
    let wanted = object.data.pointer("/spec/wanted").and_then(Value::as_array);
    let zone = object.data.pointer("/spec/zone").and_then(Value::as_str);
    let cell = object.data.pointer("/spec/cell").and_then(Value::as_u64);
    Ok(Seen {
        uid: object.uid().unwrap_or_default(),
        resource_version: object.resource_version().unwrap_or_default(),
        zone: zone.unwrap_or_default().to_owned(),
        cell: cell.and_then(|cell| u32::try_from(cell).ok()).unwrap_or_default(),
        roster: serde_json::from_value(roster).map_err(odd)?,
        // What is no UID names nobody, and is no reason to pass over the rest of the object.
        wanted: wanted
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    })
}

/// Asks for ZoneHealth until shutdown: the roster, the wanted rounds, and the proof of contact. Follows the
/// agent to another cell when the controller moves it there.
pub(crate) struct Follower {
    pub(crate) cloud: Cloud,
    /// UID of the agent's Node.
    pub(crate) node_uid: String,
    /// Name of the ZoneHealth of the zone's first cell.
    pub(crate) first_cell: String,
    /// Name of the ZoneHealth of the agent's cell.
    pub(crate) cell: watch::Sender<String>,
    pub(crate) learned: mpsc::UnboundedSender<Learned>,
    pub(crate) events: mpsc::Sender<Event>,
}

impl Follower {
    pub(crate) async fn run(self, mut standing: watch::Receiver<bool>, shutdown: CancellationToken) {
        let mut silent = false;
        let mut missing = false;
        loop {
            let pace = if *standing.borrow_and_update() {
                REPORTER_ASKS
            } else {
                MEMBER_ASKS
            };
            let asked = tokio::time::Instant::now();
            let cell = self.cell.borrow().clone();
            let answer = tokio::select! {
                () = shutdown.cancelled() => return,
                answer = self.cloud.zone_health(&cell) => answer,
            };
            let contact = answer.as_ref().err().is_none_or(CloudError::is_contact);
            if silent == contact {
                silent = !contact;
                if contact {
                    tracing::info!("the API server answers");
                } else {
                    tracing::warn!("the API server does not answer");
                }
            }
            let mut next = if contact { pace } else { REPORTER_ASKS };
            let seen = match answer {
                Ok(found) => {
                    if found.is_none() && !std::mem::replace(&mut missing, true) {
                        tracing::info!(cell, "no ZoneHealth yet: the controller makes it");
                    }
                    if !found.as_ref().is_some_and(|seen| seen.has_member(&self.node_uid))
                        && self.moved(&cell).await
                    {
                        continue;
                    }
                    found.map(Box::new)
                }
                Err(error) => {
                    tracing::debug!(%error, "no ZoneHealth");
                    None
                }
            };
            if seen.is_none() {
                // Somebody is about to make it; the first roster should not take five seconds to arrive.
                next = REPORTER_ASKS;
            }
            missing = missing && seen.is_none();
            let told = [contact.then_some(Event::Contact), seen.map(Event::Seen)];
            for event in told.into_iter().flatten() {
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep_until(asked + next) => {}
                changed = standing.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Whether the controller has moved this agent to another cell than `cell`, to whose roster it does not
    /// belong.
    async fn moved(&self, cell: &str) -> bool {
        let told = match self.cloud.told_cell().await {
            Ok(told) if told.is_empty() => self.first_cell.clone(),
            Ok(told) => told,
            Err(error) => {
                tracing::debug!(%error, "it is not known which cell this agent belongs to");
                return false;
            }
        };
        if told == cell {
            return false;
        }
        tracing::info!(from = cell, to = told, "the agent belongs to another cell");
        if self.learned.send(Learned::Cell(told.clone())).is_err() {
            tracing::debug!("nothing is remembered any more: the agent is ending");
        }
        self.cell.send_replace(told);
        true
    }
}

/// What an agent says of itself, but for its kubelet.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) public_key: String,
    pub(crate) address: String,
    pub(crate) zone_default: Option<String>,
}

/// Keeps AgentStatus as it should be until shutdown. Returns early, with where the Node is now, when it is no
/// longer the Node this agent began with.
pub(crate) async fn stay_registered(
    cloud: Cloud,
    home: Home,
    registration: Registration,
    mut kubelet: watch::Receiver<OwnKubelet>,
    shutdown: CancellationToken,
) -> Option<Home> {
    let mut failures = 0;
    loop {
        let spec = AgentStatusSpec {
            node_uid: home.node_uid.clone(),
            public_key: registration.public_key.clone(),
            address: registration.address.clone(),
            kubelet: kubelet.borrow_and_update().endpoint.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fencing: FencingOffer::default(),
            // Left out, and so left alone.
            link_proofs: 0,
        };
        let outcome = async {
            let now = cloud.home(registration.zone_default.as_deref()).await?;
            if now == home {
                cloud.register(&spec).await?;
            }
            Ok::<_, CloudError>(now)
        };
        let wait = match outcome.await {
            Ok(now) if now != home => return Some(now),
            Ok(_) => {
                failures = 0;
                REGISTER_AGAIN
            }
            Err(error) => {
                let wait = BACK_OFF
                    .get(failures)
                    .copied()
                    .unwrap_or(BACK_OFF[BACK_OFF.len() - 1]);
                failures += 1;
                tracing::warn!(%error, retry_in = ?wait, "not registered");
                wait
            }
        };
        let changed = async {
            // The health alone is no reason to write.
            while kubelet.changed().await.is_ok() {
                if kubelet.borrow_and_update().endpoint != spec.kubelet {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(wait) => {}
            () = changed => {}
        }
    }
}

/// Makes the writes that the engine asks for, one at a time, and says what became of each. One that failed is
/// not repeated here: the engine knows when.
pub(crate) async fn prove_links(
    cloud: Cloud,
    mut asked: mpsc::Receiver<()>,
    events: mpsc::Sender<Event>,
    metrics: Metrics,
    shutdown: CancellationToken,
) {
    let mut count = None;
    loop {
        let next = tokio::select! {
            () = shutdown.cancelled() => return,
            next = asked.recv() => next,
        };
        if next.is_none() {
            return;
        }
        let outcome = tokio::select! {
            () = shutdown.cancelled() => return,
            outcome = cloud.prove_link(&mut count) => outcome,
        };
        let result = match &outcome {
            Ok(()) => "written",
            Err(error) => {
                tracing::debug!(%error, "the link to the API server is not proven");
                "failed"
            }
        };
        metrics.link_proofs.get_or_create(&Outcome { result }).inc();
        let told = Event::LinkProof {
            written: outcome.is_ok(),
        };
        if events.send(told).await.is_err() {
            return;
        }
    }
}

/// Asks where this agent belongs until there is an answer; `None` at shutdown.
pub(crate) async fn find_home(
    cloud: &Cloud,
    zone_default: Option<&str>,
    shutdown: &CancellationToken,
) -> Option<Home> {
    for failures in 0.. {
        let error = tokio::select! {
            () = shutdown.cancelled() => return None,
            home = cloud.home(zone_default) => match home {
                Ok(home) => return Some(home),
                Err(error) => error,
            },
        };
        let wait = BACK_OFF
            .get(failures)
            .copied()
            .unwrap_or(BACK_OFF[BACK_OFF.len() - 1]);
        tracing::warn!(%error, retry_in = ?wait, "the agent does not know its zone yet");
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(wait) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(resource_version: &str, roster: i64) -> Seen {
        Seen {
            uid: "u".into(),
            resource_version: resource_version.into(),
            zone: "shore".into(),
            cell: 0,
            roster: RosterSpec {
                version: roster,
                members: vec![],
            },
            wanted: BTreeSet::new(),
        }
    }

    #[test]
    fn a_roster_set_back_by_hand_is_news_and_a_late_answer_is_not() {
        let table = [
            ("an earlier answer", seen("9", 1), true),
            ("the same", seen("10", 1), false),
            ("set back by hand", seen("11", 0), false),
            ("earlier roster, versions are words", seen("a", 0), true),
            ("later, versions are words", seen("a", 1), false),
        ];
        for (what, candidate, older) in table {
            assert_eq!(candidate.is_older_than(&seen("10", 1)), older, "{what}");
        }
        let anew = Seen {
            uid: "v".into(),
            ..seen("9", 0)
        };
        assert!(!anew.is_older_than(&seen("10", 1)), "another object");
    }

    #[test]
    fn a_gateway_without_its_server_is_no_contact() {
        let refusal = |code: u16| CloudError::Request {
            what: "reading",
            source: Box::new(kube::Error::Api(Box::new(kube::core::Status {
                code,
                ..kube::core::Status::default()
            }))),
        };
        let contacts = [401, 403, 404, 409, 429, 500, 502, 503, 504].map(|code| refusal(code).is_contact());
        assert_eq!(
            contacts,
            [true, true, true, true, true, false, false, false, false]
        );
    }
}
