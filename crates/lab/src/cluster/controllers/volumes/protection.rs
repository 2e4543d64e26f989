//! Claims and volumes in use: their finalizers keep them until nobody uses them any more.

use crate::cluster::{
    action::{Action, Kind},
    controllers::owned::{node_of, patch},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// Lets go of claims that are being deleted once no pod on a node refers to them.
pub fn claims(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    let step = |claim: &ObjectMeta| {
        let used = || view.pods.iter().any(|pod| uses(pod, claim));
        protect(Kind::PersistentVolumeClaim, claim, CLAIM, used)
    };
    view.claims
        .iter()
        .filter_map(|claim| step(&claim.metadata))
        .collect()
}

/// Lets go of volumes that are being deleted once they are bound no more.
pub fn volumes(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    let bound = |phase: Option<&str>| phase == Some("Bound");
    view.volumes
        .iter()
        .filter_map(|volume| {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            protect(Kind::PersistentVolume, &volume.metadata, VOLUME, || bound(phase))
        })
        .collect()
}

/// Removes the finalizer where the object goes and is not in use, and adds it where a living one has none.
fn protect(kind: Kind, metadata: &ObjectMeta, finalizer: &str, used: impl Fn() -> bool) -> Option<Action> {
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    let held = finalizers.iter().any(|name| name == finalizer);
    match (metadata.deletion_timestamp.is_some(), held) {
        (true, true) if !used() => finalizers.retain(|name| name != finalizer),
        (false, false) => finalizers.push(finalizer.to_owned()),
        _ => return None,
    }
    let version = &metadata.resource_version;
    let change = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    Some(patch(kind, metadata, change))
}

/// Whether a pod on a node has the claim among its volumes: a kubelet starts none with a claim that goes.
fn uses(pod: &Pod, claim: &ObjectMeta) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut names = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    node_of(pod).is_some()
        && pod.metadata.namespace == claim.namespace
        && names.any(|source| Some(&source.claim_name) == claim.name.as_ref())
}
