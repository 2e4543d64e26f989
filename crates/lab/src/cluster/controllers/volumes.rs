//! Claims and volumes: which volume a claim gets, and what becomes of both afterwards.
//!
//! No volumes are provisioned here. A claim of a class with a provisioner is told whom it waits for, as by
//! Kubernetes, and binds when somebody has made a volume for it.

mod protection;

pub use protection::{claims as protect_claims, volumes as protect_volumes};

use super::owned::{as_json, identity, patch, status_patch};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use evenkeel_kube_values::Quantity;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Node, NodeSelector, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::{Selector, SelectorExt as _};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONERS: [&str; 2] = [
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
];
/// The node that the scheduler chose for the pod of a claim whose volume is yet to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// What to do for all claims and volumes.
pub fn reconcile(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    // A volume that one claim gets in this look is not another one's.
    let mut taken: Vec<&str> = Vec::new();
    for claim in &view.claims {
        actions.extend(claim_step(claim, view, &mut taken));
    }
    for volume in &view.volumes {
        let (_, name, _) = identity(&volume.metadata);
        if !taken.contains(&name) {
            actions.extend(volume_step(volume, view));
        }
    }
    actions
}

fn claim_step<'a>(
    claim: &PersistentVolumeClaim,
    view: &'a Snapshot,
    taken: &mut Vec<&'a str>,
) -> Vec<Action> {
    let Some(spec) = &claim.spec else {
        return Vec::new();
    };
    let completed = has(&claim.metadata, BIND_COMPLETED);
    let asked = spec.volume_name.as_deref().filter(|name| !name.is_empty());
    let Some(asked) = asked else {
        if completed {
            return set_phase(claim, "Lost", None);
        }
        let delayed = is_delayed(claim, view);
        let free: Vec<&Arc<PersistentVolume>> = view
            .volumes
            .iter()
            .filter(|volume| !taken.contains(&identity(&volume.metadata).1))
            .collect();
        let Some(volume) = best_match(claim, &free, None, delayed) else {
            return wait(claim, delayed, view);
        };
        taken.push(identity(&volume.metadata).1);
        return bind(claim, volume);
    };
    let volume = view
        .volumes
        .iter()
        .find(|volume| volume.metadata.name.as_deref() == Some(asked));
    let Some(volume) = volume else {
        return set_phase(claim, if completed { "Lost" } else { "Pending" }, None);
    };
    let fits = match reference(volume) {
        None => completed || satisfies(volume, claim),
        Some(reference) if completed => reference.uid == claim.metadata.uid,
        Some(_) => is_bound_to(volume, claim),
    };
    if fits && !taken.contains(&asked) {
        taken.push(identity(&volume.metadata).1);
        return bind(claim, volume);
    }
    set_phase(claim, if completed { "Lost" } else { "Pending" }, None)
}

/// What a claim says while there is no volume for it.
fn wait(claim: &PersistentVolumeClaim, delayed: bool, view: &Snapshot) -> Vec<Action> {
    let classless = claim
        .spec
        .as_ref()
        .is_some_and(|spec| spec.storage_class_name.is_none());
    if classless && let Some(class) = default_class(view) {
        let change = json!({"spec": {"storageClassName": class.metadata.name}});
        return vec![patch(Kind::PersistentVolumeClaim, &claim.metadata, change)];
    }
    let class = class_of(claim, view);
    let provisioner = class.map(|class| class.provisioner.as_str());
    if let Some(provisioner) = provisioner.filter(|name| *name != "kubernetes.io/no-provisioner")
        && (!delayed || has(&claim.metadata, SELECTED_NODE))
    {
        let annotations = claim.metadata.annotations.as_ref();
        let said = PROVISIONERS
            .iter()
            .all(|key| annotations.and_then(|all| all.get(*key)).map(String::as_str) == Some(provisioner));
        if !said {
            let all: BTreeMap<&str, &str> = PROVISIONERS.iter().map(|key| (*key, provisioner)).collect();
            let change = json!({"metadata": {"annotations": all}});
            return vec![patch(Kind::PersistentVolumeClaim, &claim.metadata, change)];
        }
        return Vec::new();
    }
    set_phase(claim, "Pending", None)
}

