//! Volumes, claims, classes, attachments.

use super::errors::{Errors, has, items, text};
use super::selector;
use crate::names;
use evenkeel_kube_values::Quantity;
use serde_json::{Value, json};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(super) fn claim(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    access_modes(spec, "at least 1 access mode is required", errors);
    selector::selector(&spec["selector"], "spec.selector", errors);
    let storage = &spec["resources"]["requests"]["storage"];
    if storage.is_null() {
        errors.required("spec.resources[storage]", "");
    } else if let Some(Ok(quantity)) = storage.as_str().map(Quantity::parse)
        && (quantity.is_negative() || quantity.is_zero())
    {
        errors.invalid("spec.resources[storage]", storage, "must be greater than zero");
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.invalid_text("spec.storageClassName", class, names::dns_subdomain(class));
    }
    if has(spec, "volumeMode") {
        errors.one_of("spec.volumeMode", &spec["volumeMode"], &["Block", "Filesystem"]);
    }
}

fn access_modes(spec: &Value, none: &str, errors: &mut Errors) {
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.required("spec.accessModes", none);
    }
    for (_, mode) in items(spec, "accessModes") {
        if !ACCESS_MODES.contains(&mode.as_str().unwrap_or_default()) {
            errors.not_supported("spec.accessModes", mode, &ACCESS_MODES);
        }
    }
}

pub(super) fn claim_update(old: &Value, new: &Value, errors: &mut Errors) {
    let bound = text(&old["status"], "phase") == "Bound";
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(members) = spec.as_object_mut() {
            if bound {
                members.remove("volumeAttributesClassName");
            }
            if text(&old["spec"], "volumeName").is_empty() {
                // Binding sets the name once.
                members.remove("volumeName");
            }
            if bound
                && let Some(requests) = members
                    .get_mut("resources")
                    .and_then(|all| all.get_mut("requests"))
            {
                requests["storage"] = Value::Null;
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        errors.forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n",
        );
    }
}

pub(super) fn volume(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    access_modes(spec, "", errors);
    let capacity = spec["capacity"].as_object();
    if capacity.is_none_or(serde_json::Map::is_empty) {
        errors.required("spec.capacity", "");
    } else if !has(&spec["capacity"], "storage") || capacity.is_some_and(|members| members.len() > 1) {
        let names: Vec<&String> = capacity.into_iter().flatten().map(|(name, _)| name).collect();
        errors.not_supported("spec.capacity", &json!(names), &["storage"]);
    }
    const OTHER: [&str; 10] = [
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
        "status",
    ];
    let sources = spec
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !OTHER.contains(&name.as_str()));
    match sources.count() {
        0 => errors.required("spec", "must specify a volume type"),
        1 => {}
        _ => errors.forbidden("spec", "may not specify more than 1 volume type"),
    }
    let policies = ["Delete", "Recycle", "Retain"];
    errors.one_of(
        "spec.persistentVolumeReclaimPolicy",
        &spec["persistentVolumeReclaimPolicy"],
        &policies,
    );
}

pub(super) fn volume_update(old: &Value, new: &Value, errors: &mut Errors) {
    const MUTABLE: [&str; 8] = [
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "nodeAffinity",
        "volumeAttributesClassName",
    ];
    let source = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(members) = spec.as_object_mut() {
            members.retain(|name, _| !MUTABLE.contains(&name.as_str()) && name != "volumeMode");
        }
        spec
    };
    if source(old) != source(new) {
        errors.forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation\n",
        );
    }
    errors.immutable(
        "spec.volumeMode",
        &old["spec"]["volumeMode"],
        &new["spec"]["volumeMode"],
    );
}

pub(super) fn storage_class(object: &Value, errors: &mut Errors) {
    let provisioner = text(object, "provisioner");
    if provisioner.is_empty() {
        errors.required("provisioner", "");
    } else {
        errors.invalid_text(
            "provisioner",
            provisioner,
            names::qualified(&provisioner.to_lowercase()),
        );
    }
    errors.one_of("reclaimPolicy", &object["reclaimPolicy"], &["Delete", "Retain"]);
    errors.one_of(
        "volumeBindingMode",
        &object["volumeBindingMode"],
        &["Immediate", "WaitForFirstConsumer"],
    );
}

pub(super) fn storage_class_update(old: &Value, new: &Value, errors: &mut Errors) {
    for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(name, &old[name], &new[name]);
    }
}

pub(super) fn attachment(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let attacher = text(spec, "attacher");
    if attacher.is_empty() {
        errors.required("spec.attacher", "");
    } else {
        errors.invalid_text(
            "spec.attacher",
            attacher,
            names::dns_subdomain(&attacher.to_lowercase()),
        );
    }
    let source = &spec["source"];
    match (
        has(source, "persistentVolumeName"),
        has(source, "inlineVolumeSpec"),
    ) {
        (false, false) => errors.required(
            "spec.source",
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        (true, true) => errors.forbidden(
            "spec.source",
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        (true, false) if text(source, "persistentVolumeName").is_empty() => {
            errors.required(
                "spec.source.persistentVolumeName",
                "must specify non empty persistentVolumeName",
            );
        }
        _ => {}
    }
    let node = text(spec, "nodeName");
    errors.invalid_text("spec.nodeName", node, names::dns_subdomain(node));
}

pub(super) fn attachment_update(old: &Value, new: &Value, errors: &mut Errors) {
    errors.immutable("spec", &old["spec"], &new["spec"]);
}
