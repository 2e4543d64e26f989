//! Volumes of pods.

use super::errors::{Errors, has, items, text};
use crate::names;
use serde_json::{Value, json};

/// What may be asked of a path of the host.
pub(super) const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// Validates the list, and gives the names that mounts may refer to.
pub(super) fn list<'a>(spec: &'a Value, path: &str, errors: &mut Errors) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for (index, volume) in items(spec, "volumes") {
        let path = format!("{path}.volumes[{index}]");
        source(volume, &path, errors);
        let name = text(volume, "name");
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
            continue;
        }
        let wrong = names::dns_label(name);
        if !wrong.is_empty() {
            errors.invalid_text(&format!("{path}.name"), name, wrong);
        } else if seen.contains(&name) {
            errors.duplicate(&format!("{path}.name"), &volume["name"]);
        } else {
            seen.push(name);
        }
    }
    seen
}

fn source(volume: &Value, path: &str, errors: &mut Errors) {
    let mut sources = volume
        .as_object()
        .into_iter()
        .flat_map(|members| members.keys())
        .filter(|key| *key != "name");
    let Some(first) = sources.next() else {
        errors.required(path, "must specify a volume type");
        return;
    };
    for other in sources {
        errors.forbidden(
            &format!("{path}.{other}"),
            "may not specify more than 1 volume type",
        );
    }
    let (source, path) = (&volume[first], format!("{path}.{first}"));
    let mut need = |field: &str| {
        if text(source, field).is_empty() {
            errors.required(&format!("{path}.{field}"), "");
        }
    };
    match first.as_str() {
        "secret" => need("secretName"),
        "configMap" => need("name"),
        "persistentVolumeClaim" => need("claimName"),
        "csi" => need("driver"),
        "nfs" => {
            need("server");
            need("path");
        }
        "hostPath" => {
            need("path");
            errors.one_of_given(&format!("{path}.type"), &source["type"], &HOST_PATH_TYPES);
        }
        _ => {}
    }
    if has(source, "defaultMode")
        && !source["defaultMode"]
            .as_i64()
            .is_some_and(|mode| (0..=0o777).contains(&mode))
    {
        errors.invalid(
            &format!("{path}.defaultMode"),
            &source["defaultMode"],
            "must be a number between 0 and 0777 (octal), both inclusive",
        );
    }
    if first == "projected" {
        for (index, one) in items(source, "sources") {
            if one.as_object().is_some_and(|members| members.len() > 1) {
                errors.forbidden(
                    &format!("{path}.sources[{index}]"),
                    "may not specify more than 1 volume type",
                );
            }
            let token = &one["serviceAccountToken"];
            if token["expirationSeconds"]
                .as_i64()
                .is_some_and(|seconds| seconds < 600)
            {
                errors.invalid(
                    &format!("{path}.sources[{index}].serviceAccountToken.expirationSeconds"),
                    &token["expirationSeconds"],
                    "may not specify a duration less than 10 minutes",
                );
            }
            if token.is_object() && text(token, "path").is_empty() {
                errors.required(&format!("{path}.sources[{index}].serviceAccountToken.path"), "");
            }
        }
    }
    for (index, item) in items(source, "items") {
        let (path, at) = (format!("{path}.items[{index}]"), text(item, "path"));
        if first != "downwardAPI" && text(item, "key").is_empty() {
            errors.required(&format!("{path}.key"), "");
        }
        if at.is_empty() {
            errors.required(&format!("{path}.path"), "");
        } else if at.starts_with('/') {
            errors.invalid(&format!("{path}.path"), &json!(at), "must be a relative path");
        } else if at.split('/').any(|part| part == "..") {
            errors.invalid(&format!("{path}.path"), &json!(at), "must not contain '..'");
        }
    }
}
