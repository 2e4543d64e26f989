//! Pods and pod templates.

use super::container::{self, Scope};
use super::errors::{Errors, has, items, text};
use super::{meta, volume};
use crate::names;
use serde_json::{Value, json};

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The spec of a pod or of a template, at `path`.
pub(super) fn spec(spec: &Value, path: &str, errors: &mut Errors) {
    let volumes = volume::list(spec, path, errors);
    let mut scope = Scope {
        volumes,
        names: Vec::new(),
    };
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.required(&format!("{path}.containers"), "");
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        container::list(spec, list, path, &mut scope, errors);
    }
    errors.one_of(
        &format!("{path}.restartPolicy"),
        &spec["restartPolicy"],
        &["Always", "OnFailure", "Never"],
    );
    let dns = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    errors.one_of(&format!("{path}.dnsPolicy"), &spec["dnsPolicy"], &dns);
    if text(spec, "dnsPolicy") == "None" && items(&spec["dnsConfig"], "nameservers").next().is_none() {
        errors.required(
            &format!("{path}.dnsConfig.nameservers"),
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        );
    }
    for (key, value) in spec["nodeSelector"].as_object().into_iter().flatten() {
        let path = format!("{path}.nodeSelector");
        errors.invalid_text(&path, key, names::qualified(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_text(&path, value, names::label_value(value));
    }
    tolerations(spec, path, errors);
    for name in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.invalid_text(&format!("{path}.{name}"), value, names::dns_subdomain(value));
        }
    }
    if has(spec, "activeDeadlineSeconds") {
        let deadline = &spec["activeDeadlineSeconds"];
        if !deadline
            .as_i64()
            .is_some_and(|seconds| (1..=i64::from(i32::MAX)).contains(&seconds))
        {
            errors.invalid(
                &format!("{path}.activeDeadlineSeconds"),
                deadline,
                "must be between 1 and 2147483647, inclusive",
            );
        }
    }
    for name in ["hostname", "subdomain"] {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.invalid_text(&format!("{path}.{name}"), value, names::dns_label(value));
        }
    }
    errors.non_negative(
        &format!("{path}.terminationGracePeriodSeconds"),
        &spec["terminationGracePeriodSeconds"],
    );
    if spec["hostNetwork"] == json!(true) {
        for (index, container) in items(spec, "containers") {
            for (number, port) in items(container, "ports") {
                let host = port["hostPort"].as_i64().unwrap_or(0);
                if host != 0 && Some(host) != port["containerPort"].as_i64() {
                    errors.invalid(
                        &format!("{path}.containers[{index}].ports[{number}].hostPort"),
                        &port["hostPort"],
                        "must match `containerPort` when `hostNetwork` is true",
                    );
                }
            }
        }
    }
    if has(spec, "preemptionPolicy") {
        let known = ["Never", "PreemptLowerPriority"];
        errors.one_of(
            &format!("{path}.preemptionPolicy"),
            &spec["preemptionPolicy"],
            &known,
        );
    }
}

