//! Cluster objects, secrets, RBAC, autoscaling, admission, CRDs.

use super::{default, default_zero, items, present, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(super) fn namespace(object: &mut Value) {
    default_zero(&mut object["status"], "phase", json!("Active"));
    // Kubernetes sets the label always, not only by default: selectors rely on it.
    let name = text(&object["metadata"], "name").to_owned();
    if !name.is_empty() {
        default(&mut object["metadata"], "labels", json!({}));
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
    }
}

pub(super) fn node(object: &mut Value) {
    // The first of the ranges is the range; what is given alone stands for both.
    let spec = &mut object["spec"];
    let (one, first) = (spec["podCIDR"].clone(), spec["podCIDRs"][0].clone());
    match (text(spec, "podCIDR"), first.as_str()) {
        ("", Some(_)) => spec["podCIDR"] = first,
        ("", None) => {}
        (range, first) if first != Some(range) => spec["podCIDRs"] = json!([one]),
        _ => {}
    }
    if let Some(status) = present(object, "status") {
        let capacity = status["capacity"].clone();
        if capacity.is_object() {
            default(status, "allocatable", capacity);
        }
    }
}

/// `stringData` goes into `data`; it is never stored.
pub(super) fn secret(object: &mut Value) {
    default_zero(object, "type", json!("Opaque"));
    let Some(members) = object.as_object_mut() else {
        return;
    };
    let Some(Value::Object(texts)) = members.remove("stringData") else {
        return;
    };
    let data = members.entry("data").or_insert_with(|| json!({}));
    if data.is_null() {
        *data = json!({});
    }
    for (key, value) in texts {
        data[key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

pub(super) fn limit_range(object: &mut Value) {
    for item in items(&mut object["spec"], "limits") {
        if text(item, "type") != "Container" {
            continue;
        }
        for (name, source) in [
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "min"),
        ] {
            for (resource, quantity) in item[source].as_object().cloned().unwrap_or_default() {
                default(item, name, json!({}));
                default(&mut item[name], &resource, quantity);
            }
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn role_binding(object: &mut Value) {
    default_zero(&mut object["roleRef"], "apiGroup", json!(RBAC));
    for subject in items(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_zero(subject, "apiGroup", json!(RBAC));
        }
    }
}

pub(super) fn autoscaler(object: &mut Value) {
    let is_v1 = object["apiVersion"] == json!("autoscaling/v1");
    let spec = &mut object["spec"];
    default(spec, "minReplicas", json!(1));
    if is_v1 {
        default(spec, "targetCPUUtilizationPercentage", json!(80));
        return;
    }
    default(
        spec,
        "metrics",
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
    );
    if let Some(behavior) = present(spec, "behavior") {
        default(behavior, "scaleUp", json!({}));
        default(behavior, "scaleDown", json!({}));
        for (name, window, policies) in [
            (
                "scaleUp",
                Some(0),
                json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]),
            ),
            (
                "scaleDown",
                None,
                json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
            ),
        ] {
            let rules = &mut behavior[name];
            if let Some(window) = window {
                default(rules, "stabilizationWindowSeconds", json!(window));
            }
            default(rules, "selectPolicy", json!("Max"));
            default(rules, "policies", policies);
        }
    }
}

pub(super) fn webhooks(object: &mut Value, mutating: bool) {
    for webhook in items(object, "webhooks") {
        default(webhook, "failurePolicy", json!("Fail"));
        default(webhook, "matchPolicy", json!("Equivalent"));
        default(webhook, "namespaceSelector", json!({}));
        default(webhook, "objectSelector", json!({}));
        default(webhook, "timeoutSeconds", json!(10));
        if mutating {
            default(webhook, "reinvocationPolicy", json!("Never"));
        }
        for rule in items(webhook, "rules") {
            default(rule, "scope", json!("*"));
        }
        if let Some(service) = present(&mut webhook["clientConfig"], "service") {
            default(service, "port", json!(443));
        }
    }
}

pub(super) fn admission_policy(object: &mut Value) {
    default(&mut object["spec"], "failurePolicy", json!("Fail"));
    match_resources(object, "matchConstraints");
}

pub(super) fn admission_binding(object: &mut Value) {
    match_resources(object, "matchResources");
}

fn match_resources(object: &mut Value, name: &str) {
    let Some(resources) = present(&mut object["spec"], name) else {
        return;
    };
    default(resources, "matchPolicy", json!("Equivalent"));
    default(resources, "namespaceSelector", json!({}));
    default(resources, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in items(resources, list) {
            default(rule, "scope", json!("*"));
        }
    }
}

pub(super) fn custom_resource_definition(object: &mut Value) {
    let spec = &mut object["spec"];
    let names = &mut spec["names"];
    let kind = text(names, "kind").to_owned();
    default_zero(names, "singular", json!(kind.to_lowercase()));
    if !kind.is_empty() {
        default_zero(names, "listKind", json!(format!("{kind}List")));
    }
    default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = present(&mut spec["conversion"], "webhook")
        .and_then(|webhook| present(webhook, "clientConfig"))
        .and_then(|config| present(config, "service"))
    {
        default(service, "port", json!(443));
    }
}
