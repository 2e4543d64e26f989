//! Services and endpoints.

use super::errors::{Errors, has, items, text};
use super::selector;
use crate::names;
use serde_json::{Value, json};
use std::net::IpAddr;

const IP_TEXT: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

pub(super) fn create(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    match kind {
        "ExternalName" => {
            let name = text(spec, "externalName").trim_end_matches('.');
            if name.is_empty() {
                errors.required("spec.externalName", "");
            } else {
                errors.invalid_text(
                    "spec.externalName",
                    text(spec, "externalName"),
                    names::dns_subdomain(name),
                );
            }
            if !["", "None"].contains(&text(spec, "clusterIP")) {
                errors.forbidden("spec.clusterIP", "may not be set for ExternalName services");
            }
        }
        "LoadBalancer" | "NodePort" if headless => {
            errors.invalid(
                "spec.clusterIPs[0]",
                &json!("None"),
                &format!("may not be set to 'None' for {kind} services"),
            );
        }
        _ => {}
    }
    let none = spec["ports"].as_array().is_none_or(Vec::is_empty);
    if none && !headless && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    ports(spec, kind, errors);
    selector::map(&spec["selector"], "spec.selector", errors);
    let affinity = text(spec, "sessionAffinity");
    if affinity.is_empty() {
        errors.required("spec.sessionAffinity", "");
    } else if !["ClientIP", "None"].contains(&affinity) {
        errors.not_supported(
            "spec.sessionAffinity",
            &spec["sessionAffinity"],
            &["ClientIP", "None"],
        );
    }
    for (index, ip) in items(spec, "clusterIPs") {
        let text = ip.as_str().unwrap_or_default();
        if text != "None" && text.parse::<IpAddr>().is_err() {
            errors.invalid(&format!("spec.clusterIPs[{index}]"), ip, IP_TEXT);
        }
    }
    for (index, ip) in items(spec, "externalIPs") {
        if ip.as_str().unwrap_or_default().parse::<IpAddr>().is_err() {
            errors.invalid(&format!("spec.externalIPs[{index}]"), ip, IP_TEXT);
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if kind.is_empty() {
        errors.required("spec.type", "");
    } else if !kinds.contains(&kind) {
        errors.not_supported("spec.type", &spec["type"], &kinds);
    }
    traffic_policies(spec, kind, errors);
}

fn traffic_policies(spec: &Value, kind: &str, errors: &mut Errors) {
    for name in ["externalTrafficPolicy", "internalTrafficPolicy"] {
        let policy = text(spec, name);
        if !policy.is_empty() && !["Cluster", "Local"].contains(&policy) {
            errors.not_supported(&format!("spec.{name}"), &spec[name], &["Cluster", "Local"]);
        }
    }
    let external = matches!(kind, "NodePort" | "LoadBalancer") || items(spec, "externalIPs").next().is_some();
    if !external && !text(spec, "externalTrafficPolicy").is_empty() {
        errors.invalid(
            "spec.externalTrafficPolicy",
            &spec["externalTrafficPolicy"],
            "may only be set for externally-accessible services",
        );
    }
}

fn ports(spec: &Value, kind: &str, errors: &mut Errors) {
    let several = spec["ports"].as_array().map_or(0, Vec::len) > 1;
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in items(spec, "ports") {
        let path = format!("spec.ports[{index}]");
        let name = text(port, "name");
        if name.is_empty() {
            if several {
                errors.required(&format!("{path}.name"), "");
            }
        } else {
            let wrong = names::dns_label(name);
            if !wrong.is_empty() {
                errors.invalid_text(&format!("{path}.name"), name, wrong);
            } else if seen.contains(&name) {
                errors.duplicate(&format!("{path}.name"), &port["name"]);
            }
            seen.push(name);
        }
        errors.port(&format!("{path}.port"), &port["port"]);
        errors.one_of(
            &format!("{path}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
        if kind != "ExternalName" {
            errors.port_or_name(&format!("{path}.targetPort"), &port["targetPort"]);
        }
        if port["nodePort"].as_i64().unwrap_or(0) != 0 && matches!(kind, "ClusterIP" | "ExternalName") {
            errors.forbidden(
                &format!("{path}.nodePort"),
                &format!("may not be used when `type` is '{kind}'"),
            );
        }
    }
    let mut taken: Vec<(&Value, &Value)> = Vec::new();
    for (index, port) in items(spec, "ports") {
        let key = (&port["port"], &port["protocol"]);
        if taken.contains(&key) {
            // Upstream shows its unversioned struct.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port["protocol"], port["port"]
            );
            errors.list.push(crate::status::FieldError {
                reason: "FieldValueDuplicate",
                field: format!("spec.ports[{index}]"),
                message: format!("Duplicate value: {shown}"),
            });
        }
        taken.push(key);
    }
}

pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"], &new["spec"]);
    let allocated =
        |spec: &Value| text(spec, "type") != "ExternalName" && !text(spec, "clusterIP").is_empty();
    if allocated(old) && text(new, "type") != "ExternalName" && old["clusterIP"] != new["clusterIP"] {
        errors.invalid(
            "spec.clusterIPs[0]",
            &new["clusterIPs"],
            "may not change once set",
        );
    }
    if text(old, "type") != "ExternalName"
        && text(new, "type") != "ExternalName"
        && has(old, "ipFamilies")
        && old["ipFamilies"][0] != new["ipFamilies"][0]
    {
        errors.invalid(
            "spec.ipFamilies[0]",
            &new["ipFamilies"],
            "may not change once set",
        );
    }
}

pub(super) fn endpoints(object: &Value, errors: &mut Errors) {
    for (index, subset) in items(object, "subsets") {
        let path = format!("subsets[{index}]");
        let empty = |name: &str| subset[name].as_array().is_none_or(Vec::is_empty);
        if empty("addresses") && empty("notReadyAddresses") {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (number, address) in items(subset, list) {
                ip(&address["ip"], &format!("{path}.{list}[{number}].ip"), errors);
            }
        }
        let several = subset["ports"].as_array().map_or(0, Vec::len) > 1;
        for (number, port) in items(subset, "ports") {
            let path = format!("{path}.ports[{number}]");
            let name = text(port, "name");
            if several && name.is_empty() {
                errors.required(&format!("{path}.name"), "");
            } else if !name.is_empty() {
                errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
            }
            errors.port(&format!("{path}.port"), &port["port"]);
            errors.one_of(
                &format!("{path}.protocol"),
                &port["protocol"],
                &["SCTP", "TCP", "UDP"],
            );
        }
    }
}

/// An address of endpoints: not loopback, link-local, unspecified.
fn ip(value: &Value, path: &str, errors: &mut Errors) {
    let Ok(address) = value.as_str().unwrap_or_default().parse::<IpAddr>() else {
        errors.invalid(path, value, IP_TEXT);
        return;
    };
    let shown = |range: &str, name: &str| format!("may not be in the {name} range ({range})");
    if address.is_unspecified() {
        errors.invalid(path, value, "may not be unspecified (0.0.0.0 or ::)");
    }
    if address.is_loopback() {
        errors.invalid(path, value, &shown("127.0.0.0/8, ::1/128", "loopback"));
    }
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if link_local {
        errors.invalid(path, value, &shown("169.254.0.0/16, fe80::/10", "link-local"));
    }
}

pub(super) fn endpoint_slice(object: &Value, errors: &mut Errors) {
    let kinds = ["FQDN", "IPv4", "IPv6"];
    let kind = text(object, "addressType");
    if kind.is_empty() {
        errors.required("addressType", "");
    } else if !kinds.contains(&kind) {
        errors.not_supported("addressType", &object["addressType"], &kinds);
    }
    for (index, endpoint) in items(object, "endpoints") {
        let path = format!("endpoints[{index}]");
        let count = endpoint["addresses"].as_array().map_or(0, Vec::len);
        if count == 0 {
            errors.required(&format!("{path}.addresses"), "must contain at least 1 address");
        }
        for (number, address) in items(endpoint, "addresses") {
            let path = format!("{path}.addresses[{number}]");
            let value = address.as_str().unwrap_or_default();
            match kind {
                "IPv4" if !matches!(value.parse(), Ok(IpAddr::V4(_))) => {
                    errors.invalid(&path, address, "must be an IPv4 address");
                }
                "IPv6" if !matches!(value.parse(), Ok(IpAddr::V6(_))) => {
                    errors.invalid(&path, address, "must be an IPv6 address");
                }
                "IPv4" | "IPv6" => ip(address, &path, errors),
                _ => {}
            }
        }
        let node = text(endpoint, "nodeName");
        if !node.is_empty() {
            errors.invalid_text(&format!("{path}.nodeName"), node, names::dns_subdomain(node));
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in items(object, "ports") {
        let path = format!("ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
        }
        if seen.contains(&name) {
            errors.duplicate(&format!("{path}.name"), &json!(name));
        }
        seen.push(name);
        if has(port, "port") {
            errors.port(&format!("{path}.port"), &port["port"]);
        }
        errors.one_of(
            &format!("{path}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
    }
}

pub(super) fn endpoint_slice_update(old: &Value, new: &Value, errors: &mut Errors) {
    errors.immutable("addressType", &old["addressType"], &new["addressType"]);
}
