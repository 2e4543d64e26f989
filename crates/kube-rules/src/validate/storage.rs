//! Volumes, claims, classes, attachments.

use super::checks::quantity;
use super::errors::{Errors, has, items, text};
use super::resources::is_native;
use super::{drivers, persistent, quota, selector};
use crate::names;
use evenkeel_kube_values::Quantity;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
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
            &json!({}),
            "may not be specified when dataSourceRef.namespace is specified",
        );
    } else if !source.is_null() && !reference.is_null() {
        let same = ["apiGroup", "kind", "name"]
            .iter()
            .all(|name| source[*name] == reference[*name]);
        if !same {
            errors.invalid(path, &json!({}), "must match dataSourceRef");
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
pub(super) fn class(spec: &Value, name: &str, path: &str, errors: &mut Errors) {
    let class = text(spec, name);
    if !class.is_empty() {
        errors.invalid_text(&format!("{path}.{name}"), class, names::dns_subdomain(class));
    }
}

/// An amount above zero.
pub(super) fn positive(value: &Value, field: &str, errors: &mut Errors) {
    if let Some(quantity) = quantity(value)
        && (quantity.is_negative() || quantity.is_zero())
    {
        errors.invalid(field, value, "must be greater than zero");
    }
}

pub(super) fn access_modes(spec: &Value, path: &str, errors: &mut Errors) {
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

/// What a status says of a claim's size.
pub(super) fn claim_status(new: &Value, errors: &mut Errors) {
    const STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    if items(&new["spec"], "accessModes").next().is_none() {
        errors.required("Spec.accessModes", "");
    }
    let status = &new["status"];
    let members = |name: &str| status[name].as_object().into_iter().flatten();
    for (name, amount) in members("capacity") {
        whole_amount(amount, &format!("status.capacity[{name}]"), errors);
    }
    for (name, state) in members("allocatedResourceStatuses") {
        let path = "status.allocatedResourceStatuses";
        claim_resource(name, path, errors);
        if !state.as_str().is_some_and(|state| STATES.contains(&state)) {
            errors.not_supported(path, &name.as_str().into(), &STATES);
        }
    }
    for (name, amount) in members("allocatedResources") {
        let path = format!("status.allocatedResources[{name}]");
        if claim_resource(name, "status.allocatedResources", errors) && whole_amount(amount, &path, errors) {
            quota::amount("storage", amount, &path, errors);
        }
    }
}

/// Whether a claim may be given that resource.
fn claim_resource(name: &str, path: &str, errors: &mut Errors) -> bool {
    let wrong = names::qualified(name);
    let is_good = wrong.is_empty() && (!is_native(name) || name == "storage");
    if !wrong.is_empty() {
        errors.invalid_text(path, name, wrong);
    } else if !is_good {
        errors.not_supported(path, &name.into(), &["storage"]);
    }
    is_good
}

/// Whether an amount is not below zero.
pub(super) fn whole_amount(amount: &Value, path: &str, errors: &mut Errors) -> bool {
    if let Some(quantity) = quantity(amount)
        && quantity.is_negative()
    {
        // As Go's 64 bits show it.
        let value = i64::try_from(quantity.value()).unwrap_or(i64::MIN);
        errors.invalid(path, &value.into(), "must be a valid resource quantity");
        return false;
    }
    true
}

/// A claim does not become smaller than it was, or than what it has.
fn shrunk(old: &Value, new: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.resources.requests.storage";
    let amount = |value: &Value| quantity(value).unwrap_or(Quantity::of_bytes(0));
    let size = |object: &Value| amount(&object["spec"]["resources"]["requests"]["storage"]);
    let capacity = amount(&old["status"]["capacity"]["storage"]);
    if size(new) < size(old) && size(new) <= capacity {
        errors.forbidden(FIELD, "field can not be less than status.capacity");
    }
}

pub(super) fn storage_class(object: &Value, errors: &mut Errors) {
    provisioner(object, "provisioner", errors);
    parameters(object, errors);
    if !text(object, "reclaimPolicy").is_empty() {
        errors.one_of("reclaimPolicy", &object["reclaimPolicy"], &["Delete", "Retain"]);
    }
    let (mode, modes) = (
        &object["volumeBindingMode"],
        ["Immediate", "WaitForFirstConsumer"],
    );
    if *mode == "" {
        errors.not_supported("volumeBindingMode", mode, &modes);
    } else {
        errors.one_of("volumeBindingMode", mode, &modes);
    }
    let mut terms: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    let count = items(object, "allowedTopologies").count();
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
        // Upstream compares with as many empty terms as there are terms, too.
        let empty = if keys.is_empty() { count } else { 0 };
        for _ in 0..empty + terms.iter().filter(|term| **term == keys).count() {
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
        (false, true) => persistent::volume_spec(
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
