//! Environment variables of containers, and references to a pod's own fields and resources.

use super::checks::{members, quantity};
use super::errors::{Errors, has, items, text};
use crate::names;
use serde_json::Value;

/// Fields that a variable can be filled from.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields that a file can be filled from.
const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Fields that have a name in this API beyond those.
const OTHER_FIELDS: [&str; 4] = [
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "spec.host",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTES: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];
const NOT_ONE: &str = "may not have more than one field specified at a time";

/// Where a reference stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Variable,
    File,
}

/// `env` and `envFrom` of a container.
pub(super) fn environment(container: &Value, path: &str, errors: &mut Errors) {
    for (index, variable) in items(container, "env") {
        let path = format!("{path}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
        } else {
            errors.invalid_text(&format!("{path}.name"), name, names::env_name(name));
        }
        if has(variable, "valueFrom") {
            source(variable, &format!("{path}.valueFrom"), errors);
        }
    }
    let list = format!("{path}.envFrom");
    for (index, source) in items(container, "envFrom") {
        let path = format!("{list}[{index}]");
        let prefix = text(source, "prefix");
        errors.invalid_text(&format!("{path}.prefix"), prefix, names::env_name(prefix));
        let kinds = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|kind| has(source, kind));
        let found = kinds
            .inspect(|kind| {
                let (path, name) = (format!("{path}.{kind}.name"), text(&source[*kind], "name"));
                if name.is_empty() {
                    errors.required(&path, "");
                } else {
                    // Upstream takes the name for a prefix: a dash at the end hides what is before it.
                    let mut sample = name.to_owned();
                    if sample.len() > 1 && sample.ends_with('-') {
                        sample.pop();
                        sample.pop();
                        sample.push('a');
                    }
                    errors.invalid_text(&path, name, names::dns_subdomain(&sample));
                }
            })
            .count();
        match found {
            0 => errors.bad(&list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.bad(&list, "", NOT_ONE),
        }
    }
}

