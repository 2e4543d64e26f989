//! Writes to Nodes, and the last look before an irreversible one.

use super::{ActionError, Executor, Outcome, Result, params, refuse_unless, settled};
use crate::clock::wall;
use evenkeel_api::crd::AgentStatus;
use evenkeel_api::names::{self, annotations, conditions};
use evenkeel_failover_rules::planner::action::NodeRef;
use evenkeel_failover_rules::world::LastSigns;
use evenkeel_failover_rules::world::facts::TaintRef;
use evenkeel_failover_rules::world::read;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::Patch;
use serde::de::DeserializeOwned;
use serde_json::json;

impl Executor {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Quorum reads of Lease, AgentStatus and Node: the Node if it wrote nothing since `signs` were seen,
    /// else why not (hazard 21).
    pub(super) async fn still_silent(&self, node: &NodeRef, signs: &LastSigns) -> Result<Node> {
        let why = |what: &str| format!("node {}: {what}", node.name);
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NODE_LEASE_NAMESPACE);
        let lease = read_of(&leases, node, "the Lease of ").await?;
        let same = lease.as_ref().and_then(read::renew_time) == signs.lease;
        refuse_unless(same, || why("its Lease changed since the decision"))?;
        let agents: Api<AgentStatus> = Api::all(self.client.clone());
        let agent = read_of(&agents, node, "the AgentStatus of ").await?;
        let same = agent.map(|agent| agent.spec.link_proofs) == signs.link_proofs;
        refuse_unless(same, || why("its agent wrote since the decision"))?;
        let found = self.read(node).await?;
        let found = found.ok_or_else(|| ActionError::Refused(why("it is gone")))?;
        let silent = read::heartbeat(&found) <= signs.heartbeat;
        refuse_unless(silent, || {
            why("its kubelet wrote a newer status since the decision")
        })?;
        self.check_leads()?;
        Ok(found)
    }

    /// The node as it stands, unless it is gone or another one by its name.
    async fn read(&self, node: &NodeRef) -> Result<Option<Node>> {
        let found = read_of(&self.nodes(), node, "").await?;
        Ok(found.filter(|found| found.metadata.uid.as_deref() == Some(node.uid.as_str())))
    }

    /// `found`: the node, where it was just read.
    pub(super) async fn taint(
        &self,
        node: &NodeRef,
        taint: &TaintRef,
        found: Option<Node>,
    ) -> Result<Outcome> {
        let found = match found {
            Some(found) => Some(found),
            None => self.read(node).await?,
        };
        let Some(found) = found else {
            return Ok(Outcome::Done);
        };
        let (mut taints, mut added) = taints_of(&found);
        if taints
            .iter()
            .any(|known| known.key == taint.key && known.effect == taint.effect)
        {
            return Ok(Outcome::Done);
        }
        taints.push(taint.to_taint(Some(Time(wall()))));
        if !added.contains(taint) {
            added.push(taint.clone());
        }
        self.write_taints(node, &found, &taints, &added).await
    }

    /// Adds a taint to the node as it was when that was decided. It is not listed as ours: the stock
    /// controller takes it off.
    pub(super) async fn taint_for_stock(
        &self,
        node: &NodeRef,
        version: &str,
        taint: &TaintRef,
    ) -> Result<Outcome> {
        let found = self.read(node).await?;
        let same = |found: &Node| found.metadata.resource_version.as_deref() == Some(version);
        let Some(found) = found.filter(same) else {
            return Ok(Outcome::Stale);
        };
        let (mut taints, added) = taints_of(&found);
        taints.push(taint.to_taint(Some(Time(wall()))));
        self.write_taints(node, &found, &taints, &added).await
    }

    pub(super) async fn untaint(&self, node: &NodeRef, remove: &[TaintRef]) -> Result<Outcome> {
        let Some(found) = self.read(node).await? else {
            return Ok(Outcome::Done);
        };
        let listed = |taint: &Taint| remove.contains(&TaintRef::new(&taint.key, &taint.effect));
        let (mut taints, mut added) = taints_of(&found);
        let before = (taints.len(), added.len());
        taints.retain(|taint| !listed(taint));
        added.retain(|taint| !remove.contains(taint));
        if (taints.len(), added.len()) == before {
            return Ok(Outcome::Done);
        }
        self.write_taints(node, &found, &taints, &added).await
    }

    /// Replaces the whole list under the resourceVersion it was read with; moves within a list mean nothing.
    async fn write_taints(
        &self,
        node: &NodeRef,
        found: &Node,
        taints: &[Taint],
        added: &[TaintRef],
    ) -> Result<Outcome> {
        self.check_leads()?;
        let mut annotations = self.stamp();
        annotations.insert(
            annotations::ADDED_TAINTS,
            (!added.is_empty()).then(|| TaintRef::format_list(added)),
        );
        let taints = (!taints.is_empty()).then_some(taints);
        let patch = json!({
            "metadata": {
                "uid": node.uid,
                "resourceVersion": found.metadata.resource_version,
                "annotations": annotations,
            },
            "spec": { "taints": taints },
        });
        let answer = self
            .nodes()
            .patch(&node.name, &params(), &Patch::Merge(patch))
            .await;
        settled(format!("write the taints of node {}", node.name), answer)
    }

    /// By the external-detector contract (KEP-6371): another reason than the stock controller's, the
    /// heartbeat untouched, and never over a condition newer than the one that was decided upon.
    pub(super) async fn mark_node_unknown(
        &self,
        node: &NodeRef,
        version: &str,
        message: &str,
    ) -> Result<Outcome> {
        let patch = json!({
            "metadata": { "uid": node.uid, "resourceVersion": version, "annotations": self.stamp() },
            "status": { "conditions": [{
                "type": "Ready",
                "status": "Unknown",
                "reason": conditions::REASON_CONFIRMED_DEAD,
                "message": message,
                "lastTransitionTime": Time(wall()),
            }]},
        });
        let answer = self
            .nodes()
            .patch_status(&node.name, &params(), &Patch::Strategic(patch))
            .await;
        settled(format!("mark node {} Unknown", node.name), answer)
    }

    pub(super) async fn mirror(&self, node: &NodeRef, healthy: bool) -> Result<Outcome> {
        let patch = json!({ "metadata": {
            "uid": node.uid,
            "annotations": { annotations::SUPEREDGE_NODE_HEALTH: healthy.to_string() },
        }});
        let answer = self
            .nodes()
            .patch(&node.name, &params(), &Patch::Merge(patch))
            .await;
        settled(format!("annotate node {}", node.name), answer)
    }
}

/// The object by the node's name, read from a quorum. `what` says in an error what it is of the node.
async fn read_of<K>(api: &Api<K>, node: &NodeRef, what: &str) -> Result<Option<K>>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let found = api.get_opt(&node.name).await;
    found.map_err(|source| ActionError::Api {
        what: format!("read {what}node {}", node.name),
        source,
    })
}

/// The taints of a node, and those of them that were put there by us.
fn taints_of(node: &Node) -> (Vec<Taint>, Vec<TaintRef>) {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    (taints.unwrap_or_default(), read::node(node).added)
}