/// Binds both to each other: first the volume, so that no other claim gets it.
fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Vec<Action> {
    let (namespace, name, uid) = identity(&claim.metadata);
    let (_, volume_name, _) = identity(&volume.metadata);
    let mut actions = Vec::new();
    let reference = reference(volume);
    let complete = reference.is_some_and(|reference| reference.uid.as_deref() == Some(uid));
    if !complete || !is_bound_to(volume, claim) {
        let mut change = json!({
            "metadata": {"resourceVersion": volume.metadata.resource_version},
            "spec": {"claimRef": {
                "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid,
                "apiVersion": "v1", "resourceVersion": claim.metadata.resource_version,
            }},
        });
        if !is_bound_to(volume, claim) {
            change["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
        }
        actions.push(patch(Kind::PersistentVolume, &volume.metadata, change));
    }
    actions.extend(volume_phase(volume, "Bound", ""));
    let mut change = json!({});
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    if asked != Some(volume_name) {
        change["spec"] = json!({"volumeName": volume_name});
        change["metadata"]["annotations"][BOUND_BY_CONTROLLER] = json!("yes");
    }
    if !has(&claim.metadata, BIND_COMPLETED) {
        change["metadata"]["annotations"][BIND_COMPLETED] = json!("yes");
    }
    if change != json!({}) {
        actions.push(patch(Kind::PersistentVolumeClaim, &claim.metadata, change));
    }
    actions.extend(set_phase(claim, "Bound", Some(volume)));
    actions
}

/// The claim's phase, with what it has of its volume. The capacity of a bound claim is not this controller's.
fn set_phase(claim: &PersistentVolumeClaim, phase: &str, volume: Option<&PersistentVolume>) -> Vec<Action> {
    let before = claim.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let changes = before.phase.as_deref() != Some(phase);
    status.phase = Some(phase.to_owned());
    match volume.and_then(|volume| volume.spec.as_ref()) {
        None => {
            status.access_modes = None;
            status.capacity = None;
            status.current_volume_attributes_class_name = None;
        }
        Some(spec) => {
            status.access_modes.clone_from(&spec.access_modes);
            if changes {
                status.capacity.clone_from(&spec.capacity);
                status
                    .current_volume_attributes_class_name
                    .clone_from(&spec.volume_attributes_class_name);
            }
        }
    }
    status_patch(
        Kind::PersistentVolumeClaim,
        &claim.metadata,
        &as_json(&before),
        as_json(&status),
    )
    .into_iter()
    .collect()
}

fn volume_phase(volume: &PersistentVolume, phase: &str, message: &str) -> Option<Action> {
    let before = volume.status.as_ref();
    let known = before.and_then(|status| status.phase.as_deref()) == Some(phase);
    let (_, name, _) = identity(&volume.metadata);
    let message = (!message.is_empty()).then_some(message);
    (!known).then(|| Action::Patch {
        kind: Kind::PersistentVolume,
        namespace: String::new(),
        name: name.to_owned(),
        status: true,
        patch: json!({"status": {"phase": phase, "message": message}}),
    })
}

fn volume_step(volume: &PersistentVolume, view: &Snapshot) -> Vec<Action> {
    let one = |action: Option<Action>| action.into_iter().collect();
    let Some(reference) = reference(volume) else {
        return one(volume_phase(volume, "Available", ""));
    };
    if reference.uid.as_deref().unwrap_or_default().is_empty() {
        return one(volume_phase(volume, "Available", ""));
    }
    let claim = view
        .claims
        .iter()
        .find(|claim| claim.metadata.uid == reference.uid);
    let (_, name, _) = identity(&volume.metadata);
    let Some(claim) = claim else {
        return released(volume);
    };
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    match asked.filter(|asked| !asked.is_empty()) {
        // The claim's own look finishes the binding.
        None => Vec::new(),
        Some(asked) if asked == name => one(volume_phase(volume, "Bound", "")),
        Some(_) if has(&volume.metadata, PROVISIONED_BY) && policy(volume) == "Delete" => released(volume),
        Some(_) => {
            // The claim has another volume by now.
            let change = if has(&volume.metadata, BOUND_BY_CONTROLLER) {
                json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}})
            } else {
                json!({"spec": {"claimRef": {"uid": null}}})
            };
            let mut actions = vec![patch(Kind::PersistentVolume, &volume.metadata, change)];
            actions.extend(volume_phase(volume, "Available", ""));
            actions
        }
    }
}

