//! Volumes, and what provides them.

use super::cells::{access_modes, is_deleting, items, text};
use super::column::{AGE, Cell, NAME, Printer, integer, string};
use serde_json::{Value, json};

const UNSET: &str = "<unset>";

const STATUS: Printer = string("Status", Cell::Made(|object, _| json!(phase(object))));
const STORAGE_CLASS: Printer = string(
    "StorageClass",
    Cell::Made(|object, _| json!(storage_class(object))),
);
const ATTRIBUTES_CLASS: Printer = string(
    "VolumeAttributesClass",
    Cell::Text("/spec/volumeAttributesClassName", UNSET),
);
const MODE: Printer = string("VolumeMode", Cell::Text("/spec/volumeMode", UNSET)).wide();

pub(super) const PERSISTENT_VOLUME: &[Printer] = &[
    NAME,
    string("Capacity", Cell::Text("/spec/capacity/storage", "")),
    string(
        "Access Modes",
        Cell::Made(|object, _| json!(access_modes(items(object, "/spec/accessModes")))),
    ),
    string(
        "Reclaim Policy",
        Cell::Text("/spec/persistentVolumeReclaimPolicy", ""),
    ),
    STATUS,
    string("Claim", Cell::Made(|object, _| json!(claim(object)))),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    string("Reason", Cell::Text("/status/reason", "")),
    AGE,
    MODE,
];

/// Capacity and access modes are those of the volume that the claim is bound to.
pub(super) const PERSISTENT_VOLUME_CLAIM: &[Printer] = &[
    NAME,
    STATUS,
    string("Volume", Cell::Text("/spec/volumeName", "")),
    string(
        "Capacity",
        Cell::Made(|object, _| json!(text(bound_status(object), "/capacity/storage"))),
    ),
    string(
        "Access Modes",
        Cell::Made(|object, _| json!(access_modes(items(bound_status(object), "/accessModes")))),
    ),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    AGE,
    MODE,
];

pub(super) const CLASS: &[Printer] = &[
    string("Name", Cell::Made(|object, _| json!(class_name(object)))),
    string("Provisioner", Cell::Member("/provisioner")),
    string("ReclaimPolicy", Cell::Text("/reclaimPolicy", "Delete")),
    string("VolumeBindingMode", Cell::Text("/volumeBindingMode", UNSET)),
    string("AllowVolumeExpansion", Cell::Flag("/allowVolumeExpansion")),
    AGE,
];

pub(super) const VOLUME_ATTACHMENT: &[Printer] = &[
    NAME,
    string("Attacher", Cell::Member("/spec/attacher")),
    string("PV", Cell::Text("/spec/source/persistentVolumeName", "")),
    string("Node", Cell::Member("/spec/nodeName")),
    string("Attached", Cell::Flag("/status/attached")),
    AGE,
];

pub(super) const CSI_NODE: &[Printer] = &[NAME, integer("Drivers", Cell::Size("/spec/drivers")), AGE];

fn phase(object: &Value) -> &str {
    if is_deleting(object) {
        "Terminating"
    } else {
        text(object, "/status/phase")
    }
}

fn claim(object: &Value) -> String {
    let claim = &object["spec"]["claimRef"];
    if claim.is_object() {
        format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
    } else {
        String::new()
    }
}

fn storage_class(object: &Value) -> &str {
    match object["metadata"]["annotations"].get("volume.beta.kubernetes.io/storage-class") {
        Some(class) => class.as_str().unwrap_or_default(),
        None => text(object, "/spec/storageClassName"),
    }
}

/// The status of a claim that is bound; null for any other.
fn bound_status(claim: &Value) -> &Value {
    if text(claim, "/spec/volumeName").is_empty() {
        &Value::Null
    } else {
        &claim["status"]
    }
}

fn class_name(object: &Value) -> String {
    let name = text(object, "/metadata/name");
    let annotation = "storageclass.kubernetes.io/is-default-class";
    if object["metadata"]["annotations"][annotation] == json!("true") {
        format!("{name} (default)")
    } else {
        name.to_owned()
    }
}
