//! APIServices: API groups that another server answers for.

use super::errors::{Errors, has, items, text};
use crate::names;
use serde_json::{Value, json};

/// A name is that of the version and the group.
pub(super) fn name_errors(object: &Value, name: &str) -> Vec<String> {
    let spec = &object["spec"];
    let needed = format!("{}.{}", text(spec, "version"), text(spec, "group"));
    let wrong = names::path_segment(name);
    if wrong.is_empty() && name != needed {
        let shown = crate::gofmt::go_quote(&needed);
        return vec![format!("must be `spec.version+\".\"+spec.group`: {shown}")];
    }
    wrong
}

pub(super) fn service(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    if group.is_empty() && version != "v1" {
        errors.required(
            "spec.group",
            "only v1 may have an empty group and it better be legacy kube",
        );
    }
    if !group.is_empty() {
        errors.invalid_text("spec.group", group, names::dns_subdomain(group));
    }
    errors.invalid_text("spec.version", version, names::dns_1035_label(version));
    for (name, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let priority = spec[name].as_i64().unwrap_or(0);
        if priority <= 0 || priority > most {
            errors.invalid(
                &format!("spec.{name}"),
                &priority.into(),
                &format!("must be positive and less than {most}"),
            );
        }
    }
    let bundle = text(spec, "caBundle");
    let trusts_all = spec["insecureSkipTLSVerify"] == json!(true);
    if !has(spec, "service") {
        if !bundle.is_empty() {
            let bytes = bundle.trim_end_matches('=').len() * 3 / 4;
            errors.invalid(
                "spec.caBundle",
                &json!(format!("{bytes} bytes")),
                "local APIServices may not have a caBundle",
            );
        }
        if trusts_all {
            errors.invalid(
                "spec.insecureSkipTLSVerify",
                &json!(true),
                "local APIServices may not have insecureSkipTLSVerify",
            );
        }
        return;
    }
    for name in ["namespace", "name"] {
        if text(&spec["service"], name).is_empty() {
            errors.required(&format!("spec.service.{name}"), "");
        }
    }
    let port = spec["service"]["port"].as_i64().unwrap_or(0);
    if !(1..=65_535).contains(&port) {
        errors.invalid(
            "spec.service.port",
            &port.into(),
            "port is not valid: must be between 1 and 65535, inclusive",
        );
    }
    if trusts_all && !bundle.is_empty() {
        errors.invalid(
            "spec.insecureSkipTLSVerify",
            &json!(true),
            "may not be true if caBundle is present",
        );
    }
}

pub(super) fn status(object: &Value, errors: &mut Errors) {
    for (index, condition) in items(&object["status"], "conditions") {
        let (field, status) = (
            format!("status.conditions[{index}].status"),
            text(condition, "status"),
        );
        let known = ["True", "False", "Unknown"];
        if !known.contains(&status) {
            errors.not_supported(&field, &status.into(), &known);
        }
    }
}
