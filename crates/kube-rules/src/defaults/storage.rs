//! Volumes, claims and classes.

use super::{default, default_zero, pod, present};
use serde_json::{Value, json};

pub(super) fn volume(object: &mut Value) {
    default_zero(&mut object["status"], "phase", json!("Pending"));
    let spec = &mut object["spec"];
    default_zero(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    default(spec, "volumeMode", json!("Filesystem"));
    pod::shared_sources(spec);
}

pub(super) fn attachment(object: &mut Value) {
    if let Some(inline) = present(&mut object["spec"]["source"], "inlineVolumeSpec") {
        pod::shared_sources(inline);
    }
}

pub(super) fn claim(object: &mut Value) {
    default_zero(&mut object["status"], "phase", json!("Pending"));
    default(&mut object["spec"], "volumeMode", json!("Filesystem"));
}

pub(super) fn class(object: &mut Value) {
    default(object, "reclaimPolicy", json!("Delete"));
    default(object, "volumeBindingMode", json!("Immediate"));
}

pub(super) fn driver(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, "attachRequired", json!(true));
    default(spec, "podInfoOnMount", json!(false));
    default(spec, "storageCapacity", json!(false));
    default(spec, "fsGroupPolicy", json!("ReadWriteOnceWithFSType"));
    default(spec, "volumeLifecycleModes", json!(["Persistent"]));
    default(spec, "requiresRepublish", json!(false));
    default(spec, "seLinuxMount", json!(false));
}