pub(super) fn tolerations(spec: &Value, path: &str, errors: &mut Errors) {
    for (index, toleration) in items(spec, "tolerations") {
        let path = format!("{path}.tolerations[{index}]");
        let (key, operator, value) = (
            text(toleration, "key"),
            text(toleration, "operator"),
            text(toleration, "value"),
        );
        if !key.is_empty() {
            errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        } else if operator != "Exists" {
            errors.invalid(
                &format!("{path}.operator"),
                &json!(operator),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if has(toleration, "tolerationSeconds") && text(toleration, "effect") != "NoExecute" {
            errors.invalid(
                &format!("{path}.effect"),
                &json!(text(toleration, "effect")),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                errors.invalid_text(&format!("{path}.operator"), value, names::label_value(value));
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(
                    &format!("{path}.operator"),
                    &json!(toleration),
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            _ => errors.not_supported(
                &format!("{path}.operator"),
                &json!(operator),
                &["Equal", "Exists"],
            ),
        }
        let effect = text(toleration, "effect");
        if !effect.is_empty() && !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            errors.not_supported(
                &format!("{path}.effect"),
                &json!(effect),
                &["NoExecute", "NoSchedule", "PreferNoSchedule"],
            );
        }
    }
}

/// A template's labels, annotations and spec.
pub(super) fn template(template: &Value, path: &str, errors: &mut Errors) {
    let metadata = &template["metadata"];
    meta::labels(&metadata["labels"], &format!("{path}.labels"), errors);
    meta::annotations(&metadata["annotations"], &format!("{path}.annotations"), errors);
    spec(&template["spec"], &format!("{path}.spec"), errors);
}

/// What may change in a pod.
pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"], &new["spec"]);
    for list in ["containers", "initContainers"] {
        let names = |spec: &Value| -> usize { items(spec, list).count() };
        if names(old) != names(new) {
            errors.forbidden(
                &format!("spec.{list}"),
                "pod updates may not add or remove containers",
            );
            return;
        }
    }
    if old["activeDeadlineSeconds"] != new["activeDeadlineSeconds"] {
        let value = new.get("activeDeadlineSeconds").unwrap_or(&Value::Null);
        match (old["activeDeadlineSeconds"].as_i64(), value.as_i64()) {
            (Some(_), None) => {
                errors.invalid(
                    "spec.activeDeadlineSeconds",
                    value,
                    "must not update from a positive integer to nil value",
                );
            }
            (Some(before), Some(after)) if after > before => errors.invalid(
                "spec.activeDeadlineSeconds",
                value,
                "must be less than or equal to previous value",
            ),
            _ => {}
        }
        if !errors.list.is_empty() {
            return;
        }
    }
    let old_tolerations: Vec<&Value> = items(old, "tolerations").map(|(_, one)| one).collect();
    let kept = old_tolerations.iter().all(|one| {
        items(new, "tolerations").any(|(_, other)| {
            let plain = |toleration: &Value| {
                let mut plain = toleration.clone();
                if let Some(members) = plain.as_object_mut() {
                    members.remove("tolerationSeconds");
                }
                plain
            };
            plain(other) == plain(one)
        })
    });
    let gates = |spec: &Value| -> Vec<Value> {
        items(spec, "schedulingGates")
            .map(|(_, one)| one.clone())
            .collect()
    };
    let (old_gates, new_gates) = (gates(old), gates(new));
    if let Some(added) = new_gates.iter().find(|gate| !old_gates.contains(gate)) {
        errors.forbidden(
            "spec.schedulingGates",
            &format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                text(added, "name")
            ),
        );
        return;
    }
    // Everything that may change is made equal; what still differs may not.
    let mut comparable = new.clone();
    for list in ["containers", "initContainers"] {
        for (index, container) in items(old, list) {
            if let Some(image) = container.get("image") {
                comparable[list][index]["image"] = image.clone();
            }
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates"] {
        copy(old, &mut comparable, name);
    }
    if kept {
        copy(old, &mut comparable, "tolerations");
    }
    if old["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0)
        && new["terminationGracePeriodSeconds"] == json!(1)
    {
        copy(old, &mut comparable, "terminationGracePeriodSeconds");
    }
    if !old_gates.is_empty() {
        for name in ["nodeSelector", "affinity"] {
            copy(old, &mut comparable, name);
        }
    }
    if comparable != *old {
        let changed: Vec<String> = old
            .as_object()
            .into_iter()
            .chain(comparable.as_object())
            .flat_map(|members| members.keys())
            .filter(|name| old.get(*name) != comparable.get(*name))
            .map(|name| format!("spec.{name}"))
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        errors.forbidden("spec", &format!("{MAY_CHANGE}\nchanged: {}", changed.join(", ")));
    }
}

fn copy(from: &Value, to: &mut Value, name: &str) {
    match (from.get(name), to.as_object_mut()) {
        (Some(value), Some(members)) => {
            members.insert(name.to_owned(), value.clone());
        }
        (None, Some(members)) => {
            members.remove(name);
        }
        _ => {}
    }
}
