//! CSI drivers: what they are, where they run, what they have room for.

use super::errors::{Errors, has, items, text};
use super::{quota, selector, storage};
use crate::names;
use serde_json::{Value, json};

/// Longest name that a driver gives a node, in bytes.
const NODE_ID_BYTES: usize = 256;

/// The name of a driver, in another object.
pub(super) fn name(value: &Value, field: &str, errors: &mut Errors) {
    let name = value.as_str().unwrap_or_default();
    if name.is_empty() {
        errors.required(field, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(field, 63);
    }
    errors.invalid_text(field, name, names::dns_subdomain(&name.to_lowercase()));
}

pub(super) fn driver(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    for (name, shown) in [
        // Upstream's path has this name.
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !has(spec, name) {
            errors.required(&format!("spec.{shown}"), "");
        }
    }
    errors.one_of_given(
        "spec.fsGroupPolicy",
        &spec["fsGroupPolicy"],
        &["File", "None", "ReadWriteOnceWithFSType"],
    );
    token_requests(spec, errors);
    for (_, mode) in items(spec, "volumeLifecycleModes") {
        errors.one_of_given("spec.volumeLifecycleModes", mode, &["Persistent", "Ephemeral"]);
    }
    if !has(spec, "seLinuxMount") {
        errors.required("spec.seLinuxMount", "");
    }
    if spec["nodeAllocatableUpdatePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 10)
    {
        errors.invalid(
            "spec.nodeAllocatableUpdatePeriodSeconds",
            &spec["nodeAllocatableUpdatePeriodSeconds"],
            "must be greater than or equal to 10 seconds",
        );
    }
    if has(spec, "serviceAccountTokenInSecrets") && items(spec, "tokenRequests").next().is_none() {
        errors.invalid(
            "spec.serviceAccountTokenInSecrets",
            &spec["serviceAccountTokenInSecrets"],
            "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
        );
    }
}

fn token_requests(spec: &Value, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, request) in items(spec, "tokenRequests") {
        let path = format!("spec.tokenRequests[{index}]");
        let audience = text(request, "audience");
        if seen.contains(&audience) {
            errors.duplicate(&format!("{path}.audience"), &audience.into());
            continue;
        }
        seen.push(audience);
        let (field, lifetime) = (format!("{path}.expirationSeconds"), &request["expirationSeconds"]);
        if lifetime.as_i64().is_some_and(|seconds| seconds < 600) {
            errors.invalid(
                &field,
                lifetime,
                "may not specify a duration less than 10 minutes",
            );
        }
        if lifetime.as_i64().is_some_and(|seconds| seconds > 1 << 32) {
            errors.invalid(
                &field,
                lifetime,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
    }
}

pub(super) fn driver_update(old: &Value, new: &Value, errors: &mut Errors) {
    for (name, shown) in [
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ] {
        errors.immutable(&format!("spec.{shown}"), &old["spec"][name], &new["spec"][name]);
    }
}

pub(super) fn node(object: &Value, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, driver) in items(&object["spec"], "drivers") {
        let path = format!("spec.drivers[{index}]");
        name(&json!(text(driver, "name")), &format!("{path}.name"), errors);
        let (field, id) = (format!("{path}.nodeID"), text(driver, "nodeID"));
        if id.is_empty() {
            errors.required(&field, "");
        } else if id.len() > NODE_ID_BYTES {
            errors.invalid(
                &field,
                &id.into(),
                &format!("must be {NODE_ID_BYTES} characters or less"),
            );
        }
        errors.non_negative(
            &format!("{path}.allocatable.count"),
            &driver["allocatable"]["count"],
        );
        if seen.contains(&text(driver, "name")) {
            errors.duplicate(&format!("{path}.name"), &driver["name"]);
        }
        seen.push(text(driver, "name"));
        let mut keys: Vec<&str> = Vec::new();
        for key in items(driver, "topologyKeys").filter_map(|(_, key)| key.as_str()) {
            if key.is_empty() {
                errors.required(&path, "");
            }
            if keys.contains(&key) {
                errors.duplicate(&path, &key.into());
            }
            keys.push(key);
            errors.invalid_text(&path, key, names::qualified(key));
        }
    }
}

/// What is said of a driver stays, but for the number of volumes that it has room for.
pub(super) fn node_update(old: &Value, new: &Value, errors: &mut Errors) {
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver["allocatable"] = Value::Null;
        if driver["topologyKeys"] == serde_json::json!([]) {
            driver["topologyKeys"] = Value::Null;
        }
        driver
    };
    for (_, before) in items(&old["spec"], "drivers") {
        for (_, after) in items(&new["spec"], "drivers").filter(|(_, after)| after["name"] == before["name"])
        {
            errors.immutable("spec.drivers", &fixed(before), &fixed(after));
        }
    }
}

pub(super) fn capacity(object: &Value, errors: &mut Errors) {
    selector::selector(&object["nodeTopology"], "nodeTopology", errors);
    let class = text(object, "storageClassName");
    errors.invalid_text("storageClassName", class, names::dns_subdomain(class));
    quota::non_negative_quantity(&object["capacity"], "capacity", errors);
}

pub(super) fn capacity_update(old: &Value, new: &Value, errors: &mut Errors) {
    for name in ["nodeTopology", "storageClassName"] {
        errors.immutable(name, &old[name], &new[name]);
    }
}

pub(super) fn attributes_class(object: &Value, errors: &mut Errors) {
    storage::provisioner(object, "driverName", errors);
    storage::parameters(object, errors);
    if object["parameters"]
        .as_object()
        .is_none_or(serde_json::Map::is_empty)
    {
        errors.required("parameters", "must contain at least one key/value pair");
    }
}

pub(super) fn attributes_class_update(old: &Value, new: &Value, errors: &mut Errors) {
    for name in ["driverName", "parameters"] {
        if old[name] != new[name] {
            errors.forbidden(name, &format!("updates to {name} are forbidden."));
        }
    }
}
