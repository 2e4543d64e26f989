//! The API server as one agent uses it: its own Node, its AgentStatus, ZoneHealth and ZoneChallenge of its
//! cell, Leases of suspects.
//!
//! # Requests of a calm node
//! At most 0.1 per second is the goal, as a mean over a cell with the requests of its controller.
//!
//! | what | requests per second |
//! |---|---|
//! | two watches of 300 to 600 s | 2 / 450 s = 0.004 |
//! | Node and AgentStatus are compared every 240 to 360 s | 2 / 300 s = 0.007 |
//! | the holder of the cell's Lease renews it every 10 s | 1 / 10 s = 0.1, for one of the cell |
//! | at most three reporters watch that Lease, for 290 s each | 1 / 290 s = 0.003, for three of the cell |
//!
//! While the roster of a cell is not settled, or ZoneHealth shows an earlier one, each member acknowledges it
//! once a minute, and a learner says whom it has met.
//!
//! In a cell of three that is 0.004 + 0.007 + 0.1 / 3 + 0.003 = 0.048 for each node, and with the challenge
//! that the controller writes once a minute 0.053. In a cell of 64 it is 0.013.
//!
//! A watch that stands on a connection whose pings are answered is contact with the API server. Proxies
//! answer pings too: to others, a node proves its link by an uncached write alone ([`Cloud::prove_link`]).

pub(crate) use error::CloudError;
use error::within;
use evenkeel_api::crd::{AgentStatus, AgentStatusSpec, ZoneReport, ZoneReportSpec};
use evenkeel_api::names;
use evenkeel_api::zone::RosterAcknowledgement;
use evenkeel_zone::roster::report_object_name;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

mod back_off;
mod error;
mod follow;
mod leases;
mod others;
mod register;
mod seen;
mod statements;
mod watched;

pub(crate) use follow::Follower;
pub(crate) use leases::Leases;
pub(crate) use others::follow_others;
pub(crate) use register::{Registration, find_home, stay_registered};
pub(crate) use seen::{Asked, LastAsked, Seen};
pub(crate) use statements::{Statement, write_statements};

const FIELD_MANAGER: &str = "evenkeel-agent";
/// A request without an answer after this time has none.
const REQUEST: Duration = Duration::from_secs(2);
/// One that may need a new connection first has longer: five round trips, on a link that loses packets.
const BEGINS: Duration = Duration::from_secs(5);
/// A report has this much longer for each kilobyte, as a link of 64 kbit/s needs it. That of a cell in which
/// much is wrong has 40 kB; the engine waits for 10 s at most.
const KILOBYTE: Duration = Duration::from_millis(125);
const LONGEST_REPORT: Duration = Duration::from_secs(9);

/// Where this agent belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) node_uid: String,
    pub(crate) zone: String,
}

/// Why a node with these labels, which is in `zone`, can be in no roster; `None`: it can be in one.
fn kept_out(labels: &BTreeMap<String, String>, zone: Option<&str>) -> Option<String> {
    let [usual, other] = names::ZONE_LABELS;
    let unzoned = || format!("it has neither label {usual} nor {other}, and the agent has no --zone-default");
    names::kept_out_of_rosters(labels).or_else(|| zone.is_none().then(unzoned))
}

