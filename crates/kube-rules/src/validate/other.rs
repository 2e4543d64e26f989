//! The kinds with a rule or two.

use super::errors::{Errors, has, items, text};
use super::{meta, selector, workload};
use crate::names;
use serde_json::{Value, json};

/// Upstream's bound on the data of a ConfigMap or a Secret.
const DATA_LIMIT: usize = 1024 * 1024;

pub(super) fn config_map(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    for list in ["data", "binaryData"] {
        for (key, value) in object[list].as_object().into_iter().flatten() {
            errors.invalid_text(&format!("{list}[{key}]"), key, names::config_key(key));
            if list == "data" && object["binaryData"].get(key).is_some() {
                errors.invalid(
                    &format!("data[{key}]"),
                    &json!(key),
                    "duplicate of key present in binaryData",
                );
            }
            size += value.as_str().unwrap_or_default().len();
        }
    }
    if size > DATA_LIMIT {
        errors.too_long("", DATA_LIMIT);
    }
}

/// ConfigMaps and Secrets that are immutable stay so.
pub(super) fn immutable_data(old: &Value, new: &Value, errors: &mut Errors) {
    if old["immutable"] != json!(true) {
        return;
    }
    const FIXED: &str = "field is immutable when `immutable` is set";
    if new["immutable"] != json!(true) {
        errors.forbidden("immutable", FIXED);
    }
    for name in ["data", "binaryData"] {
        if old[name] != new[name] {
            errors.forbidden(name, FIXED);
        }
    }
}

pub(super) fn secret(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        errors.invalid_text(&format!("data[{key}]"), key, names::config_key(key));
        size += value.as_str().unwrap_or_default().len() / 4 * 3;
    }
    if size > DATA_LIMIT {
        errors.too_long("data", DATA_LIMIT);
    }
    let keys: &[&str] = match text(object, "type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/service-account-token" => {
            let account = "kubernetes.io/service-account.name";
            if text(&object["metadata"]["annotations"], account).is_empty() {
                errors.required(&format!("metadata.annotations[{account}]"), "");
            }
            &[]
        }
        _ => &[],
    };
    for key in keys {
        if !has(&object["data"], key) {
            errors.required(&format!("data[{key}]"), "");
        }
    }
}

pub(super) fn node(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in items(spec, "taints") {
        // Upstream's path for taints is below metadata.
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        let value = text(taint, "value");
        if !value.is_empty() {
            errors.invalid_text(&format!("{path}.value"), value, names::label_value(value));
        }
        if effect.is_empty() {
            errors.required(&format!("{path}.effect"), "");
        } else if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            errors.not_supported(
                &format!("{path}.effect"),
                &taint["effect"],
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            );
        }
        if seen.contains(&(key, effect)) {
            errors.duplicate_with(&path, taint, "taints must be unique by key and effect pair");
        }
        seen.push((key, effect));
    }
    let cidrs = spec["podCIDRs"].as_array().map_or(0, Vec::len);
    if cidrs > 2 {
        errors.invalid(
            "spec.podCIDRs",
            &spec["podCIDRs"],
            "podCIDRs must be of size 1 or 2",
        );
    }
}

