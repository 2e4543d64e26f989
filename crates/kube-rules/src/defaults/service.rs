//! Services, endpoints and network policies.

use super::{default, default_zero, items, present, text};
use serde_json::{Value, json};

pub(super) fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    default_zero(spec, "sessionAffinity", json!("None"));
    if text(spec, "sessionAffinity") == "None" {
        if let Some(members) = spec.as_object_mut() {
            members.remove("sessionAffinityConfig");
        }
    } else if text(spec, "sessionAffinity") == "ClientIP" {
        default(spec, "sessionAffinityConfig", json!({}));
        default(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        default(
            &mut spec["sessionAffinityConfig"]["clientIP"],
            "timeoutSeconds",
            json!(10_800),
        );
    }
    default_zero(spec, "type", json!("ClusterIP"));
    for port in items(spec, "ports") {
        default_zero(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        default_zero(port, "targetPort", number);
    }
    let kind = text(spec, "type").to_owned();
    let external_ips = spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external_ips) {
        default_zero(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", json!(true));
        for ingress in items(&mut object["status"]["loadBalancer"], "ingress") {
            if ingress.get("ip").is_some() {
                default(ingress, "ipMode", json!("VIP"));
            }
        }
    }
}

pub(super) fn endpoints(object: &mut Value) {
    for subset in items(object, "subsets") {
        for port in items(subset, "ports") {
            default_zero(port, "protocol", json!("TCP"));
        }
    }
}

pub(super) fn endpoint_slice(object: &mut Value) {
    for port in items(object, "ports") {
        default(port, "name", json!(""));
        default(port, "protocol", json!("TCP"));
    }
}

pub(super) fn network_policy(object: &mut Value) {
    let spec = &mut object["spec"];
    for (rules, _) in [("ingress", "from"), ("egress", "to")] {
        for rule in items(spec, rules) {
            for port in items(rule, "ports") {
                default(port, "protocol", json!("TCP"));
            }
        }
    }
    let egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
    let types = if egress {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    default(spec, "policyTypes", types);
}

pub(super) fn ingress_class(object: &mut Value) {
    if let Some(parameters) = present(&mut object["spec"], "parameters") {
        default(parameters, "scope", json!("Cluster"));
    }
}