/// A name that no Node has.
const NO_NODE: &str = "policies-are-in-force.evenkeel.io";

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
        // Often the first request of a process, which needs a connection.
        let node = within(BEGINS, "reading the agent's Node", nodes.get_metadata(&self.node)).await?;
        let zone = names::zone_of(node.labels(), zone_default);
        self.report_kept_out(kept_out(node.labels(), zone.as_deref()));
        let zone = zone.ok_or_else(|| CloudError::NoZone(self.node.clone()))?;
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
                "the node can be in no roster, so that it watches nobody and nobody watches it: {why}. Where that is not meant, \
                 change the node's labels"
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
        // A merge patch keeps what it does not name.
        if let Some(fields) = wanted["spec"].as_object_mut() {
            for field in ["kubelet", "checkProblem", "nextPublicKey", "nextKeyProof"] {
                fields.entry(field).or_insert(serde_json::Value::Null);
            }
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

    /// Whether this agent may write the AgentStatus of another node, which `deploy/policies.yaml` forbids
    /// (hazard 39). Nothing is written. Another failure than a refusal says nothing.
    pub(crate) async fn may_write_for_others(&self) -> bool {
        let params = PostParams {
            dry_run: true,
            ..post_params()
        };
        let statuses: Api<AgentStatus> = Api::all(self.client.clone());
        let of_nobody = AgentStatus::new(NO_NODE, AgentStatusSpec::default());
        let tried = bounded(
            "trying what the policies forbid",
            statuses.create(&params, &of_nobody),
        );
        tried.await.is_ok()
    }

    /// Says which roster this agent has in force.
    pub(crate) async fn acknowledge(&self, roster: &RosterAcknowledgement) -> Result<(), CloudError> {
        let merge = Patch::Merge(json!({ "spec": { "roster": roster } }));
        let params = patch_params();
        let written = self.agents();
        let written = written.patch(&self.node, &params, &merge);
        bounded("acknowledging the roster in AgentStatus", written)
            .await
            .map(drop)
    }

    /// The name of its cell's ZoneHealth, as the controller told this agent; empty for the first cell of the
    /// zone. Nothing without an AgentStatus.
    async fn told_cell(&self) -> Result<Option<String>, CloudError> {
        let status = bounded("reading AgentStatus", self.agents().get_opt(&self.node)).await?;
        let cell = |status: DynamicObject| {
            let told = status.data.pointer("/status/cell").and_then(Value::as_str);
            told.unwrap_or_default().to_owned()
        };
        Ok(status.map(cell))
    }

    /// Writes this agent's own report, whatever stands there.
    pub(crate) async fn report(&self, spec: &ZoneReportSpec, node_uid: &str) -> Result<(), CloudError> {
        let reports: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<ZoneReport>(&()));
        let name = report_object_name(&spec.zone, spec.cell, &spec.reporter);
        let what = "writing ZoneReport";
        let merge = json!({ "spec": spec });
        let (bound, began) = (report_bound(merge.to_string().len()), Instant::now());
        let (params, merge) = (patch_params(), Patch::Merge(merge));
        match within(bound, what, reports.patch_metadata(&name, &params, &merge)).await {
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
            name: format!("ZoneReport {name}"),
            source,
        })?;
        // Both together, because the engine waits for them no longer than that.
        let left = bound.saturating_sub(began.elapsed());
        within(left, what, reports.create(&post_params(), &fresh))
            .await
            .map(drop)
    }

    fn agents(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<AgentStatus>(&()))
    }
}

/// How long a report of so many bytes may be on its way.
fn report_bound(bytes: usize) -> Duration {
    let kilobytes = u32::try_from(bytes / 1_000).unwrap_or(u32::MAX);
    (REQUEST + KILOBYTE.saturating_mul(kilobytes)).min(LONGEST_REPORT)
}

fn patch_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER)
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
    within(REQUEST, what, request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(900, 2_000)]
    #[case(40_000, 7_000)]
    #[case(1_000_000, 9_000)]
    #[case(usize::MAX, 9_000)]
    fn a_large_report_has_the_time_that_a_slow_link_takes(#[case] bytes: usize, #[case] ms: u64) {
        assert_eq!(report_bound(bytes), Duration::from_millis(ms));
    }

    #[rstest]
    #[case(
        "node-role.kubernetes.io/control-plane",
        Some("shore"),
        Some("a control-plane node")
    )]
    #[case("vnode.evenkeel.io/fleet", Some("shore"), Some("a virtual node"))]
    #[case("node-role.kubernetes.io/control-plane", None, Some("a control-plane node"))]
    #[case("shelf", None, Some("neither label topology.kubernetes.io/zone nor"))]
    #[case("shelf", Some("shore"), None)]
    fn it_is_said_why_a_node_is_kept_out(
        #[case] label: &str,
        #[case] zone: Option<&str>,
        #[case] why: Option<&str>,
    ) {
        let labels = BTreeMap::from([(label.to_owned(), String::new())]);
        let said = kept_out(&labels, zone);
        assert_eq!(said.is_some(), why.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(why.unwrap_or_default()));
    }
}
