//! Plugins for claims and volumes.

use super::append;
use crate::request::{Attributes, Operation, Reader};
use serde_json::{Value, json};

const IS_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// StorageObjectInUseProtection: claims and volumes are not removed while they are used.
pub(super) fn protect(attributes: &mut Attributes) {
    let finalizer = match attributes.gvr.resource.as_str() {
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        "persistentvolumes" => "kubernetes.io/pv-protection",
        _ => return,
    };
    if !is_new(attributes) {
        return;
    }
    if let Some(object) = &mut attributes.object {
        let finalizers = object["metadata"]["finalizers"].as_array();
        if !finalizers.into_iter().flatten().any(|have| have == finalizer) {
            append(&mut object["metadata"], "finalizers", [json!(finalizer)]);
        }
    }
}

/// DefaultStorageClass: a claim that names no class gets the default one, the newest if there are several.
pub(super) fn default_class(attributes: &mut Attributes, reader: &dyn Reader) {
    if attributes.gvr.resource != "persistentvolumeclaims" || !is_new(attributes) {
        return;
    }
    let Some(claim) = &mut attributes.object else {
        return;
    };
    let annotated = !claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].is_null();
    if annotated || !claim["spec"]["storageClassName"].is_null() {
        return;
    }
    let is_default = |class: &Value| {
        IS_DEFAULT
            .iter()
            .any(|annotation| class["metadata"]["annotations"][*annotation] == "true")
    };
    let text = |class: &Value, key: &str| class["metadata"][key].as_str().unwrap_or_default().to_owned();
    let newest = reader
        .list("storage.k8s.io", "storageclasses", None)
        .into_iter()
        .filter(|class| is_default(class))
        .max_by_key(|class| {
            (
                text(class, "creationTimestamp"),
                std::cmp::Reverse(text(class, "name")),
            )
        });
    if let Some(class) = newest {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}

fn is_new(attributes: &Attributes) -> bool {
    attributes.operation == Operation::Create
        && attributes.gvr.group.is_empty()
        && attributes.subresource.is_empty()
}
