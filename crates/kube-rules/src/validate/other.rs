//! The kinds with a rule or two.

use super::checks::pattern;
use super::errors::{Errors, has, items, text};
use super::{address, affinity, meta, quota, resources, selector};
use crate::names;
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

static REASON: LazyLock<Regex> = LazyLock::new(|| pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"));
const REASON_WANTED: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  \
    or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
    '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
/// Upstream's bounds on a condition's reason and message, in bytes.
const LONGEST_REASON: usize = 1024;
const LONGEST_CONDITION: usize = 32 * 1024;

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
        "kubernetes.io/basic-auth" => {
            let keys = ["username", "password"];
            let none = keys.iter().all(|key| !has(&object["data"], key));
            for key in keys.into_iter().filter(|_| none) {
                errors.required(&format!("data[{key}]"), "");
            }
            &[]
        }
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
    taints(spec, errors);
    node_amounts(object, errors);
    declared_features(&object["status"], errors);
    let mut ranges = Vec::new();
    let mut unreadable = None;
    for (index, cidr) in items(spec, "podCIDRs") {
        let text = cidr.as_str().unwrap_or_default();
        match address::range(text, &format!("spec.podCIDRs[{index}]"), errors) {
            Some(range) => ranges.push(range.is_ipv4()),
            None => unreadable = unreadable.or(Some((index, text))),
        }
    }
    let count = items(spec, "podCIDRs").count();
    if count < 2 {
        return;
    }
    if let Some((index, text)) = unreadable {
        errors.internal(
            "spec.podCIDRs",
            &format!(
                "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {text})"
            ),
        );
    }
    let both = ranges.len() == count && ranges.contains(&true) && ranges.contains(&false);
    if !both || count > 2 {
        errors.invalid(
            "spec.podCIDRs",
            &spec["podCIDRs"],
            "may specify no more than one CIDR for each IP family",
        );
    }
}

fn taints(spec: &Value, errors: &mut Errors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in items(spec, "taints") {
        // Upstream's path for taints is below metadata.
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        let value = text(taint, "value");
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&format!("{path}.value"), &value.into(), &wrong.join(";"));
        }
        errors.one_of(
            &format!("{path}.effect"),
            &taint["effect"],
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
        if seen.contains(&(key, effect)) {
            errors.duplicate_dump(
                &path,
                "io.k8s.api.core.v1.Taint",
                taint,
                "taints must be unique by key and effect pair",
            );
        }
        seen.push((key, effect));
    }
}

fn declared_features(status: &Value, errors: &mut Errors) {
    let segment = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let mut before: Option<&str> = None;
    for (index, feature) in items(status, "declaredFeatures") {
        let path = format!("status.declaredFeatures[{index}]");
        let name = feature.as_str().unwrap_or_default();
        match before {
            Some(before) if before == name => errors.duplicate(&path, feature),
            Some(before) if before > name => {
                errors.invalid(&path, feature, "list must be sorted alphabetically");
            }
            _ => {}
        }
        before = Some(name);
        let wrong = if name.len() > names::SUBDOMAIN_LIMIT {
            names::too_long(names::SUBDOMAIN_LIMIT)
        } else if name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(segment) {
            continue;
        } else {
            "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or \
             MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                .to_owned()
        };
        errors.invalid(&path, feature, &format!("invalid feature name {name:?}: {wrong}"));
    }
}

fn node_amounts(object: &Value, errors: &mut Errors) {
    for list in ["capacity", "allocatable"] {
        for (name, amount) in object["status"][list].as_object().into_iter().flatten() {
            quota::amount(name, amount, &format!("status.{list}.{name}"), errors);
        }
    }
}

pub(super) fn node_update(old: &Value, new: &Value, errors: &mut Errors) {
    node_amounts(new, errors);
    declared_features(&new["status"], errors);
    let mut seen: Vec<&Value> = Vec::new();
    for (index, address) in items(&new["status"], "addresses") {
        if seen.contains(&address) {
            errors.duplicate_dump(
                &format!("status.addresses[{index}]"),
                "io.k8s.api.core.v1.NodeAddress",
                address,
                "",
            );
        }
        seen.push(address);
    }
    let (before, after) = (&old["spec"], &new["spec"]);
    for (name, what) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
        if has(before, name) && before[name] != after[name] {
            errors.forbidden(
                &format!("spec.{name}"),
                &format!("node updates may not change {what} except from \"\" to valid"),
            );
        }
    }
    // Upstream looks at the taints of an updated node twice.
    taints(after, errors);
    if text(before, "externalID") != text(after, "externalID") {
        errors.forbidden("spec.externalID", "may not be updated");
    }
}

