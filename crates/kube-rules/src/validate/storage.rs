//! Volumes, claims, classes, attachments.

use super::checks::HOST_PATH_TYPES;
use super::errors::{Errors, has, items, text};
use super::{drivers, selector};
use crate::names;
use evenkeel_kube_values::Quantity;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const ONE_POD: &str = "ReadWriteOncePod";
const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(super) fn claim(object: &Value, errors: &mut Errors) {
    claim_spec(&object["spec"], "spec", errors);
}

/// The spec of a claim, or of a template of one, at `path`.
pub(super) fn claim_spec(spec: &Value, path: &str, errors: &mut Errors) {
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.required(
            &format!("{path}.accessModes"),
            "at least 1 access mode is required",
        );
    }
    selector::selector(&spec["selector"], &format!("{path}.selector"), errors);
    access_modes(spec, path, errors);
    let (field, storage) = (
        format!("{path}.resources[storage]"),
        &spec["resources"]["requests"]["storage"],
    );
    if storage.is_null() {
        errors.required(&field, "");
    } else {
        positive(storage, &field, errors);
    }
    class(spec, "storageClassName", path, errors);
    errors.one_of_given(&format!("{path}.volumeMode"), &spec["volumeMode"], &VOLUME_MODES);
    for name in ["dataSource", "dataSourceRef"] {
        if has(spec, name) {
            data_source(&spec[name], &format!("{path}.{name}"), errors);
        }
    }
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    if !source.is_null() && !text(reference, "namespace").is_empty() {
        errors.invalid(
            path,
            &json!(format!("{path}.dataSource")),
            "may not be specified when dataSourceRef.namespace is specified",
        );
    } else if !source.is_null() && !reference.is_null() {
        let same = ["apiGroup", "kind", "name"]
            .iter()
            .all(|name| source[*name] == reference[*name]);
        if !same {
            errors.invalid(
                path,
                &json!(format!("{path}.dataSource")),
                "must match dataSourceRef",
            );
        }
    }
    class(spec, "volumeAttributesClassName", path, errors);
}

fn data_source(source: &Value, path: &str, errors: &mut Errors) {
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    for name in ["name", "kind"] {
        if text(source, name).is_empty() {
            errors.required(&format!("{path}.{name}"), "");
        }
    }
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(
            path,
            &kind.into(),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    if !group.is_empty() {
        errors.invalid_text(&format!("{path}.apiGroup"), group, names::dns_subdomain(group));
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        errors.invalid_text(
            &format!("{path}.namespace"),
            namespace,
            names::dns_label(namespace),
        );
    }
}

/// The name of a class, where one is given.
fn class(spec: &Value, name: &str, path: &str, errors: &mut Errors) {
    let class = text(spec, name);
    if !class.is_empty() {
        errors.invalid_text(&format!("{path}.{name}"), class, names::dns_subdomain(class));
    }
}

/// An amount above zero.
fn positive(value: &Value, field: &str, errors: &mut Errors) {
    if let Some(Ok(quantity)) = value.as_str().map(Quantity::parse)
        && (quantity.is_negative() || quantity.is_zero())
    {
        errors.invalid(field, value, "must be greater than zero");
    }
}

fn access_modes(spec: &Value, path: &str, errors: &mut Errors) {
    let field = format!("{path}.accessModes");
    let modes = || items(spec, "accessModes").filter_map(|(_, mode)| mode.as_str());
    for mode in modes().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(&field, &mode.into(), &ACCESS_MODES);
    }
    let alone = modes().any(|mode| mode == ONE_POD);
    if alone && modes().any(|mode| mode != ONE_POD && ACCESS_MODES.contains(&mode)) {
        errors.forbidden(&field, "may not use ReadWriteOncePod with other access modes");
    }
}

