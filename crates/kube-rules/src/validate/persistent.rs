//! Persistent volumes.

use super::errors::{Errors, has, text};
use super::storage::{VOLUME_MODES, access_modes, class, positive, whole_amount};
use super::{drivers, selector, volume};
use crate::names;
use serde_json::Value;

/// Sources of volumes, in the order in which upstream looks at them.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn whole(object: &Value, errors: &mut Errors) {
    volume_spec(&object["spec"], "spec", false, errors);
}

/// The spec of a volume, or of one `inline` in an attachment.
pub(super) fn volume_spec(spec: &Value, path: &str, inline: bool, errors: &mut Errors) {
    let in_line = "may not be specified in the context of inline volumes";
    if inline {
        for name in ["claimRef", "capacity"] {
            if has(spec, name) {
                errors.forbidden(&format!("{path}.{name}"), in_line);
            }
        }
        if !has(spec, "csi") {
            errors.required(
                &format!("{path}.csi"),
                "has to be specified in the context of inline volumes",
            );
        }
    }
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.required(&format!("{path}.accessModes"), "");
    }
    access_modes(spec, path, errors);
    if !inline {
        capacity(&spec["capacity"], &format!("{path}.capacity"), errors);
    }
    let (field, policy) = (
        format!("{path}.persistentVolumeReclaimPolicy"),
        text(spec, "persistentVolumeReclaimPolicy"),
    );
    if inline && !policy.is_empty() && policy != "Retain" {
        errors.forbidden(&field, "may only be Retain in the context of inline volumes");
    } else if !inline && !policy.is_empty() {
        errors.one_of(&field, &policy.into(), &["Delete", "Recycle", "Retain"]);
    }
    if has(spec, "nodeAffinity") {
        let field = format!("{path}.nodeAffinity");
        if inline {
            errors.forbidden(&field, in_line);
        } else {
            node_affinity(&spec["nodeAffinity"], &field, errors);
        }
    }
    sources(spec, path, errors);
    let host_path = text(&spec["hostPath"], "path");
    let is_root = !host_path.is_empty() && host_path.bytes().all(|byte| byte == b'/' || byte == b'.');
    if is_root && host_path.starts_with('/') && policy == "Recycle" {
        errors.forbidden(&field, "may not be 'recycle' for a hostPath mount of '/'");
    }
    if inline && !text(spec, "storageClassName").is_empty() {
        errors.forbidden(&format!("{path}.storageClassName"), in_line);
    } else {
        class(spec, "storageClassName", path, errors);
    }
    let field = format!("{path}.volumeMode");
    if !inline {
        errors.one_of_given(&field, &spec["volumeMode"], &VOLUME_MODES);
    } else if has(spec, "volumeMode") && text(spec, "volumeMode") != "Filesystem" {
        errors.forbidden(
            &field,
            "may not specify volumeMode other than Filesystem in the context of inline volumes",
        );
    }
    // Upstream does not look at it in an attachment.
    if !inline && has(spec, "volumeAttributesClassName") {
        if text(spec, "volumeAttributesClassName").is_empty() {
            errors.required(
                &format!("{path}.volumeAttributesClassName"),
                "an empty string is disallowed",
            );
        }
        class(spec, "volumeAttributesClassName", path, errors);
        if !has(spec, "csi") {
            errors.required(
                &format!("{path}.csi"),
                "has to be specified when using volumeAttributesClassName",
            );
        }
    }
}

fn capacity(capacity: &Value, field: &str, errors: &mut Errors) {
    let members = capacity.as_object().filter(|members| !members.is_empty());
    if members.is_none() {
        errors.required(field, "");
    }
    if !has(capacity, "storage") || members.is_some_and(|members| members.len() > 1) {
        errors.not_supported(field, capacity, &["storage"]);
    }
    for (name, amount) in members.into_iter().flatten() {
        let field = &format!("{field}[{name}]");
        whole_amount(amount, field, errors);
        positive(amount, field, errors);
    }
}

fn node_affinity(affinity: &Value, path: &str, errors: &mut Errors) {
    if has(affinity, "required") {
        selector::node_selector(&affinity["required"], &format!("{path}.required"), errors);
    } else {
        errors.required(
            &format!("{path}.required"),
            "must specify required node constraints",
        );
    }
}

fn sources(spec: &Value, path: &str, errors: &mut Errors) {
    let mut any = false;
    for name in SOURCES.into_iter().filter(|name| has(spec, name)) {
        let shown = match name {
            "cephfs" if any => "cephFS",
            "gcePersistentDisk" if !any => "persistentDisk",
            name => name,
        };
        let field = format!("{path}.{shown}");
        // Upstream does not count this one.
        if std::mem::replace(&mut any, true) && name != "flexVolume" {
            errors.forbidden(&field, "may not specify more than 1 volume type");
            continue;
        }
        source(name, &spec[name], &field, errors);
        if name == "local" && !has(spec, "nodeAffinity") {
            errors.required(
                &format!("{path}.nodeAffinity"),
                "Local volume requires node affinity",
            );
        }
    }
    if !any {
        errors.required(path, "must specify a volume type");
    }
}

/// What a source needs. Those of clouds that Kubernetes no longer serves itself are looked at no further.
fn source(kind: &str, source: &Value, path: &str, errors: &mut Errors) {
    let needed: &[&str] = match kind {
        "local" => &["path"],
        "csi" => &["volumeHandle"],
        other => return volume::persistent(other, source, path, errors),
    };
    if kind == "csi" {
        drivers::name(&source["driver"], &format!("{path}.driver"), errors);
    }
    for name in needed {
        if text(source, name).is_empty() {
            errors.required(&format!("{path}.{name}"), "");
        }
    }
    if kind == "local" {
        errors.without_backsteps(&format!("{path}.path"), text(source, "path"));
    }
    if kind == "csi" {
        for name in [
            "controllerPublishSecretRef",
            "controllerExpandSecretRef",
            "nodePublishSecretRef",
            "nodeExpandSecretRef",
        ] {
            if has(source, name) {
                let reference = &source[name];
                errors.named(
                    &format!("{path}.{name}.name"),
                    &reference["name"],
                    names::dns_subdomain,
                );
                errors.named(
                    &format!("{path}.{name}.namespace"),
                    &reference["namespace"],
                    names::dns_label,
                );
            }
        }
    }
}

pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    let source = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(members) = spec.as_object_mut() {
            members.retain(|name, _| SOURCES.contains(&name.as_str()));
        }
        spec
    };
    let (before, mut after) = (source(old), source(new));
    if has(&before, "csi")
        && !has(&before["csi"], "controllerExpandSecretRef")
        && let Some(csi) = after["csi"].as_object_mut()
    {
        csi.remove("controllerExpandSecretRef");
    }
    if before != after {
        errors.forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation\n",
        );
    }
    let member = |object: &Value, name: &str| object["spec"][name].clone();
    errors.immutable(
        "volumeMode",
        &member(old, "volumeMode"),
        &member(new, "volumeMode"),
    );
    const CLASS: &str = "volumeAttributesClassName";
    if has(&old["spec"], CLASS) && !has(&new["spec"], CLASS) {
        errors.forbidden(
            "spec.volumeAttributesClassName",
            "update from non-nil value to nil is forbidden",
        );
    }
}