fn source(variable: &Value, path: &str, errors: &mut Errors) {
    let source = &variable["valueFrom"];
    let mut found = 0;
    for kind in [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ] {
        if !has(source, kind) {
            continue;
        }
        found += 1;
        let (reference, path) = (&source[kind], format!("{path}.{kind}"));
        match kind {
            "fieldRef" => field(reference, &path, Target::Variable, errors),
            "resourceFieldRef" => resource(reference, &path, Target::Variable, errors),
            "fileKeyRef" => file_key(reference, &path, errors),
            _ => {
                let (name, key) = (text(reference, "name"), text(reference, "key"));
                errors.invalid_text(&format!("{path}.name"), name, names::dns_subdomain(name));
                if key.is_empty() {
                    errors.required(&format!("{path}.key"), "");
                } else {
                    errors.invalid_text(&format!("{path}.key"), key, names::config_key(key));
                }
            }
        }
    }
    if found == 0 {
        errors.bad(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !text(variable, "value").is_empty() {
        errors.bad(path, "", "may not be specified when `value` is not empty");
    } else if found > 1 {
        errors.bad(path, "", NOT_ONE);
    }
}

fn file_key(reference: &Value, path: &str, errors: &mut Errors) {
    let [key, volume, place] = ["key", "volumeName", "path"].map(|name| text(reference, name));
    if key.is_empty() {
        errors.required(&format!("{path}.key"), "");
    } else {
        errors.invalid_text(&format!("{path}.key"), key, names::env_name(key));
    }
    if volume.is_empty() {
        errors.required(&format!("{path}.volumeName"), "");
    } else {
        errors.invalid_text(&format!("{path}.volumeName"), volume, names::dns_label(volume));
    }
    if place.is_empty() {
        errors.required(&format!("{path}.path"), "");
    } else {
        errors.without_backsteps(&format!("{path}.path"), place);
    }
}

/// A reference to a field of the pod.
pub(super) fn field(reference: &Value, path: &str, target: Target, errors: &mut Errors) {
    let (version, place) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    let at = format!("{path}.fieldPath");
    let mut unknown = |why: String| errors.bad(&at, place, &format!("error converting fieldPath: {why}"));
    if version.is_empty() {
        errors.required(&format!("{path}.apiVersion"), "");
    } else if place.is_empty() {
        errors.required(&at, "");
    } else if version != "v1" {
        unknown(format!("unsupported pod version: {version}"));
    } else if let Some((map, key)) = subscript(place) {
        match map {
            "metadata.annotations" => {
                let key = key.to_lowercase();
                errors.invalid_text(path, &key, names::qualified(&key));
            }
            "metadata.labels" => errors.invalid_text(path, key, names::qualified(key)),
            _ => unknown(format!("field label does not support subscript: {place}")),
        }
    } else {
        let allowed: &[&str] = match target {
            Target::Variable => &VARIABLE_FIELDS,
            Target::File => &FILE_FIELDS,
        };
        let all = [&VARIABLE_FIELDS[..], &FILE_FIELDS, &OTHER_FIELDS].concat();
        if !all.contains(&place) {
            unknown(format!("field label not supported: {place}"));
            return;
        }
        let place = if place == "spec.host" {
            "spec.nodeName"
        } else {
            place
        };
        if !allowed.contains(&place) {
            errors.not_supported(&at, &place.into(), allowed);
        }
    }
}

/// `metadata.labels['x']` in its two parts.
fn subscript(place: &str) -> Option<(&str, &str)> {
    let (map, key) = place.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// A reference to a resource of a container.
pub(super) fn resource(reference: &Value, path: &str, target: Target, errors: &mut Errors) {
    let name = text(reference, "resource");
    let pages = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if target == Target::File && text(reference, "containerName").is_empty() {
        errors.required(&format!("{path}.containerName"), "");
    } else if name.is_empty() {
        errors.required(&format!("{path}.resource"), "");
    } else if !RESOURCES.contains(&name) && !pages {
        errors.not_supported(&format!("{path}.resource"), &reference["resource"], &RESOURCES);
    }
    let Some(divisor) = quantity(&reference["divisor"]).filter(|divisor| !divisor.is_zero()) else {
        return;
    };
    let (what, units): (&str, &[&str]) = match name.rsplit_once('.').map_or("", |(_, what)| what) {
        "cpu" if RESOURCES.contains(&name) => ("cpu", &["1m", "1"]),
        "memory" if RESOURCES.contains(&name) => ("memory", &BYTES),
        "ephemeral-storage" if RESOURCES.contains(&name) => ("local ephemeral storage", &BYTES),
        _ if pages => ("hugepages", &BYTES),
        _ => return,
    };
    if !units.contains(&divisor.to_string().as_str()) {
        let list = if what == "cpu" {
            "1m and 1".to_owned()
        } else {
            units.join(", ")
        };
        let detail = format!("only divisor's values {list} are supported with the {what} resource");
        errors.bad(&format!("{path}.divisor"), name, &detail);
    }
}

/// Variables out of files name volumes of the sort that programs write to.
pub(super) fn files(spec: &Value, path: &str, errors: &mut Errors) {
    for (path, container) in super::checks::containers(spec, path) {
        for (index, variable) in items(container, "env") {
            let reference = &variable["valueFrom"]["fileKeyRef"];
            if reference.is_null() {
                continue;
            }
            let name = text(reference, "volumeName");
            let path = format!("{path}.env[{index}].valueFrom.fileKeyRef.volumeName");
            // Of two volumes with one name, the last counts.
            let volume = items(spec, "volumes")
                .filter(|(_, volume)| text(volume, "name") == name)
                .last();
            match volume {
                None => errors.not_found(&path, &name.into()),
                Some((_, volume)) if !has(volume, "emptyDir") => {
                    errors.bad(&path, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}

/// Labels that select nodes.
pub(super) fn node_selector(spec: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in members(&spec["nodeSelector"]) {
        let path = format!("{path}.nodeSelector");
        errors.invalid_text(&path, key, names::qualified(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_text(&path, value, names::label_value(value));
    }
}
