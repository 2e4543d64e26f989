//! Names and amounts of resources, LimitRanges and ResourceQuotas.

use super::checks::quantity;
use super::errors::{Errors, has, items, text};
use super::resources::{is_extended, is_native};
use crate::names;
use evenkeel_kube_values::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What may be limited, requested or counted without a domain.
const STANDARD: [&str; 20] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "storage",
];
/// Those that are counted.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const COMPUTE: [&str; 7] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.memory",
];

/// The name of a resource: one with a domain, or one that is known.
pub(super) fn resource(name: &str, field: &str, errors: &mut Errors) -> bool {
    let wrong = names::qualified(name);
    if !wrong.is_empty() {
        errors.invalid_text(field, name, wrong);
        return false;
    }
    let paged = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
    let known = name.contains('/') || STANDARD.contains(&name) || paged;
    if !known {
        errors.invalid(
            field,
            &name.into(),
            "must be a standard resource type or fully qualified",
        );
    }
    known
}

/// The name of what a container can request.
pub(super) fn container_resource(name: &str, field: &str, errors: &mut Errors) {
    resource(name, field, errors);
    let of_containers =
        ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') {
        if !of_containers {
            errors.invalid(field, &name.into(), "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(
            field,
            &name.into(),
            "doesn't follow extended resource name standard",
        );
    }
}

/// An amount that is not below zero; absent is fine.
pub(super) fn non_negative_quantity(value: &Value, field: &str, errors: &mut Errors) {
    if quantity(value).is_some_and(Quantity::is_negative) {
        errors.invalid(field, value, "must be greater than or equal to 0");
    }
}

/// An amount of a resource: not below zero, and whole where it is counted.
pub(super) fn amount(name: &str, value: &Value, field: &str, errors: &mut Errors) {
    non_negative_quantity(value, field, errors);
    let whole = COUNTED.contains(&name) || is_extended(name);
    if whole && quantity(value).is_some_and(|quantity| quantity.milli() % 1000 != 0) {
        errors.invalid(field, value, "must be an integer");
    }
}

pub(super) fn limit_range(object: &Value, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, limit) in items(&object["spec"], "limits") {
        let path = format!("spec.limits[{index}]");
        let kind = text(limit, "type");
        let field = format!("{path}.type");
        let wrong = names::qualified(kind);
        if !wrong.is_empty() {
            errors.invalid_text(&field, kind, wrong);
        } else if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            errors.invalid(
                &field,
                &kind.into(),
                "must be a standard limit type or fully qualified",
            );
        }
        if seen.contains(&kind) {
            errors.duplicate(&field, &kind.into());
        }
        seen.push(kind);
        limit_item(limit, kind, &path, errors);
    }
}

