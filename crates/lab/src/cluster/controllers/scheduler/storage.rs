//! What a pod's claims ask of its node, and what is written before it can be bound.

use crate::cluster::{
    action::{Action, Kind},
    controllers::{
        owned::patch,
        volumes::{SELECTED_NODE, best_match, is_bound, is_delayed, provisioner, reaches, reserve},
    },
    view::Snapshot,
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::json;
use std::sync::Arc;

/// The claims of a pod.
pub(super) struct Needs<'a> {
    view: &'a Snapshot,
    /// Volumes of claims that are bound.
    bound: Vec<&'a PersistentVolume>,
    /// Claims whose binding waits for the pod.
    waiting: Vec<&'a PersistentVolumeClaim>,
}

/// The claims of a pod, or why it can be on no node.
pub(super) fn needs<'a>(pod: &Pod, view: &'a Snapshot) -> Result<Needs<'a>, String> {
    let mut needs = Needs {
        view,
        bound: Vec::new(),
        waiting: Vec::new(),
    };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    for volume in volumes {
        let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => source.claim_name.clone(),
            (None, Some(_)) => format!("{pod_name}-{}", volume.name),
            (None, None) => continue,
        };
        let claim = view.claims.iter().find(|claim| {
            claim.metadata.name.as_ref() == Some(&name) && claim.metadata.namespace == pod.metadata.namespace
        });
        let Some(claim) = claim else {
            return Err(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let asked = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
        if is_bound(claim) {
            let volume = view
                .volumes
                .iter()
                .find(|volume| volume.metadata.name.as_ref() == asked);
            needs.bound.extend(volume.map(AsRef::as_ref));
        } else if is_delayed(claim, view) && asked.is_none_or(String::is_empty) {
            needs.waiting.push(claim);
        } else {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
    }
    Ok(needs)
}

impl Needs<'_> {
    /// Why the pod's volumes keep it from the node.
    pub(super) fn obstacle(&self, node: &Node) -> Option<&'static str> {
        if self.bound.iter().any(|volume| !reaches(volume, node)) {
            return Some("node(s) didn't match PersistentVolume's node affinity");
        }
        let lacks = self
            .matches(node)
            .into_iter()
            .any(|(claim, volume)| volume.is_none() && provisioner(claim, self.view).is_none());
        lacks.then_some("node(s) didn't find available persistent volumes to bind")
    }

    /// The writes that have claims bound for a pod on the node; `None` if all are.
    pub(super) fn reserve(&self, node: &Node) -> Option<Vec<Action>> {
        if self.waiting.is_empty() {
            return None;
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let writes = self.matches(node).into_iter().filter_map(|(claim, volume)| {
            if let Some(volume) = volume {
                return reserve(volume, claim);
            }
            let chosen = claim.metadata.annotations.as_ref();
            let chosen = chosen.and_then(|all| all.get(SELECTED_NODE));
            let change = json!({"metadata": {"annotations": {SELECTED_NODE: name}}});
            chosen
                .is_none()
                .then(|| patch(Kind::PersistentVolumeClaim, &claim.metadata, change))
        });
        Some(writes.collect())
    }

    /// A volume that the node reaches for each claim that waits; no volume twice.
    fn matches(&self, node: &Node) -> Vec<(&PersistentVolumeClaim, Option<&Arc<PersistentVolume>>)> {
        let mut free: Vec<&Arc<PersistentVolume>> = self.view.volumes.iter().collect();
        self.waiting
            .iter()
            .map(|claim| {
                let volume = best_match(claim, &free, Some(node), true);
                free.retain(|other| volume.is_none_or(|volume| !Arc::ptr_eq(volume, other)));
                (*claim, volume)
            })
            .collect()
    }
}
