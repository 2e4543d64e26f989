//! What is written: patches with a resourceVersion, and Events.

use evenkeel_stock_rules::eviction::PodKey;
use evenkeel_stock_rules::health::Check;
use evenkeel_stock_rules::lifecycle::name;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodCondition, Taint};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Component that Events of the node lifecycle name.
pub(super) const NODE_CONTROLLER: &str = "node-controller";
/// Component that Events of the taint eviction name.
pub(super) const TAINT_EVICTION: &str = "taint-eviction-controller";

/// Writes as the stock controllers do. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writes {
    client: Client,
    nodes: Api<Node>,
    /// Makes names of Events unique.
    events: std::sync::Arc<AtomicU64>,
}

/// What an Event is about.
pub(super) struct About<'a> {
    pub(super) kind: &'static str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

impl Writes {
    pub(super) fn new(client: Client) -> Self {
        Self {
            nodes: Api::all(client.clone()),
            client,
            events: std::sync::Arc::default(),
        }
    }

    /// The node as the API server has it now.
    pub(super) async fn node(&self, name: &str) -> Result<Option<Node>, kube::Error> {
        self.nodes.get_opt(name).await
    }

    /// The conditions of a check, if the node is still at the version that was checked.
    pub(super) async fn conditions(&self, node: &Node, check: &Check) -> Result<Node, kube::Error> {
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": check.write},
        });
        let params = PatchParams::default();
        self.nodes
            .patch_status(name(node), &params, &Patch::Strategic(patch))
            .await
    }

    /// The taints of a node, if it is still at the version they were made for.
    pub(super) async fn taints(&self, node: &Node, taints: &[Taint]) -> Result<Node, kube::Error> {
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        });
        self.nodes
            .patch(name(node), &PatchParams::default(), &Patch::Strategic(patch))
            .await
    }

    /// Labels of a node.
    pub(super) async fn labels(
        &self,
        node: &Node,
        labels: &BTreeMap<&'static str, String>,
    ) -> Result<Node, kube::Error> {
        let patch = json!({"metadata": {"labels": labels}});
        self.nodes
            .patch(name(node), &PatchParams::default(), &Patch::Strategic(patch))
            .await
    }

    /// Ready=False on a pod, if it has a Ready condition that says otherwise; a pod that is gone is fine.
    pub(super) async fn mark_not_ready(&self, pod: &Pod, now: Timestamp) -> Result<bool, kube::Error> {
        let Some(ready) = condition(pod, "Ready").filter(|ready| ready.status != "False") else {
            return Ok(false);
        };
        let patch = json!({
            "metadata": {"resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": time(now),
                "reason": ready.reason, "message": ready.message}]},
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let params = PatchParams::default();
        match pods
            .patch_status(&pod.name_any(), &params, &Patch::Strategic(patch))
            .await
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a pod as the taint eviction does: condition first, then a plain delete with the pod's own
    /// grace period, without UID, budget or eviction API. A pod that is gone is fine.
    pub(super) async fn evict(&self, key: &PodKey, now: Timestamp) -> Result<(), kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(pod) = pods.get_opt(&key.name).await? else {
            return Ok(());
        };
        let target = evenkeel_api::names::conditions::DISRUPTION_TARGET;
        if condition(&pod, target).is_none_or(|condition| condition.status != "True") {
            let patch = json!({"status": {"conditions": [{
                "type": target, "status": "True", "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": time(now),
            }]}});
            pods.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch))
                .await?;
        }
        match pods.delete(&key.name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// An Event; one that cannot be written is only named in the log, as upstream.
    pub(super) async fn event(
        &self,
        component: &'static str,
        about: &About<'_>,
        kind: &'static str,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) {
        let namespace = if about.namespace.is_empty() {
            "default"
        } else {
            about.namespace
        };
        let count = self.events.fetch_add(1, Ordering::Relaxed);
        // Nanoseconds first, so that two processes do not collide; the count for two Events of one instant.
        let name = format!("{}.{:x}{count:04x}", about.name, now.as_nanosecond());
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": about.kind, "apiVersion": "v1", "namespace": about.namespace,
                "name": about.name, "uid": about.uid},
            "reason": reason, "message": message, "type": kind,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
            "firstTimestamp": time(now), "lastTimestamp": time(now), "count": 1,
        });
        let written = match serde_json::from_value::<Event>(event) {
            Ok(event) => {
                let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
                events.create(&PostParams::default(), &event).await.map(|_| ())
            }
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        if let Err(error) = written {
            tracing::warn!(reason, object = about.name, %error, "event cannot be written");
        }
    }

    /// Warning `NodeNotReady` on a pod of a node that is not ready.
    pub(super) async fn pod_not_ready_event(&self, pod: &Pod, now: Timestamp) {
        let namespace = pod.namespace().unwrap_or_default();
        let about = About {
            kind: "Pod",
            namespace: &namespace,
            name: pod.meta().name.as_deref().unwrap_or_default(),
            uid: pod.meta().uid.as_deref().unwrap_or_default(),
        };
        self.event(
            NODE_CONTROLLER,
            &about,
            "Warning",
            "NodeNotReady",
            "Node is not ready",
            now,
        )
        .await;
    }
}

/// The condition of a pod by type.
pub(super) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// As Kubernetes writes times: whole seconds.
fn time(at: Timestamp) -> Value {
    json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