fn limit_item(limit: &Value, kind: &str, path: &str, errors: &mut Errors) {
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let members = limit[list].as_object();
        if kind == "Pod" && list.starts_with("default") {
            if members.is_some_and(|members| !members.is_empty()) {
                errors.forbidden(
                    &format!("{path}.{list}"),
                    "may not be specified when `type` is 'Pod'",
                );
            }
            continue;
        }
        let storage = |list: &str| has(&limit[list], "storage");
        if list == "maxLimitRequestRatio"
            && kind == "PersistentVolumeClaim"
            && !storage("min")
            && !storage("max")
        {
            errors.required(
                &format!("{path}.limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        for name in members.into_iter().flatten().map(|(name, _)| name) {
            let field = format!("{path}.{list}[{name}]");
            if matches!(kind, "Pod" | "Container") {
                container_resource(name, &field, errors);
            } else {
                resource(name, &field, errors);
            }
            keys.insert(name);
        }
    }
    for key in keys {
        limits_of(key, limit, kind, path, errors);
    }
}

/// What the limits of one resource say of each other.
fn limits_of(key: &str, limit: &Value, kind: &str, path: &str, errors: &mut Errors) {
    let value = |list: &str| {
        let absent = kind == "Pod" && list.starts_with("default");
        limit[list]
            .get(key)
            .filter(|_| !absent)
            .and_then(|value| Some((value, value.as_str()?, quantity(value)?)))
    };
    // The lower one and the higher one with their names, the field that is blamed, and whose value is shown.
    const REQUEST: &str = "defaultRequest";
    for (low, low_name, high, high_name, blamed, shown) in [
        ("min", "min", "max", "max", "min", "min"),
        ("min", "min", REQUEST, "default request", REQUEST, REQUEST),
        (REQUEST, "default request", "max", "max", REQUEST, REQUEST),
        (
            REQUEST,
            "default request",
            "default",
            "default limit",
            REQUEST,
            REQUEST,
        ),
        ("min", "min", "default", "default", "default", "min"),
        ("default", "default", "max", "max", "default", "max"),
    ] {
        let (Some((_, low_text, least)), Some((_, high_text, most))) = (value(low), value(high)) else {
            continue;
        };
        if least > most {
            errors.invalid(
                &format!("{path}.{blamed}[{key}]"),
                &limit[shown][key],
                &format!("{low_name} value {low_text} is greater than {high_name} value {high_text}"),
            );
        }
    }
    let ratio_field = format!("{path}.maxLimitRequestRatio[{key}]");
    if let Some((shown, text, ratio)) = value("maxLimitRequestRatio") {
        if ratio.milli() < 1000 {
            errors.invalid(&ratio_field, shown, &format!("ratio {text} is less than 1"));
        }
        if let (Some((_, _, min)), Some((_, _, max))) = (value("min"), value("max")) {
            let possible = max.as_f64() / min.as_f64();
            if ratio.as_f64() > possible {
                errors.invalid(
                    &ratio_field,
                    shown,
                    &format!("ratio {text} is greater than max/min = {possible:.6}"),
                );
            }
        }
    }
    let shared = is_native(key) && !key.starts_with("hugepages-");
    if !shared
        && let (Some((_, default_text, default)), Some((shown, request_text, request))) =
            (value("default"), value("defaultRequest"))
        && default != request
    {
        errors.invalid(
            &format!("{path}.defaultRequest[{key}]"),
            shown,
            &format!(
                "default value {default_text} must equal to defaultRequest value {request_text} in {key}"
            ),
        );
    }
}

/// Amounts of a quota, in its spec or its status.
fn amounts(amounts: &Value, path: &str, errors: &mut Errors) {
    for (name, value) in amounts.as_object().into_iter().flatten() {
        let field = format!("{path}[{name}]");
        resource(name, &field, errors);
        if !name.contains('/') && !is_quota(name) {
            errors.invalid(&field, &json!(name), "must be a standard resource for quota");
        }
        amount(name, value, &field, errors);
    }
}

fn is_quota(name: &str) -> bool {
    STANDARD.contains(&name) && name != "storage"
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

pub(super) fn quota(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    amounts(&spec["hard"], "spec.hard", errors);
    let scopes: Vec<&str> = items(spec, "scopes")
        .filter_map(|(_, scope)| scope.as_str())
        .collect();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.invalid("spec.scopes", &spec["scopes"], "unsupported scope");
        }
        for _ in unfit(scope, spec) {
            errors.invalid(
                "spec.scopes",
                &spec["scopes"],
                "unsupported scope applied to resource",
            );
        }
    }
    conflicting(&scopes, "spec.scopes", &spec["scopes"], errors);
    if has(spec, "scopeSelector") {
        scope_selector(spec, errors);
    }
}

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// Limited resources that a scope does not fit.
fn unfit<'a>(scope: &str, spec: &'a Value) -> impl Iterator<Item = &'a String> {
    let fits: Option<&[&str]> = match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => Some(&COMPUTE),
        "BestEffort" => Some(&["pods"]),
        "VolumeAttributesClass" => Some(&["persistentvolumeclaims", "requests.storage"]),
        _ => None,
    };
    let hard = spec["hard"].as_object().into_iter().flatten();
    hard.map(|(name, _)| name)
        .filter(move |name| is_quota(name) && fits.is_some_and(|fits| !fits.contains(&name.as_str())))
}

fn conflicting(scopes: &[&str], field: &str, shown: &Value, errors: &mut Errors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(field, shown, "conflicting scopes");
        }
    }
}

fn scope_selector(spec: &Value, errors: &mut Errors) {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let mut scopes = Vec::new();
    for (_, expression) in items(&spec["scopeSelector"], "matchExpressions") {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(&format!("{PATH}.scopeName"), &scope.into(), "unsupported scope");
        }
        for _ in unfit(scope, spec) {
            errors.invalid(
                PATH,
                &spec["scopeSelector"],
                "unsupported scope applied to resource",
            );
        }
        let operator_field = format!("{PATH}.operator");
        let takes_values = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if SCOPES.contains(&scope) && !takes_values && operator != "Exists" {
            errors.invalid(
                &operator_field,
                &operator.into(),
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        let values = items(expression, "values").count();
        match operator {
            "In" | "NotIn" if values == 0 => errors.required(
                &format!("{PATH}.values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if values > 0 => errors.invalid(
                &format!("{PATH}.values"),
                &expression["values"],
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(&operator_field, &operator.into(), "not a valid selector operator"),
        }
        scopes.push(scope);
    }
    conflicting(&scopes, PATH, &spec["scopes"], errors);
}

/// Which resources a quota is about does not change.
pub(super) fn quota_update(old: &Value, new: &Value, errors: &mut Errors) {
    let set = |object: &Value| -> BTreeSet<String> {
        items(&object["spec"], "scopes")
            .filter_map(|(_, scope)| Some(scope.as_str()?.to_owned()))
            .collect()
    };
    if set(old) != set(new) {
        errors.invalid("spec.scopes", &new["spec"]["scopes"], "field is immutable");
    }
}

pub(super) fn quota_status(object: &Value, errors: &mut Errors) {
    for list in ["hard", "used"] {
        amounts(&object["status"][list], &format!("status.{list}"), errors);
    }
}