pub(super) fn node_update(old: &Value, new: &Value, errors: &mut Errors) {
    // Upstream validates an updated node twice, and reports what it finds twice.
    let again = errors
        .list
        .iter()
        .filter(|error| error.field.starts_with("metadata.taints"))
        .cloned()
        .collect::<Vec<_>>();
    errors.list.extend(again);
    let (old, new) = (&old["spec"], &new["spec"]);
    for (name, detail) in [
        (
            "podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        ),
        (
            "providerID",
            "node updates may not change providerID except from \"\" to valid",
        ),
    ] {
        if has(old, name) && old[name] != new[name] {
            errors.forbidden(&format!("spec.{name}"), detail);
        }
    }
}

/// Upstream names the list, not the finalizer's place in it.
pub(super) fn namespace(object: &Value, errors: &mut Errors) {
    for (_, finalizer) in items(&object["spec"], "finalizers") {
        meta::finalizer(finalizer, "spec.finalizers", errors);
    }
}

pub(super) fn quota(object: &Value, errors: &mut Errors) {
    const SCOPES: [&str; 7] = [
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    ];
    let spec = &object["spec"];
    let known = |scope: &Value| SCOPES.contains(&scope.as_str().unwrap_or_default());
    for (_, scope) in items(spec, "scopes") {
        if !known(scope) {
            errors.invalid("spec.scopes", &spec["scopes"], "unsupported scope");
        }
    }
    for (_, expression) in items(&spec["scopeSelector"], "matchExpressions") {
        if !known(&expression["scopeName"]) {
            errors.invalid(
                "spec.scopeSelector.matchExpressions.scopeName",
                &expression["scopeName"],
                "unsupported scope",
            );
        }
    }
}

pub(super) fn runtime_class(object: &Value, errors: &mut Errors) {
    let handler = text(object, "handler");
    if handler.is_empty() {
        errors.required("handler", "");
    } else {
        errors.invalid_text("handler", handler, names::dns_label(handler));
    }
}

pub(super) fn budget(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set");
    }
    for name in ["minAvailable", "maxUnavailable"] {
        if has(spec, name) {
            workload::int_or_percent(&spec[name], &format!("spec.{name}"), errors);
        }
    }
    selector::selector(&spec["selector"], "spec.selector", errors);
    if has(spec, "unhealthyPodEvictionPolicy") {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        errors.one_of(
            "spec.unhealthyPodEvictionPolicy",
            &spec["unhealthyPodEvictionPolicy"],
            &known,
        );
    }
}

pub(super) fn priority_class(object: &Value, errors: &mut Errors) {
    const MOST: i64 = 1_000_000_000;
    let name = text(&object["metadata"], "name");
    let system = name.starts_with("system-");
    if !system && object["value"].as_i64().is_some_and(|value| value > MOST) {
        errors.forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {MOST}"),
        );
    }
}

pub(super) fn priority_class_update(old: &Value, new: &Value, errors: &mut Errors) {
    if old["value"] != new["value"] {
        errors.forbidden("value", "may not be changed in an update.");
    }
    errors.immutable(
        "preemptionPolicy",
        &old["preemptionPolicy"],
        &new["preemptionPolicy"],
    );
}

/// What `events.k8s.io/v1` asks of a new event, in the form of the core group, beyond [`event`].
pub(super) fn new_event(object: &Value, errors: &mut Errors) {
    if !has(object, "eventTime") {
        errors.required("eventTime", "");
    }
    let kind = text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.invalid("type", &json!(""), &format!("has invalid value: {kind}"));
    }
    for name in ["firstTimestamp", "lastTimestamp", "count"] {
        if has(object, name) {
            errors.invalid(name, &json!(""), "needs to be unset");
        }
    }
    if object["source"]
        .as_object()
        .is_some_and(|source| !source.is_empty())
    {
        errors.invalid("source", &json!(""), "needs to be unset");
    }
}

/// An event is about something in its own namespace; one with an `eventTime` says who reports what.
pub(super) fn event(object: &Value, errors: &mut Errors) {
    let namespace = text(&object["metadata"], "namespace");
    let about = text(&object["involvedObject"], "namespace");
    if about.is_empty() {
        if namespace != "default" && object["involvedObject"].is_object() {
            errors.invalid(
                "involvedObject.namespace",
                &json!(about),
                "does not match event.namespace",
            );
        }
    } else if about != namespace {
        errors.invalid(
            "involvedObject.namespace",
            &json!(about),
            "does not match event.namespace",
        );
    }
    if !has(object, "eventTime") {
        return;
    }
    let controller = text(object, "reportingComponent");
    if controller.is_empty() {
        errors.required("reportingController", "");
    } else {
        errors.invalid_text("reportingController", controller, names::qualified(controller));
    }
    for name in ["reportingInstance", "action", "reason"] {
        if text(object, name).is_empty() {
            errors.required(name, "");
        }
        if text(object, name).len() > 128 {
            errors.invalid(name, &json!(""), "can have at most 128 characters");
        }
    }
}