/// What becomes of a volume whose claim is gone. Contents are nobody's here, so that nothing is wiped: what
/// asks for deletion fails with Kubernetes' words, but for volumes of a provisioner, which is left to it.
fn released(volume: &PersistentVolume) -> Vec<Action> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if !matches!(phase, Some("Released" | "Failed")) {
        return volume_phase(volume, "Released", "").into_iter().collect();
    }
    let (_, name, _) = identity(&volume.metadata);
    let Some(spec) = volume.spec.as_ref().filter(|_| policy(volume) == "Delete") else {
        return Vec::new();
    };
    let annotations = volume.metadata.annotations.as_ref();
    let provisioner = annotations.and_then(|all| all.get(PROVISIONED_BY));
    let external = provisioner.is_some_and(|name| !name.starts_with("kubernetes.io/")) || spec.csi.is_some();
    let action = match spec.host_path.as_ref().map(|host| host.path.as_str()) {
        _ if external => None,
        Some(path) if path.starts_with("/tmp/") && path.len() > "/tmp/".len() => {
            let leaving = volume.metadata.deletion_timestamp.is_some();
            (!leaving).then(|| super::owned::delete(Kind::PersistentVolume, &volume.metadata, None))
        }
        Some(path) => {
            let message = format!("host_path deleter only supports /tmp/.+ but received provided {path}");
            volume_phase(volume, "Failed", &message)
        }
        None => {
            let message = format!(
                "error getting deleter volume plugin for volume \"{name}\": no deletable volume plugin matched"
            );
            volume_phase(volume, "Failed", &message)
        }
    };
    action.into_iter().collect()
}

/// The smallest volume that fits the claim: one that is reserved for it in any case, else a free one. On a
/// node, one that the node reaches. A claim whose binding waits for its pod gets a free one only there.
pub fn best_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &[&'a Arc<PersistentVolume>],
    node: Option<&Node>,
    delayed: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let fitting: Vec<&&Arc<PersistentVolume>> = volumes
        .iter()
        .filter(|volume| {
            let reserved = reference(volume).is_some();
            volume.metadata.deletion_timestamp.is_none()
                && (!reserved || is_bound_to(volume, claim))
                && size(volume) >= requested(claim)
                && modes_match(volume, claim)
                && has_access_modes(volume, claim)
                && attributes_match(volume, claim)
        })
        .collect();
    if let Some(volume) = fitting.iter().find(|volume| is_bound_to(volume, claim)) {
        return node.is_none_or(|node| reaches(volume, node)).then_some(**volume);
    }
    if delayed && node.is_none() {
        return None;
    }
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.clone());
    let selector = selector.map(Selector::try_from).transpose().ok()?;
    let none = BTreeMap::new();
    let free = fitting.into_iter().filter(|volume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let labels = volume.metadata.labels.as_ref().unwrap_or(&none);
        phase == Some("Available")
            && selector.as_ref().is_none_or(|selector| selector.matches(labels))
            && class_name(volume) == claim_class(claim)
            && node.is_none_or(|node| reaches(volume, node))
    });
    let modes = |volume: &PersistentVolume| {
        let spec = volume.spec.as_ref();
        spec.and_then(|spec| spec.access_modes.as_ref())
            .map_or(0, Vec::len)
    };
    // Without a node the volumes with the fewest access modes are looked at first.
    let rank = |volume: &PersistentVolume| (node.map_or_else(|| modes(volume), |_| 0), size(volume));
    free.min_by_key(|volume| rank(volume)).copied()
}

/// Whether the binding of the claim waits for a pod.
pub fn is_delayed(claim: &PersistentVolumeClaim, view: &Snapshot) -> bool {
    let mode = class_of(claim, view).and_then(|class| class.volume_binding_mode.as_deref());
    mode == Some("WaitForFirstConsumer")
}