/// Upstream names the list, not the finalizer's place in it.
pub(super) fn namespace(object: &Value, errors: &mut Errors) {
    for (_, finalizer) in items(&object["spec"], "finalizers") {
        meta::finalizer(finalizer, "spec.finalizers", errors);
    }
}

/// The phase of a namespace follows its deletion.
pub(super) fn namespace_status(object: &Value, errors: &mut Errors) {
    let phase = text(&object["status"], "phase");
    let (needed, is) = if has(&object["metadata"], "deletionTimestamp") {
        ("Terminating", "not empty")
    } else {
        ("Active", "empty")
    };
    if phase != needed {
        errors.invalid(
            "status.Phase",
            &phase.into(),
            &format!("may only be '{needed}' if `deletionTimestamp` is {is}"),
        );
    }
}

pub(super) fn runtime_class(object: &Value, errors: &mut Errors) {
    errors.named("handler", &json!(text(object, "handler")), names::dns_label);
    let overhead = json!({"limits": object["overhead"]["podFixed"]});
    resources::requirements(&overhead, "overhead", resources::Owner::Container, &[], errors);
    let scheduling = &object["scheduling"];
    meta::labels(&scheduling["nodeSelector"], "scheduling.nodeSelector", errors);
    affinity::tolerations(&scheduling["tolerations"], "scheduling.tolerations", errors);
    let mut seen: Vec<[&Value; 4]> = Vec::new();
    for (index, toleration) in items(scheduling, "tolerations") {
        let key = ["key", "operator", "value", "effect"].map(|name| &toleration[name]);
        if seen.contains(&key) {
            errors.duplicate_dump(
                &format!("scheduling.tolerations[{index}]"),
                "io.k8s.api.core.v1.Toleration",
                toleration,
                "",
            );
        }
        seen.push(key);
    }
}