pub(super) fn claim_update(old: &Value, new: &Value, errors: &mut Errors) {
    let bound = text(&new["status"], "phase") == "Bound";
    let (before, after) = (&old["spec"], &new["spec"]);
    let mut comparable = after.clone();
    let mut keep = |name: &str| match (before.get(name), comparable.as_object_mut()) {
        (Some(value), Some(members)) => {
            members.insert(name.to_owned(), value.clone());
        }
        (None, Some(members)) => {
            members.remove(name);
        }
        _ => {}
    };
    // Binding names the volume once, and a class is given to a claim that has none.
    for name in ["volumeName", "storageClassName"] {
        if text(before, name).is_empty() && before.get(name).is_none() {
            keep(name);
        }
    }
    if bound {
        keep("volumeAttributesClassName");
        let size = before["resources"]["requests"]["storage"].clone();
        if has(&comparable["resources"], "requests") {
            comparable["resources"]["requests"]["storage"] = size;
        }
    }
    if comparable != *before {
        errors.forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n",
        );
    }
    shrunk(old, new, errors);
    errors.immutable("volumeMode", &before["volumeMode"], &after["volumeMode"]);
    let applied = has(&old["status"], "currentVolumeAttributesClassName");
    if applied && before["volumeAttributesClassName"] != after["volumeAttributesClassName"] {
        let gone = match after["volumeAttributesClassName"].as_str() {
            None => Some("nil"),
            Some("") => Some("empty string"),
            Some(_) => None,
        };
        if let Some(gone) = gone {
            errors.forbidden(
                "spec.volumeAttributesClassName",
                &format!(
                    "update to {gone} is forbidden when status.currentVolumeAttributesClassName is not nil"
                ),
            );
        }
    }
}

/// A claim does not become smaller than it was, or than what it has.
fn shrunk(old: &Value, new: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.resources.requests.storage";
    let amount = |value: &Value| {
        let parsed = value.as_str().and_then(|text| Quantity::parse(text).ok());
        parsed.unwrap_or(Quantity::of_bytes(0))
    };
    let size = |object: &Value| amount(&object["spec"]["resources"]["requests"]["storage"]);
    let capacity = amount(&old["status"]["capacity"]["storage"]);
    if size(new) < size(old) && size(new) <= capacity {
        errors.forbidden(FIELD, "field can not be less than status.capacity");
    }
}

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

pub(super) fn volume(object: &Value, errors: &mut Errors) {
    volume_spec(&object["spec"], "spec", false, errors);
}