/// Whether claim and volume are bound to each other.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    name.is_some_and(|name| !name.is_empty()) && has(&claim.metadata, BIND_COMPLETED)
}

/// The class of a claim that waits for its pod, if somebody provisions volumes for it.
pub fn provisioner<'a>(claim: &PersistentVolumeClaim, view: &'a Snapshot) -> Option<&'a str> {
    let provisioner = class_of(claim, view)?.provisioner.as_str();
    (provisioner != "kubernetes.io/no-provisioner").then_some(provisioner)
}

/// The write by which the scheduler reserves a volume for a claim; the binder does the rest.
pub fn reserve(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Action> {
    let first = bind(claim, volume).into_iter().next()?;
    let about = matches!(
        first,
        Action::Patch {
            kind: Kind::PersistentVolume,
            status: false,
            ..
        }
    );
    about.then_some(first)
}

/// Whether the node is one of those from which the volume can be reached.
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required: &NodeSelector| super::scheduler::selects(required, node))
}

fn class_of<'a>(claim: &PersistentVolumeClaim, view: &'a Snapshot) -> Option<&'a StorageClass> {
    let name = claim_class(claim);
    view.storage_classes
        .iter()
        .find(|class| class.metadata.name.as_deref() == Some(name))
        .map(AsRef::as_ref)
}

/// The newest class that is marked as the default; of equally old ones the first by name.
fn default_class(view: &Snapshot) -> Option<&StorageClass> {
    let is_default = |class: &&Arc<StorageClass>| {
        let annotations = class.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(DEFAULT_CLASS))
            .is_some_and(|value| value == "true")
    };
    let classes = view.storage_classes.iter().filter(is_default);
    let class = classes.min_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(created), class.metadata.name.clone())
    });
    class.map(AsRef::as_ref)
}

fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let annotations = claim.metadata.annotations.as_ref();
    let beta = annotations.and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    let name = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.as_ref());
    beta.or(name).map_or("", String::as_str)
}

fn class_name(volume: &PersistentVolume) -> &str {
    let annotations = volume.metadata.annotations.as_ref();
    let beta = annotations.and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    let name = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.as_ref());
    beta.or(name).map_or("", String::as_str)
}

fn policy(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        .unwrap_or("Retain")
}

fn reference(volume: &PersistentVolume) -> Option<&k8s_openapi::api::core::v1::ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Whether the volume is the claim's, or reserved for one of its name.
fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    reference(volume).is_some_and(|reference| {
        let uid = reference.uid.as_deref().filter(|uid| !uid.is_empty());
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && uid.is_none_or(|uid| claim.metadata.uid.as_deref() == Some(uid))
    })
}

/// Whether a volume that the claim asks for by name may be bound to it.
fn satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.metadata.deletion_timestamp.is_none()
        && size(volume) >= requested(claim)
        && class_name(volume) == claim_class(claim)
        && attributes_match(volume, claim)
        && modes_match(volume, claim)
        && has_access_modes(volume, claim)
}

fn attributes_match(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let of_claim = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_attributes_class_name.as_deref());
    of_volume.unwrap_or_default() == of_claim.unwrap_or_default()
}

fn modes_match(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    of_volume.unwrap_or("Filesystem") == of_claim.unwrap_or("Filesystem")
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered: Vec<&String> = volume
        .spec
        .iter()
        .flat_map(|spec| spec.access_modes.iter().flatten())
        .collect();
    let mut asked = claim
        .spec
        .iter()
        .flat_map(|spec| spec.access_modes.iter().flatten());
    asked.all(|mode| offered.contains(&mode))
}

fn size(volume: &PersistentVolume) -> i128 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    bytes(capacity)
}

fn requested(claim: &PersistentVolumeClaim) -> i128 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    bytes(resources.and_then(|resources| resources.requests.as_ref()))
}

fn bytes(
    quantities: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> i128 {
    let text = quantities.and_then(|all| all.get("storage"));
    text.and_then(|text| Quantity::parse(&text.0).ok())
        .map_or(0, Quantity::value)
}

fn has(metadata: &ObjectMeta, annotation: &str) -> bool {
    metadata
        .annotations
        .as_ref()
        .is_some_and(|all| all.contains_key(annotation))
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