pub(super) fn budget(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        errors.invalid_dump(
            "spec",
            "io.k8s.api.policy.v1.PodDisruptionBudgetSpec",
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for name in ["minAvailable", "maxUnavailable"] {
        if has(spec, name) {
            let path = format!("spec.{name}");
            errors.int_or_percent(&spec[name], &path);
            errors.at_most_all(&spec[name], &path);
        }
    }
    selector::selector(&spec["selector"], "spec.selector", errors);
    errors.one_of_given(
        "spec.unhealthyPodEvictionPolicy",
        &spec["unhealthyPodEvictionPolicy"],
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

pub(super) fn budget_status(object: &Value, errors: &mut Errors) {
    for name in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        errors.non_negative(&format!("status.{name}"), &object["status"][name]);
    }
    conditions(&object["status"], "status.conditions", errors);
}

/// Conditions of the form that all newer kinds share.
pub(super) fn conditions(status: &Value, path: &str, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in items(status, "conditions") {
        let path = format!("{path}[{index}]");
        let kind = text(condition, "type");
        if seen.contains(&kind) {
            errors.duplicate(&format!("{path}.type"), &condition["type"]);
        }
        seen.push(kind);
        errors.invalid_text(&format!("{path}.type"), kind, names::qualified(kind));
        errors.one_of_given(
            &format!("{path}.status"),
            &json!(text(condition, "status")),
            &["False", "True", "Unknown"],
        );
        if condition["observedGeneration"]
            .as_i64()
            .is_some_and(|seen| seen < 0)
        {
            errors.invalid(
                &format!("{path}.observedGeneration"),
                &condition["observedGeneration"],
                "must be greater than or equal to zero",
            );
        }
        if condition["lastTransitionTime"].is_null() {
            errors.required(&format!("{path}.lastTransitionTime"), "");
        }
        let reason = text(condition, "reason");
        if reason.is_empty() {
            errors.required(&format!("{path}.reason"), "");
        } else if !REASON.is_match(reason) {
            errors.invalid(&format!("{path}.reason"), &condition["reason"], REASON_WANTED);
        }
        if reason.len() > LONGEST_REASON {
            errors.too_long(&format!("{path}.reason"), LONGEST_REASON);
        }
        if text(condition, "message").len() > LONGEST_CONDITION {
            errors.too_long(&format!("{path}.message"), LONGEST_CONDITION);
        }
    }
}

pub(super) fn priority_class(object: &Value, errors: &mut Errors) {
    const MOST: i64 = 1_000_000_000;
    /// Those of the system, with their values.
    const OF_SYSTEM: [(&str, i64); 2] = [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ];
    let name = text(&object["metadata"], "name");
    let value = object["value"].as_i64().unwrap_or(0);
    if name.starts_with("system-") {
        let problem = match OF_SYSTEM.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, known)) if *known != value => {
                Some(format!("value of {name} PriorityClass must be {known}"))
            }
            Some(_) if object["globalDefault"] == json!(true) => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            errors.forbidden(
                "metadata.name",
                &format!("priority class names with 'system-' prefix are reserved for system use only. error: {problem}"),
            );
        }
    } else if value > MOST {
        errors.forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {MOST}"),
        );
    }
    if object["preemptionPolicy"] == "" {
        errors.required("preemptionPolicy", "");
    } else {
        errors.one_of_given(
            "preemptionPolicy",
            &object["preemptionPolicy"],
            &["PreemptLowerPriority", "Never"],
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

/// What the API group through which an event came asks of it, in the form of the core group, beyond
/// [`event`]: a new one that came through `events.k8s.io` is whole.
pub(super) fn new_event(object: &Value, errors: &mut Errors) {
    series(object, errors);
    if !has(object, "eventTime") {
        errors.required("eventTime", "");
    }
    let kind = text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.invalid("type", &json!(""), &format!("has invalid value: {kind}"));
    }
    for name in ["firstTimestamp", "lastTimestamp", "count"] {
        if has(object, name) && object[name] != json!(0) {
            errors.invalid(name, &json!(""), "needs to be unset");
        }
    }
    if ["component", "host"]
        .iter()
        .any(|name| !text(&object["source"], name).is_empty())
    {
        errors.invalid("source", &json!(""), "needs to be unset");
    }
}

fn series(object: &Value, errors: &mut Errors) {
    let series = &object["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        errors.invalid("series.count", &json!(""), "should be at least 2");
    }
    if !has(series, "lastObservedTime") {
        errors.required("series.lastObservedTime", "");
    }
}

/// One that is changed through `events.k8s.io` keeps all but its series.
pub(super) fn event_update(old: &Value, new: &Value, errors: &mut Errors) {
    const REFERENCE: &str = "io.k8s.api.core.v1.ObjectReference";
    if old["series"] != new["series"] {
        series(new, errors);
    }
    let zero = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Number(number) if number.as_i64() == Some(0) => None,
        Value::Object(members) if members.is_empty() => None,
        value => Some(value.clone()),
    };
    for (name, shown, empty) in [
        ("involvedObject", "involvedObject", json!({})),
        ("reason", "reason", json!("")),
        ("message", "message", json!("")),
        ("source", "source", json!({})),
        ("firstTimestamp", "firstTimestamp", Value::Null),
        ("lastTimestamp", "lastTimestamp", Value::Null),
        ("count", "count", json!(0)),
        ("reason", "reason", json!("")),
        ("type", "type", json!("")),
        ("eventTime", "eventTime", Value::Null),
        ("action", "action", json!("")),
        ("related", "related", Value::Null),
        ("reportingComponent", "reportingController", json!("")),
        ("reportingInstance", "reportingInstance", json!("")),
    ] {
        // A reference that says nothing differs from none only where upstream has a pointer.
        let held = |event: &Value| match &event[name] {
            Value::Object(members) if name == "related" => Some(json!(members)),
            value => zero(value),
        };
        let after = held(new);
        if held(old) == after {
            continue;
        }
        let after = after.unwrap_or(empty);
        let definition = match name {
            "involvedObject" | "related" if !after.is_null() => REFERENCE,
            "source" => "io.k8s.api.core.v1.EventSource",
            _ => "",
        };
        errors.invalid_dump(shown, definition, &after, "field is immutable");
    }
}

/// An event is about something in its own namespace; one with an `eventTime` says who reports what.
/// `reporter` is how the API group through which it came calls the reporter.
pub(super) fn event(object: &Value, reporter: &str, errors: &mut Errors) {
    const NAMESPACE: &str = "involvedObject.namespace";
    let namespace = text(&object["metadata"], "namespace");
    let about = text(&object["involvedObject"], "namespace");
    let timed = has(object, "eventTime");
    let elsewhere = if about.is_empty() {
        namespace != "default" && !(timed && namespace == "kube-system")
    } else {
        !timed && about != namespace
    };
    if elsewhere {
        errors.invalid(NAMESPACE, &json!(about), "does not match event.namespace");
    }
    if timed {
        let controller = text(object, "reportingComponent");
        if controller.is_empty() {
            errors.required(reporter, "");
        }
        errors.invalid_text(reporter, controller, names::qualified(controller));
        for name in ["reportingInstance", "action", "reason"] {
            if text(object, name).is_empty() {
                errors.required(name, "");
            }
            bounded(object, name, 128, errors);
        }
        bounded(object, "message", 1024, errors);
    }
    errors.invalid_text("namespace", namespace, names::dns_subdomain(namespace));
}

fn bounded(object: &Value, name: &str, most: usize, errors: &mut Errors) {
    if text(object, name).len() > most {
        errors.invalid(name, &json!(""), &format!("can have at most {most} characters"));
    }
}