/// The spec of a volume, or of one `inline` in an attachment.
fn volume_spec(spec: &Value, path: &str, inline: bool, errors: &mut Errors) {
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
    if has(spec, "volumeAttributesClassName") {
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
        positive(amount, &format!("{field}[{name}]"), errors);
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
        let shown = if name == "cephfs" && any { "cephFS" } else { name };
        let field = format!("{path}.{shown}");
        if std::mem::replace(&mut any, true) {
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
        "hostPath" | "local" => &["path"],
        "nfs" => &["server", "path"],
        "awsElasticBlockStore" | "cinder" => &["volumeID"],
        "gcePersistentDisk" => &["pdName"],
        "vsphereVolume" => &["volumePath"],
        "csi" => &["volumeHandle"],
        _ => &[],
    };
    if kind == "csi" {
        drivers::name(&source["driver"], &format!("{path}.driver"), errors);
    }
    for name in needed {
        if text(source, name).is_empty() {
            errors.required(&format!("{path}.{name}"), "");
        }
    }
    let at = text(source, "path");
    if matches!(kind, "hostPath" | "local") && at.split('/').any(|part| part == "..") {
        errors.invalid(&format!("{path}.path"), &at.into(), "must not contain '..'");
    }
    if kind == "nfs" && !at.starts_with('/') {
        errors.invalid(&format!("{path}.path"), &at.into(), "must be an absolute path");
    }
    if kind == "hostPath" && !at.is_empty() {
        errors.one_of_given(&format!("{path}.type"), &source["type"], &HOST_PATH_TYPES);
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

pub(super) fn volume_update(old: &Value, new: &Value, errors: &mut Errors) {
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

pub(super) fn storage_class(object: &Value, errors: &mut Errors) {
    provisioner(object, "provisioner", errors);
    parameters(object, errors);
    if !text(object, "reclaimPolicy").is_empty() {
        errors.one_of("reclaimPolicy", &object["reclaimPolicy"], &["Delete", "Retain"]);
    }
    errors.one_of(
        "volumeBindingMode",
        &object["volumeBindingMode"],
        &["Immediate", "WaitForFirstConsumer"],
    );
    let mut terms: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    for (index, term) in items(object, "allowedTopologies") {
        let path = format!("allowedTopologies[{index}].matchLabelExpressions");
        let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (number, requirement) in items(term, "matchLabelExpressions") {
            let path = format!("{path}[{number}]");
            let key = text(requirement, "key");
            let values = topology_values(requirement, &path, errors);
            if keys.contains_key(key) {
                errors.duplicate(&format!("{path}.key"), &key.into());
            }
            keys.insert(key, values);
        }
        if terms.contains(&keys) {
            errors.duplicate(&path, &json!(""));
        }
        terms.push(keys);
    }
}

fn topology_values<'a>(requirement: &'a Value, path: &str, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut values = BTreeSet::new();
    if items(requirement, "values").next().is_none() {
        errors.required(&format!("{path}.values"), "");
    }
    for (index, value) in items(requirement, "values") {
        if !values.insert(value.as_str().unwrap_or_default()) {
            errors.duplicate(&format!("{path}.values[{index}]"), value);
        }
    }
    let key = text(requirement, "key");
    errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
    values
}

/// Who makes volumes of a class.
pub(super) fn provisioner(object: &Value, field: &str, errors: &mut Errors) {
    let name = text(object, field);
    if name.is_empty() {
        errors.required(field, "");
    } else {
        let lower = name.to_lowercase();
        errors.invalid_text(field, &lower, names::qualified(&lower));
    }
}

/// What a class tells its driver.
pub(super) fn parameters(object: &Value, errors: &mut Errors) {
    const MOST: usize = 512;
    const BYTES: usize = 256 * 1024;
    let Some(parameters) = object["parameters"].as_object() else {
        return;
    };
    if parameters.len() > MOST {
        errors.too_long("parameters", MOST);
        return;
    }
    let mut size = 0;
    for (name, value) in parameters {
        if name.is_empty() {
            errors.invalid("parameters", &json!(""), "field can not be empty.");
        }
        size += name.len() + value.as_str().unwrap_or_default().len();
    }
    if size > BYTES {
        errors.too_long("parameters", BYTES);
    }
}

pub(super) fn storage_class_update(old: &Value, new: &Value, errors: &mut Errors) {
    for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(name, &old[name], &new[name]);
    }
}

pub(super) fn attachment(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    drivers::name(&json!(text(spec, "attacher")), "spec.attacher", errors);
    let source = &spec["source"];
    let (named, inline) = (
        has(source, "persistentVolumeName"),
        has(source, "inlineVolumeSpec"),
    );
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let name = text(source, "persistentVolumeName");
    match (named, inline) {
        (false, false) => errors.required("spec.source", one),
        (true, true) => errors.forbidden("spec.source", one),
        (true, false) if name.is_empty() => errors.required(
            "spec.source.persistentVolumeName",
            "must specify non empty persistentVolumeName",
        ),
        (true, false) => {}
        (false, true) => volume_spec(
            &source["inlineVolumeSpec"],
            "spec.source.inlineVolumeSpec",
            true,
            errors,
        ),
    }
    let node = text(spec, "nodeName");
    errors.invalid_text("spec.nodeName", node, names::dns_subdomain(node));
    attachment_status(object, errors);
    if named {
        errors.invalid_text(
            "spec.source.persistentVolumeName",
            name,
            names::dns_subdomain(name),
        );
    }
}

fn attachment_status(object: &Value, errors: &mut Errors) {
    /// Longest message of an error, in bytes. Upstream names the bound of the metadata in its place.
    const MESSAGE: usize = 1024;
    const METADATA: usize = 256 * 1024;
    let status = &object["status"];
    let size: usize = status["attachmentMetadata"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| name.len() + value.as_str().unwrap_or_default().len())
        .sum();
    if size > METADATA {
        errors.too_long("status.attachmentMetadata", METADATA);
    }
    for name in ["attachError", "detachError"] {
        let error = &status[name];
        if text(error, "message").len() > MESSAGE {
            errors.too_long(&format!("status.{name}.message"), METADATA);
        }
        if error["errorCode"].as_i64().is_some_and(|code| code < 0) {
            errors.invalid(
                &format!("status.{name}.errorCode"),
                &error["errorCode"],
                "must be between 0 and 2147483647, inclusive",
            );
        }
    }
}

pub(super) fn attachment_update(old: &Value, new: &Value, errors: &mut Errors) {
    errors.immutable("spec", &old["spec"], &new["spec"]);
}
