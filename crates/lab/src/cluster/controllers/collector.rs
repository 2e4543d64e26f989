//! Garbage collection: dependents of owners that are gone, owners that wait for their dependents, pods of
//! nodes that are gone or out of service.

use super::owned::{delete, identity, is_finished, node_of};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{Metadata, api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Kinds whose objects own others here; owners of other kinds are never presumed gone.
const OWNER_KINDS: [&str; 8] = [
    "ConfigMap",
    "PersistentVolumeClaim",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Service",
    "Pod",
];

/// Deletes dependents of owners that are gone, and pods that no kubelet will ever end.
pub fn reconcile(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    let objects = objects(view);
    let alive: HashSet<&str> = objects.iter().map(|(_, metadata)| identity(metadata).2).collect();
    let foreground: HashSet<&str> = objects
        .iter()
        .filter(|(_, metadata)| metadata.deletion_timestamp.is_some() && has(metadata, FOREGROUND))
        .map(|(_, metadata)| identity(metadata).2)
        .collect();
    let orphaning: HashSet<&str> = objects
        .iter()
        .filter(|(_, metadata)| metadata.deletion_timestamp.is_some() && has(metadata, ORPHAN))
        .map(|(_, metadata)| identity(metadata).2)
        .collect();

    let mut actions = Vec::new();
    for (kind, metadata) in &objects {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        if owners.iter().any(|owner| orphaning.contains(owner.uid.as_str())) {
            let kept: Vec<_> = owners
                .iter()
                .filter(|owner| !orphaning.contains(owner.uid.as_str()))
                .collect();
            actions.push(patch(
                *kind,
                metadata,
                json!({"metadata": {"ownerReferences": kept}}),
            ));
            continue;
        }
        let leaving = |uid: &str, owner_kind: &str| {
            foreground.contains(uid) || OWNER_KINDS.contains(&owner_kind) && !alive.contains(uid)
        };
        let doomed = !owners.is_empty() && owners.iter().all(|owner| leaving(&owner.uid, &owner.kind));
        if doomed && metadata.deletion_timestamp.is_none() {
            actions.push(delete(*kind, metadata, None));
        }
    }
    // An owner in foreground deletion goes when nobody depends on it any more; an orphaning one likewise.
    for (kind, metadata) in &objects {
        let (_, _, uid) = identity(metadata);
        let depended = objects.iter().any(|(_, other)| {
            other
                .owner_references
                .as_deref()
                .unwrap_or_default()
                .iter()
                .any(|owner| {
                    owner.uid == uid && (orphaning.contains(uid) || owner.block_owner_deletion == Some(true))
                })
        });
        if metadata.deletion_timestamp.is_some() && !depended {
            let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
            let kept: Vec<&String> = finalizers
                .iter()
                .filter(|name| !matches!(name.as_str(), FOREGROUND | ORPHAN))
                .collect();
            if kept.len() < finalizers.len() {
                actions.push(patch(*kind, metadata, json!({"metadata": {"finalizers": kept}})));
            }
        }
    }
    actions.extend(
        view.pods
            .iter()
            .filter(|pod| is_abandoned(pod, view))
            .map(|pod| delete(Kind::Pod, &pod.metadata, Some(0))),
    );
    actions
}

/// A pod that no kubelet will ever end: terminating and unbound, bound to a node that is gone, or terminating
/// on a node that is out of service.
fn is_abandoned(pod: &Pod, view: &Snapshot) -> bool {
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let Some(node) = node_of(pod) else {
        return terminating;
    };
    let Some(node) = view
        .nodes
        .iter()
        .find(|candidate| candidate.metadata.name.as_deref() == Some(node))
    else {
        return !is_finished(pod);
    };
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    terminating && !ready && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

fn objects(view: &Snapshot) -> Vec<(Kind, &ObjectMeta)> {
    let mut all: Vec<(Kind, &ObjectMeta)> = Vec::new();
    all.extend(of(Kind::ConfigMap, &view.config_maps));
    all.extend(of(Kind::DaemonSet, &view.daemon_sets));
    all.extend(of(Kind::Deployment, &view.deployments));
    all.extend(of(Kind::EndpointSlice, &view.endpoint_slices));
    all.extend(of(Kind::Endpoints, &view.endpoints));
    all.extend(of(Kind::PersistentVolumeClaim, &view.claims));
    all.extend(of(Kind::Pod, &view.pods));
    all.extend(of(Kind::ReplicaSet, &view.replica_sets));
    all.extend(of(Kind::Service, &view.services));
    all.extend(of(Kind::StatefulSet, &view.stateful_sets));
    all
}

fn of<K>(kind: Kind, objects: &[Arc<K>]) -> impl Iterator<Item = (Kind, &ObjectMeta)>
where
    K: Metadata<Ty = ObjectMeta>,
{
    objects.iter().map(move |object| (kind, object.metadata()))
}

fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata
        .finalizers
        .as_deref()
        .unwrap_or_default()
        .iter()
        .any(|name| name == finalizer)
}

fn patch(kind: Kind, metadata: &ObjectMeta, patch: serde_json::Value) -> Action {
    let (namespace, name, _) = identity(metadata);
    Action::Patch {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status: false,
        patch,
    }
}
